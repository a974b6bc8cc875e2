/* html_report.c: renders a job, or one process, as a page: tiles, then a card for each subject. */
#include "tools/report/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/errors/first_error.h"
#include "interpose/core/report/graphs/render_graphs.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/report/verdict/sums.h"
#include "interpose/core/report/verdict/verdict.h"
#include "interpose/core/settings/options.h"
#include "tools/base/html.h"
#include "tools/report/holders_view.h"
#include "tools/report/html_flame.h"
#include "tools/trace/html_trace.h"

#define MOST_FLAMES        8u   /* of a page */
#define MOST_UNFOLDED      16u  /* processes; of more, the page begins with the outliers */
#define MOST_BARS_OF_RANKS 200u /* with more processes the table has numbers only */

static const char *const place_colours[AG_N_PLACEMENTS] = {"c0", "c1", "c2", "c3", "c4"};

/* ---- head ---------------------------------------------------------------------------------- */

/* The rank, on a page of one process, of that process; -1: it has none. */
static int rank_of(const struct job *job)
{
    return job->n == 1 ? job->processes[0].stats->head.rank : -1;
}

static void add_page_head(struct ag_text *text, const struct job *job)
{
    const struct ag_stats_head *head = &job->total.stats->head;
    char elapsed[32];

    ag_text_add(text, "<header>\n<h1>");
    html_add(text, head->program);
    if (rank_of(job) >= 0)
        ag_text_add(text, ", rank %d", rank_of(job));
    ag_text_add(text, "</h1>\n<p class=\"soft\" style=\"margin:0\">");
    if (job->n > 1)
        ag_text_add(text, "%zu processes on ", job->n);
    else
        ag_text_add(text, "process %d on ", head->pid);
    html_add(text, head->host);
    if (process_elapsed_ns(&job->total))
        ag_text_add(
            text, job->n > 1 ? ", the longest ran %s" : ", ran %s",
            unit_text(elapsed, sizeof(elapsed), UNIT_NS, (double)process_elapsed_ns(&job->total)));
    ag_text_add(text, "; ended by ");
    html_add(text, head->ended_by);
    ag_text_add(text, "; Allograft ");
    html_add(text, head->version);
    ag_text_add(text, "</p>\n</header>\n");
}

static void add_verdict_line(struct ag_text *text, const char *what, const char *line)
{
    ag_text_add(text, "<p><strong>%s:</strong> ", what);
    html_add(text, line);
    ag_text_add(text, "</p>\n");
}

static void add_verdict(struct ag_text *text, const struct job *job)
{
    const struct ag_verdict verdict = ag_verdict_of(job->total.stats, &job->total.moment);

    add_verdict_line(text, "Gained", verdict.gained);
    add_verdict_line(text, "Held back", verdict.held_back);
    add_verdict_line(text, "Try", verdict.to_try);
    add_verdict_line(text, "Memory", verdict.memory);
}

static void add_warnings(struct ag_text *text, const struct job *job)
{
    const char *warning;

    for (unsigned i = 0; (warning = ag_render_warning(job->total.stats, i)); i++) {
        ag_text_add(text, i ? "<li>" : "<ul class=\"warnings\">\n<li>");
        html_add(text, warning);
        ag_text_add(text, "</li>\n");
    }
    if (ag_render_warning(job->total.stats, 0))
        ag_text_add(text, "</ul>\n");
}

static void add_launched(struct ag_text *text, const struct ag_first_error *first)
{
    char name[288], stream[64];

    for (uint32_t i = 0; i < first->n_launched && i < AG_LAUNCHED; i++) {
        const struct ag_launched *launched = &first->launched[i];

        if (!i || launched->thread != first->launched[i - 1].thread)
            ag_text_add(text, "%s<p>Launched before it in thread %d, the latest first:</p>\n<ol>\n",
                        i ? "</ol>\n" : "", launched->thread);
        ag_text_add(text, "<li><code>");
        html_add(text, ag_launched_name(launched, name, sizeof(name)));
        ag_text_add(text, "</code> on %s</li>\n",
                    ag_launched_stream(launched, stream, sizeof(stream)));
    }
    if (first->n_launched)
        ag_text_add(text, "</ol>\n");
    else if (first->launches_unseen)
        ag_text_add(text, "<p class=\"note\">" AG_LAUNCHES_UNSEEN_TEXT ".</p>\n");
}

static void add_error_card(struct ag_text *text, const struct job *job)
{
    char error[256];

    if (!*ag_first_error_text(job->total.stats, error, sizeof(error)))
        return;
    html_card_begin(text, true, "First error", NULL);
    ag_text_add(text, "<p>");
    html_add(text, error);
    ag_text_add(text, ".</p>\n");
    add_launched(text, &job->total.stats->first_error);
    html_card_end(text);
}

