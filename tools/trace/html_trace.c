/* html_trace.c: renders a trace as a card: memory and graphs over time, and call sites. */
#include "tools/trace/html_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/html.h"
#include "tools/trace/html_blocks.h"
#include "tools/trace/site_names.h"
#include "tools/trace/thin.h"

#define N_PARTS    400u  /* of the timeline, however many events there are */
#define N_CHART    1000u /* parts of the chart that scripts draw */
#define N_STREAMS  6u    /* that have a track of their own */
#define N_ROWS     16u   /* of the table with the same numbers */
#define MOST_SITES 12u

enum count { LAUNCHED, RELEASED, FLUSHED, N_COUNTS };

struct timeline {
    struct trace_bucket buckets[N_PARTS];
    uint64_t counts[N_COUNTS][N_PARTS];
    struct track {
        uint64_t stream, n;
        uint32_t counts[N_PARTS]; /* events */
    } streams[N_STREAMS];
    uint64_t begin_ns, length_ns;
    uint64_t n_allocs, n_temporary, bytes;
    uint64_t peak, peak_ns, at_peak[AG_TRACE_N_PLACES];
    uint64_t peak_of_cards;           /* without the program's own pools, as on the other cards */
    uint64_t most[AG_TRACE_N_PLACES]; /* the peak of each placement */
};

static const char *colour_of(unsigned place)
{
    static const char *const colours[] = {"c0", "c1", "c2", "c3", "c4", "c5"};

    return colours[place < 5 ? place : 5];
}

/* ---- collecting ---------------------------------------------------------------------------- */

static size_t timeline_part(const struct timeline *line, uint64_t ns)
{
    double share = line->length_ns && ns > line->begin_ns
                       ? (double)(ns - line->begin_ns) / (double)line->length_ns
                       : 0;

    return share < 1 ? (size_t)(share * N_PARTS) : N_PARTS - 1;
}

/* The first streams that events name get a track. */
static void count_stream(struct timeline *line, uint64_t stream, size_t part)
{
    for (unsigned i = 0; stream && i < N_STREAMS; i++) {
        struct track *track = &line->streams[i];

        if (track->stream && track->stream != stream)
            continue;
        track->stream = stream;
        track->n++;
        track->counts[part]++;
        return;
    }
}

static void add_event(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct timeline *line = data;
    size_t part = timeline_part(line, event->began_ns);

    count_stream(line, event->stream, part);
    line->counts[LAUNCHED][part] += event->kind == AG_TRACE_REPLAY;
    line->counts[RELEASED][part] += event->kind == AG_TRACE_RELEASE;
    line->counts[FLUSHED][part] += event->kind == AG_TRACE_FLUSH;
    if (event->kind == AG_TRACE_ALLOC || event->kind == AG_TRACE_ALLOC_ASYNC) {
        line->n_allocs++;
        line->bytes += event->size;
    }
    line->n_temporary += state->known && state->temporary;
    if (state->total - state->level[AG_TRACE_PLACE_APP_POOL] > line->peak_of_cards)
        line->peak_of_cards = state->total - state->level[AG_TRACE_PLACE_APP_POOL];
    if (state->total > line->peak) {
        line->peak = state->total;
        line->peak_ns = event->began_ns;
        memcpy(line->at_peak, state->level, sizeof(line->at_peak));
    }
}

static void find_most(struct timeline *line)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        const uint64_t *most = line->buckets[i].most;

        for (unsigned place = 0; place < AG_TRACE_N_PLACES; place++)
            line->most[place] = most[place] > line->most[place] ? most[place] : line->most[place];
    }
}

/* ---- drawing ------------------------------------------------------------------------------- */

static void plot_begin(struct ag_text *text, const char *colour, const char *name, const char *most)
{
    ag_text_add(text, "<p class=\"axis\"><span><i class=\"dot %s\"></i>", colour);
    html_add(text, name);
    ag_text_add(text,
                "</span><span>%s</span></p>\n<svg class=\"plot\" viewBox=\"0 0 %u 100\" "
                "preserveAspectRatio=\"none\" role=\"img\"><title>",
                most, N_PARTS);
    html_add(text, name);
    ag_text_add(text, " over time</title><desc>%s; the table below has the numbers.</desc>", most);
}

