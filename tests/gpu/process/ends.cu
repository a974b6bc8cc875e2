/*
 * Ends of a process at moments when the driver is busy: in a signal handler that interrupted a call
 * of it, and beside a kernel that never ends, which a freeing thread waits for. usage: ends WAY
 * [ARG]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/gpu/check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#define STATUS_OF_HANDLER 7
#define STATUS_OF_WATCHER 5

__global__ void step(unsigned *words)
{
    words[threadIdx.x]++;
}

__global__ void wait_for_host(volatile unsigned *flag)
{
    while (!*flag)
        ;
}

static void leave(int)
{
    _exit(STATUS_OF_HANDLER);
}

/* The alarm comes while the loop is somewhere in the driver; the handler ends the process at
 * once. */
static void interrupted(const char *way, long after_us)
{
    struct itimerval timer = {};
    unsigned *p, *q;

    timer.it_value.tv_usec = after_us;
    OK(cudaMalloc(&p, 1 * MIB));
    signal(SIGALRM, leave);
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    for (;;) {
        if (!strcmp(way, "async"))
            OK(cudaMallocAsync(&q, 64 * KIB, 0));
        else
            OK(cudaMalloc(&q, 64 * KIB));
        for (int i = 0; i < 40; i++)
            step<<<1, 32>>>(p);
        if (!strcmp(way, "async"))
            OK(cudaFreeAsync(q, 0));
        else
            OK(cudaFree(q));
        for (int i = 0; i < 40; i++)
            step<<<1, 32>>>(p);
    }
}

static void on_term(int)
{
    _exit(STATUS_OF_WATCHER);
}

static void *watch(void *how_)
{
    const char *how = (const char *)how_;
    char status[] = "exit 5", sh[] = "sh", c[] = "-c";
    char *command[] = {sh, c, status, NULL};

    sleep(1);
    if (!strcmp(how, "_exit"))
        _exit(STATUS_OF_WATCHER);
    if (!strcmp(how, "exit"))
        exit(STATUS_OF_WATCHER);
    if (!strcmp(how, "exec"))
        execv("/bin/sh", command);
    if (!strcmp(how, "sigterm"))
        kill(getpid(), SIGTERM);
    return NULL;
}

/* The kernel waits for a word that nobody writes; the freeing thread waits for it, natively in
 * cudaFree. */
static void endless(const char *how)
{
    unsigned *flag, *p;
    pthread_t watcher;

    signal(SIGTERM, on_term);
    OK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    *flag = 0;
    OK(cudaMalloc(&p, 1 * MIB));
    OK(pthread_create(&watcher, NULL, watch, (void *)how));
    wait_for_host<<<1, 1>>>(flag);
    OK(cudaFree(p));
    OK(cudaDeviceSynchronize());
}

/* The same without pinned memory, which makes frees wait on the host: the kernel spins on device
 * memory. */
static void endless_on_device(const char *how)
{
    unsigned *flag, *p;
    pthread_t watcher;

    signal(SIGTERM, on_term);
    OK(cudaMalloc(&flag, sizeof *flag));
    OK(cudaMalloc(&p, 1 * MIB));
    OK(cudaMemset(flag, 0, sizeof *flag));
    OK(pthread_create(&watcher, NULL, watch, (void *)how));
    wait_for_host<<<1, 1>>>(flag);
    OK(cudaFree(p));
    OK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    if (argc > 2 && (!strcmp(argv[1], "alloc") || !strcmp(argv[1], "async")))
        interrupted(argv[1], atol(argv[2]));
    else if (argc > 2 && !strcmp(argv[1], "endless"))
        endless(argv[2]);
    else if (argc > 2 && !strcmp(argv[1], "endless-device"))
        endless_on_device(argv[2]);
    fprintf(stderr, "usage: ends alloc|async MICROSECONDS, ends endless|endless-device "
                    "_exit|exit|exec|sigterm\n");
    return EXIT_UNUSABLE;
}
