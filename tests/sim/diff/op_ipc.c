/* op_ipc.c: a second process opens memory of the random program, works on it, and closes it. What
 * it works on is done with, or comes before an event that it waits for. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "diff.h"

enum kind { USE, KEEP, CLOSE };

struct request {
    CUipcMemHandle handle;
    CUipcEventHandle event;
    enum kind kind;
    bool waits; /* for the event */
    bool twice; /* opened, and closed, once more: that is counted */
    int device; /* whose context there works on it */
    uint32_t bytes, value;
};

struct answer {
    CUresult opened, again, waited, worked, closed;
    uint64_t before; /* hash of what the other process found */
};

#define MAX_DEVICES 2

static int channel = -1;

/* What the other process has open between two requests. */
static struct {
    CUdeviceptr p;
    struct context *context;
} kept;

/* Hash what is there, fill it anew. */
static void work_on(struct context *context, CUdeviceptr p, const struct request *request,
                    struct answer *answer)
{
    uint32_t n = request->bytes, value = request->value;
    void *bytes = calloc(1, n), *args[] = {&p, &n, &value};

    if (!bytes)
        abort();
    answer->worked = cu.cuMemcpyDtoH_v2(bytes, p, n);
    answer->before = hash_of(bytes, n);
    (void)cu.cuLaunchKernel(context->kernels[KERNEL_FILL], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
    if (answer->worked == CUDA_SUCCESS)
        answer->worked = cu.cuCtxSynchronize();
    free(bytes);
}

/* What comes to the stream of the work waits. */
static CUresult wait_there(const CUipcEventHandle *handle)
{
    CUevent event;
    CUresult result = cu.cuIpcOpenEventHandle(&event, *handle);

    if (result != CUDA_SUCCESS)
        return result;
    result = cu.cuStreamWaitEvent(NULL, event, 0);
    (void)cu.cuEventDestroy_v2(event);
    return result;
}

static CUresult close_all(CUdeviceptr p, bool twice)
{
    CUresult first = twice ? cu.cuIpcCloseMemHandle(p) : CUDA_SUCCESS;
    CUresult last = cu.cuIpcCloseMemHandle(p);

    return first ? first : last;
}

/* One piece of work in the other process. */
static struct answer serve(struct context *contexts, const struct request *request)
{
    struct answer answer = {0};
    struct context *context = request->kind == CLOSE ? kept.context : &contexts[request->device];
    CUdeviceptr p = kept.p, again = 0;

