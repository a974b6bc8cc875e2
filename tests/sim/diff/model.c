/* model.c: what a random program knows about the order of its own operations. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"

/* ---- chance ---- */

uint32_t draw(struct world *w, uint32_t below)
{
    uint64_t x = w->random += 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return below ? (uint32_t)((x >> 32) * below >> 32) : 0;
}

bool chance(struct world *w, unsigned percent)
{
    return draw(w, 100) < percent;
}

/* ---- the log ---- */

static void append(struct world *w, const char *format, va_list args)
{
    size_t room = w->log_capacity - w->log_bytes;
    int n = vsnprintf(w->log + w->log_bytes, room, format, args);

    if (n < 0 || (size_t)n >= room)
        abort();
    w->log_bytes += (size_t)n;
}

static void append_text(struct world *w, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    append(w, format, args);
    va_end(args);
}

void say(struct world *w, const char *format, ...)
{
    va_list args;

    append_text(w, "%u ", w->op);
    va_start(args, format);
    append(w, format, args);
    va_end(args);
    append_text(w, "\n");
}

bool did(struct world *w, CUresult result, const char *format, ...)
{
    va_list args;

    append_text(w, "%u ", w->op);
    va_start(args, format);
    append(w, format, args);
    va_end(args);
    append_text(w, " = %d\n", (int)result);
    return result == CUDA_SUCCESS;
}

uint64_t hash_of(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint64_t h = 0xcbf29ce484222325ull;

    for (; n >= 8; n -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    for (; n; n--, at++)
        h = (h ^ *at) * 0x100000001b3ull;
    return h;
}

/* ---- clocks ---- */

/* Without a branch in either: they are most of what a program computes. */
void clock_join(struct clock *clock, const struct clock *other)
{
    for (unsigned i = 0; i < MAX_STREAMS; i++)
        clock->at[i] = clock->at[i] < other->at[i] ? other->at[i] : clock->at[i];
}

bool clock_covers(const struct clock *clock, const struct clock *other)
{
    uint32_t behind = 0;

    for (unsigned i = 0; i < MAX_STREAMS; i++)
        behind |= clock->at[i] < other->at[i];
    return !behind;
}

void host_knows(struct world *w, const struct clock *clock)
{
    clock_join(&w->host, clock);
}

void host_knows_context(struct world *w, unsigned context)
{
    host_knows(w, &w->contexts[context].all);
    host_knows(w, &w->contexts[context].foreign);
}

/* ---- streams ---- */

unsigned stream_new(struct world *w, unsigned context, enum stream_kind kind, CUstream handle)
{
    unsigned stream = w->first_stream + w->n_streams;

    if (w->n_streams == w->max_streams)
        return MAX_STREAMS;
    w->n_streams++;
    w->streams[stream] =
        (struct stream){.alive = true, .kind = kind, .context = context, .handle = handle};
    return stream;
}

void stream_before(const struct world *w, unsigned stream, struct clock *ret_clock)
{
    const struct stream *at = &w->streams[stream];
    const struct context *context = &w->contexts[at->context];

    *ret_clock = w->host;
    clock_join(ret_clock, &at->after);
    if (at->kind == STREAM_LEGACY)
        clock_join(ret_clock, &context->blocking);
    else if (at->kind != STREAM_NONBLOCKING)
        clock_join(ret_clock, &w->streams[context->legacy].after);
}

void stream_pending(const struct world *w, unsigned stream, struct clock *ret_clock)
{
    *ret_clock = w->streams[stream].after;
    if (w->streams[stream].kind == STREAM_LEGACY)
        clock_join(ret_clock, &w->contexts[w->streams[stream].context].blocking);
}

void stream_submit(struct world *w, unsigned stream, struct clock *ret_stamp)
{
    struct stream *at = &w->streams[stream];
    struct context *context = &w->contexts[at->context];

    stream_before(w, stream, ret_stamp);
    ret_stamp->at[stream] = ++at->seq;
    at->after = *ret_stamp;
    clock_join(&context->all, ret_stamp);
    if (at->kind != STREAM_NONBLOCKING)
        clock_join(&context->blocking, ret_stamp);
    /* Users of the memory need not know what came before the operation, only the operation. */
}

static bool stream_usable(const struct world *w, const struct stream *stream)
{
    if (!stream->alive || stream->capturing || !w->contexts[stream->context].alive)
        return false;
    return stream->kind != STREAM_LEGACY || !capture_forbids_legacy(w);
}

unsigned stream_pick(struct world *w)
{
    unsigned n = 0, found = MAX_STREAMS;

    if (w->n_next && w->n_next-- && stream_usable(w, &w->streams[w->next_stream]))
        return w->next_stream;
    if (w->traits->narrow && stream_usable(w, &w->streams[w->main_stream]) && chance(w, 85))
        return w->main_stream;
    for (unsigned i = w->first_stream; i < w->first_stream + w->n_streams; i++)
        if (stream_usable(w, &w->streams[i]) && draw(w, ++n) == 0)
            found = i;
    if (w->traits->narrow && found != MAX_STREAMS && chance(w, 15))
        w->main_stream = found;
    return found;
}

CUstream stream_handle(struct world *w, unsigned stream)
{
    const struct stream *at = &w->streams[stream];
    bool null_means_it = (at->kind == STREAM_LEGACY && !w->traits->per_thread) ||
                         (at->kind == STREAM_PER_THREAD && w->traits->per_thread);

    use_context(w, at->context);
    return null_means_it && (stream + at->seq) % 3 ? NULL : at->handle;
}

void use_context(struct world *w, unsigned context)
{
    if (w->current == context)
        return;
    w->current = context;
    (void)did(w, cu.cuCtxSetCurrent(w->contexts[context].handle), "cuCtxSetCurrent c%u", context);
}

/* ---- buffers ---- */

/* Of some large blocks more than one piece that Allograft moves. */
static size_t most_used(const struct world *w, const struct buffer *buffer)
{
    const bool all = w->traits->large && buffer->kind == BUFFER_NATIVE && buffer->id % 3 == 0;

    return all ? ((size_t)2 << 20) + 32768 : 65536;
}

struct buffer *buffer_new(struct world *w, enum buffer_kind kind, unsigned context, size_t bytes)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (buffer->live)
            continue;
        memset(buffer, 0, sizeof(*buffer));
        buffer->kind = kind;
        buffer->context = context;
        buffer->id = w->next_id++;
        buffer->bytes = bytes;
        buffer->extent =
            (bytes < most_used(w, buffer) ? bytes : most_used(w, buffer)) & ~(size_t)15;
        buffer->last_stream = MAX_STREAMS;
        return buffer;
    }
    return NULL;
}

