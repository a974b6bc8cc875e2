/* trace_summary.c: writes a summary of a trace as text: see trace_out.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/base/text.h"
#include "tools/trace/site_names.h"
#include "tools/trace/trace_out.h"

#define COLUMNS    64u /* of the timeline */
#define MOST_SITES 10u
#define MOST_CODES 1024u /* of reasons; the last one counts all above it */

static const struct {
    enum ag_trace_kind kind;
    const char *name;
} kinds[] = {
    {AG_TRACE_ALLOC, "allocations"},
    {AG_TRACE_FREE, "frees"},
    {AG_TRACE_ALLOC_ASYNC, "allocations from the program's own pools"},
    {AG_TRACE_FREE_ASYNC, "frees into the program's own pools"},
    {AG_TRACE_FAILED, "allocations that failed"},
    {AG_TRACE_MOVED, "spilled blocks moved to the device"},
    {AG_TRACE_STEP, "steps under memory pressure"},
    {AG_TRACE_STACK, "stacks of allocations"},
    {AG_TRACE_REPLAY, "graphs launched"},
    {AG_TRACE_RELEASE, "segments submitted one by one"},
    {AG_TRACE_FLUSH, "flushes"},
    {AG_TRACE_BUILD, "graphs built"},
    {AG_TRACE_TRANSFER, "transfers of the control API"},
    {AG_TRACE_API_CAPTURE, "graphs captured by the control API"},
    {AG_TRACE_API_REPLAY, "graphs replayed by the control API"},
    {AG_TRACE_MANAGED_ALLOC, "managed allocations of the control API"},
    {AG_TRACE_MANAGED_FREE, "frees of these"},
    {AG_TRACE_PREFETCH, "prefetches of managed memory"},
    {AG_TRACE_MARK, "marks"},
    {AG_TRACE_WAIT, "waits for the device"},
    {AG_TRACE_PINNED_ALLOC, "allocations of pinned memory"},
    {AG_TRACE_PINNED_FREE, "frees of pinned memory"},
    {AG_TRACE_PIECES, "moves of pieces, each way"},
};

struct sums {
    struct {
        uint64_t n_allocs, n_frees, n_temporary, bytes, peak, end, alloc_ns, free_ns;
    } places[AG_TRACE_N_PLACES];
    uint64_t reasons[2][MOST_CODES]; /* flushes and steps by code */
    uint64_t peak, peak_ns, n_lost;
    uint64_t peak_of_report;          /* without the program's own pools, as reports have it */
    uint64_t transferred, prefetched; /* bytes */
    uint64_t waited_ns;
    uint64_t pinned, pinned_ns; /* bytes; of allocations and frees */
    uint64_t came, went;        /* bytes of pieces */
};

static void sum_up(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct sums *sums = data;

    switch (event->kind) {
    case AG_TRACE_ALLOC:
    case AG_TRACE_ALLOC_ASYNC:
        sums->places[event->placement].n_allocs++;
        sums->places[event->placement].bytes += event->size;
        sums->places[event->placement].alloc_ns += event->duration_ns;
        break;
    case AG_TRACE_FREE:
    case AG_TRACE_FREE_ASYNC:
        if (!state->known) {
            sums->n_lost++;
            break;
        }
        sums->places[state->from].n_frees++;
        sums->places[state->from].free_ns += event->duration_ns;
        sums->places[state->from].n_temporary += state->temporary;
        break;
    case AG_TRACE_FLUSH:
    case AG_TRACE_STEP:
        sums->reasons[event->kind == AG_TRACE_STEP]
                     [event->code < MOST_CODES ? event->code : MOST_CODES - 1]++;
        break;
    case AG_TRACE_TRANSFER:
        sums->transferred += event->size;
        break;
    case AG_TRACE_PREFETCH:
        sums->prefetched += event->size;
        break;
    case AG_TRACE_WAIT:
        sums->waited_ns += event->duration_ns;
        break;
    case AG_TRACE_PINNED_ALLOC:
    case AG_TRACE_PINNED_FREE:
        sums->pinned += event->size;
        sums->pinned_ns += event->duration_ns;
        break;
    case AG_TRACE_PIECES:
        *(event->device >= 0 ? &sums->came : &sums->went) += event->size;
        break;
    default:
        break;
    }
    for (unsigned i = 0; i < AG_TRACE_N_PLACES; i++) {
        sums->places[i].end = state->level[i];
        if (state->level[i] > sums->places[i].peak)
            sums->places[i].peak = state->level[i];
    }
    if (state->total - state->level[AG_TRACE_PLACE_APP_POOL] > sums->peak_of_report)
        sums->peak_of_report = state->total - state->level[AG_TRACE_PLACE_APP_POOL];
    if (state->total > sums->peak) {
        sums->peak = state->total;
        sums->peak_ns = event->began_ns;
    }
}

