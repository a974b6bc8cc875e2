/* iterations.c: a random program goes round: the same operations again and again, now and then with
 * something in between, and with every way of waiting, or none, at the end of an iteration. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "diff.h"

#define MOST_STEPS 400 /* in one loop */

enum iteration_end {
    ITERATION_NOTHING,
    ITERATION_STREAM,
    ITERATION_STREAMS,
    ITERATION_EVENT,
    ITERATION_CONTEXT,
    ITERATION_QUERY,
    ITERATION_READ,
    ITERATION_COPY,
    N_ITERATION_ENDS
};

enum surprise {
    SURPRISE_EXTRA,
    SURPRISE_MISSING,
    SURPRISE_KERNEL,
    SURPRISE_STREAM_WAIT,
    SURPRISE_QUERY,
    SURPRISE_ANY,
    SURPRISE_ATTRIBUTE,
    SURPRISE_RELOAD,
    SURPRISE_NEW_STREAM,
    SURPRISE_PAUSE,
    SURPRISE_LEGACY,
    SURPRISE_CAPTURE,
    SURPRISE_CUT, /* the iteration ends early */
    SURPRISE_ANEW,
    N_SURPRISES,
    SURPRISE_LIMIT = N_SURPRISES /* of programs that map memory */
};

struct plan {
    enum iteration_end end;
    enum surprise surprise;
    unsigned iterations, every,
        at;       /* a surprise each so many iterations, before that step; 0: none */
    bool wanders; /* before another step each time */
    struct step extra;
};

/* ---- beginning ---- */

static void take_streams(struct world *w, struct loop *loop, unsigned n)
{
    unsigned stream = stream_pick(w);

    if (stream == MAX_STREAMS)
        return;
    loop->context = w->streams[stream].context;
    loop->streams[loop->n_streams++] = stream;
    for (unsigned tries = 0; tries < 12 && loop->n_streams < n; tries++) {
        bool known = false;

        stream = stream_pick(w);
        for (unsigned i = 0; i < loop->n_streams; i++)
            known = known || loop->streams[i] == stream;
        if (!known && stream != MAX_STREAMS && w->streams[stream].context == loop->context)
            loop->streams[loop->n_streams++] = stream;
    }
}

static void take_buffer(struct loop *loop, struct buffer *buffer)
{
    if (!buffer)
        return;
    loop->buffers[loop->n_buffers].buffer = buffer;
    loop->buffers[loop->n_buffers++].id = buffer->id;
}

/* Memory that the host sees without a call. */
static struct buffer *pinned_for(struct world *w, const struct loop *loop, size_t bytes)
{
    struct buffer *buffer = buffer_new(w, BUFFER_PINNED, loop->context, bytes);

    if (!buffer ||
        !did(w, cu.cuMemAllocHost_v2(&buffer->host, bytes), "pinned b%u for a loop", buffer->id))
        return NULL;
    (void)cu.cuMemHostGetDevicePointer_v2(&buffer->p, buffer->host, 0);
    memset(buffer->host, (int)buffer->id, bytes);
    buffer->live = buffer->filled = true;
    w->bytes_live += buffer->bytes;
    return buffer;
}

/* A new one, and what fills it. */
static struct buffer *buffer_for(struct world *w, struct loop *loop, size_t bytes)
{
    struct buffer *buffer = buffer_new(w, BUFFER_NATIVE, loop->context, bytes);

    if (!buffer ||
        !did(w, ROOM_OR_HOST(w, loop->context, bytes, cu.cuMemAlloc_v2(&buffer->p, bytes)),
             "alloc b%u for a loop", buffer->id))
        return NULL;
    buffer->live = true;
    w->bytes_live += bytes;
    if (!did(w, launch_fill(w, loop->streams[0], buffer->p, bytes, buffer->id), "fill b%u",
             buffer->id))
        return NULL;
    used_both(w, loop->streams[0], buffer, NULL);
    return buffer;
}

static struct buffer *mapped_for(struct world *w, const struct loop *loop)
{
    struct buffer *buffer = map_buffer(w, loop->context);

    if (!buffer || !did(w, launch_fill(w, loop->streams[0], buffer->p, buffer->extent, buffer->id),
                        "fill b%u", buffer->id))
        return NULL;
    used_both(w, loop->streams[0], buffer, NULL);
    return buffer;
}