static void add_tile(struct ag_text *text, const char *label, const char *value, const char *below)
{
    ag_text_add(text, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", label, value, below);
}

/* The speed of iterations with graphs, as the profit guard last measured it. */
static void add_speed(struct ag_text *text, const struct ag_stats *stats)
{
    double eager = (double)stats->eager_ns, replayed = (double)stats->replayed_ns;
    char value[32], below[128], with[32], without[32], what[32] = "an iteration";

    if (eager <= 0 || replayed <= 0 || stats->head.simulated)
        return;
    if (stats->compared_unwaited)
        snprintf(what, sizeof(what), "for %u operations", AG_UNWAITED_ITERATION);
    snprintf(value, sizeof(value), "%.2fx", eager / replayed);
    snprintf(below, sizeof(below), "%s instead of %s %s",
             unit_text(with, sizeof(with), UNIT_NS, replayed),
             unit_text(without, sizeof(without), UNIT_NS, eager), what);
    add_tile(text,
             stats->compared_unwaited ? "Speed of the host with graphs"
                                      : "Speed of iterations with graphs",
             value, below);
}

/* What the devices gave, and what was never freed, or not yet. */
static void add_memory_tiles(struct ag_text *text, const struct job *job)
{
    const struct ag_sum_left left = ag_sum_left(job->total.stats);
    bool runs = !strcmp(job->total.stats->head.ended_by, "running");
    char value[32], number[32], below[96];
    double given;

    if (figure_of(&job->total, FIGURE_GIVEN, &given))
        add_tile(text, "Taken of the device", unit_text(value, sizeof(value), UNIT_BYTES, given),
                 "at a time, with what was kept for later");
    snprintf(below, sizeof(below), "in %s block%s",
             html_number(number, sizeof(number), UNIT_COUNT, (double)left.blocks),
             left.blocks == 1 ? "" : "s");
    if (left.blocks)
        add_tile(text, runs ? "In use" : "Never freed",
                 unit_text(value, sizeof(value), UNIT_BYTES, (double)left.bytes), below);
}

static void add_tiles(struct ag_text *text, const struct job *job)
{
    struct overview_row rows[OVERVIEW_ROWS];
    unsigned n = overview(&job->total, job->elapsed_ns, rows);
    char value[32], part[32], whole[32], below[96];
    double peak = 0;

    ag_text_add(text, "<dl class=\"tiles\">\n");
    (void)figure_of(&job->total, FIGURE_PEAK, &peak);
    add_tile(text, "Peak memory", unit_text(value, sizeof(value), UNIT_BYTES, peak),
             job->n > 1 ? "sum of all processes' peaks" : "the most at a time");
    add_memory_tiles(text, job);
    for (unsigned i = 0; i < n; i++) {
        if (rows[i].unit == UNIT_BYTES)
            continue;
        snprintf(value, sizeof(value), "%.1f %%", 100 * rows[i].part / rows[i].whole);
        snprintf(below, sizeof(below), "%s of %s",
                 html_number(part, sizeof(part), rows[i].unit, rows[i].part),
                 html_number(whole, sizeof(whole), rows[i].unit, rows[i].whole));
        *rows[i].label = (char)(*rows[i].label - ('a' - 'A'));
        add_tile(text, rows[i].label, value, below);
    }
    add_speed(text, job->total.stats);
    ag_text_add(text, "</dl>\n");
}

/* ---- memory -------------------------------------------------------------------------------- */

static double peak_at_place(const struct job *job, unsigned row, unsigned place)
{
    return (double)job->total.stats->peak_bytes[row][place];
}

/* The peak of all placements together. */
static double peak_of_all(const struct job *job, unsigned row)
{
    return (double)ag_sum_peak(job->total.stats, row);
}

/* Adds a bar of the peaks, but only where all placements had theirs at a time; else no bar is the
 * whole. */
static void add_peak_bar(struct ag_text *text, const struct job *job, unsigned row, double sum)
{
    double at = 0;
    char size[32];

    ag_text_add(text,
                "<div class=\"stack\"><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
                "role=\"img\"><title>Peak memory by placement</title><desc>");
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        if (peak_at_place(job, row, place) > 0)
            ag_text_add(text, "%s %s. ", ag_placement_names[place],
                        unit_text(size, sizeof(size), UNIT_BYTES, peak_at_place(job, row, place)));
    }
    ag_text_add(text, "</desc>");
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        double width = 1000 * peak_at_place(job, row, place) / sum;

        if (width > 0)
            ag_text_add(text, "<rect class=\"%s\" x=\"%.2f\" width=\"%.2f\" height=\"20\"/>",
                        place_colours[place], at, width);
        at += width;
    }
    ag_text_add(text, "</svg></div>\n");
}

/* Was memory of the device asked for? Else there is no table. */
static bool is_device_used(const struct job *job, unsigned row)
{
    uint64_t sum = 0;

    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        sum += process_place(&job->total, row, place)->allocs +
               process_place(&job->total, row, place)->failed;
    return sum > 0;
}

/* Is memory of the device left at the end? Else the table goes without the column. */
static bool is_memory_left(const struct job *job, unsigned row)
{
    uint64_t sum = 0;

    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        sum += ag_live_of(job->total.stats, row, place);
    return sum > 0;
}

static void add_place_line(struct ag_text *text, const struct job *job, unsigned row,
                           unsigned place)
{
    double all = peak_of_all(job, row);
    const struct ag_place_stats *stats = process_place(&job->total, row, place);
    char peak[32], left[32], asked[32], allocs[32];

    if (!stats->allocs && !stats->failed)
        return;
    ag_text_add(text,
                "<tr><th scope=\"row\"><i class=\"dot %s\"></i>%s</th><td class=\"num\" "
                "data-label=\"peak\">%s</td><td class=\"num\" data-label=\"of that\">%.1f %%</td>",
                place_colours[place], ag_placement_names[place],
                unit_text(peak, sizeof(peak), UNIT_BYTES, peak_at_place(job, row, place)),
                all > 0 ? 100 * peak_at_place(job, row, place) / all : 0.0);
    if (is_memory_left(job, row))
        ag_text_add(text, "<td class=\"num\" data-label=\"at the end\">%s</td>",
                    unit_text(left, sizeof(left), UNIT_BYTES,
                              (double)ag_live_of(job->total.stats, row, place)));
    ag_text_add(text,
                "<td class=\"num\" data-label=\"allocs\">%s</td><td class=\"num\" "
                "data-label=\"asked for\">%s</td></tr>\n",
                html_number(allocs, sizeof(allocs), UNIT_COUNT, (double)stats->allocs),
                unit_text(asked, sizeof(asked), UNIT_BYTES, (double)stats->alloc_bytes));
}

