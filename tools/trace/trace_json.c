/* trace_json.c: writes a trace as JSON for Perfetto, and as CSV for RMM's replay: see
 * trace_out.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interpose/core/base/text.h"
#include "tools/trace/trace_out.h"

#define MOST_POINTS 100000u /* with more memory events, their levels are shown in buckets */
#define N_BUCKETS   25000u

void trace_json_string(FILE *out, const char *text)
{
    static struct ag_text json; /* reused, since there may be millions of strings */

    json.length = 0;
    json.truncated = false;
    ag_text_add_json(&json, text);
    fputs(json.data && !json.truncated ? json.data : "\"?\"", out);
}

/* Tracks of their own beside each thread's. A thread's calls nest, so its slices do on every
 * track. */
enum track {
    TRACK_THREAD,
    TRACK_TRANSFERS,
    TRACK_GRAPHS,
    TRACK_MANAGED,
    TRACK_PINNED,
    TRACK_BUS,
    N_TRACKS
};

static const char *const track_names[N_TRACKS] = {
    [TRACK_TRANSFERS] = "transfers",
    [TRACK_GRAPHS] = "captures and replays",
    [TRACK_MANAGED] = "managed memory",
    [TRACK_PINNED] = "pinned memory",
    [TRACK_BUS] = "bus",
};

#define THREAD_BITS 22u /* Linux has no larger numbers of threads */
#define MOST_NAMED  64u /* tracks; those of more threads go by their numbers */

/* The format knows tracks as threads only. */
static uint32_t track_of(uint32_t thread, enum track track)
{
    return (thread & ((1u << THREAD_BITS) - 1)) | (uint32_t)track << THREAD_BITS;
}

struct writer {
    const struct trace *trace;
    FILE *out;
    uint64_t slow_ns;
    bool first, points; /* points: each change of memory is shown */
    unsigned places;    /* placements in the trace, as bits */
    uint64_t last[AG_TRACE_N_PLACES];
    struct {
        uint32_t thread;
        enum track track;
    } named[MOST_NAMED];
    unsigned n_named;
};

