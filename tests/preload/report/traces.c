/* Programs whose events are known exactly, for traces: see test_trace.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB       (1u << 20)
#define N_THREADS 30u
#define N_PAIRS   100u

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr p = 0;

    NEED(cuMemAlloc(&p, bytes));
    return p;
}

/* The traced calls of each kind, and some that must not be told of. */
static void events(void)
{
    CUdeviceptr p[3], q, none = 0;
    CUstream stream;

    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 3; i++)
        p[i] = take(1000 * (i + 1));
    NEED(cuMemAllocAsync(&q, 5000, stream));
    NEED(cuMemFreeAsync(q, stream));
    SAY_CODE("too much", cuMemAlloc(&none, 1ull << 50));
    SAY_CODE("nothing", cuMemAlloc(&none, 0));
    SAY_CODE("free nothing", cuMemFree(0));
    NEED(cuMemFree(p[1]));
    SAY_CODE("free twice", cuMemFree(p[1]));
    NEED(cuMemFreeAsync(p[0], stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemFree(p[2]));
}

/* Under a limit of 8 MiB, with what is too much spilled and moved back. */
static void spilling(void)
{
    CUdeviceptr first = take(6 * MIB), second = take(6 * MIB);

    NEED(cuMemFree(first));
    NEED(cuMemFree(second));
}

static void *in_a_thread(void *number)
{
    size_t bytes = 512 * (1 + (uintptr_t)number);
    CUcontext context;

    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < N_PAIRS; i++)
        NEED(cuMemFree(take(bytes)));
    return NULL;
}

static void by_threads(void)
{
    pthread_t threads[N_THREADS];

    for (uintptr_t i = 0; i < N_THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, in_a_thread, (void *)i));
    for (unsigned i = 0; i < N_THREADS; i++)
        NEED(pthread_join(threads[i], NULL));
}

/* With files that may have 8 KiB and no more. */
static void limited(void)
{
    const struct rlimit limit = {8192, 8192};

    NEED(setrlimit(RLIMIT_FSIZE, &limit));
    by_threads();
}

static void wait_for(pid_t child)
{
    int status = 0;

    NEED(waitpid(child, &status, 0) != child);
    say("child: %d", status);
}

static void tell(int fd)
{
    NEED(write(fd, "", 1) != 1);
}

static void hear(int fd)
{
    char byte;

    NEED(read(fd, &byte, 1) != 1);
}

/* The child first, and it is still there when the parent begins. */
static void open_both(bool is_child, const int to_parent[2], const int to_child[2])
{
    if (!is_child)
        hear(to_parent[0]);
    (void)device_open();
    tell(is_child ? to_parent[1] : to_child[1]);
    if (is_child)
        hear(to_child[0]);
}

/* before: the child has a context of its own. Else it can do nothing with the driver. */
static void forking(bool before)
{
    int to_parent[2], to_child[2];
    pid_t child;

    NEED(pipe(to_parent));
    NEED(pipe(to_child));
    if (!before)
        (void)device_open();
    child = fork();
    NEED(child < 0);
    if (before)
        open_both(!child, to_parent, to_child);
    if (child || before)
        NEED(cuMemFree(take(child ? 2000 : 3000)));
    if (!child)
        exit(0);
    wait_for(child);
}

/* Killed when the file `path` has `bytes` of what was done. */
static void killed(const char *path, long bytes)
{
    struct stat st = {0};

    while (stat(path, &st) || st.st_size < bytes)
        NEED(cuMemFree(take(4096)));
    for (unsigned i = 0; i < 50; i++)
        NEED(cuMemFree(take(8192)));
    (void)raise(SIGKILL);
}

/* An exec that fails, which nobody can tell before: a single argument may have 128 KiB. */
static int exec_in_vain(void)
{
    static char too_long[200000];

    memset(too_long, 'x', sizeof(too_long) - 1);
    return execl("/bin/echo", "echo", too_long, (char *)NULL);
}

/* Goes on after an exec that fails. */
static void leaving(const char *how)
{
    NEED(cuMemFree(take(1000)));
    if (!strcmp(how, "exec"))
        (void)execl("/bin/echo", "echo", "another program", (char *)NULL);
    (void)exec_in_vain();
    NEED(cuMemFree(take(2000)));
    if (!strcmp(how, "_exit"))
        _exit(0);
    if (!strcmp(how, "quick"))
        quick_exit(0);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "";

    if (!strncmp(part, "fork", 4)) {
        forking(!strcmp(part, "fork-before"));
        return 0;
    }
    (void)device_open();
    if (!strcmp(part, "events"))
        events();
    else if (!strcmp(part, "spill"))
        spilling();
    else if (!strcmp(part, "threads"))
        by_threads();
    else if (!strcmp(part, "limited"))
        limited();
    else if (!strcmp(part, "kill"))
        killed(more, atol(argv[3]));
    else if (!strcmp(part, "leave"))
        leaving(more);
    else
        NEED(1);
    say("done");
    return 0;
}
