/* op_order.c: a random program makes streams and events, waits, and asks whether work is done. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <string.h>
#include <unistd.h>

#include "diff.h"

bool op_stream_create(struct world *w)
{
    bool nonblocking = w->op >= w->traits->nonblocking_at && chance(w, 65);
    unsigned flags = nonblocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    unsigned context = draw(w, w->n_contexts), stream;
    CUstream handle = NULL;
    CUresult result;

    if (!w->contexts[context].alive || w->n_streams == w->max_streams)
        return false;
    use_context(w, context);
    result = chance(w, 70) ? cu.cuStreamCreate(&handle, flags)
                           : cu.cuStreamCreateWithPriority(&handle, flags, -(int)draw(w, 3));
    stream = w->first_stream + w->n_streams;
    if (!did(w, result, "cuStreamCreate s%u c%u flags %u", stream, context, flags))
        return true;
    w->next_stream =
        stream_new(w, context, nonblocking ? STREAM_NONBLOCKING : STREAM_BLOCKING, handle);
    w->n_next = w->lean ? 6 : 2;
    return true;
}

/* With work pending, most of the time. */
bool op_stream_destroy(struct world *w)
{
    unsigned stream = stream_pick(w);

    if (stream == MAX_STREAMS || w->streams[stream].kind < STREAM_BLOCKING || w->capture.open ||
        w->streams[stream].shared)
        return false;
    use_context(w, w->streams[stream].context);
    if (did(w, cu.cuStreamDestroy_v2(w->streams[stream].handle), "cuStreamDestroy s%u", stream))
        w->streams[stream].alive = false;
    return true;
}

bool op_stream_replace(struct world *w)
{
    unsigned old = w->main_stream;

    if (!w->streams[old].alive || w->streams[old].kind < STREAM_BLOCKING || w->capture.open ||
        w->streams[old].shared || !w->contexts[w->streams[old].context].alive)
        return false;
    w->next_stream = old;
    w->n_next = 1;
    if (!op_stream_destroy(w) || !op_stream_create(w))
        return true;
    w->main_stream = w->next_stream;
    return true;
}

static struct event *pick_event(struct world *w, bool recorded)
{
    struct event *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_EVENTS; i++) {
        struct event *event = &w->events[i];
        if (event->alive && event->recorded == recorded && w->contexts[event->context].alive &&
            draw(w, ++n) == 0)
            found = event;
    }
    return found;
}