static void add_device(struct ag_text *text, const struct job *job, unsigned i)
{
    const struct ag_stats_device *device = &job->total.stats->devices[i];
    char size[32];
    double sum = 0;

    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        sum += peak_at_place(job, i, place);
    ag_text_add(text, "<h3>");
    html_add(text, device->name);
    ag_text_add(text, " <small>%s",
                unit_text(size, sizeof(size), UNIT_BYTES, (double)device->total_bytes));
    ag_text_add(text,
                "</small></h3>\n<p class=\"note\">%s at a time in all placements together.</p>\n",
                unit_text(size, sizeof(size), UNIT_BYTES, peak_of_all(job, i)));
    if (ag_sum_given(job->total.stats, i))
        ag_text_add(
            text,
            "<p class=\"note\">%s of the device at a time, with what was kept for later.</p>\n",
            unit_text(size, sizeof(size), UNIT_BYTES, (double)ag_sum_given(job->total.stats, i)));
    if (sum > 0 && sum <= peak_of_all(job, i))
        add_peak_bar(text, job, i, sum);
    if (!is_device_used(job, i))
        return;
    ag_text_add(
        text,
        "<table class=\"cells\">\n<thead><tr><th scope=\"col\">placement</th><th scope=\"col\" "
        "class=\"num\">peak</th><th scope=\"col\" class=\"num\">of that</th>%s<th scope=\"col\" "
        "class=\"num\">allocs</th><th scope=\"col\" class=\"num\">asked for</th>"
        "</tr></thead>\n<tbody>\n",
        is_memory_left(job, i) ? "<th scope=\"col\" class=\"num\">at the end</th>" : "");
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        add_place_line(text, job, i, place);
    ag_text_add(text, "</tbody>\n</table>\n");
}

static void add_memory_card(struct ag_text *text, const struct job *job)
{
    unsigned n = job->total.stats->n_devices;

    if (!n)
        return;
    html_card_begin(
        text, false, "Peak memory",
        job->n > 1 ? "Devices of one model share a row. Peaks are the sum of those of each process."
                   : "Placements may have had their peaks at different times, so these may come to "
                     "more than the peak of all.");
    for (unsigned i = 0; i < n && i < AG_STATS_DEVICES; i++)
        add_device(text, job, i);
    html_card_end(text);
}

static void add_sizes(struct ag_text *text, const struct job *job)
{
    double counts[AG_SIZE_CLASSES] = {0}, most = 0, sum = 0;
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char label[32];

    for (unsigned c = 0; c < AG_SIZE_CLASSES; c++) {
        for (unsigned i = 0; i < AG_STATS_DEVICES * AG_N_PLACEMENTS; i++) {
            const struct ag_place_stats *stats =
                process_place(&job->total, i / AG_N_PLACEMENTS, i % AG_N_PLACEMENTS);

            counts[c] += (double)stats->sizes[c];
        }
        most = counts[c] > most ? counts[c] : most;
        sum += counts[c];
    }
    if (sum <= 0)
        return;
    html_card_begin(text, false, "Sizes of allocations", NULL);
    html_bars_begin(text, "", "up to", "allocations");
    for (unsigned c = 0; c < AG_SIZE_CLASSES; c++) {
        snprintf(label, sizeof(label), "%llu %s", 1ull << ((c + 9) % 10), units[(c + 9) / 10]);
        if (counts[c] > 0)
            html_bar(text, "c1", label, UNIT_COUNT, counts[c], most, sum);
    }
    html_bars_end(text);
    html_card_end(text);
}

/* ---- groups of counters -------------------------------------------------------------------- */

static double group_sum(const struct job *job, const char *group, double *ret_most)
{
    double sum = 0, most = 0;

    for (unsigned i = 0; i < AG_N_STATS; i++) {
        double count = (double)process_counter(&job->total, i);

        if (strcmp(ag_stat_rows[i].group, group))
            continue;
        sum += count;
        most = count > most ? count : most;
    }
    if (ret_most)
        *ret_most = most;
    return sum;
}

/* Adds the non-zero counters of a group, as shares of their sum. */
static void add_group(struct ag_text *text, const struct job *job, const char *group,
                      const char *caption, const char *of_what, const char *colour)
{
    double most, sum = group_sum(job, group, &most);

    if (sum <= 0)
        return;
    html_bars_begin(text, caption, of_what, "count");
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        double count = (double)process_counter(&job->total, i);

        if (count > 0 && !strcmp(ag_stat_rows[i].group, group))
            html_bar(text, colour, ag_stat_rows[i].label, UNIT_COUNT, count, most, sum);
    }
    html_bars_end(text);
}

/* Adds the non-zero counters of a group that are not shares of a sum. */
static void add_list(struct ag_text *text, const struct job *job, const char *group,
                     const char *caption)
{
    char number[32];

    if (group_sum(job, group, NULL) <= 0)
        return;
    ag_text_add(text, "<table>\n<caption>%s</caption>\n<tbody>\n", caption);
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        double count = (double)process_counter(&job->total, i);

        if (count > 0 && !strcmp(ag_stat_rows[i].group, group))
            ag_text_add(text, "<tr><th scope=\"row\">%s</th><td class=\"num\">%s</td></tr>\n",
                        ag_stat_rows[i].label,
                        html_number(number, sizeof(number), figure_unit_of_key(ag_stat_rows[i].key),
                                    count));
    }
    ag_text_add(text, "</tbody>\n</table>\n");
}

static void add_frees(struct ag_text *text, const struct job *job)
{
    if (group_sum(job, "frees", NULL) <= 0)
        return;
    html_card_begin(
        text, false, "Frees",
        "The host waited in frees that waited for all work of the context, and in those "
        "that were left to the driver.");
    add_group(text, job, "frees", "How frees were ordered", "method", "c2");
    add_group(text, job, "fences", "How work was ordered behind frees", "kind", "c3");
    add_group(text, job, "drains", "Why frees waited for all work", "reason", "c4");
    add_group(text, job, "late_waits", "When the host waited for ordered frees later", "occasion",
              "c3");
    html_card_end(text);
}

