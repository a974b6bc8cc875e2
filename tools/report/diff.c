/* diff.c: `allograft diff A B` compares what two runs counted, in words and number by number. */
#include "tools/base/complain.h"
#include "tools/base/list.h"
#include "tools/line/command_line.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/emitter.h"
#include "interpose/core/report/graphs/render_graphs.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/settings/options.h"
#include "tools/report/diff_words.h"
#include "tools/report/job.h"

enum whole { WHOLE_TIME, WHOLE_LEVEL, WHOLE_BYTES, WHOLE_OPERATIONS, WHOLE_CALLS, N_WHOLES };

/* Groups of rows, the most important first. */
enum part { PART_ALL, PART_PLACES, PART_LIBRARY, N_PARTS };

struct row {
    enum part part;
    const char *group, *name;
    enum unit unit;
    double a, b, weight;
};

/* Everything that is compared, of both sides. */
struct comparison {
    struct process sides[2];
    double wholes[N_WHOLES];
    enum part part;    /* of the rows that are being added */
    unsigned n_places; /* placements with memory on either side */
    struct row *rows;  /* what differs */
    size_t n, capacity;
    bool no_memory;
    const char *no_times; /* why times are not compared, or NULL */
};

/* ---- what differs -------------------------------------------------------------------------- */

/* The weight of a difference, in percent of what the runs come to; at most all of it. */
static double weight_of(const struct comparison *it, enum whole whole, double a, double b)
{
    double share = it->wholes[whole] > 0 ? fabs(b - a) / it->wholes[whole] : 0;

    return 100 * (share < 1 ? share : 1);
}

static void add_comparison(struct comparison *it, const char *group, const char *name,
                           enum unit unit, enum whole whole, double a, double b)
{
    void *rows;

    if (a == b || (unit == UNIT_NS && it->no_times))
        return;
    rows = list_grow(it->rows, it->n, &it->capacity, sizeof(*it->rows));
    it->no_memory |= !rows;
    if (!rows)
        return;
    it->rows = rows;
    it->rows[it->n++] = (struct row){
        .part = it->part,
        .group = group,
        .name = name,
        .unit = unit,
        .a = a,
        .b = b,
        .weight = weight_of(it, whole, a, b),
    };
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double figure(const struct process *process, enum figure which)
{
    double value = 0;

    return figure_of(process, which, &value) ? value : 0;
}

static void sum_places(const struct process *process, double *ret_bytes, double *ret_calls)
{
    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            *ret_bytes += (double)process_place(process, row, place)->alloc_bytes;
            *ret_calls += (double)process_place(process, row, place)->allocs;
            *ret_calls += (double)process_place(process, row, place)->frees;
        }
    }
}

static void find_wholes(struct comparison *it)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct process *side = &it->sides[i];
        double *wholes = it->wholes, bytes = 0, calls = 0;

        sum_places(side, &bytes, &calls);
        wholes[WHOLE_TIME] = larger(
            wholes[WHOLE_TIME], larger(figure(side, FIGURE_ELAPSED), figure(side, FIGURE_CALL_NS)));
        wholes[WHOLE_LEVEL] = larger(wholes[WHOLE_LEVEL], figure(side, FIGURE_PEAK));
        wholes[WHOLE_LEVEL] = larger(wholes[WHOLE_LEVEL], figure(side, FIGURE_GIVEN));
        wholes[WHOLE_BYTES] = larger(wholes[WHOLE_BYTES], bytes);
        wholes[WHOLE_CALLS] = larger(wholes[WHOLE_CALLS], calls);
        wholes[WHOLE_OPERATIONS] =
            larger(wholes[WHOLE_OPERATIONS], (double)process_counter(side, AG_STAT_REPLAY_SEEN));
    }
}

static const char *title_of_group(const char *group)
{
    static const struct {
        const char *group, *title;
    } titles[] = {
        {"lookups", "coverage"},
        {"calls", "coverage"},
        {"fallbacks", "left to the driver"},
        {"fences", "order behind frees"},
        {"drains", "frees that waited"},
        {"late_waits", "ordered frees awaited"},
        {"async", "stream-ordered calls"},
        {"flushes", "replay flushed"},
        {"staging", "replay staging"},
        {"ipc", "shared memory"},
    };

    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
        if (!strcmp(titles[i].group, group))
            return titles[i].title;
    }
    return group;
}