/* "ts" is in microseconds. */
static void begin_event(struct writer *w, const char *phase, uint64_t ns, uint32_t thread)
{
    fprintf(w->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%u,\"ts\":%llu.%03u",
            w->first ? "" : ",", phase, trace_info(w->trace)->pid, thread,
            (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
    w->first = false;
}

static void name_event(struct writer *w, const char *category, const char *first,
                       const char *second)
{
    char name[AG_TRACE_TEXT_MAX + 64];

    snprintf(name, sizeof(name), "%s%s%s", first, second ? ": " : "", second ? second : "");
    fprintf(w->out, ",\"cat\":\"%s\",\"name\":", category);
    trace_json_string(w->out, name);
}

/* Writes the memory at a time: one counter, with a series for each placement. */
static void write_levels(struct writer *w, uint64_t ns, const uint64_t *levels)
{
    bool first = true;

    begin_event(w, "C", ns, 0);
    name_event(w, "memory", "device memory", NULL);
    fputs(",\"args\":{", w->out);
    for (unsigned i = 0; i < AG_TRACE_N_PLACES; i++) {
        if (!(w->places & 1u << i))
            continue;
        fputs(first ? "" : ",", w->out);
        trace_json_string(w->out, trace_place(w->trace, i));
        fprintf(w->out, ":%llu", (unsigned long long)levels[i]);
        first = false;
    }
    fputs("}}", w->out);
}

static void write_slice_on(struct writer *w, enum track track, const char *category,
                           const char *name, const struct trace_event *event)
{
    begin_event(w, "X", event->began_ns,
                track == TRACK_THREAD ? event->thread : track_of(event->thread, track));
    fprintf(w->out, ",\"dur\":%llu.%03u", (unsigned long long)(event->duration_ns / 1000),
            (unsigned)(event->duration_ns % 1000));
    name_event(w, category, name, NULL);
}

static void write_slice(struct writer *w, const char *category, const char *name,
                        const struct trace_event *event)
{
    write_slice_on(w, TRACK_THREAD, category, name, event);
}

static enum track track_of_kind(unsigned kind)
{
    switch (kind) {
    case AG_TRACE_TRANSFER:
        return TRACK_TRANSFERS;
    case AG_TRACE_API_CAPTURE:
    case AG_TRACE_API_REPLAY:
        return TRACK_GRAPHS;
    case AG_TRACE_MANAGED_ALLOC:
    case AG_TRACE_MANAGED_FREE:
    case AG_TRACE_PREFETCH:
        return TRACK_MANAGED;
    case AG_TRACE_PINNED_ALLOC:
    case AG_TRACE_PINNED_FREE:
        return TRACK_PINNED;
    case AG_TRACE_PIECES:
        return TRACK_BUS;
    default:
        return TRACK_THREAD;
    }
}

/* A call of the control API, or a prefetch, on its track. */
static void write_call(struct writer *w, const struct trace_event *event)
{
    enum track track = track_of_kind(event->kind);
    bool has_memory = track != TRACK_GRAPHS;
    char name[40] = "transfer";

    if (event->kind == AG_TRACE_PREFETCH && event->device >= 0)
        snprintf(name, sizeof(name), "prefetch to device %d", event->device);
    else if (event->kind == AG_TRACE_PREFETCH)
        snprintf(name, sizeof(name), "prefetch to the host");
    else if (event->kind != AG_TRACE_TRANSFER)
        snprintf(name, sizeof(name), "%s",
                 event->kind == AG_TRACE_MANAGED_ALLOC  ? "allocate"
                 : event->kind == AG_TRACE_MANAGED_FREE ? "free"
                 : event->kind == AG_TRACE_API_REPLAY   ? "replay"
                 : event->code                          ? "capture in vain"
                                                        : "capture");
    write_slice_on(w, track, "api", name, event);
    fprintf(w->out, ",\"args\":{\"stream\":\"0x%llx\"", (unsigned long long)event->stream);
    if (has_memory)
        fprintf(w->out, ",\"bytes\":%llu,\"address\":\"0x%llx\"", (unsigned long long)event->size,
                (unsigned long long)event->address);
    if (event->kind == AG_TRACE_TRANSFER)
        fprintf(w->out, ",\"slot\":%u", event->code);
    fputs("}}", w->out);
}

static void write_replay(struct writer *w, const struct trace_event *event)
{
    static const char *const names[] = {
        [AG_TRACE_REPLAY] = "replay",
        [AG_TRACE_RELEASE] = "one by one",
        [AG_TRACE_BUILD] = "build a graph",
    };

    write_slice(w, "graph", names[event->kind], event);
    fprintf(w->out, ",\"args\":{\"operations\":%llu,\"stream\":\"0x%llx\"",
            (unsigned long long)event->size, (unsigned long long)event->stream);
    if (event->kind == AG_TRACE_REPLAY)
        fprintf(w->out, ",\"nodes updated\":%llu", (unsigned long long)event->address);
    fputs("}}", w->out);
}

static void write_pinned(struct writer *w, const struct trace_event *event)
{
    const bool freed = event->kind == AG_TRACE_PINNED_FREE;
    char site[512];

    write_slice_on(w, TRACK_PINNED, "pinned", freed ? "free" : "allocate", event);
    fprintf(w->out, ",\"args\":{\"address\":\"0x%llx\"", (unsigned long long)event->address);
    if (!freed)
        fprintf(w->out, ",\"bytes\":%llu", (unsigned long long)event->size);
    fputs(",\"caller\":", w->out);
    trace_json_string(w->out,
                      trace_site_name(w->trace, event->module, event->caller, site, sizeof(site)));
    fputs("}}", w->out);
}

/* Pieces that moved: copied, and mapped to their other memory. */
static void write_pieces(struct writer *w, const struct trace_event *event)
{
    char name[40] = "to the host";

    if (event->device >= 0)
        snprintf(name, sizeof(name), "to device %d", event->device);
    write_slice_on(w, TRACK_BUS, "bus", name, event);
    fprintf(w->out, ",\"args\":{\"bytes\":%llu,\"pieces\":%u}}", (unsigned long long)event->size,
            event->code);
}

static void write_wait(struct writer *w, const struct trace_event *event)
{
    write_slice(w, "wait", trace_text(w->trace, AG_TRACE_TEXT_WAIT, event->code), event);
    fputs("}", w->out);
}

static void write_instant(struct writer *w, const char *category, const char *first,
                          const char *second, const struct trace_event *event)
{
    begin_event(w, "i", event->began_ns, event->thread);
    name_event(w, category, first, second);
    fprintf(w->out, ",\"s\":\"%s\",\"args\":{\"size\":%llu,\"device\":%d}}",
            event->kind == AG_TRACE_MARK ? "p" : "t", (unsigned long long)event->size,
            event->device);
}

static void write_memory_event(struct writer *w, const struct trace_state *state)
{
    const struct trace_event *event = &state->event;
    bool alloc = event->kind == AG_TRACE_ALLOC || event->kind == AG_TRACE_ALLOC_ASYNC;
    char site[512];

    if (w->points)
        write_levels(w, event->began_ns + (alloc ? event->duration_ns : 0), state->level);
    if (event->duration_ns < w->slow_ns)
        return;
    write_slice(w, "memory",
                event->kind == AG_TRACE_MOVED ? "move"
                : alloc                       ? "allocate"
                                              : "free",
                event);
    fprintf(w->out, ",\"args\":{\"bytes\":%llu,\"address\":\"0x%llx\",\"placement\":",
            (unsigned long long)(state->known ? state->size : event->size),
            (unsigned long long)event->address);
    trace_json_string(w->out, trace_place(w->trace, event->placement));
    fputs(",\"caller\":", w->out);
    trace_json_string(w->out,
                      trace_site_name(w->trace, event->module, event->caller, site, sizeof(site)));
    fputs("}}", w->out);
}

static void write_one(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct writer *w = data;
    char code[32];

    switch (event->kind) {
    case AG_TRACE_REPLAY:
    case AG_TRACE_RELEASE:
    case AG_TRACE_BUILD:
        write_replay(w, event);
        break;
    case AG_TRACE_TRANSFER:
    case AG_TRACE_API_CAPTURE:
    case AG_TRACE_API_REPLAY:
    case AG_TRACE_MANAGED_ALLOC:
    case AG_TRACE_MANAGED_FREE:
    case AG_TRACE_PREFETCH:
        write_call(w, event);
        break;
    case AG_TRACE_WAIT:
        write_wait(w, event);
        break;
    case AG_TRACE_PINNED_ALLOC:
    case AG_TRACE_PINNED_FREE:
        write_pinned(w, event);
        break;
    case AG_TRACE_PIECES:
        write_pieces(w, event);
        break;
    case AG_TRACE_FLUSH:
        write_instant(w, "graph", "flush", trace_text(w->trace, AG_TRACE_TEXT_FLUSH, event->code),
                      event);
        break;
    case AG_TRACE_STEP:
        write_instant(w, "pressure", "step", trace_text(w->trace, AG_TRACE_TEXT_STEP, event->code),
                      event);
        break;
    case AG_TRACE_MARK:
        write_instant(w, "mark", trace_text(w->trace, AG_TRACE_TEXT_MARK, event->code), NULL,
                      event);
        break;
    case AG_TRACE_FAILED:
        snprintf(code, sizeof(code), "CUDA error %u", event->code);
        write_instant(w, "memory", "allocation failed", code, event);
        break;
    case AG_TRACE_STACK: /* of another event */
        break;
    default:
        write_memory_event(w, state);
    }
}

static void find_track(struct writer *w, const struct trace_event *event)
{
    enum track track = track_of_kind(event->kind);
    unsigned i = 0;

    if (track == TRACK_THREAD)
        return;
    while (i < w->n_named && (w->named[i].thread != event->thread || w->named[i].track != track))
        i++;
    if (i == w->n_named && i < MOST_NAMED) {
        w->named[i].thread = event->thread;
        w->named[i].track = track;
        w->n_named++;
    }
}

static void write_track_names(struct writer *w)
{
    for (unsigned i = 0; i < w->n_named; i++) {
        begin_event(w, "M", 0, track_of(w->named[i].thread, w->named[i].track));
        fprintf(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s (thread %u)\"}}",
                track_names[w->named[i].track], w->named[i].thread);
    }
}

static void find_places(const struct trace_state *state, void *data)
{
    struct writer *w = data;

    find_track(w, &state->event);

    if (state->event.kind <= AG_TRACE_MOVED && state->event.kind != AG_TRACE_FAILED)
        w->places |= 1u << state->event.placement;
    memcpy(w->last, state->level, sizeof(w->last));
}

/* Writes the most and the least memory in each interval, if there are too many changes for
 * points. */
static bool write_buckets(struct writer *w, int device)
{
    struct trace_bucket *buckets = calloc(N_BUCKETS, sizeof(*buckets));
    bool good = buckets && trace_memory(w->trace, device, N_BUCKETS, buckets);

    for (size_t i = 0; good && i < N_BUCKETS; i++) {
        const struct trace_bucket *b = &buckets[i];
        bool varies = memcmp(b->least, b->most, sizeof(b->least)) != 0;

        if (!i || varies || memcmp(b->most, b[-1].least, sizeof(b->most)) != 0)
            write_levels(w, b->from_ns, b->most);
        if (i + 1 == N_BUCKETS)
            write_levels(w, trace_info(w->trace)->last_ns, w->last);
        else if (varies)
            write_levels(w, b->from_ns + (b[1].from_ns - b->from_ns) / 2, b->least);
    }
    free(buckets);
    return good;
}

bool trace_write_perfetto(const struct trace *trace, int device, uint64_t slow_ns, FILE *out)
{
    const struct trace_info *info = trace_info(trace);
    uint64_t n_memory = info->n_kinds[AG_TRACE_ALLOC] + info->n_kinds[AG_TRACE_FREE] +
                        info->n_kinds[AG_TRACE_ALLOC_ASYNC] + info->n_kinds[AG_TRACE_FREE_ASYNC];
    struct writer w = {
        .trace = trace,
        .out = out,
        .slow_ns = slow_ns,
        .first = true,
        .points = n_memory <= MOST_POINTS,
    };
    bool good = trace_walk(trace, device, find_places, &w);

    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":", out);
    trace_json_string(out, info->program);
    fputs(",\"host\":", out);
    trace_json_string(out, info->host);
    fprintf(out, ",\"rank\":%d,\"dropped\":%llu},\n\"traceEvents\":[", info->rank,
            (unsigned long long)info->n_dropped);
    begin_event(&w, "M", 0, 0);
    fputs(",\"name\":\"process_name\",\"args\":{\"name\":", out);
    trace_json_string(out, info->program);
    fputs("}}", out);
    if (info->simulated) {
        begin_event(&w, "M", 0, 0);
        fputs(",\"name\":\"process_labels\",\"args\":{\"labels\":\"" TRACE_SIMULATED "\"}}", out);
    }
    write_track_names(&w);
    good = good && (w.points || !w.places || write_buckets(&w, device)) &&
           trace_walk(trace, device, write_one, &w);
    fputs("\n]}\n", out);
    return good;
}

/* --- RMM --- */

/* Frees of memory that was allocated before the trace began are left out: RMM would refuse them. */
static void write_row(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    bool alloc = event->kind == AG_TRACE_ALLOC || event->kind == AG_TRACE_ALLOC_ASYNC;
    struct writer *w = data;
    const struct trace_info *info = trace_info(w->trace);
    uint64_t ns = event->began_ns + (alloc ? event->duration_ns : 0);
    uint64_t real = info->opened_real_ns + ns - info->opened_ns;
    time_t seconds = (time_t)(real / 1000000000u);
    struct tm when;

    if (!alloc && (event->kind == AG_TRACE_MOVED || !state->known))
        return;
    if ((alloc && !event->address) || !localtime_r(&seconds, &when))
        return;
    fprintf(w->out, "%u,%02d:%02d:%02d.%06u,%s,0x%llx,%llu,0x%llx\n", event->thread, when.tm_hour,
            when.tm_min, when.tm_sec, (unsigned)(real % 1000000000u / 1000),
            alloc ? "allocate" : "free", (unsigned long long)event->address,
            (unsigned long long)(alloc ? event->size : state->size),
            (unsigned long long)event->stream);
}

bool trace_write_rmm(const struct trace *trace, int device, FILE *out)
{
    struct writer w = {.trace = trace, .out = out};

    fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
    return trace_walk(trace, device, write_row, &w);
}
