/* op_ipc.c: a second process opens memory of the random program, works on it, and closes it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "diff.h"

struct request {
    CUipcMemHandle handle;
    uint32_t bytes, value;
};

struct answer {
    CUresult opened, worked, closed;
    uint64_t before; /* hash of what the other process found */
};

static int channel = -1;

/* One piece of work in the other process: hash what is there, fill it anew. */
static struct answer serve(struct context *context, const struct request *request)
{
    uint32_t n = request->bytes, value = request->value;
    void *bytes = calloc(1, n);
    struct answer answer = {0};
    CUdeviceptr p = 0;
    void *args[] = {&p, &n, &value};

    if (!bytes)
        abort();
    answer.opened =
        cu.cuIpcOpenMemHandle_v2(&p, request->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (answer.opened == CUDA_SUCCESS) {
        answer.worked = cu.cuMemcpyDtoH_v2(bytes, p, n);
        answer.before = hash_of(bytes, n);
        (void)cu.cuLaunchKernel(context->kernels[KERNEL_FILL], 1, 1, 1, 1, 1, 1, 0, NULL, args,
                                NULL);
        if (answer.worked == CUDA_SUCCESS)
            answer.worked = cu.cuCtxSynchronize();
        answer.closed = cu.cuIpcCloseMemHandle(p);
    }
    free(bytes);
    return answer;
}

static void other_process(int end)
{
    struct context context = {0};
    struct request request;

    (void)setenv("ALLOGRAFT_STATS", "off", 1);
    doors_open(DOOR_LINKED, false);
    if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context.handle, 0) ||
        cu.cuCtxSetCurrent(context.handle) || !kernels_load(&context))
        _exit(97);
    while (read(end, &request, sizeof(request)) == (ssize_t)sizeof(request)) {
        struct answer answer = serve(&context, &request);
        if (write(end, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
            break;
    }
    _exit(0);
}

void ipc_start(void)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        abort();
    switch (fork()) {
    case -1:
        abort();
    case 0:
        (void)close(ends[0]);
        other_process(ends[1]);
    }
    (void)close(ends[1]);
    channel = ends[0];
}

bool op_ipc(struct world *w)
{
    struct buffer *buffer;
    struct request request = {.value = w->op};
    struct answer answer;

    if (channel < 0 || w->capture.open)
        return false;
    buffer = buffer_pick_idle(w, 1u << BUFFER_NATIVE, false);
    if (!buffer || !buffer->filled || w->contexts[buffer->context].device)
        return false;
    use_context(w, buffer->context);
    if (!did(w, cu.cuIpcGetMemHandle(&request.handle, buffer->p), "cuIpcGetMemHandle b%u",
             buffer->id))
        return true;
    request.bytes = (uint32_t)buffer->extent;
    if (write(channel, &request, sizeof(request)) != (ssize_t)sizeof(request) ||
        read(channel, &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
        say(w, "the other process is gone");
        channel = -1;
        return true;
    }
    (void)did(w, answer.opened, "there: cuIpcOpenMemHandle b%u", buffer->id);
    (void)did(w, answer.worked, "there: found %016llx", (unsigned long long)answer.before);
    (void)did(w, answer.closed, "there: cuIpcCloseMemHandle");
    return true;
}