/* Extends a path by one step at `share` of the plot's height. */
static void step_to(struct ag_text *text, size_t i, double share)
{
    ag_text_add(text, "V%.1fH%zu", 100 - 100 * (share < 1 ? share : 1), i + 1);
}

/* Adds a plot of the least and the most memory in each part of the time. */
static void add_level(struct ag_text *text, const struct trace *trace, const struct timeline *line,
                      unsigned place)
{
    double most = (double)line->most[place];
    char size[32], label[64];

    if (most <= 0)
        return;
    snprintf(label, sizeof(label), "at most %s", unit_text(size, sizeof(size), UNIT_BYTES, most));
    plot_begin(text, colour_of(place), trace_place(trace, place), label);
    ag_text_add(text, "<path class=\"%s faint\" d=\"M0 100", colour_of(place));
    for (size_t i = 0; i < N_PARTS; i++)
        step_to(text, i, (double)line->buckets[i].most[place] / most);
    ag_text_add(text, "V100Z\"/><path class=\"%s\" d=\"M0 100", colour_of(place));
    for (size_t i = 0; i < N_PARTS; i++)
        step_to(text, i, (double)line->buckets[i].least[place] / most);
    ag_text_add(text, "V100Z\"/></svg>\n");
}

static const char *const count_names[N_COUNTS] = {"graphs launched",
                                                  "segments submitted one by one", "flushes"};
static const char *const count_colours[N_COUNTS] = {"c2", "c4", "c5"};

static void add_count_chart(struct ag_text *text, const struct timeline *line, enum count which)
{
    uint64_t most = 0, sum = 0;
    char number[32], label[64];

    for (size_t i = 0; i < N_PARTS; i++) {
        sum += line->counts[which][i];
        most = line->counts[which][i] > most ? line->counts[which][i] : most;
    }
    if (!sum)
        return;
    snprintf(label, sizeof(label), "%s in total",
             html_number(number, sizeof(number), UNIT_COUNT, (double)sum));
    plot_begin(text, count_colours[which], count_names[which], label);
    ag_text_add(text, "<path class=\"%s\" d=\"M0 100", count_colours[which]);
    for (size_t i = 0; i < N_PARTS; i++)
        step_to(text, i, (double)line->counts[which][i] / (double)most);
    ag_text_add(text, "V100Z\"/></svg>\n");
}

static void add_axis(struct ag_text *text, const struct timeline *line)
{
    char begin[32], middle[32], end[32];

    ag_text_add(
        text, "<p class=\"axis soft\"><span>%s</span><span>%s</span><span>%s</span></p>\n",
        unit_text(begin, sizeof(begin), UNIT_NS, (double)line->begin_ns),
        unit_text(middle, sizeof(middle), UNIT_NS,
                  (double)line->begin_ns + (double)line->length_ns / 2),
        unit_text(end, sizeof(end), UNIT_NS, (double)line->begin_ns + (double)line->length_ns));
}

/* ---- the chart that scripts draw ----------------------------------------------------------- */

static void begin_values(struct ag_text *text, const char *name, const char *colour, bool first)
{
    ag_text_add(text, "%s{\"name\":", first ? "" : ",\n");
    html_add_json(text, name);
    ag_text_add(text, ",\"colour\":\"%s\",\"values\":[", colour);
}

/* The memory of a placement, or of all, at each point, and at both ends of the trace. */
static void add_values(struct ag_text *text, const struct thin_point *points, long n, int place)
{
    uint64_t value = 0;

    ag_text_add(text, "0");
    for (long i = 0; i < n; i++) {
        value = place < 0 ? points[i].total : points[i].level[place];
        ag_text_add(text, ",%llu", (unsigned long long)value);
    }
    ag_text_add(text, ",%llu]}", (unsigned long long)value);
}

