/* A signal handler ends the process by _exit while its thread is inside the driver, whose lock it
 * holds: in the middle of a launch. What the program did before is its first argument. */
#include <cuda.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

static void leave(int signal_number)
{
    (void)signal_number;
    _exit(7);
}

static void interrupt(void)
{
    (void)raise(SIGALRM);
}

static void free_in_order(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 1 << 16));
    launch_fill(NULL, p, 100, 1);
    OK(cuMemFree(p));
}

static void use_a_pool(void)
{
    CUdeviceptr p;

    OK(cuMemAllocAsync(&p, 1 << 16, NULL));
    launch_fill(NULL, p, 100, 1);
    OK(cuMemFreeAsync(p, NULL));
}

/* Wherever the signal finds it. */
static void go_iteration(CUdeviceptr p)
{
    const struct itimerval soon = {.it_value = {0, 1000 + 977 * (getpid() % 13)}};

    setitimer(ITIMER_REAL, &soon, NULL);
    for (;;) {
        free_in_order();
        use_a_pool();
        for (int i = 0; i < 80; i++)
            launch_fill(NULL, p, 100, 1);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "free";
    struct sigaction action = {.sa_handler = leave};
    CUdeviceptr p;

    if (strstr(what, "unblocked")) /* in its handler it looks as if there were none */
        action.sa_flags = SA_NODEFER | (int)SA_RESETHAND;
    sigaction(SIGALRM, &action, NULL);
    device_open();
    OK(cuMemAlloc(&p, 1 << 16));
    say("it begins");
    if (strncmp(what, "anywhere", strlen("anywhere")) == 0)
        go_iteration(p);
    if (strncmp(what, "free", strlen("free")) == 0)
        free_in_order();
    if (strncmp(what, "pool", strlen("pool")) == 0)
        use_a_pool();
    sim_inside("cuLaunchKernel", true, interrupt);
    launch_fill(NULL, p, 100, 1);
    say("the handler came back");
    return 1;
}
