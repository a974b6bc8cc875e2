/* A kernel never ends. The free after it would natively wait for ever; what ends the process after
 * half a second is a thread that watches over it or the handler of a signal, in the way the first
 * argument names. */
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

static const char *way;

static void for_ever(const struct sim_kernel_call *call)
{
    (void)call;
    sim_kernel_again();
}

static void on_signal(int signal_number)
{
    (void)signal_number;
    _exit(5);
}

static void *watch(void *unused)
{
    char *const args[] = {"sh", "-c", "exit 5", NULL};

    (void)unused;
    usleep(500000);
    if (strcmp(way, "_exit") == 0)
        _exit(5);
    if (strcmp(way, "exit") == 0)
        exit(5);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(5);
    if (strcmp(way, "exec") == 0)
        execv("/bin/sh", args);
    if (strcmp(way, "signal") == 0)
        kill(getpid(), SIGTERM);
    return NULL;
}

int main(int argc, char **argv)
{
    static const size_t word = sizeof(CUdeviceptr);
    static const char image[64] = "any bytes";
    CUfunction kernel;
    CUmodule module;
    CUdeviceptr p, q;
    pthread_t thread;
    void *args[] = {&p};

    way = argc > 1 ? argv[1] : "_exit";
    (void)signal(SIGTERM, on_signal);
    sim_register_kernel("for_ever", for_ever, 1, &word);
    device_open();
    NEED(cuModuleLoadData(&module, image));
    NEED(cuModuleGetFunction(&kernel, module, "for_ever"));
    NEED(cuMemAlloc(&p, 4096));
    NEED(cuMemAlloc(&q, 4096));
    say("it begins");
    NEED(pthread_create(&thread, NULL, watch, NULL));
    NEED(pthread_detach(thread));
    NEED(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    NEED(cuMemFree(q));
    NEED(cuCtxSynchronize());
    say("the kernel came to an end");
    return 1;
}