static void add_seconds(struct ag_text *text, uint64_t ns)
{
    ag_text_add(text, "%llu.%09llu", (unsigned long long)(ns / 1000000000u),
                (unsigned long long)(ns % 1000000000u));
}

static void add_time_axis(struct ag_text *text, const struct timeline *line,
                          const struct thin_point *points, long n)
{
    ag_text_add(text, "\"time\":[");
    add_seconds(text, line->begin_ns);
    for (long i = 0; i < n; i++) {
        ag_text_add(text, ",");
        add_seconds(text, points[i].ns);
    }
    ag_text_add(text, ",");
    add_seconds(text, line->begin_ns + line->length_ns);
    ag_text_add(text, "],\n\"parts\":[");
    for (unsigned i = 0; i < N_PARTS; i++) {
        ag_text_add(text, i ? "," : "");
        add_seconds(text, line->begin_ns + line->length_ns / N_PARTS * i);
    }
    ag_text_add(text, "]");
}

static uint64_t total_of(const struct timeline *line, enum count which)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < N_PARTS; i++)
        sum += line->counts[which][i];
    return sum;
}

static bool add_track_of(struct ag_text *text, const struct timeline *line, enum count which,
                         bool first)
{
    if (!total_of(line, which))
        return false;
    begin_values(text, count_names[which], count_colours[which], first);
    for (unsigned i = 0; i < N_PARTS; i++)
        ag_text_add(text, "%s%llu", i ? "," : "", (unsigned long long)line->counts[which][i]);
    ag_text_add(text, "]}");
    return true;
}

static void add_tracks(struct ag_text *text, const struct timeline *line)
{
    bool first = true;
    char name[64];

    ag_text_add(text, "\n],\"tracks\":[");
    for (unsigned which = 0; which < N_COUNTS; which++)
        first = !add_track_of(text, line, which, first) && first;
    for (unsigned k = 0; k < N_STREAMS && line->streams[k].n; k++) {
        snprintf(name, sizeof(name), "events of stream 0x%llx",
                 (unsigned long long)line->streams[k].stream);
        begin_values(text, name, "c1", first);
        for (unsigned i = 0; i < N_PARTS; i++)
            ag_text_add(text, "%s%u", i ? "," : "", line->streams[k].counts[i]);
        ag_text_add(text, "]}");
        first = false;
    }
    ag_text_add(text, "]");
}

/* The data of the chart; what is to stand there without scripts follows. */
static bool add_chart(struct ag_text *text, const struct trace *trace,
                      const struct ag_holders_view *stacks, const struct timeline *line)
{
    struct thin_point *points;
    long n = thin_memory(trace, N_CHART, &points);

    if (n < 0)
        return false;
    ag_text_add(text, "<script type=\"application/json\">{\"id\":\"p%d-%llu\",",
                trace_info(trace)->pid, (unsigned long long)line->begin_ns);
    add_time_axis(text, line, points, n);
    ag_text_add(text, ",\n\"series\":[");
    begin_values(text, "all memory", "c0", true);
    add_values(text, points, n, -1);
    for (unsigned place = 0; place < AG_TRACE_N_PLACES; place++) {
        if (!line->most[place])
            continue;
        begin_values(text, trace_place(trace, place), colour_of(place), false);
        add_values(text, points, n, (int)place);
    }
    add_tracks(text, line);
    free(points);
    ag_text_add(text, ",\n\"largest\":");
    if (!html_add_blocks(text, trace, stacks))
        return false;
    ag_text_add(text, "}</script>\n");
    return true;
}

/* ---- the table ----------------------------------------------------------------------------- */