/* How far moves were from what the bus alone would take. */
static void add_moves(struct ag_text *text, const struct job *job)
{
    struct ag_sum_moves sums = ag_sum_moves(job->total.stats);
    const struct {
        const char *label;
        uint64_t ns;
    } rows[] = {{"mapping beside copies", sums.map_ns},
                {"copies alone", sums.copy_ns},
                {"waiting for the device", sums.wait_ns},
                {"the rest", sums.rest_ns},
                {"the bus alone, as fast as it was once", sums.least_ns}};

    if (!sums.least_ns)
        return;
    html_bars_begin(text, "What moving memory took", "part", "time");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        html_bar(text, "c2", rows[i].label, UNIT_NS, (double)rows[i].ns, (double)sums.ns,
                 (double)sums.ns);
    html_bars_end(text);
}

static void add_cache_and_pressure(struct ag_text *text, const struct job *job)
{
    static const char *const groups[][2] = {
        {"cache", "Cache of freed blocks"},
        {"slabs", "Slabs for small blocks"},
        {"pinned", "Pinned memory that is kept"},
        {"pool", "Pools of Allograft's own"},
        {"managed", "Managed memory"},
        {"pressure", "Memory pressure"},
        {"copies", "Copies of pageable memory"},
        {"injected", "Calls that rules failed"},
        {"guard", "Guards of blocks"},
        {"async", "The program's own stream-ordered calls"},
        {"ipc", "Memory shared with other processes"},
        {"api", "Calls of allograft.h"},
        {"waiting", "How threads waited for the device"},
    };
    bool any = false;

    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (group_sum(job, groups[i][0], NULL) <= 0)
            continue;
        if (!any)
            html_card_begin(text, false, "Cache, managed memory and pressure", NULL);
        any = true;
        add_list(text, job, groups[i][0], groups[i][1]);
        if (!strcmp(groups[i][0], "pressure"))
            add_moves(text, job);
    }
    if (any)
        html_card_end(text);
}

static bool pools_have_levels(const struct ag_stats *stats)
{
    bool any = false;

    for (unsigned row = 0; row < AG_APP_POOLS; row++)
        any |= stats->app_pools[row].has_levels;
    return any;
}

static void add_pool_row(struct ag_text *text, const struct ag_stats *stats, unsigned row)
{
    static const char *const kinds[] = {"unknown",  "default", "created",
                                        "imported", "managed", "others"};
    const struct ag_app_pool_stats *pool = &stats->app_pools[row];
    const _Atomic uint64_t *counts = stats->slots[0].app_pools[row];
    int kind = pool->kind;
    char allocs[32], asked[32], used[32] = "-", held[32] = "-";

    if (pool->has_levels) {
        (void)unit_text(used, sizeof(used), UNIT_BYTES, (double)pool->used_high);
        (void)unit_text(held, sizeof(held), UNIT_BYTES, (double)pool->reserved_high);
    }
    ag_text_add(text, "<tr><th scope=\"row\">%s",
                kinds[kind >= 0 && kind <= AG_APP_POOL_OTHERS ? kind : 0]);
    if (pool->device >= 0)
        ag_text_add(text, ", device %d", pool->device);
    ag_text_add(text,
                "</th><td class=\"num\" data-label=\"allocs\">%s</td><td class=\"num\" "
                "data-label=\"asked for\">%s</td>",
                html_number(allocs, sizeof(allocs), UNIT_COUNT, (double)counts[AG_APP_ALLOCS]),
                unit_text(asked, sizeof(asked), UNIT_BYTES, (double)counts[AG_APP_BYTES]));
    if (pools_have_levels(stats))
        ag_text_add(text,
                    "<td class=\"num\" data-label=\"most used\">%s</td>"
                    "<td class=\"num\" data-label=\"most held\">%s</td>",
                    used, held);
    ag_text_add(text, "</tr>\n");
}

static void add_pools(struct ag_text *text, const struct job *job)
{
    const struct ag_stats *stats = job->total.stats;
    bool any = false;

    for (unsigned row = 0; row < AG_APP_POOLS; row++) {
        const _Atomic uint64_t *counts = stats->slots[0].app_pools[row];

        if (!counts[AG_APP_ALLOCS] && !counts[AG_APP_FAILED])
            continue;
        if (!any) {
            html_card_begin(text, false, "The program's own pools", NULL);
            ag_text_add(text, "<table class=\"cells\">\n<thead><tr><th scope=\"col\">pool</th><th "
                              "scope=\"col\" class=\"num\">allocs</th><th scope=\"col\" "
                              "class=\"num\">asked for</th>");
            if (pools_have_levels(stats))
                ag_text_add(text, "<th scope=\"col\" class=\"num\">most used</th>"
                                  "<th scope=\"col\" class=\"num\">most held</th>");
            ag_text_add(text, "</tr></thead>\n<tbody>\n");
        }
        any = true;
        add_pool_row(text, stats, row);
    }
    if (!any)
        return;
    ag_text_add(text, "</tbody>\n</table>\n");
    html_card_end(text);
}

static void add_graph_row(struct ag_text *text, const char *what, enum unit unit, double value)
{
    char number[32];

    ag_text_add(text, "<tr><th scope=\"row\">%s</th><td class=\"num\">%s</td></tr>\n", what,
                html_number(number, sizeof(number), unit, value));
}

