/* The last calls are a kernel that takes a while and a free, which natively waits for it: what the
 * kernel says must come out, whoever ends the process. First argument: who; second: milliseconds
 * the kernel takes. */
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

static long takes_ms;
static CUdeviceptr spare;

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void slow(const struct sim_kernel_call *call)
{
    static long began;

    (void)call;
    began = began ? began : now_ms();
    if (now_ms() - began < takes_ms)
        sim_kernel_again();
    else
        say("the kernel has ended");
}

static void *last_calls(void *unused)
{
    static const size_t word = sizeof(CUdeviceptr);
    static const char image[64] = "any bytes";
    CUfunction kernel;
    CUmodule module;
    CUdeviceptr p;
    void *args[] = {&p};

    sim_register_kernel("slow", slow, 1, &word);
    device_open();
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel, module, "slow"));
    OK(cuMemAlloc(&spare, 4096));
    OK(cuMemAlloc(&p, 4096));
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(cuMemFree(p));
    return unused;
}

static void on_signal(int signal_number)
{
    (void)signal_number;
    _exit(4);
}

static void *leave(void *unused)
{
    (void)unused;
    exit(4);
}

static void in_a_thread(void *(*what)(void *))
{
    pthread_t thread;

    OK(pthread_create(&thread, NULL, what, NULL));
    OK(pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
    char *const args[] = {"sh", "-c", "exit 4", NULL};
    const char *who = argc > 1 ? argv[1] : "main";

    takes_ms = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (strncmp(who, "main_", 5) == 0)
        in_a_thread(last_calls);
    else
        (void)last_calls(NULL);
    if (strcmp(who, "main_frees_after_worker") == 0)
        OK(cuMemFree(spare));
    if (strcmp(who, "worker") == 0)
        in_a_thread(leave);
    (void)signal(SIGUSR1, on_signal);
    if (strcmp(who, "handler") == 0)
        (void)raise(SIGUSR1);
    if (strcmp(who, "_exit") == 0)
        _exit(4);
    if (strcmp(who, "exec") == 0)
        execv("/bin/sh", args);
    return 4;
}