static void add_part_row(struct ag_text *text, const struct timeline *line, unsigned row)
{
    size_t begin = row * N_PARTS / N_ROWS, end = (row + 1) * N_PARTS / N_ROWS;
    char number[32];

    ag_text_add(text, "<tr><th scope=\"row\">from %s</th>",
                unit_text(number, sizeof(number), UNIT_NS, (double)line->buckets[begin].from_ns));
    for (unsigned place = 0; place < AG_TRACE_N_PLACES; place++) {
        uint64_t most = 0;

        if (!line->most[place])
            continue;
        for (size_t i = begin; i < end; i++)
            most = line->buckets[i].most[place] > most ? line->buckets[i].most[place] : most;
        ag_text_add(text, "<td class=\"num\">%s</td>",
                    unit_text(number, sizeof(number), UNIT_BYTES, (double)most));
    }
    for (unsigned which = 0; which < N_COUNTS; which++) {
        uint64_t sum = 0;

        if (!total_of(line, which))
            continue;
        for (size_t i = begin; i < end; i++)
            sum += line->counts[which][i];
        ag_text_add(text, "<td class=\"num\">%s</td>",
                    html_number(number, sizeof(number), UNIT_COUNT, (double)sum));
    }
    ag_text_add(text, "</tr>\n");
}

static void add_parts_table(struct ag_text *text, const struct trace *trace,
                            const struct timeline *line)
{
    static const char *const heads[N_COUNTS] = {"graphs", "one by one", "flushes"};

    ag_text_add(text, "<details><summary>The same in numbers</summary>\n<table>\n<caption>Peak "
                      "memory and number of "
                      "events in each interval</caption>\n<thead><tr><th scope=\"col\">time</th>");
    for (unsigned place = 0; place < AG_TRACE_N_PLACES; place++) {
        if (!line->most[place])
            continue;
        ag_text_add(text, "<th scope=\"col\" class=\"num\">");
        html_add(text, trace_place(trace, place));
        ag_text_add(text, "</th>");
    }
    for (unsigned which = 0; which < N_COUNTS; which++) {
        if (total_of(line, which))
            ag_text_add(text, "<th scope=\"col\" class=\"num\">%s</th>", heads[which]);
    }
    ag_text_add(text, "</tr></thead>\n<tbody>\n");
    for (unsigned row = 0; row < N_ROWS; row++)
        add_part_row(text, line, row);
    ag_text_add(text, "</tbody>\n</table>\n</details>\n");
}

static void add_peak(struct ag_text *text, const struct trace *trace, const struct timeline *line)
{
    char size[32], when[32], some[32], all[32];

    if (!line->peak)
        return;
    ag_text_add(text, "<p>At the peak of %s, after %s: ",
                unit_text(size, sizeof(size), UNIT_BYTES, (double)line->peak),
                unit_text(when, sizeof(when), UNIT_NS, (double)line->peak_ns));
    for (unsigned place = 0, n = 0; place < AG_TRACE_N_PLACES; place++) {
        if (!line->at_peak[place])
            continue;
        ag_text_add(text, n++ ? ", " : "");
        html_add(text, trace_place(trace, place));
        ag_text_add(text, " %s (%.1f %%)",
                    unit_text(size, sizeof(size), UNIT_BYTES, (double)line->at_peak[place]),
                    100 * (double)line->at_peak[place] / (double)line->peak);
    }
    ag_text_add(text, ".");
    if (line->most[AG_TRACE_PLACE_APP_POOL])
        ag_text_add(text, " Without the program's own pools it was %s at most.",
                    unit_text(size, sizeof(size), UNIT_BYTES, (double)line->peak_of_cards));
    if (line->n_allocs)
        ag_text_add(
            text, " Temporary allocations, freed before any other allocation: %s of %s (%.1f %%).",
            html_number(some, sizeof(some), UNIT_COUNT, (double)line->n_temporary),
            html_number(all, sizeof(all), UNIT_COUNT, (double)line->n_allocs),
            100 * (double)line->n_temporary / (double)line->n_allocs);
    ag_text_add(text, "</p>\n");
}

/* ---- call sites ---------------------------------------------------------------------------- */