/* What they took of a device only where that was measured; of memory nodes, if there were any. */
static void add_graphs_of_device(struct ag_text *text, const struct ag_own_graph_stats *device,
                                 unsigned ordinal)
{
    char what[96];

    for (unsigned i = 0; i < AG_N_GRAPH_BYTES; i++) {
        if (!ag_render_graph_bytes_shown(device, i))
            continue;
        snprintf(what, sizeof(what), "device %u: %s", ordinal, ag_render_graph_label(i));
        add_graph_row(text, what, UNIT_BYTES, (double)device->bytes[i]);
    }
}

static void add_graphs(struct ag_text *text, const struct job *job)
{
    const struct ag_stats *stats = job->total.stats;

    if (group_sum(job, "own_graphs", NULL) <= 0)
        return;
    html_card_begin(text, false, "The program's own executable graphs", NULL);
    add_list(text, job, "own_graphs", "Executable graphs");
    ag_text_add(text, "<table>\n<tbody>\n");
    add_graph_row(text, "most at once", UNIT_COUNT, (double)stats->own_graphs.peak);
    add_graph_row(text, "not destroyed", UNIT_COUNT, (double)stats->own_graphs.current);
    for (unsigned i = 0; i < AG_STATS_DEVICES; i++)
        add_graphs_of_device(text, &stats->own_graph_devices[i], i);
    ag_text_add(text, "</tbody>\n</table>\n");
    html_card_end(text);
}

/* ---- time ---------------------------------------------------------------------------------- */

/* Sums over all devices; the second index is 0 for allocations and 1 for frees. */
struct times {
    double ns[AG_N_PLACEMENTS][2], counts[AG_N_PLACEMENTS][2], bytes[AG_N_PLACEMENTS];
};

static void sum_times(const struct job *job, struct times *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (unsigned i = 0; i < AG_STATS_DEVICES * AG_N_PLACEMENTS; i++) {
        unsigned place = i % AG_N_PLACEMENTS;
        const struct ag_place_stats *stats = process_place(&job->total, i / AG_N_PLACEMENTS, place);

        ret->ns[place][0] += (double)stats->alloc_ticks;
        ret->ns[place][1] += (double)stats->free_ticks;
        ret->counts[place][0] += (double)stats->allocs;
        ret->counts[place][1] += (double)stats->frees;
        ret->bytes[place] += (double)stats->alloc_bytes;
    }
}

/* Medians of a pair of cuMemAlloc and cuMemFree on an idle device, from 512 B to 1 GiB; the note on
 * the page says where they were measured. */
#define NATIVE_PAIR_NS    50000.0
#define NATIVE_PER_MIB_NS 300.0
#define ENOUGH_NATIVE     100.0 /* native calls of the process, for a meaningful mean */

/* Compares the time of redirected calls with the time of as many native ones. Native memory that
 * the cache hands out again is neither. */
static void add_native_cost(struct ag_text *text, const struct job *job, const struct times *times)
{
    const double *native_ns = times->ns[AG_PLACE_NATIVE], *natives = times->counts[AG_PLACE_NATIVE];
    bool own = natives[0] >= ENOUGH_NATIVE && natives[1] >= ENOUGH_NATIVE &&
               natives[0] <= (double)process_counter(&job->total, AG_STAT_PASSED);
    double ours = 0, allocs = 0, frees = 0, bytes = 0, native, most;
    char now[32], then[32];

    for (unsigned place = AG_PLACE_NATIVE + 1; place < AG_N_PLACEMENTS; place++) {
        ours += times->ns[place][0] + times->ns[place][1];
        allocs += times->counts[place][0];
        frees += times->counts[place][1];
        bytes += times->bytes[place];
    }
    if (allocs <= 0 || ours <= 0)
        return;
    native = own ? allocs * native_ns[0] / natives[0] + frees * native_ns[1] / natives[1]
                 : (allocs + frees) / 2 *
                       (NATIVE_PAIR_NS + NATIVE_PER_MIB_NS * bytes / allocs / (1u << 20));
    most = native > ours ? native : ours;
    html_bars_begin(text, "Redirected calls, and the same number of native ones", "calls", "time");
    html_bar(text, "c1", "redirected", UNIT_NS, ours, most, job->elapsed_ns);
    html_bar(text, "c0", "native, estimated", UNIT_NS, native, most, job->elapsed_ns);
    html_bars_end(text);
    ag_text_add(text, "<p class=\"note\">Estimated from ");
    if (own)
        ag_text_add(text,
                    "the means of this program's native calls: %s per allocation and %s per free, "
                    "including waits for the device.",
                    unit_text(now, sizeof(now), UNIT_NS, native_ns[0] / natives[0]),
                    unit_text(then, sizeof(then), UNIT_NS, native_ns[1] / natives[1]));
    else
        ag_text_add(
            text,
            "figures of another machine: an allocation and its free take 50 us, plus 0.3 us "
            "per MiB (medians on an idle NVIDIA H200, driver 580.159). Native frees also wait "
            "for the device, which is not included. To measure it, run with <code>--policy "
            "native</code> and compare by <code>allograft diff</code>.");
    ag_text_add(text, "</p>\n");
}

static void add_times_card(struct ag_text *text, const struct job *job)
{
    char label[64], each[32];
    struct times times;
    double most = 0;

    sum_times(job, &times);
    for (unsigned i = 0; i < 2 * AG_N_PLACEMENTS; i++)
        most = times.ns[i / 2][i % 2] > most ? times.ns[i / 2][i % 2] : most;
    if (most <= 0 || job->total.stats->head.simulated)
        return;
    html_card_begin(
        text, false, "Time in allocations and frees",
        "Time that the program's threads spent in these calls; shares are of the processes' "
        "running time.");
    html_bars_begin(text, "", "call", "time");
    for (unsigned i = 0; i < 2 * AG_N_PLACEMENTS; i++) {
        double sum = times.ns[i / 2][i % 2], count = times.counts[i / 2][i % 2];

        if (count <= 0)
            continue;
        snprintf(label, sizeof(label), "%s, %s: %s each", ag_placement_names[i / 2],
                 i % 2 ? "free" : "alloc", unit_text(each, sizeof(each), UNIT_NS, sum / count));
        html_bar(text, place_colours[i / 2], label, UNIT_NS, sum, most, job->elapsed_ns);
    }
    html_bars_end(text);
    add_native_cost(text, job, &times);
    html_card_end(text);
}