    (void)cu.cuCtxSetCurrent(context->handle);
    if (request->kind != CLOSE)
        answer.opened =
            cu.cuIpcOpenMemHandle_v2(&p, request->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (answer.opened != CUDA_SUCCESS)
        return answer;
    if (request->twice)
        answer.again =
            cu.cuIpcOpenMemHandle_v2(&again, request->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (request->twice && again != p)
        answer.again = CUDA_ERROR_UNKNOWN;
    if (request->waits)
        answer.waited = wait_there(&request->event);
    work_on(context, p, request, &answer);
    if (request->kind == KEEP) {
        kept.p = p;
        kept.context = context;
    } else {
        answer.closed = close_all(p, request->twice);
    }
    return answer;
}

static void other_process(int end, int n_devices)
{
    struct context contexts[MAX_DEVICES] = {0};
    struct request request;

    (void)setenv("ALLOGRAFT_STATS", "off", 1);
    lookups_open(LOOKUP_LINKED, false);
    if (cu.cuInit(0))
        _exit(97);
    for (int device = 0; device < n_devices; device++)
        if (cu.cuDevicePrimaryCtxRetain(&contexts[device].handle, device) ||
            cu.cuCtxSetCurrent(contexts[device].handle) || !kernels_load(&contexts[device]))
            _exit(97);
    while (read(end, &request, sizeof(request)) == (ssize_t)sizeof(request)) {
        struct answer answer = serve(contexts, &request);
        if (write(end, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
            break;
    }
    _exit(0);
}

void ipc_start(int n_devices)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        abort();
    switch (fork()) {
    case -1:
        abort();
    case 0:
        (void)close(ends[0]);
        other_process(ends[1], n_devices);
    }
    (void)close(ends[1]);
    channel = ends[0];
}

/* With a stream, the driver is asked meanwhile: the work before the event goes on by that. */
static bool get_answer(struct world *w, unsigned stream, struct answer *ret_answer)
{
    int flags = stream == MAX_STREAMS ? 0 : MSG_DONTWAIT;
    ssize_t n;

    while ((n = recv(channel, ret_answer, sizeof(*ret_answer), flags)) < 0 && errno == EAGAIN) {
        (void)cu.cuStreamQuery(stream_handle(w, stream));
        (void)sched_yield();
    }
    return n == (ssize_t)sizeof(*ret_answer);
}

/* Asks the other process; logs what it says. It waits for an event of the stream, if any. */
static void ask_there(struct world *w, struct buffer *buffer, struct request *request,
                      unsigned stream)
{
    struct answer answer;

    request->value = w->op;
    request->bytes = (uint32_t)buffer->extent;
    if (write(channel, request, sizeof(*request)) != (ssize_t)sizeof(*request) ||
        !get_answer(w, stream, &answer)) {
        say(w, "the other process is gone");
        channel = -1;
        return;
    }
    if (request->kind != CLOSE)
        (void)did(w, answer.opened, "there: cuIpcOpenMemHandle b%u, device %d", buffer->id,
                  request->device);
    (void)did(w, answer.again, "there: again");
    (void)did(w, answer.waited, "there: waited %d", request->waits);
    (void)did(w, answer.worked, "there: found %016llx", (unsigned long long)answer.before);
    (void)did(w, answer.closed, "there: cuIpcCloseMemHandle");
    buffer->shared = request->kind == KEEP && answer.opened == CUDA_SUCCESS;
}

struct buffer *ipc_kept(struct world *w)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++)
        if (w->buffers[i].live && w->buffers[i].shared)
            return &w->buffers[i];
    return NULL;
}

/* Closes what the other process kept open, once nothing here uses it any more. */
void ipc_close(struct world *w)
{
    struct buffer *buffer = ipc_kept(w);
    struct request request = {.kind = CLOSE};

    if (channel >= 0 && w->has_gone_open) { /* it is as it was when it was freed here */
        w->has_gone_open = false;
        ask_there(w, &w->gone_open, &request, MAX_STREAMS);
        return;
    }
    if (channel < 0 || !buffer || !host_may_write(w, buffer) || buffer_in_graph(w, buffer))
        return;
    ask_there(w, buffer, &request, MAX_STREAMS);
}

/* All uses of the buffer come before what the stream gets next. */
static void ask_after_event(struct world *w, unsigned stream, struct buffer *buffer,
                            struct request *request)
{
    CUevent event;
    CUresult result;

    use_context(w, w->streams[stream].context);
    result = cu.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = cu.cuEventRecord(event, stream_handle(w, stream));
    if (result == CUDA_SUCCESS)
        result = cu.cuIpcGetEventHandle(&request->event, event);
    request->waits = result == CUDA_SUCCESS;
    if (!did(w, result, "an event for b%u on s%u", buffer->id, stream))
        return;
    ask_there(w, buffer, request, stream);
    used_both(w, stream, buffer, NULL);
    (void)cu.cuEventDestroy_v2(event);
}

/* Native memory whose uses are over, or, with a stream, that the stream may write now. */
static struct buffer *pick_shared(struct world *w, unsigned stream)
{
    struct buffer *buffer = stream == MAX_STREAMS ? buffer_pick_idle(w, 1u << BUFFER_NATIVE, false)
                                                  : buffer_pick(w, stream, true, true, NULL);

    return buffer && buffer->filled && buffer->kind == BUFFER_NATIVE && !buffer_in_graph(w, buffer)
               ? buffer
               : NULL;
}

bool op_ipc(struct world *w)
{
    struct request request = {.twice = chance(w, 25), .device = 0};
    struct buffer *buffer;
    unsigned stream;
    size_t offset;

    if (channel < 0 || w->capture.open)
        return false;
    if (ipc_kept(w) || w->has_gone_open) {
        ipc_close(w);
        return true;
    }
    stream = chance(w, 40) ? stream_pick(w) : MAX_STREAMS;
    buffer = pick_shared(w, stream);
    if (!buffer)
        return false;
    request.kind = chance(w, 30) ? KEEP : USE;
    request.twice &= request.kind == USE;
    request.device = w->traits->second_device ? (int)draw(w, 2) : 0;
    offset = chance(w, 30) ? buffer->extent / 2 : 0; /* the handle names the whole allocation */
    use_context(w, buffer->context);
    if (did(w, cu.cuIpcGetMemHandle(&request.handle, buffer->p + offset), "cuIpcGetMemHandle b%u",
            buffer->id)) {
        if (stream == MAX_STREAMS)
            ask_there(w, buffer, &request, stream);
        else
            ask_after_event(w, stream, buffer, &request);
    }
    return true;
}