static void add_site_rows(struct ag_text *text, const struct trace *trace,
                          const struct timeline *line)
{
    struct trace_site sites[MOST_SITES];
    long n = trace_sites(trace, AG_TRACE_NO_DEVICE, MOST_SITES, sites);
    char name[512], label[sizeof(name) + SITE_NAME_BYTES + 64], number[32];
    struct site_name functions[MOST_SITES];

    if (n <= 0)
        return;
    site_names(trace, sites, (size_t)n, functions);
    html_bars_begin(text, "Call sites of allocations, most bytes first", "call site", "bytes");
    for (long i = 0; i < n; i++) {
        (void)trace_site_name(trace, sites[i].module, sites[i].caller, name, sizeof(name));
        snprintf(label, sizeof(label), "%s%s%.399s: %s allocations, %.0f %% temporary", name,
                 *functions[i].text ? " " : "", functions[i].text,
                 html_number(number, sizeof(number), UNIT_COUNT, (double)sites[i].n_allocs),
                 sites[i].n_allocs ? 100 * (double)sites[i].n_temporary / (double)sites[i].n_allocs
                                   : 0);
        html_bar(text, "c1", label, UNIT_BYTES, (double)sites[i].bytes, (double)sites[0].bytes,
                 (double)line->bytes);
    }
    html_bars_end(text);
}

/* ---- the card ------------------------------------------------------------------------------ */

static void add_note(struct ag_text *text, const struct trace_info *info)
{
    char number[32];

    ag_text_add(text, "<p class=\"note\">");
    html_add_process(text, info->program, info->rank, info->pid, info->host);
    ag_text_add(text, ": %s events",
                html_number(number, sizeof(number), UNIT_COUNT, (double)info->n_events));
    if (info->n_dropped)
        ag_text_add(text, ", %s more were dropped because the buffer was full",
                    html_number(number, sizeof(number), UNIT_COUNT, (double)info->n_dropped));
    if (info->cut)
        ag_text_add(text, "; the file is incomplete");
    if (info->simulated)
        ag_text_add(text, "; it " TRACE_SIMULATED);
    ag_text_add(text, ". Times count from the start of the process.</p>\n");
}

static bool is_empty_timeline(const struct timeline *line)
{
    uint64_t sum = line->n_allocs + line->peak + line->streams[0].n;

    for (unsigned which = 0; which < N_COUNTS; which++)
        sum += total_of(line, which);
    return !sum;
}

static bool add_body(struct ag_text *text, const struct trace *trace,
                     const struct ag_holders_view *stacks, const struct timeline *line)
{
    bool good;

    ag_text_add(text, "<div class=\"timeline\">");
    good = add_chart(text, trace, stacks, line);
    ag_text_add(text, "<div class=\"plain\">\n<p class=\"note\">Full colour: the least memory in "
                      "each interval; light: the most.</p>\n");
    for (unsigned place = 0; place < AG_TRACE_N_PLACES; place++)
        add_level(text, trace, line, place);
    for (unsigned which = 0; which < N_COUNTS; which++)
        add_count_chart(text, line, which);
    add_axis(text, line);
    ag_text_add(text, "</div></div>\n");
    add_peak(text, trace, line);
    add_parts_table(text, trace, line);
    add_site_rows(text, trace, line);
    return good;
}

bool html_add_trace(struct ag_text *text, const struct trace *trace,
                    const struct ag_holders_view *stacks, unsigned place)
{
    const struct trace_info *info = trace_info(trace);
    struct timeline *line = calloc(1, sizeof(*line));
    bool good;

    if (!line)
        return false;
    line->begin_ns = info->opened_ns;
    line->length_ns = info->last_ns > info->opened_ns ? info->last_ns - info->opened_ns : 0;
    good = trace_memory(trace, AG_TRACE_NO_DEVICE, N_PARTS, line->buckets) &&
           trace_walk(trace, AG_TRACE_NO_DEVICE, add_event, line);
    if (good) {
        find_most(line);
        html_fold_begin(text, place, "Memory over time", info->rank, info->pid);
        add_note(text, info);
        if (is_empty_timeline(line))
            ag_text_add(text,
                        "<p>Nothing was allocated, launched in graphs, or done on a stream.</p>\n");
        else
            good = add_body(text, trace, stacks, line);
        html_fold_end(text);
    }
    free(line);
    return good;
}