void buffer_gone(struct world *w, struct buffer *buffer)
{
    buffer->live = false;
    w->bytes_live -= buffer->bytes;
}

bool buffer_reachable(const struct world *w, const struct buffer *buffer, unsigned context)
{
    const struct context *owner = &w->contexts[buffer->context], *user = &w->contexts[context];

    switch (buffer->kind) {
    case BUFFER_VARIABLE:
    case BUFFER_PAGEABLE:
        return false;
    case BUFFER_PINNED:
    case BUFFER_REGISTERED:
    case BUFFER_MANAGED:
        return true;
    case BUFFER_ASYNC:
    case BUFFER_MAPPED:
    case BUFFER_GLOBAL:
        return owner->device == user->device;
    case BUFFER_POOL:
        return owner->device == user->device || w->traits->second_device;
    default: /* a context may use its device's memory whoever allocated it; other devices': peers */
        return owner->device == user->device || w->any_device ||
               (context < 2 && buffer->context < 2 && w->peer_open[context]);
    }
}

static bool may_use(const struct buffer *buffer, const struct clock *clock, bool write)
{
    return clock_covers(clock, &buffer->born) && clock_covers(clock, &buffer->wrote) &&
           (!write || clock_covers(clock, &buffer->read));
}

/* Not what the capture that is open uses: its work has not been submitted, but will be. */
struct buffer *buffer_pick(struct world *w, unsigned stream, bool write, bool filled,
                           const struct buffer *but)
{
    struct buffer *found[2] = {NULL, NULL};
    unsigned n[2] = {0, 0}, context = w->streams[stream].context;
    struct clock before;

    stream_before(w, stream, &before);
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        if (!buffer->live || buffer == but || (filled && !buffer->filled) ||
            !buffer_reachable(w, buffer, context) || !may_use(buffer, &before, write))
            continue;
        bool far = buffer->last_stream != stream && buffer->last_stream != MAX_STREAMS;
        if (draw(w, ++n[far]) == 0)
            found[far] = buffer;
    }
    if (found[1] && chance(w, w->lean ? 90 : 60))
        return found[1];
    return found[0] ? found[0] : found[1];
}

bool buffer_is_for(const struct world *w, const struct buffer *buffer, unsigned stream, bool write)
{
    struct clock before;

    stream_before(w, stream, &before);
    return buffer->live && buffer->filled &&
           buffer_reachable(w, buffer, w->streams[stream].context) &&
           may_use(buffer, &before, write);
}

bool buffer_ends_with_owner(const struct world *w, const struct buffer *buffer)
{
    struct clock known = w->host;

    clock_join(&known, &w->contexts[buffer->context].all);
    clock_join(&known, &w->contexts[buffer->context].foreign);
    return may_use(buffer, &known, true);
}

struct buffer *buffer_pick_idle(struct world *w, unsigned kinds, bool owner_waits)
{
    struct buffer *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        bool waits = owner_waits && buffer->kind != BUFFER_ASYNC && buffer->kind != BUFFER_POOL;

        if (!buffer->live || !(kinds >> buffer->kind & 1) || buffer_in_graph(w, buffer) ||
            buffer->shared)
            continue;
        if ((waits ? buffer_ends_with_owner(w, buffer) : may_use(buffer, &w->host, true)) &&
            draw(w, ++n) == 0)
            found = buffer;
    }
    return found;
}

void buffer_used(struct world *w, struct buffer *buffer, unsigned stream, const struct clock *stamp,
                 bool write)
{
    struct clock *at = write ? &buffer->wrote : &buffer->read;

    if (write) {
        memset(&buffer->wrote, 0, sizeof(buffer->wrote));
        memset(&buffer->read, 0, sizeof(buffer->read));
        buffer->filled = true;
    }
    at->at[stream] = stamp->at[stream];
    buffer->last_stream = stream;
    (void)w;
}

static bool uses(const struct graph *graph, const struct buffer *buffer)
{
    for (unsigned i = 0; i < graph->n_uses; i++)
        if (graph->uses[i].id == buffer->id)
            return true;
    return false;
}

bool buffer_in_graph(const struct world *w, const struct buffer *buffer)
{
    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        if (w->graphs[i].alive && uses(&w->graphs[i], buffer))
            return true;
    return w->capture.open && uses(&w->capture.graph, buffer);
}

bool may_look(const struct world *w)
{
    return w->traits->visible && w->op >= w->traits->visible_at;
}

bool host_may_read(const struct world *w, const struct buffer *buffer)
{
    return clock_covers(&w->host, &buffer->wrote);
}

bool host_may_write(const struct world *w, const struct buffer *buffer)
{
    return clock_covers(&w->host, &buffer->wrote) && clock_covers(&w->host, &buffer->read);
}
