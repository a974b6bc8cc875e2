/* A thread makes the first call of the driver, in which the library reads its settings and looks
 * around, while others fork. Each child uses CUDA itself, and ends. */
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/common/context.h"
#include "tests/common/say.h"

#define N_CHILDREN 12
#define TIMEOUT_MS 8000

static pthread_barrier_t go;

static void *first(void *unused)
{
    CUdriverProcAddressQueryResult how;
    void *function;

    (void)pthread_barrier_wait(&go);
    OK(cuGetProcAddress("cuInit", &function, 12000, 0, &how));
    return unused;
}

static void use_cuda(void)
{
    CUdeviceptr p;

    (void)context_open();
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemFree(p));
}

static pid_t begin_child(void)
{
    pid_t child = fork();

    if (child < 0)
        _exit(98);
    if (!child) {
        use_cuda();
        exit(0);
    }
    return child;
}

/* The child's own alarm would be natively as good, and need no timeout here; but what hangs is to
 * be seen. */
static void wait_for(pid_t child)
{
    int status = 0;

    for (int waited_ms = 0; waitpid(child, &status, WNOHANG) != child; waited_ms++) {
        if (waited_ms > TIMEOUT_MS) {
            say("a child hangs");
            (void)kill(child, SIGKILL);
        }
        usleep(1000);
    }
    say("child: exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
}

int main(void)
{
    pid_t children[N_CHILDREN];
    pthread_t thread;

    OK(pthread_barrier_init(&go, NULL, 2));
    OK(pthread_create(&thread, NULL, first, NULL));
    (void)pthread_barrier_wait(&go);
    for (int i = 0; i < N_CHILDREN; i++)
        children[i] = begin_child();
    OK(pthread_join(thread, NULL));
    for (int i = 0; i < N_CHILDREN; i++)
        wait_for(children[i]);
    return 0;
}
