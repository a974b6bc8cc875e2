/* trace_json.c: writes a trace as JSON for Perfetto, and as CSV for RMM's replay: see
 * trace_out.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interpose/base/text.h"
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

struct writer {
    const struct trace *trace;
    FILE *out;
    uint64_t slow_ns;
    bool first, points; /* points: each change of memory is shown */
    unsigned places;    /* placements in the trace, as bits */
    uint64_t last[AG_TRACE_N_PLACES];
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

static void write_slice(struct writer *w, const char *category, const char *name,
                        const struct trace_event *event)
{
    begin_event(w, "X", event->began_ns, event->thread);
    fprintf(w->out, ",\"dur\":%llu.%03u", (unsigned long long)(event->duration_ns / 1000),
            (unsigned)(event->duration_ns % 1000));
    name_event(w, category, name, NULL);
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

static void write_instant(struct writer *w, const char *category, const char *first,
                          const char *second, const struct trace_event *event)
{
    begin_event(w, "i", event->began_ns, event->thread);
    name_event(w, category, first, second);
    fprintf(w->out, ",\"s\":\"%s\",\"args\":{\"size\":%llu,\"device\":%d}}",
            event->kind == AG_TRACE_MARK ? "p" : "t", (unsigned long long)event->size,
            event->device);
}

static void write_memory(struct writer *w, const struct trace_state *state)
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
    default:
        write_memory(w, state);
    }
}

static void find_places(const struct trace_state *state, void *data)
{
    struct writer *w = data;

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