static void compare_counters(struct comparison *it)
{
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        const char *group = ag_stat_rows[i].group, *key = ag_stat_rows[i].key;
        bool of_replay = !strcmp(group, "replay") || !strcmp(group, "flushes");
        enum unit unit = figure_unit_of_key(key);
        enum whole whole = unit == UNIT_NS      ? WHOLE_TIME
                           : unit == UNIT_BYTES ? WHOLE_BYTES
                           : of_replay          ? WHOLE_OPERATIONS
                                                : WHOLE_CALLS;

        add_comparison(it, title_of_group(group), ag_stat_rows[i].label, unit, whole,
                       (double)process_counter(&it->sides[0], i),
                       (double)process_counter(&it->sides[1], i));
    }
}

enum place_number { ALLOCS, FREES, FAILED, BYTES, ALLOC_NS, FREE_NS, PEAK, CURRENT, N_NUMBERS };

static void compare_memory(struct comparison *it, const char *group, double sums[2][N_NUMBERS])
{
    static const struct {
        const char *name;
        enum unit unit;
        enum whole whole;
    } rows[N_NUMBERS] = {
        [ALLOCS] = {"allocations", UNIT_COUNT, WHOLE_CALLS},
        [FREES] = {"frees", UNIT_COUNT, WHOLE_CALLS},
        [FAILED] = {"allocations that failed", UNIT_COUNT, WHOLE_CALLS},
        [BYTES] = {"bytes asked for", UNIT_BYTES, WHOLE_BYTES},
        [ALLOC_NS] = {"time in allocations", UNIT_NS, WHOLE_TIME},
        [FREE_NS] = {"time in frees", UNIT_NS, WHOLE_TIME},
        [PEAK] = {"peak", UNIT_BYTES, WHOLE_LEVEL},
        [CURRENT] = {"in use at the end", UNIT_BYTES, WHOLE_LEVEL},
    };

    for (unsigned i = 0; i < N_NUMBERS; i++)
        add_comparison(it, group, rows[i].name, rows[i].unit, rows[i].whole, sums[0][i],
                       sums[1][i]);
}

/* Adds up the devices: the two runs may have had different ones. */
static void sum_devices(const struct process *side, unsigned place, double *sum)
{
    for (unsigned i = 0; i < AG_STATS_DEVICES; i++) {
        const struct ag_place_stats *stats = process_place(side, i, place);

        sum[ALLOCS] += (double)stats->allocs;
        sum[FREES] += (double)stats->frees;
        sum[FAILED] += (double)stats->failed;
        sum[BYTES] += (double)stats->alloc_bytes;
        sum[ALLOC_NS] += (double)stats->alloc_ticks;
        sum[FREE_NS] += (double)stats->free_ticks;
        sum[PEAK] += (double)side->stats->peak_bytes[i][place]; /* at a time of its own */
        sum[CURRENT] += (double)ag_live_of(side->stats, i, place);
    }
}

/* Compares the sum of all placements, and each placement: memory that moved from one to another
 * changes both, but not the sum. */
static void compare_places(struct comparison *it)
{
    double all[2][N_NUMBERS] = {{0}};

    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        double before = all[0][ALLOCS] + all[1][ALLOCS];

        sum_devices(&it->sides[0], place, all[0]);
        sum_devices(&it->sides[1], place, all[1]);
        it->n_places += all[0][ALLOCS] + all[1][ALLOCS] > before;
    }
    for (unsigned i = 0; i < 2; i++)
        all[i][PEAK] = figure(&it->sides[i], FIGURE_PEAK);
    it->part = PART_ALL;
    compare_memory(it, "memory", all);
    add_comparison(it, "memory", "taken of the device at the most", UNIT_BYTES, WHOLE_LEVEL,
                   figure(&it->sides[0], FIGURE_GIVEN), figure(&it->sides[1], FIGURE_GIVEN));
    it->part = PART_PLACES;
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        double sums[2][N_NUMBERS] = {{0}};

        sum_devices(&it->sides[0], place, sums[0]);
        sum_devices(&it->sides[1], place, sums[1]);
        compare_memory(it, ag_placement_names[place], sums);
    }
}

