/* op_process.c: a random program forks: a child that goes on, or that becomes another program. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "diff.h"

#define CHILD_SECONDS 50 /* less than batch.c gives the whole program */
#define WORDS         256

struct answer {
    int init, alloc, free, info, sync;
};

/* A forked child has no driver: it is told so, and ends as programs do. */
static void forked_child(const struct world *w, int end, bool quick)
{
    struct answer answer;
    CUdeviceptr p = 0, of_parent = 0;
    size_t bytes;

    (void)alarm(CHILD_SECONDS);
    for (unsigned i = 0; i < MAX_BUFFERS; i++)
        if (w->buffers[i].live && w->buffers[i].kind == BUFFER_NATIVE)
            of_parent = w->buffers[i].p;
    answer.alloc = cu.cuMemAlloc_v2(&p, 4096);
    answer.free = of_parent ? (int)cu.cuMemFree_v2(of_parent) : -1;
    answer.info = cu.cuMemGetInfo_v2(&bytes, NULL);
    answer.sync = cu.cuCtxSynchronize();
    answer.init = cu.cuInit(0);
    if (write(end, &answer, sizeof(answer)) != (ssize_t)sizeof(answer) || quick)
        _exit(1);
    exit(0); /* with all the handlers that the parent has */
}

/* A whole small program with a driver of its own; its status says what it saw. */
int process_exec_child(void)
{
    struct context context = {0};
    uint32_t words[WORDS], n = sizeof(words), value = 17;
    CUdeviceptr p[3];
    void *args[] = {&p[2], &n, &value};

    kernels_register(calloc(1, MAX_THREADS * MAX_MARKS));
    lookups_open(LOOKUP_LINKED, false);
    if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context.handle, 0) ||
        cu.cuCtxSetCurrent(context.handle) || !kernels_load(&context))
        return 10;
    for (unsigned iteration = 0; iteration < 8; iteration++)
        for (unsigned i = 0; i < 3; i++)
            if ((iteration && cu.cuMemFree_v2(p[i])) || cu.cuMemAlloc_v2(&p[i], 4096))
                return 11;
    if (cu.cuLaunchKernel(context.kernels[KERNEL_FILL], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) ||
        cu.cuMemcpyDtoH_v2(words, p[2], sizeof(words)))
        return 12;
    if (getenv("DIFF_LAST")) /* nobody compares */
        return 0;
    return 20 + (int)(hash_of(words, sizeof(words)) % 50);
}

static pid_t start(struct world *w, int end, unsigned how)
{
    pid_t child = fork();

    if (child == 0 && how == 2) {
        (void)alarm(CHILD_SECONDS);
        (void)setenv("ALLOGRAFT_STATS", "off", 1);
        (void)execl("/proc/self/exe", "diff-program", "--exec-child", (char *)NULL);
        _exit(99);
    }
    if (child == 0)
        forked_child(w, end, how == 1);
    return child;
}

bool op_fork(struct world *w)
{
    const char *report = getenv("ALLOGRAFT_STATS");
    unsigned how = draw(w, 3);
    struct answer answer = {-2, -2, -2, -2, -2};
    int ends[2], status = 0;

    if (!w->traits->forks)
        return false;
    if (pipe(ends))
        abort();
    pid_t child = start(w, ends[1], how);
    (void)close(ends[1]);
    if (read(ends[0], &answer, sizeof(answer)) != (ssize_t)sizeof(answer) && how != 2)
        say(w, "the child did not get to say anything");
    (void)close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    say(w, "child %u: alloc %d free %d info %d sync %d init %d, status %d, %s", how, answer.alloc,
        answer.free, answer.info, answer.sync, answer.init, status,
        report && access(report, F_OK) == 0 ? "a report of it" : "no report of it");
    return true;
}

void process_exec(void)
{
    (void)setenv("DIFF_LAST", "1", 1);
    (void)execl("/proc/self/exe", "diff-program", "--exec-child", (char *)NULL);
    _exit(99);
}

static void short_iteration(struct world *w, unsigned stream, CUdeviceptr p, const char *when)
{
    for (uint32_t i = 0; i < 4; i++)
        (void)did(w, launch_fill(w, stream, p, 64, i), "an iteration %s", when);
}

/* The same launches again and again, and then in a context that is broken, of which no wait has
 * told: of each its own launch must. */
static void fault_in_iterations(struct world *w, unsigned stream)
{
    const struct shape bad = {.grid = {1, 1, 1}, .block = 64};
    size_t free_bytes = 0, total = 0;
    uint32_t n = 64, value = 0;
    CUdeviceptr p = 0, nowhere = 4096;
    void *args[] = {&nowhere, &n, &value};
    unsigned tries = 0;

    use_context(w, w->streams[stream].context);
    if (!did(w, cu.cuMemAlloc_v2(&p, 64), "room for iterations"))
        return;
    for (unsigned iteration = 0; iteration < 6; iteration++) {
        short_iteration(w, stream, p, "before");
        (void)did(w, cu.cuStreamSynchronize(stream_handle(w, stream)), "cuStreamSynchronize s%u",
                  stream);
    }
    (void)did(w, launch_as(w, stream, KERNEL_FILL, args, &bad), "a bad kernel in iterations s%u",
              stream);
    while (cu.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && tries++ < 20000)
        ;
    if (tries >= 20000) /* it has not run yet */
        (void)cu.cuStreamSynchronize(stream_handle(w, stream));
    for (unsigned iteration = 0; iteration < 2; iteration++)
        short_iteration(w, stream, p, "after");
}

void process_fault(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *buffer = buffer_pick_idle(w, 1u << BUFFER_NATIVE, true);
    size_t bytes = 0;
    CUdeviceptr p = 0;
    unsigned type = 0;

    if (stream == MAX_STREAMS)
        return;
    if (w->traits->iterations)
        fault_in_iterations(w, stream);
    (void)did(w, launch_fill(w, stream, 4096, 64, 1), "a bad kernel s%u", stream);
    (void)did(w, cu.cuStreamSynchronize(stream_handle(w, stream)), "cuStreamSynchronize s%u",
              stream);
    for (unsigned iteration = 0; iteration < 2; iteration++) {
        (void)did(w, cu.cuMemAlloc_v2(&p, 4096), "cuMemAlloc after that");
        if (buffer)
            (void)did(w, cu.cuMemFree_v2(buffer->p), "cuMemFree b%u after that", buffer->id);
        (void)did(w, cu.cuMemGetInfo_v2(&bytes, NULL), "cuMemGetInfo after that");
        (void)did(w, cu.cuStreamQuery(stream_handle(w, stream)), "cuStreamQuery after that");
        (void)did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize after that");
    }
    if (buffer &&
        did(w, cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer->p),
            "memory type after that"))
        say(w, "it is %u", type);
}