struct shown {
    char text[512];
};

/* Copies a text of the file, with '?' for control characters, which must not reach a terminal. */
static const char *show_printable(struct shown *ret, const char *text)
{
    size_t n = strnlen(text, sizeof(ret->text) - 1);

    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)text[i];

        ret->text[i] = (char)(byte < 0x20 || byte == 0x7f ? '?' : byte);
        if (i && (unsigned char)text[i - 1] == 0xc2 && byte >= 0x80 && byte < 0xa0) /* U+0080.. */
            ret->text[i] = ret->text[i - 1] = '?';
    }
    ret->text[n] = '\0';
    return ret->text;
}

static void write_head(const struct trace *trace, FILE *out)
{
    const struct trace_info *info = trace_info(trace);
    struct shown program, host, version;
    char length[32], begin[32];

    fprintf(out, "trace of %s (process %d", show_printable(&program, info->program), info->pid);
    if (info->rank >= 0)
        fprintf(out, ", rank %d", info->rank);
    fprintf(out, ") on %s, by allograft %s\n", show_printable(&host, info->host),
            show_printable(&version, info->allograft));
    fprintf(out, "  %llu events in %s, from %s after the process began; %s%s\n",
            (unsigned long long)info->n_events,
            ag_text_duration(length, sizeof(length), (double)(info->last_ns - info->opened_ns)),
            ag_text_duration(begin, sizeof(begin), (double)info->opened_ns),
            info->ended_by ? "ended by " : "running, or killed",
            info->ended_by ? info->ended_by : "");
    if (info->simulated)
        fputs("  " TRACE_SIMULATED "\n", out);
    if (info->n_dropped)
        fprintf(
            out,
            "  %llu events were dropped because the buffer was full: see ALLOGRAFT_TRACE_BUFFER\n",
            (unsigned long long)info->n_dropped);
    if (info->cut)
        fputs("  the file is incomplete\n", out);
}

static void write_kinds(const struct trace *trace, FILE *out)
{
    const uint64_t *n = trace_info(trace)->n_kinds;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (n[kinds[i].kind])
            fprintf(out, "    %-52s %14llu\n", kinds[i].name, (unsigned long long)n[kinds[i].kind]);
    }
}

static void write_memory_rows(const struct trace *trace, const struct sums *sums, FILE *out)
{
    char bytes[32], peak[32], end[32], when[32];
    struct shown place;
    uint64_t allocs = 0, temporary = 0;

    fprintf(
        out,
        "  memory           allocs      frees  temporary        total         peak      at end\n");
    for (unsigned i = 0; i < AG_TRACE_N_PLACES; i++) {
        if (!sums->places[i].n_allocs && !sums->places[i].peak)
            continue;
        fprintf(out, "    %-10.10s %10llu %10llu %10llu %12s %12s %11s\n",
                show_printable(&place, trace_place(trace, i)),
                (unsigned long long)sums->places[i].n_allocs,
                (unsigned long long)sums->places[i].n_frees,
                (unsigned long long)sums->places[i].n_temporary,
                ag_text_size(bytes, sizeof(bytes), sums->places[i].bytes),
                ag_text_size(peak, sizeof(peak), sums->places[i].peak),
                ag_text_size(end, sizeof(end), sums->places[i].end));
        allocs += sums->places[i].n_allocs;
        temporary += sums->places[i].n_temporary;
    }
    if (!allocs)
        return;
    fprintf(out, "    peak of all: %s, %s after the process began\n",
            ag_text_size(peak, sizeof(peak), sums->peak),
            ag_text_duration(when, sizeof(when), (double)sums->peak_ns));
    if (sums->places[AG_TRACE_PLACE_APP_POOL].peak)
        fprintf(out, "    peak without the program's own pools: %s\n",
                ag_text_size(peak, sizeof(peak), sums->peak_of_report));
    fprintf(out, "    temporary (freed before any other allocation): %llu of %llu\n",
            (unsigned long long)temporary, (unsigned long long)allocs);
    if (sums->n_lost)
        fprintf(out, "    frees whose allocation is not in the trace: %llu\n",
                (unsigned long long)sums->n_lost);
}