static void compare_hooks(struct comparison *it)
{
    static const char *const names[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) #symbol,
#include "interpose/core/driver/hooks.def"
    };

    for (unsigned i = 0; i < AG_N_HOOKS; i++)
        add_comparison(it, "calls", names[i], UNIT_COUNT, WHOLE_CALLS,
                       (double)it->sides[0].stats->slots[0].hits[i],
                       (double)it->sides[1].stats->slots[0].hits[i]);
}

static int by_weight(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    order = strcmp(x->group, y->group);
    return order ? order : strcmp(x->name, y->name);
}

static int by_part_and_weight(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return by_weight(a, b);
}

/* Why times cannot be compared, or NULL. */
static const char *times_fault(const struct ag_stats_head *a, const struct ag_stats_head *b)
{
    if (a->simulated && b->simulated)
        return "both ran on the simulated driver, whose times mean nothing";
    if (a->simulated)
        return "A ran on the simulated driver, whose times mean nothing";
    return b->simulated ? "B ran on the simulated driver, whose times mean nothing" : NULL;
}

/* The bytes that graphs took of all devices together. */
static double graph_bytes(const struct ag_stats *stats, unsigned which)
{
    double sum = 0;

    for (unsigned i = 0; i < AG_STATS_DEVICES; i++)
        sum += (double)stats->own_graph_devices[i].bytes[which];
    return sum;
}

static void compare_graphs(struct comparison *it)
{
    const struct ag_stats *a = it->sides[0].stats, *b = it->sides[1].stats;

    add_comparison(it, "own_graphs", "not destroyed", UNIT_COUNT, WHOLE_CALLS,
                   (double)a->own_graphs.current, (double)b->own_graphs.current);
    add_comparison(it, "own_graphs", "most at once", UNIT_COUNT, WHOLE_CALLS,
                   (double)a->own_graphs.peak, (double)b->own_graphs.peak);
    for (unsigned i = 0; i < AG_N_GRAPH_BYTES; i++)
        add_comparison(it, "own_graphs", ag_render_graph_label(i), UNIT_BYTES, WHOLE_LEVEL,
                       graph_bytes(a, i), graph_bytes(b, i));
}

static void compare_all(struct comparison *it)
{
    const struct ag_stats *a = it->sides[0].stats, *b = it->sides[1].stats;

    it->no_times = times_fault(&a->head, &b->head);
    find_wholes(it);
    it->part = PART_ALL;
    add_comparison(it, "process", "time", UNIT_NS, WHOLE_TIME,
                   (double)process_elapsed_ns(&it->sides[0]),
                   (double)process_elapsed_ns(&it->sides[1]));
    compare_places(it);
    it->part = PART_LIBRARY;
    compare_counters(it);
    compare_hooks(it);
    add_comparison(it, "cache", "most bytes held", UNIT_BYTES, WHOLE_LEVEL, (double)a->cached_peak,
                   (double)b->cached_peak);
    add_comparison(it, "slabs", "bytes in slabs at the end", UNIT_BYTES, WHOLE_LEVEL,
                   (double)a->slab_bytes.current, (double)b->slab_bytes.current);
    add_comparison(it, "slabs", "most bytes in slabs", UNIT_BYTES, WHOLE_LEVEL,
                   (double)a->slab_bytes.peak, (double)b->slab_bytes.peak);
    add_comparison(it, "pinned", "bytes of pinned memory kept at the end", UNIT_BYTES, WHOLE_LEVEL,
                   (double)a->pinned_bytes.current, (double)b->pinned_bytes.current);
    add_comparison(it, "pinned", "most bytes of pinned memory kept", UNIT_BYTES, WHOLE_LEVEL,
                   (double)a->pinned_bytes.peak, (double)b->pinned_bytes.peak);
    add_comparison(it, "pressure", "a GiB each way, in the fastest batch of moves", UNIT_NS,
                   WHOLE_TIME, (double)a->bus_gib_ns, (double)b->bus_gib_ns);
    add_comparison(it, "frees", "most bytes pending", UNIT_BYTES, WHOLE_LEVEL,
                   (double)a->pending_bytes.peak, (double)b->pending_bytes.peak);
    compare_graphs(it);
    add_comparison(it, "replay", "an iteration without graphs", UNIT_NS, WHOLE_TIME,
                   (double)a->eager_ns, (double)b->eager_ns);
    add_comparison(it, "replay", "an iteration with graphs", UNIT_NS, WHOLE_TIME,
                   (double)a->replayed_ns, (double)b->replayed_ns);
}