/* ---- replay -------------------------------------------------------------------------------- */

static void add_replay(struct ag_text *text, const struct job *job)
{
    static const enum ag_stat parts[] = {AG_STAT_REPLAY_SEEN, AG_STAT_REPLAY_WITHHELD,
                                         AG_STAT_REPLAY_REPLAYED, AG_STAT_REPLAY_RELEASED};
    static const char *const colours[] = {"c0", "c3", "c2", "c4"};
    double seen = (double)process_counter(&job->total, AG_STAT_REPLAY_SEEN);

    if (strcmp(job->total.stats->head.replay, "on") != 0)
        return;
    html_card_begin(
        text, false, "Replay",
        "Operations on marked streams are withheld, then launched in graphs or one by one.");
    if (seen > 0) {
        html_bars_begin(text, "What happened to operations", "operations", "count");
        for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
            html_bar(text, colours[i], i ? ag_stat_rows[parts[i]].label : "on marked streams",
                     UNIT_COUNT, (double)process_counter(&job->total, parts[i]), seen, seen);
        html_bars_end(text);
    }
    add_group(text, job, "flushes", "Why withheld work went out", "reason", "c5");
    add_list(text, job, "replay", "All counters");
    add_list(text, job, "staging", "Host data of withheld copies");
    html_card_end(text);
}

/* Points of the program that it named through the control API. */
static void add_marks(struct ag_text *text, const struct job *job)
{
    const struct ag_stats *stats = job->total.stats;
    char count[32], first[32], last[32], bytes[32];

    if (!stats->n_marks)
        return;
    html_card_begin(text, false, "Marks of the program", NULL);
    ag_text_add(text,
                "<table class=\"cells\">\n<thead><tr><th scope=\"col\">mark</th><th "
                "scope=\"col\" class=\"num\">passed</th><th scope=\"col\" class=\"num\">first "
                "at</th><th scope=\"col\" class=\"num\">last at</th><th scope=\"col\" "
                "class=\"num\">memory then</th></tr></thead>\n<tbody>\n");
    for (unsigned i = 0; i < stats->n_marks && i < AG_MARKS; i++) {
        const struct ag_mark_stats *mark = &stats->marks[i];

        ag_text_add(text, "<tr><th scope=\"row\">");
        html_add(text, mark->name);
        ag_text_add(
            text,
            "</th><td class=\"num\" data-label=\"passed\">%s</td><td class=\"num\" "
            "data-label=\"first at\">%s</td><td class=\"num\" data-label=\"last at\">%s</td><td "
            "class=\"num\" data-label=\"memory then\">%s</td></tr>\n",
            html_number(count, sizeof(count), UNIT_COUNT, (double)mark->count),
            unit_text(first, sizeof(first), UNIT_NS, (double)mark->first_ns),
            unit_text(last, sizeof(last), UNIT_NS, (double)mark->last_ns),
            unit_text(bytes, sizeof(bytes), UNIT_BYTES, (double)mark->bytes));
    }
    ag_text_add(text, "</tbody>\n</table>\n");
    html_card_end(text);
}

/* ---- processes ----------------------------------------------------------------------------- */

static void add_figure(struct ag_text *text, const struct job *job, const struct process *process,
                       enum figure figure, double most)
{
    double value = job->medians[figure].value;
    bool known = process ? figure_of(process, figure, &value) : job->medians[figure].known;
    bool outlier = process && figure_is_outlier(job, process, figure);
    char number[32];

    ag_text_add(text, "<td class=\"num cell\" data-label=\"%s\">%s%s%s", figure_rows[figure].title,
                outlier ? "<span class=\"out\">" : "",
                known ? html_number(number, sizeof(number), figure_rows[figure].unit, value) : "-",
                outlier ? " *</span>" : "");
    if (process && known && job->n <= MOST_BARS_OF_RANKS)
        html_bar_alone(text, outlier ? "c4" : "c1", most > 0 ? value / most : 0);
    ag_text_add(text, "</td>");
}

static void add_process_row(struct ag_text *text, const struct job *job,
                            const struct process *process, const double *most)
{
    const struct ag_stats_head *head = &process->stats->head;

    ag_text_add(text, "<tr><th scope=\"row\">");
    if (head->rank >= 0)
        ag_text_add(text, "rank %d, ", head->rank);
    html_add(text, head->host);
    ag_text_add(text, ", process %d", head->pid);
    if (strcmp(head->ended_by, "exit") != 0) {
        ag_text_add(text, ", ");
        html_add(text, head->ended_by);
    }
    ag_text_add(text, "</th>");
    for (unsigned figure = 0; figure < N_FIGURES; figure++) {
        if (job->medians[figure].any_above_zero)
            add_figure(text, job, process, figure, most[figure]);
    }
    ag_text_add(text, "</tr>\n");
}

static bool is_outlier(const struct job *job, const struct process *process)
{
    for (unsigned figure = 0; figure < N_FIGURES; figure++) {
        if (job->medians[figure].any_above_zero && figure_is_outlier(job, process, figure))
            return true;
    }
    return false;
}