bool op_event_create(struct world *w)
{
    unsigned context = draw(w, w->n_contexts);

    for (unsigned i = 0; i < MAX_EVENTS && w->contexts[context].alive; i++) {
        struct event *event = &w->events[i];
        bool timed = chance(w, 50);
        if (event->alive)
            continue;
        use_context(w, context);
        *event = (struct event){.id = w->next_id++, .context = context, .timed = timed};
        event->alive = did(
            w, cu.cuEventCreate(&event->handle, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
            "cuEventCreate e%u c%u", event->id, context);
        return true;
    }
    return false;
}

bool op_event_destroy(struct world *w)
{
    struct event *event = pick_event(w, true);

    if (!event || w->capture.open)
        return false;
    use_context(w, event->context);
    if (did(w, cu.cuEventDestroy_v2(event->handle), "cuEventDestroy e%u", event->id))
        event->alive = false;
    return true;
}

bool op_event_record(struct world *w)
{
    struct event *event = pick_event(w, chance(w, 50));
    unsigned stream = stream_pick(w);

    if (!event || stream == MAX_STREAMS || event->context != w->streams[stream].context)
        return false;
    if (!did(w, cu.cuEventRecord(event->handle, stream_handle(w, stream)), "cuEventRecord e%u s%u",
             event->id, stream))
        return true;
    stream_submit(w, stream, &event->at);
    event->recorded = true;
    return true;
}

bool op_event_wait(struct world *w)
{
    struct event *event = pick_event(w, true);
    unsigned stream = stream_pick(w);
    struct clock stamp;

    if (!event || stream == MAX_STREAMS)
        return false;
    if (!did(w, cu.cuStreamWaitEvent(stream_handle(w, stream), event->handle, 0),
             "cuStreamWaitEvent s%u e%u", stream, event->id))
        return true;
    clock_join(&w->streams[stream].after, &event->at);
    stream_submit(w, stream, &stamp);
    return true;
}

/* An answer is told only where it is determined; the question may be asked at any time. */
bool op_event_ask(struct world *w)
{
    struct event *event = pick_event(w, true), *other;
    float ms;

    if (!event || capture_forbids_waiting(w))
        return false;
    use_context(w, event->context);
    if (w->lean ? false : chance(w, 25)) {
        if (did(w, cu.cuEventSynchronize(event->handle), "cuEventSynchronize e%u", event->id))
            host_knows(w, &event->at);
        return true;
    }
    if (!clock_covers(&w->host, &event->at)) {
        (void)cu.cuEventQuery(event->handle);
        return true;
    }
    other = pick_event(w, true);
    if (other->timed && event->timed && other->context == event->context &&
        clock_covers(&w->host, &other->at) && chance(w, 60))
        (void)did(w, cu.cuEventElapsedTime(&ms, event->handle, other->handle),
                  "cuEventElapsedTime e%u e%u", event->id, other->id);
    else
        (void)did(w, cu.cuEventQuery(event->handle), "cuEventQuery e%u", event->id);
    return true;
}

bool op_stream_ask(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct clock before;

    if (stream == MAX_STREAMS || capture_forbids_waiting(w))
        return false;
    stream_before(w, stream, &before);
    /* The legacy stream is every thread's. */
    if (clock_covers(&w->host, &before) &&
        (w->traits->n_threads == 1 ||
         (w->streams[stream].kind != STREAM_LEGACY && !w->streams[stream].shared)))
        (void)did(w, cu.cuStreamQuery(stream_handle(w, stream)), "cuStreamQuery s%u", stream);
    else
        (void)cu.cuStreamQuery(stream_handle(w, stream));
    return true;
}

bool op_synchronize(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct clock before;

    if (stream == MAX_STREAMS || capture_forbids_waiting(w))
        return false;
    if (chance(w, 25) && !w->capture.open && w->traits->n_threads == 1) {
        use_context(w, w->streams[stream].context);
        if (did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c%u", w->current))
            host_knows_context(w, w->current);
        return true;
    }
    stream_pending(w, stream, &before);
    if (did(w, cu.cuStreamSynchronize(stream_handle(w, stream)), "cuStreamSynchronize s%u", stream))
        host_knows(w, &before);
    return true;
}

/* ---- a stream that is held up by a word in device memory ---- */

unsigned pick_nonblocking(struct world *w, unsigned context, unsigned but)
{
    unsigned n = 0, found = MAX_STREAMS;

    for (unsigned i = w->first_stream; i < w->first_stream + w->n_streams; i++) {
        const struct stream *stream = &w->streams[i];
        if (stream->alive && stream->kind == STREAM_NONBLOCKING && stream->context == context &&
            i != but && draw(w, ++n) == 0)
            found = i;
    }
    return found;
}

/* What may be done natively while work is held up: nothing that waits for it. */
static void while_held(struct world *w, unsigned held, unsigned free_stream, CUevent event,
                       const struct buffer *flag)
{
    size_t free_bytes, total_bytes;

    for (unsigned i = 1 + draw(w, 4); i; i--) {
        if (w->traits->pageable && chance(w, 40)) {
            (void)host_copy_beside(w, free_stream, chance(w, 60), flag);
            continue;
        }
        switch (draw(w, 4)) {
        case 0:
            (void)op_alloc(w);
            break;
        case 1:
            (void)did(w, cu.cuEventRecord(event, stream_handle(w, held)),
                      "record behind the held s%u", held);
            (void)did(w, cu.cuEventQuery(event), "query of the held");
            break;
        case 2:
            (void)did(w, launch_mark(w, free_stream, MAX_THREADS * MAX_MARKS - 1),
                      "beside the held");
            break;
        default:
            (void)did(w, cu.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
            break;
        }
    }
}

bool op_hold(struct world *w)
{
    unsigned context = w->current, held, other;
    struct buffer *flag;
    struct clock stamp;
    CUevent event;

    if (!w->traits->holds || w->capture.open || !w->contexts[context].alive)
        return false;
    held = pick_nonblocking(w, context, MAX_STREAMS);
    other = held == MAX_STREAMS ? MAX_STREAMS : pick_nonblocking(w, context, held);
    flag = other == MAX_STREAMS ? NULL : buffer_new(w, BUFFER_NATIVE, context, 16);
    if (!flag || cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    if (!did(w, ROOM_OR_HOST(w, context, 16, cu.cuMemAlloc_v2(&flag->p, 16)), "alloc flag b%u",
             flag->id))
        return true;
    flag->live = true;
    w->bytes_live += flag->bytes;
    (void)did(w, cu.cuMemsetD32Async(flag->p, 0, 4, stream_handle(w, other)), "clear flag");
    (void)did(w, cu.cuStreamSynchronize(stream_handle(w, other)), "cuStreamSynchronize s%u", other);
    stream_submit(w, other, &stamp);
    host_knows(w, &stamp);
    if (did(w,
            cu.cuStreamWaitValue32_v2(stream_handle(w, held), flag->p, 1, CU_STREAM_WAIT_VALUE_GEQ),
            "hold s%u", held)) {
        stream_submit(w, held, &stamp);
        while_held(w, held, other, event, flag);
        (void)did(w, cu.cuStreamWriteValue32_v2(stream_handle(w, other), flag->p, 1, 0),
                  "let go by s%u", other);
    }
    buffer_used(w, flag, held, &stamp, true);
    stream_submit(w, other, &stamp);
    flag->wrote.at[other] = stamp.at[other];
    (void)did(w, cu.cuEventDestroy_v2(event), "cuEventDestroy");
    return true;
}

/* A kernel waits for the host, which does meanwhile what does not wait for the kernel natively. */
bool op_spin(struct world *w)
{
    unsigned context = w->current, held, other;
    uint32_t *flag;
    CUdeviceptr p = 0;
    CUevent event;
    struct clock stamp;
    void *pinned;

    if (!w->traits->holds || w->capture.open || !may_look(w) || !w->contexts[context].alive)
        return false;
    held = pick_nonblocking(w, context, MAX_STREAMS);
    other = held == MAX_STREAMS ? MAX_STREAMS : pick_nonblocking(w, context, held);
    if (other == MAX_STREAMS || cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    if (!did(w, cu.cuMemAllocHost_v2(&pinned, 64), "pinned flag"))
        return true;
    flag = pinned;
    *flag = 0;
    (void)cu.cuMemHostGetDevicePointer_v2(&p, pinned, 0);
    if (did(w, launch_spin(w, held, p), "spin s%u", held)) {
        stream_submit(w, held, &stamp);
        while_held(w, held, other, event, NULL);
    }
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    stream_pending(w, held, &stamp);
    if (did(w, cu.cuStreamSynchronize(stream_handle(w, held)), "cuStreamSynchronize s%u", held))
        host_knows(w, &stamp);
    (void)did(w, cu.cuMemFreeHost(pinned), "cuMemFreeHost of the flag");
    (void)did(w, cu.cuEventDestroy_v2(event), "cuEventDestroy");
    return true;
}

/* ---- longer than anything of Allograft's waits: time must not decide what the program sees ----
 */

static void pause_long(struct world *w)
{
    say(w, "a pause");
    clock_skip(LONG_NS);
    (void)usleep(200); /* whoever sleeps until then may look */
}

static bool run_long(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *buffer =
        stream == MAX_STREAMS ? NULL : buffer_pick(w, stream, true, false, NULL);

    if (!buffer || host_side(buffer))
        return false;
    if (did(w, launch_long(w, stream, buffer->p, buffer->extent, w->op), "long b%u s%u", buffer->id,
            stream))
        used_both(w, stream, buffer, NULL);
    for (unsigned n = 1 + draw(w, 6); n; n--)
        (void)(chance(w, 45) ? op_free(w) : chance(w, 70) ? op_alloc(w) : op_kernel(w));
    return true;
}

bool op_idle(struct world *w)
{
    if (w->capture.open)
        return false;
    if (chance(w, 60) && run_long(w))
        return true;
    pause_long(w);
    return true;
}