/* ---- output -------------------------------------------------------------------------------- */

/* "+12.3 %", "3.2x", "new", "gone" */
static const char *change_text(char *buffer, size_t size, double a, double b)
{
    if (a <= 0)
        snprintf(buffer, size, "new");
    else if (b <= 0)
        snprintf(buffer, size, "gone");
    else if (b >= 3 * a)
        snprintf(buffer, size, b >= 100 * a ? "%.0fx" : "%.1fx", b / a);
    else
        snprintf(buffer, size, "%+.1f %%", 100 * (b - a) / a);
    return buffer;
}

static bool settings_differ(const struct comparison *it, size_t i, const char *values[2])
{
    const char *source;

    (void)job_setting(&it->sides[0], i, &source, &values[0]);
    (void)job_setting(&it->sides[1], i, &source, &values[1]);
    return strcmp(values[0], values[1]) != 0;
}

static void text_side(struct ag_text *text, const char *name, const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;
    char elapsed[32];

    ag_text_add(text, "%s: allograft %s, %s (process %d)", name, head->version, head->program,
                head->pid);
    if (process_elapsed_ns(process))
        ag_text_add(
            text, " after %s",
            ag_text_duration(elapsed, sizeof(elapsed), (double)process_elapsed_ns(process)));
    ag_text_add(text, "\n");
}

/* STATS is left out: each report has its own file. */
static void text_changed_settings(struct ag_text *text, const struct comparison *it)
{
    const char *values[2];
    bool any = false;

    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *name = ag_option_info(i)->name + strlen("ALLOGRAFT_");

        if (!settings_differ(it, i, values) || !strcmp(name, "STATS"))
            continue;
        ag_text_add(text, "%s    %-24s %s -> %s\n", any ? "" : "  settings\n", name, values[0],
                    values[1]);
        any = true;
    }
}

static void text_row(struct ag_text *text, const struct row *row)
{
    char a[32], b[32], relative[32];

    ag_text_add(text, "    %5.1f %% %8s %12s %12s  %s: %s\n", row->weight,
                change_text(relative, sizeof(relative), row->a, row->b),
                unit_text(a, sizeof(a), row->unit, row->a),
                unit_text(b, sizeof(b), row->unit, row->b), row->group, row->name);
}

static void render_diff_text(struct ag_text *text, const struct comparison *it, double least)
{
    static const char *const titles[N_PARTS] = {
        [PART_ALL] = "the whole run, and all memory",
        [PART_PLACES] = "memory by placement",
        [PART_LIBRARY] = "what the library did",
    };
    enum part part = N_PARTS;

    diff_words(text, it->sides, !it->no_times);
    text_side(text, "A", &it->sides[0]);
    text_side(text, "B", &it->sides[1]);
    if (it->no_times)
        ag_text_add(text, "  times are not compared: %s\n", it->no_times);
    text_changed_settings(text, it);
    for (size_t i = 0; i < it->n; i++) {
        const struct row *row = &it->rows[i];

        if (row->weight < least || (row->part == PART_PLACES && it->n_places < 2))
            continue;
        if (part == N_PARTS)
            ag_text_add(text, "    %7s %8s %12s %12s\n", "weight", "change", "A", "B");
        if (part != row->part)
            ag_text_add(text, "  %s\n", titles[row->part]);
        part = row->part;
        text_row(text, row);
    }
    if (part == N_PARTS)
        ag_text_add(text, it->n ? "  no number differs by as much\n" : "  no number differs\n");
}

static void emit_difference(struct ag_emitter *json, const struct row *row)
{
    static const char *const units[] = {"count", "bytes", "ns", "percent"};

    ag_emit_line(json, 1);
    ag_emit_object(json, NULL);
    ag_emit_string(json, "group", row->group);
    ag_emit_string(json, "what", row->name);
    ag_emit_string(json, "unit", units[row->unit]);
    ag_emit_raw(json, "a", "%.0f", row->a);
    ag_emit_raw(json, "b", "%.0f", row->b);
    ag_emit_raw(json, "weight_percent", "%.3f", row->weight);
    if (row->a > 0)
        ag_emit_raw(json, "change_percent", "%.3f", 100 * (row->b - row->a) / row->a);
    else
        ag_emit_raw(json, "change_percent", "null");
    ag_emit_end(json);
}