static void add_process_table(struct ag_text *text, const struct job *job, bool outliers)
{
    double most[N_FIGURES] = {0}, value;

    ag_text_add(text, "<table class=\"cells\">\n<thead><tr><th scope=\"col\">process</th>");
    for (unsigned figure = 0; figure < N_FIGURES; figure++) {
        if (job->medians[figure].any_above_zero)
            ag_text_add(text, "<th scope=\"col\" class=\"num\">%s</th>", figure_rows[figure].title);
        for (size_t i = 0; i < job->n; i++) {
            if (figure_of(&job->processes[i], figure, &value) && value > most[figure])
                most[figure] = value;
        }
    }
    for (unsigned figure = 0; figure < N_FIGURES; figure++) {
        if (figure_rows[figure].unit == UNIT_PERCENT)
            most[figure] = 100;
    }
    ag_text_add(text, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < job->n; i++) {
        if (!outliers || is_outlier(job, &job->processes[i]))
            add_process_row(text, job, &job->processes[i], most);
    }
    ag_text_add(text, "</tbody>\n<tfoot><tr><th scope=\"row\">median</th>");
    for (unsigned figure = 0; figure < N_FIGURES; figure++) {
        if (job->medians[figure].any_above_zero)
            add_figure(text, job, NULL, figure, 0);
    }
    ag_text_add(text, "</tr></tfoot>\n</table>\n");
}

static void add_outliers(struct ag_text *text, const struct job *job)
{
    size_t n = 0;

    for (size_t i = 0; i < job->n; i++)
        n += is_outlier(job, &job->processes[i]);
    ag_text_add(text, "<p>%zu of %zu processes %s.</p>\n", n, job->n,
                n == 1 ? "is an outlier" : "are outliers");
    if (n)
        add_process_table(text, job, true);
}

/* Adds the processes. Where there are many, those that stand out are in sight, and all of them in a
 * table that a click opens. */
static void add_processes(struct ag_text *text, const struct job *job)
{
    if (job->n < 2)
        return;
    html_card_begin(text, true, "Processes", NULL);
    ag_text_add(text,
                "<p class=\"note\">* an outlier: %s. In calls: time spent in allocations and "
                "frees.</p>\n",
                outlier_rule);
    if (job->n > MOST_UNFOLDED) {
        add_outliers(text, job);
        ag_text_add(text, "<details><summary>All %zu processes</summary>\n", job->n);
    }
    add_process_table(text, job, false);
    if (job->n > MOST_UNFOLDED)
        ag_text_add(text, "</details>\n");
    html_card_end(text);
}

/* ---- settings and coverage ----------------------------------------------------------------- */

static void add_settings_of(struct ag_text *text, const struct job *job, bool defaults)
{
    const char *source, *value;

    ag_text_add(text,
                "<table>\n<thead><tr><th scope=\"col\">setting</th><th scope=\"col\">value</th>"
                "<th scope=\"col\">from</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < ag_options_count(); i++) {
        (void)job_setting(&job->total, i, &source, &value);
        if (!strcmp(source, "default") != defaults)
            continue;
        ag_text_add(text, "<tr><th scope=\"row\"%s><code>%s</code></th><td><code>",
                    defaults ? "" : " class=\"set\"",
                    ag_option_info(i)->name + strlen("ALLOGRAFT_"));
        html_add(text, value);
        ag_text_add(text, "</code></td><td>");
        html_add(text, source);
        ag_text_add(text, "</td></tr>\n");
    }
    ag_text_add(text, "</tbody>\n</table>\n");
}

static void add_rules_table(struct ag_text *text, const struct job *job)
{
    const struct ag_stats *stats = job->total.stats;
    double most = 0, sum = 0;

    for (unsigned i = 0; i <= AG_MAX_RULES; i++) {
        double hits = (double)stats->slots[0].rules[i].hits;

        most = hits > most ? hits : most;
        sum += hits;
    }
    if (!stats->head.n_rules)
        return;
    html_bars_begin(text, "Allocations decided by each rule", "rule", "allocations");
    for (unsigned i = 0; i < stats->head.n_rules && i < AG_MAX_RULES; i++)
        html_bar(text, "c1", stats->head.rules[i], UNIT_COUNT,
                 (double)stats->slots[0].rules[i].hits, most, sum);
    html_bar(text, "c0", "(no rule)", UNIT_COUNT, (double)stats->slots[0].rules[AG_MAX_RULES].hits,
             most, sum);
    html_bars_end(text);
}

static void add_settings_card(struct ag_text *text, const struct job *job)
{
    html_card_begin(text, false, "Settings",
                    "Settings that are not at their defaults, and where they come from.");
    add_settings_of(text, job, false);
    add_rules_table(text, job);
    ag_text_add(text, "<details><summary>Settings at their defaults</summary>\n");
    add_settings_of(text, job, true);
    ag_text_add(text, "</details>\n");
    html_card_end(text);
}

static void add_hooks(struct ag_text *text, const struct job *job)
{
    static const char *const names[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) #symbol,
#include "interpose/core/driver/hooks.def"
    };
    char number[32];

    ag_text_add(text, "<details><summary>Calls by driver symbol</summary>\n<table>\n<tbody>\n");
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        double count = (double)job->total.stats->slots[0].hits[i];

        if (count > 0)
            ag_text_add(
                text, "<tr><th scope=\"row\"><code>%s</code></th><td class=\"num\">%s</td></tr>\n",
                names[i], html_number(number, sizeof(number), UNIT_COUNT, count));
    }
    ag_text_add(text, "</tbody>\n</table>\n</details>\n");
}

static void add_unseen_note(struct ag_text *text, const struct ag_stats *stats)
{
    unsigned n = 0;

    for (unsigned i = 0; i < AG_STATS_UNSEEN; i++) {
        if (!*stats->unseen[i])
            continue;
        ag_text_add(text, n++ ? ", "
                              : "<p>Libraries that use the device where Allograft does not see it, "
                                "so that frees wait: ");
        html_add(text, stats->unseen[i]);
    }
    if (n)
        ag_text_add(text, "</p>\n");
}