/* Some that are there, and small new ones. */
static void take_buffers(struct world *w, struct loop *loop)
{
    unsigned n = 3 + draw(w, MAX_LOOP_BUFFERS - 3);

    for (unsigned i = draw(w, MAX_BUFFERS), seen = 0; seen < MAX_BUFFERS && loop->n_buffers < n / 2;
         seen++, i = (i + 1) % MAX_BUFFERS) {
        struct buffer *buffer = &w->buffers[i];

        if (buffer->live && buffer->filled && (buffer->extent <= 16384 || w->traits->large) &&
            !buffer->shared && buffer_reachable(w, buffer, loop->context) &&
            !buffer_in_graph(w, buffer) &&
            w->contexts[buffer->context].device == w->contexts[loop->context].device)
            take_buffer(loop, buffer);
    }
    use_context(w, loop->context);
    if (may_look(w) && chance(w, 60))
        take_buffer(loop, pinned_for(w, loop, 256));
    for (unsigned i = w->traits->maps ? draw(w, 3) : 0; i; i--)
        take_buffer(loop, mapped_for(w, loop));
    if (w->traits->maps && chance(w, 50))
        take_buffer(loop, global_buffer(w, loop->context));
    while (loop->n_buffers < n) {
        const bool large = w->traits->large && w->bytes_live < MOST_BYTES / 2 && chance(w, 30);
        struct buffer *buffer =
            buffer_for(w, loop, large ? (1 + draw(w, 3)) * 1100000 : (size_t)64 << draw(w, 7));

        if (!buffer)
            return;
        take_buffer(loop, buffer);
    }
}