/* The lines in words, without the heading. */
static void emit_words(struct ag_emitter *json, const struct comparison *it)
{
    struct ag_text words = {0};
    char *rest = NULL, *line;

    diff_words(&words, it->sides, !it->no_times);
    ag_emit_array(json, "verdict");
    line = words.data ? strtok_r(words.data, "\n", &rest) : NULL;
    while (line && (line = strtok_r(NULL, "\n", &rest)))
        ag_emit_string(json, NULL, line + strspn(line, " "));
    ag_emit_end(json);
    json->text->truncated |= words.truncated;
    ag_text_finish(&words);
}

static void render_diff_json(struct ag_text *text, const struct comparison *it, double least)
{
    struct ag_emitter json = {.text = text};
    const char *values[2];

    ag_emit_object(&json, NULL);
    ag_emit_string(&json, "schema", "allograft-diff/1");
    emit_words(&json, it);
    ag_emit_bool(&json, "times_compared", !it->no_times);
    ag_emit_array(&json, "settings");
    for (size_t i = 0; i < ag_options_count(); i++) {
        if (!settings_differ(it, i, values))
            continue;
        ag_emit_line(&json, 1);
        ag_emit_object(&json, NULL);
        ag_emit_string(&json, "name", ag_option_info(i)->name);
        ag_emit_string(&json, "a", values[0]);
        ag_emit_string(&json, "b", values[1]);
        ag_emit_end(&json);
    }
    ag_emit_end(&json);
    ag_emit_array(&json, "differences");
    for (size_t i = 0; i < it->n; i++) {
        if (it->rows[i].weight >= least)
            emit_difference(&json, &it->rows[i]);
    }
    ag_emit_end(&json);
    ag_emit_end(&json);
    ag_text_add(text, "\n");
}

/* ---- words --------------------------------------------------------------------------------- */

struct options {
    bool json;
    double least;
};

static int read_diff_words(const struct command_line *line, struct options *options)
{
    for (size_t i = 0; i < line->n_given; i++) {
        const char *value = line->given[i].value;
        char *end = NULL;

        if (line->given[i].option == OPTION_diff_json) {
            options->json = true;
            continue;
        }
        options->least = strtod(value, &end);
        if (end == value || (*end && strcmp(end, "%") != 0) || !(options->least >= 0)) {
            command_complain("diff: --least=%s is not allowed; allowed: a percentage, such as 1%%",
                             value);
            return STATUS_USAGE;
        }
    }
    return STATUS_OK;
}

static int show_comparison(struct comparison *it, const struct options *options)
{
    struct ag_text text = {0};
    int status = STATUS_OK;

    for (unsigned i = 0; i < 2; i++)
        process_make_plain(&it->sides[i]);
    compare_all(it);
    if (it->n)
        qsort(it->rows, it->n, sizeof(*it->rows), options->json ? by_weight : by_part_and_weight);
    (options->json ? render_diff_json : render_diff_text)(&text, it, options->least);
    if (it->no_memory || text.truncated) {
        command_complain("out of memory for the report");
        status = STATUS_FAILED;
    } else {
        fwrite(text.data, 1, text.length, stdout);
    }
    ag_text_finish(&text);
    free(it->rows);
    return status;
}

int command_diff(const struct command_line *line)
{
    struct comparison comparison = {0};
    struct options options = {0};
    int status = STATUS_OK;

    if (read_diff_words(line, &options))
        return STATUS_USAGE;
    for (unsigned i = 0; i < 2; i++) {
        if (!process_read_or_say(AT_FDCWD, line->words[i], &comparison.sides[i]))
            status = STATUS_FAILED;
    }
    if (status == STATUS_OK)
        status = show_comparison(&comparison, &options);
    for (unsigned i = 0; i < 2; i++)
        process_finish(&comparison.sides[i]);
    return status;
}