static void add_coverage(struct ag_text *text, const struct job *job)
{
    const struct ag_stats *stats = job->total.stats;

    html_card_begin(text, false, "Coverage", NULL);
    ag_text_add(text, "<p class=\"note\">Driver: <code>");
    html_add(text, *stats->head.driver ? stats->head.driver : "none was loaded");
    ag_text_add(text, "</code></p>\n");
    add_list(text, job, "lookups", "How the program looked up driver functions");
    add_list(text, job, "calls", "What happened to its calls");
    add_group(text, job, "fallbacks", "Why allocations were left to the driver", "reason", "c3");
    for (unsigned i = 0; i < stats->n_bypassing && i < AG_STATS_BYPASSING; i++) {
        ag_text_add(text,
                    i ? ", " : "<p>Libraries that call the driver directly, past Allograft: ");
        html_add(text, stats->bypassing[i]);
    }
    if (stats->n_bypassing)
        ag_text_add(text, "</p>\n");
    add_unseen_note(text, stats);
    add_hooks(text, job);
    html_card_end(text);
}

/* The place of a process's card after others of its kind: see html_fold_begin(). */
static unsigned place_after(const struct job *job, size_t n_before)
{
    return job->n == 1 && job->n_traces <= 1 ? 0 : (unsigned)n_before + 1;
}

/* The stacks of the process, which are named once for all cards. */
static const struct ag_holders_view *view_of(const struct job *job, struct ag_holders_view *views,
                                             const struct process *process)
{
    struct ag_holders_view *view = &views[process - job->processes];

    if (!view->holders)
        *view = holders_view(process);
    return view;
}

/* The process that the trace is of, if it took stacks; NULL also where several may be it. */
static const struct process *traced_process(const struct job *job, const struct trace_info *info)
{
    const struct process *found = NULL;

    for (size_t i = 0; i < job->n; i++) {
        const struct ag_stats_head *head = &job->processes[i].stats->head;

        if (head->pid != info->pid || head->rank != info->rank || strcmp(head->host, info->host))
            continue;
        if (found)
            return NULL;
        found = &job->processes[i];
    }
    return found && found->holders ? found : NULL;
}

static void add_trace_card(struct ag_text *text, const struct job *job,
                           struct ag_holders_view *views, size_t i)
{
    const struct process *process = traced_process(job, trace_info(job->traces[i]));

    text->truncated |= !html_add_trace(
        text, job->traces[i], process ? view_of(job, views, process) : NULL, place_after(job, i));
}

static void add_traces(struct ag_text *text, const struct job *job, struct ag_holders_view *views)
{
    for (size_t i = 0; i < job->n_traces && i < JOB_TRACES; i++)
        add_trace_card(text, job, views, i);
    if (job->n_traces > JOB_TRACES) {
        html_card_begin(text, true, "Other traces", NULL);
        ag_text_add(
            text,
            "<p>%zu more are not shown here; <code>allograft trace FILE</code> shows each.</p>\n",
            job->n_traces - JOB_TRACES);
        html_card_end(text);
    }
}

/* Adds the flame graphs of the first processes that took stacks; outliers come before others. */
static void add_flames(struct ag_text *text, const struct job *job, struct ag_holders_view *views)
{
    size_t n = 0, n_shown = 0;

    for (size_t i = 0; i < 2 * job->n; i++) {
        const struct process *process = &job->processes[i % job->n];

        if (is_outlier(job, process) != (i < job->n) || !html_has_flames(process))
            continue;
        if (n++ < MOST_FLAMES)
            n_shown += html_add_flames(text, process, view_of(job, views, process),
                                       place_after(job, n_shown));
    }
    if (n <= n_shown)
        return;
    html_card_begin(text, true, "Other stacks", NULL);
    ag_text_add(text,
                "<p>Those of %zu more processes are not shown here, but on pages of their own "
                "reports.</p>\n",
                n - n_shown);
    html_card_end(text);
}

/* Adds the charts over time, and those by stack. */
static void add_charts(struct ag_text *text, const struct job *job)
{
    struct ag_holders_view *views = calloc(job->n, sizeof(*views));

    text->truncated |= !views;
    if (!views)
        return;
    add_traces(text, job, views);
    add_flames(text, job, views);
    for (size_t i = 0; i < job->n; i++)
        holders_view_finish(&views[i]);
    free(views);
}

static void add_cards(struct ag_text *text, const struct job *job)
{
    add_error_card(text, job);
    add_processes(text, job);
    add_charts(text, job);
    add_memory_card(text, job);
    add_times_card(text, job);
    add_sizes(text, job);
    add_frees(text, job);
    add_replay(text, job);
    add_pools(text, job);
    add_graphs(text, job);
    add_cache_and_pressure(text, job);
    add_marks(text, job);
    add_settings_card(text, job);
    add_coverage(text, job);
}

void job_render_html(struct ag_text *text, const struct job *job)
{
    struct ag_text cards = {0};
    char title[320], rank[32] = "";

    if (rank_of(job) >= 0)
        snprintf(rank, sizeof(rank), ", rank %d", rank_of(job));
    snprintf(title, sizeof(title), "%s%s: Allograft report", job->total.stats->head.program, rank);
    add_cards(&cards, job);
    html_begin(text, title);
    add_page_head(text, job);
    add_verdict(text, job);
    add_warnings(text, job);
    add_tiles(text, job);
    html_add_contents(text, &cards);
    ag_text_add(text, "<div class=\"cards\">\n%s</div>\n", cards.data ? cards.data : "");
    html_end(text, job->n_traces > 0);
    text->truncated |= cards.truncated;
    ag_text_finish(&cards);
}