static void write_other_sums(const struct trace *trace, const struct sums *sums, FILE *out)
{
    const uint64_t *n = trace_info(trace)->n_kinds;
    char bytes[32], time[32];

    if (n[AG_TRACE_TRANSFER])
        fprintf(out, "  transferred to the device: %s\n",
                ag_text_size(bytes, sizeof(bytes), sums->transferred));
    if (n[AG_TRACE_PREFETCH])
        fprintf(out, "  prefetched managed memory: %s\n",
                ag_text_size(bytes, sizeof(bytes), sums->prefetched));
    if (n[AG_TRACE_WAIT])
        fprintf(out, "  waited for the device: %s\n",
                ag_text_duration(time, sizeof(time), (double)sums->waited_ns));
    if (n[AG_TRACE_PINNED_ALLOC] || n[AG_TRACE_PINNED_FREE])
        fprintf(out, "  pinned: %s, in calls of %s\n",
                ag_text_size(bytes, sizeof(bytes), sums->pinned),
                ag_text_duration(time, sizeof(time), (double)sums->pinned_ns));
    if (n[AG_TRACE_PIECES])
        fprintf(out, "  moved to the device: %s, to the host: %s\n",
                ag_text_size(bytes, sizeof(bytes), sums->came),
                ag_text_size(time, sizeof(time), sums->went));
}

static void write_reasons(const struct trace *trace, const struct sums *sums, bool steps, FILE *out)
{
    struct shown reason;
    bool any = false;

    for (unsigned i = 0; i < MOST_CODES; i++) {
        if (!sums->reasons[steps][i])
            continue;
        if (!any)
            fprintf(out, "  %s\n",
                    steps ? "steps under memory pressure" : "why withheld work went out");
        fprintf(
            out, "    %-52s %14llu\n",
            show_printable(&reason,
                           trace_text(trace, steps ? AG_TRACE_TEXT_STEP : AG_TRACE_TEXT_FLUSH, i)),
            (unsigned long long)sums->reasons[steps][i]);
        any = true;
    }
}

static bool write_site_rows(const struct trace *trace, int device, FILE *out)
{
    struct trace_site sites[MOST_SITES];
    long n = trace_sites(trace, device, MOST_SITES, sites);
    struct site_name functions[MOST_SITES];
    char bytes[32], name[512];
    struct shown place;

    if (n > 0) {
        site_names(trace, sites, (size_t)n, functions);
        fputs("      allocs  temporary        total   call site\n", out);
    }
    for (long i = 0; i < n; i++)
        fprintf(out, "  %10llu %10llu %12s   %s%s%s\n", (unsigned long long)sites[i].n_allocs,
                (unsigned long long)sites[i].n_temporary,
                ag_text_size(bytes, sizeof(bytes), sites[i].bytes),
                show_printable(&place, trace_site_name(trace, sites[i].module, sites[i].caller,
                                                       name, sizeof(name))),
                *functions[i].text ? " " : "", functions[i].text);
    return n >= 0;
}

/* Draws the most memory in each interval, in eighths of a line. */
static bool write_time_line(const struct trace *trace, int device, const struct sums *sums,
                            FILE *out)
{
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static struct trace_bucket buckets[COLUMNS];
    struct shown place;
    char peak[32];

    if (!sums->peak)
        return true;
    if (!trace_memory(trace, device, COLUMNS, buckets))
        return false;
    fputs("  memory over time, each line scaled to its peak\n", out);
    for (unsigned i = 0; i < AG_TRACE_N_PLACES; i++) {
        uint64_t most = sums->places[i].peak;

        if (!most)
            continue;
        fprintf(out, "    %-10.10s |", show_printable(&place, trace_place(trace, i)));
        for (unsigned j = 0; j < COLUMNS; j++) {
            double part = (double)buckets[j].most[i] / (double)most;

            fputs(bars[buckets[j].most[i] ? 1 + (unsigned)(part * 7) % 8 : 0], out);
        }
        fprintf(out, "| %s\n", ag_text_size(peak, sizeof(peak), most));
    }
    return true;
}

bool trace_write_summary(const struct trace *trace, int device, FILE *out)
{
    struct sums *sums = calloc(1, sizeof(*sums));
    bool good = sums && trace_walk(trace, device, sum_up, sums);

    if (good) {
        write_head(trace, out);
        write_kinds(trace, out);
        write_memory_rows(trace, sums, out);
        write_other_sums(trace, sums, out);
        write_reasons(trace, sums, false, out);
        write_reasons(trace, sums, true, out);
        good = write_site_rows(trace, device, out) && write_time_line(trace, device, sums, out);
    }
    free(sums);
    return good;
}