static bool loop_begin(struct world *w, struct loop *loop, struct plan *plan)
{
    static const unsigned streams[] = {1, 1, 1, 2, 2, 3, 4};
    bool is_short = chance(w, 35);

    take_streams(w, loop, streams[draw(w, 7)]);
    if (!loop->n_streams)
        return false;
    take_buffers(w, loop);
    if (loop->n_buffers < 2)
        return false;
    for (unsigned i = 0; i < 4; i++)
        if (!did(w, cu.cuEventCreate(&loop->events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate"))
            return false;
    loop->n_steps = 1 + draw(w, is_short ? 4 : chance(w, 70) ? 20 : MAX_STEPS - 1);
    for (unsigned i = 0; i < loop->n_steps; i++)
        step_draw(w, loop, &loop->steps[i]);
    step_draw(w, loop, &plan->extra);
    plan->iterations = 2 + draw(w, is_short ? 60 : 28);
    if (plan->iterations * loop->n_steps > MOST_STEPS)
        plan->iterations = 2 + MOST_STEPS / loop->n_steps;
    plan->end = (enum iteration_end)draw(w, N_ITERATION_ENDS);
    if (plan->end == ITERATION_CONTEXT && w->traits->n_threads > 1)
        plan->end = ITERATION_STREAMS;
    plan->surprise = (enum surprise)draw(w, N_SURPRISES);
    plan->every = chance(w, 45) ? 0 : 2 + draw(w, 7);
    plan->at = draw(w, loop->n_steps + 1);
    plan->wanders = chance(w, 40);
    if (w->traits->maps && chance(w, 60)) {
        plan->surprise =
            (enum surprise[]){SURPRISE_LIMIT, SURPRISE_ANEW, SURPRISE_RELOAD}[draw(w, 3)];
        plan->every = 2 + draw(w, 7);
    }
    say(w, "a loop of %u steps, %u iterations, %u streams, surprise %d at %u every %u, end %d",
        loop->n_steps, plan->iterations, loop->n_streams, (int)plan->surprise, plan->at,
        plan->every, (int)plan->end);
    return true;
}

/* ---- what comes in between ---- */

void wait_for_stream(struct world *w, unsigned stream)
{
    struct clock pending;

    if (!w->streams[stream].alive || w->streams[stream].capturing)
        return;
    stream_pending(w, stream, &pending);
    if (did(w, cu.cuStreamSynchronize(stream_handle(w, stream)), "cuStreamSynchronize s%u", stream))
        host_knows(w, &pending);
}

static void query(struct world *w, unsigned stream, bool until_done)
{
    struct clock pending;
    CUresult result = CUDA_ERROR_NOT_READY;

    if (!w->streams[stream].alive || w->streams[stream].capturing)
        return;
    stream_pending(w, stream, &pending);
    for (unsigned i = 0; i < (until_done ? 20000 : 1) && result == CUDA_ERROR_NOT_READY; i++)
        result = cu.cuStreamQuery(stream_handle(w, stream));
    if (until_done && result == CUDA_ERROR_NOT_READY) /* on a machine that is too busy */
        result = cu.cuStreamSynchronize(stream_handle(w, stream));
    if (until_done && w->traits->n_threads > 1 &&
        (w->streams[stream].kind == STREAM_LEGACY || w->streams[stream].shared))
        wait_for_stream(w, stream); /* others keep it busy */
    else if (until_done && did(w, result, "queries of s%u", stream))
        host_knows(w, &pending);
}

/* The handle of the stream may be that of the one before. */
static void new_stream(struct world *w, struct loop *loop, unsigned i)
{
    const struct stream old = w->streams[loop->streams[i]];
    unsigned flags = old.kind == STREAM_NONBLOCKING ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    CUstream handle = NULL;
    unsigned stream;

    if (!old.alive || old.kind < STREAM_BLOCKING || old.shared || old.capturing ||
        w->n_streams + 6 > w->max_streams)
        return;
    use_context(w, loop->context);
    if (chance(w, 50))
        wait_for_stream(w, loop->streams[i]);
    if (did(w, cu.cuStreamDestroy_v2(old.handle), "cuStreamDestroy s%u", loop->streams[i]))
        w->streams[loop->streams[i]].alive = false;
    if (!did(w, cu.cuStreamCreate(&handle, flags), "cuStreamCreate"))
        return;
    stream = stream_new(w, loop->context, old.kind, handle);
    loop->streams[i] = stream;
}

static void reload(struct world *w, struct loop *loop)
{
    unsigned variable = MAX_LOOP_BUFFERS;
    struct buffer *buffer;

    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        if (w->graphs[i].alive)
            return;
    if (w->traits->n_threads > 1)
        return;
    use_context(w, loop->context);
    for (unsigned i = 0; i < loop->n_buffers; i++)
        if (loop->buffers[i].buffer->live && loop->buffers[i].buffer->kind == BUFFER_GLOBAL)
            variable = i;
    (void)kernels_reload(w, &w->contexts[loop->context]);
    buffer = variable < MAX_LOOP_BUFFERS ? global_buffer(w, loop->context) : NULL;
    if (!buffer)
        return;
    loop->buffers[variable].buffer = buffer;
    loop->buffers[variable].id = buffer->id;
}

static void capture_and_launch(struct world *w)
{
    if (op_capture_begin(w))
        while (w->capture.open)
            (void)op_in_capture(w);
    (void)op_graph_launch(w);
}

static bool may_go(const struct world *w, const struct loop *loop, unsigned i)
{
    const struct buffer *buffer = loop->buffers[i].buffer;

    return buffer->live && buffer->id == loop->buffers[i].id &&
           (buffer->kind == BUFFER_NATIVE || buffer->kind == BUFFER_PINNED ||
            buffer->kind == BUFFER_MAPPED) &&
           buffer->context == loop->context && !buffer->shared && !buffer_in_graph(w, buffer) &&
           host_may_write(w, buffer) && w->streams[loop->streams[0]].alive &&
           !w->streams[loop->streams[0]].capturing;
}

/* Memory of the loop goes, and other memory takes its place, often at the same address. */
static void allocate_anew(struct world *w, struct loop *loop)
{
    unsigned i = draw(w, loop->n_buffers);
    struct buffer *buffer = loop->buffers[i].buffer;
    size_t bytes = buffer->bytes;
    const enum buffer_kind kind = buffer->kind;

    for (unsigned j = 0; j < loop->n_streams; j++)
        wait_for_stream(w, loop->streams[j]);
    if (!may_go(w, loop, i))
        return;
    use_context(w, loop->context);
    if (kind == BUFFER_MAPPED)
        unmap_buffer(w, buffer);
    else if (kind == BUFFER_NATIVE)
        (void)free_buffer(w, buffer);
    else if (did(w, cu.cuMemFreeHost(buffer->host), "cuMemFreeHost b%u", buffer->id))
        buffer_gone(w, buffer);
    if (buffer->live)
        return;
    use_context(w, loop->context);
    buffer = kind == BUFFER_MAPPED   ? mapped_for(w, loop)
             : kind == BUFFER_NATIVE ? buffer_for(w, loop, bytes)
                                     : pinned_for(w, loop, bytes);
    if (!buffer)
        return;
    loop->buffers[i].buffer = buffer;
    loop->buffers[i].id = buffer->id;
}

static void pause_a_little(struct world *w)
{
    static const long us[] = {20, 60, 150, 400};
    struct timespec time = {0, us[draw(w, 4)] * 1000};

    (void)nanosleep(&time, NULL);
}

static void surprise(struct world *w, struct loop *loop, struct plan *plan, unsigned iteration)
{
    struct step legacy = plan->extra;
    unsigned kept = loop->streams[0];

    switch (plan->surprise) {
    case SURPRISE_EXTRA:
        step_do(w, loop, &plan->extra, iteration);
        break;
    case SURPRISE_STREAM_WAIT:
        wait_for_stream(w, loop->streams[plan->extra.stream]);
        break;
    case SURPRISE_QUERY:
        query(w, loop->streams[plan->extra.stream], false);
        break;
    case SURPRISE_ANY:
        one_operation(w);
        while (w->capture.open)
            (void)op_in_capture(w);
        break;
    case SURPRISE_ATTRIBUTE:
        (void)did(w,
                  cu.cuFuncSetAttribute(w->contexts[loop->context].kernels[plan->extra.kernel],
                                        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        2048 + (int)iteration),
                  "cuFuncSetAttribute");
        break;
    case SURPRISE_RELOAD:
        reload(w, loop);
        break;
    case SURPRISE_NEW_STREAM:
        new_stream(w, loop, plan->extra.stream);
        break;
    case SURPRISE_PAUSE:
        pause_a_little(w);
        break;
    case SURPRISE_LEGACY:
        legacy.stream = 0;
        loop->streams[0] = w->contexts[loop->context].legacy;
        step_do(w, loop, &legacy, iteration);
        loop->streams[0] = kept;
        break;
    case SURPRISE_CAPTURE:
        capture_and_launch(w);
        break;
    case SURPRISE_ANEW:
        allocate_anew(w, loop);
        break;
    case SURPRISE_LIMIT:
        (void)op_limit(w);
        break;
    default:
        break;
    }
}

/* ---- the end of an iteration ---- */

static struct buffer *device_buffer(const struct loop *loop, unsigned iteration)
{
    for (unsigned i = 0; i < loop->n_buffers; i++) {
        struct buffer *buffer = loop->buffers[(i + iteration) % loop->n_buffers].buffer;

        if (buffer->live && buffer->filled && !host_side(buffer) && !host_alone(buffer))
            return buffer;
    }
    return NULL;
}

static void read_one(struct world *w, struct loop *loop, unsigned iteration, bool async)
{
    unsigned standard = w->traits->per_thread ? w->contexts[loop->context].per_thread
                                              : w->contexts[loop->context].legacy;
    unsigned stream = async ? loop->streams[iteration % loop->n_streams] : standard;
    struct buffer *buffer = device_buffer(loop, iteration);

    if (!buffer || !w->streams[stream].alive || w->streams[stream].capturing ||
        !buffer_reachable(w, buffer, loop->context) ||
        !bring_behind(w, loop, stream, buffer, false))
        return;
    use_context(w, loop->context); /* whose standard stream it is: not of the one waited for */
    (void)read_back(w, buffer, stream, async);
}

static void end_by_event(struct world *w, struct loop *loop)
{
    unsigned stream = loop->streams[0], i = loop->n_records++ % 4;
    struct clock at;

    if (!w->streams[stream].alive || w->streams[stream].capturing ||
        !did(w, cu.cuEventRecord(loop->events[i], stream_handle(w, stream)), "record %u s%u", i,
             stream))
        return;
    stream_submit(w, stream, &at);
    if (did(w, cu.cuEventSynchronize(loop->events[i]), "cuEventSynchronize %u", i))
        host_knows(w, &at);
    (void)op_host_read(w);
}

static void end_iteration(struct world *w, struct loop *loop, const struct plan *plan,
                          unsigned iteration)
{
    switch (plan->end) {
    case ITERATION_STREAM:
        wait_for_stream(w, loop->streams[iteration % 3 % loop->n_streams]);
        break;
    case ITERATION_STREAMS:
        for (unsigned i = 0; i < loop->n_streams; i++)
            wait_for_stream(w, loop->streams[i]);
        (void)op_host_read(w);
        break;
    case ITERATION_EVENT:
        end_by_event(w, loop);
        break;
    case ITERATION_CONTEXT:
        use_context(w, loop->context);
        if (did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c%u", loop->context))
            host_knows_context(w, loop->context);
        (void)op_host_read(w);
        break;
    case ITERATION_QUERY:
        query(w, loop->streams[0], true);
        (void)op_host_read(w);
        break;
    case ITERATION_READ:
    case ITERATION_COPY:
        read_one(w, loop, iteration, plan->end == ITERATION_READ);
        break;
    default:
        break;
    }
}

static void one_iteration(struct world *w, struct loop *loop, struct plan *plan, unsigned iteration)
{
    bool surprised = plan->every && iteration % plan->every == plan->every - 1;

    if (surprised && plan->wanders)
        plan->at = draw(w, loop->n_steps + 1);
    for (unsigned i = 0; i <= loop->n_steps; i++) {
        struct step *step = &loop->steps[i];

        if (surprised && i == plan->at && plan->surprise == SURPRISE_CUT)
            break;
        if (surprised && i == plan->at)
            surprise(w, loop, plan, iteration);
        if (i == loop->n_steps ||
            (surprised && i == plan->at && plan->surprise == SURPRISE_MISSING))
            continue;
        if (surprised && i == plan->at && plan->surprise == SURPRISE_KERNEL)
            step = &plan->extra;
        step_do(w, loop, step, iteration);
    }
    end_iteration(w, loop, plan, iteration);
}

bool op_iterations(struct world *w)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    struct plan plan = {0};

    if (!loop)
        abort();
    if (w->capture.open || !loop_begin(w, loop, &plan)) {
        free(loop);
        return false;
    }
    for (unsigned iteration = 0; iteration < plan.iterations && w->contexts[loop->context].alive;
         iteration++) {
        w->op++;
        one_iteration(w, loop, &plan, iteration);
    }
    for (unsigned i = 0; i < 4 && w->contexts[loop->context].alive; i++)
        (void)did(w, cu.cuEventDestroy_v2(loop->events[i]), "cuEventDestroy");
    free(loop);
    return true;
}

/* ---- without any call ---- */

/* Half of the kernels before the host looks, half after it; false when what it waits for does not
 * come. */
static bool poll_once(struct world *w, unsigned stream, CUdeviceptr p, const uint32_t *word,
                      unsigned iteration)
{
    struct timespec pause = {0, 50000};
    unsigned tries = 0;

    for (unsigned i = 0; i < 6; i++) {
        uint32_t n = 16, value = w->op * 1000 + iteration * 10 + i;
        void *args[] = {&p, &n, &value};
        struct shape shape = {.grid = {1, 1, 1}, .block = 32};
        struct clock stamp;

        if (did(w, launch_as(w, stream, KERNEL_FILL, args, &shape), "signal s%u", stream))
            stream_submit(w, stream, &stamp);
        while (i == 2 && __atomic_load_n(word, __ATOMIC_ACQUIRE) != fill_word(value) &&
               tries++ < 30000)
            (void)nanosleep(&pause, NULL);
    }
    say(w, "%s", tries < 30000 ? "the signal came" : "no signal came");
    return tries < 30000;
}

bool op_poll(struct world *w)
{
    unsigned stream = stream_pick(w);
    CUdeviceptr p = 0;
    void *pinned;

    if (!w->traits->polls || w->capture.open || !may_look(w) || stream == MAX_STREAMS)
        return false;
    use_context(w, w->streams[stream].context);
    if (!did(w, cu.cuMemAllocHost_v2(&pinned, 64), "pinned word"))
        return true;
    memset(pinned, 0, 64);
    (void)cu.cuMemHostGetDevicePointer_v2(&p, pinned, 0);
    for (unsigned iteration = 0; iteration < 5 && poll_once(w, stream, p, pinned, iteration);
         iteration++)
        wait_for_stream(w, stream);
    wait_for_stream(w, stream);
    (void)did(w, cu.cuMemFreeHost(pinned), "cuMemFreeHost of the word");
    return true;
}
