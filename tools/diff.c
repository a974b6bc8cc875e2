/* `allograft diff A B`: what two runs counted differently, the weightiest first. */
#include "command.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "options.h"

static const char help_text[] =
    "allograft diff [options] A B\n"
    "\n"
    "Compares two reports (JSON, or files of counters): every number that differs, with its "
    "relative\n"
    "change, and every setting. The weightiest changes come first.\n"
    "\n"
    "Weight: the change as a part of the whole that it belongs to. For times that is the longer\n"
    "run, for memory in use the larger peak, for bytes asked for the larger sum of them, for\n"
    "operations replayed the larger number of them, for other counts the larger number of\n"
    "allocations and frees.\n"
    "\n"
    "  --least N%  only what weighs at least that (default 0)\n"
    "  --json      as JSON (allograft-diff/1)\n"
    "  --help      this text\n"
    "\n"
    "Exit status 0, whether there are differences or not; 1: a file could not be read.\n";

enum whole { WHOLE_TIME, WHOLE_LEVEL, WHOLE_BYTES, WHOLE_OPERATIONS, WHOLE_CALLS, N_WHOLES };

struct row {
    const char *group, *name;
    enum unit unit;
    double a, b, weight;
};

/* Everything that is compared, of both sides. */
struct comparison {
    struct process sides[2];
    double wholes[N_WHOLES];
    struct row *rows; /* what differs */
    size_t n, capacity;
    bool no_memory;
};

/* ---- what differs -------------------------------------------------------------------------- */

static void compare(struct comparison *it, const char *group, const char *name, enum unit unit,
                    enum whole whole, double a, double b)
{
    if (a == b)
        return;
    if (it->n == it->capacity) {
        size_t capacity = it->capacity ? 2 * it->capacity : 128;
        void *rows = realloc(it->rows, capacity * sizeof(*it->rows));

        it->no_memory |= !rows;
        if (!rows)
            return;
        it->rows = rows;
        it->capacity = capacity;
    }
    it->rows[it->n++] = (struct row){
        .group = group,
        .name = name,
        .unit = unit,
        .a = a,
        .b = b,
        .weight = it->wholes[whole] > 0 ? 100 * fabs(b - a) / it->wholes[whole] : 0,
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
        wholes[WHOLE_BYTES] = larger(wholes[WHOLE_BYTES], bytes);
        wholes[WHOLE_CALLS] = larger(wholes[WHOLE_CALLS], calls);
        wholes[WHOLE_OPERATIONS] =
            larger(wholes[WHOLE_OPERATIONS], (double)process_counter(side, AG_STAT_REPLAY_SEEN));
    }
}

static const struct {
    const char *group, *key, *label;
} stat_rows[] = {
#define AG_STAT(id, group, key, label) {#group, #key, label},
#include "stats.def"
};

static const char *title_of_group(const char *group)
{
    static const struct {
        const char *group, *title;
    } titles[] = {
        {"doors", "coverage"},
        {"calls", "coverage"},
        {"fallbacks", "left to the driver"},
        {"drains", "frees drained"},
        {"paid", "waits paid"},
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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && !strcmp(text + length - tail, end);
}

static void compare_counters(struct comparison *it)
{
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        const char *group = stat_rows[i].group, *key = stat_rows[i].key;
        bool of_replay = !strcmp(group, "replay") || !strcmp(group, "flushes");
        enum whole whole = of_replay ? WHOLE_OPERATIONS : WHOLE_CALLS;
        enum unit unit = UNIT_COUNT;

        if (ends_with(key, "_ns")) {
            unit = UNIT_NS;
            whole = WHOLE_TIME;
        } else if (ends_with(key, "bytes")) {
            unit = UNIT_BYTES;
            whole = WHOLE_BYTES;
        }
        compare(it, title_of_group(group), stat_rows[i].label, unit, whole,
                (double)process_counter(&it->sides[0], i),
                (double)process_counter(&it->sides[1], i));
    }
}

/* Devices are added up: two runs may have had different ones. */
static void compare_places(struct comparison *it)
{
    enum { ALLOCS, FREES, FAILED, BYTES, ALLOC_NS, FREE_NS, PEAK, CURRENT, N };
    static const struct {
        const char *name;
        enum unit unit;
        enum whole whole;
    } rows[N] = {
        [ALLOCS] = {"allocations", UNIT_COUNT, WHOLE_CALLS},
        [FREES] = {"frees", UNIT_COUNT, WHOLE_CALLS},
        [FAILED] = {"allocations that failed", UNIT_COUNT, WHOLE_CALLS},
        [BYTES] = {"bytes asked for", UNIT_BYTES, WHOLE_BYTES},
        [ALLOC_NS] = {"time in allocating", UNIT_NS, WHOLE_TIME},
        [FREE_NS] = {"time in freeing", UNIT_NS, WHOLE_TIME},
        [PEAK] = {"peak", UNIT_BYTES, WHOLE_LEVEL},
        [CURRENT] = {"in use at the end", UNIT_BYTES, WHOLE_LEVEL},
    };

    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        double sums[2][N] = {{0}};

        for (unsigned i = 0; i < 2 * AG_STATS_DEVICES; i++) {
            const struct process *side = &it->sides[i % 2];
            const struct ag_place_stats *stats = process_place(side, i / 2, place);
            const struct ag_level *level = &side->stats->bytes[i / 2][place];
            double *sum = sums[i % 2];

            sum[ALLOCS] += (double)stats->allocs;
            sum[FREES] += (double)stats->frees;
            sum[FAILED] += (double)stats->failed;
            sum[BYTES] += (double)stats->alloc_bytes;
            sum[ALLOC_NS] += (double)stats->alloc_ticks;
            sum[FREE_NS] += (double)stats->free_ticks;
            sum[PEAK] += (double)level->peak;
            sum[CURRENT] += (double)level->current;
        }
        for (unsigned i = 0; i < N; i++)
            compare(it, place_names[place], rows[i].name, rows[i].unit, rows[i].whole, sums[0][i],
                    sums[1][i]);
    }
}

static void compare_hooks(struct comparison *it)
{
    static const char *const names[] = {
#define AG_HOOK(base, symbol, since, flavour, need) #symbol,
#include "hooks.def"
    };

    for (unsigned i = 0; i < AG_N_HOOKS; i++)
        compare(it, "calls", names[i], UNIT_COUNT, WHOLE_CALLS,
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

static void compare_all(struct comparison *it)
{
    const struct ag_stats *a = it->sides[0].stats, *b = it->sides[1].stats;

    find_wholes(it);
    compare(it, "process", "time", UNIT_NS, WHOLE_TIME, (double)process_elapsed_ns(&it->sides[0]),
            (double)process_elapsed_ns(&it->sides[1]));
    compare_places(it);
    compare_counters(it);
    compare_hooks(it);
    compare(it, "cache", "most bytes held", UNIT_BYTES, WHOLE_LEVEL, (double)a->cached_peak,
            (double)b->cached_peak);
    compare(it, "frees", "most bytes pending", UNIT_BYTES, WHOLE_LEVEL,
            (double)a->pending_bytes.peak, (double)b->pending_bytes.peak);
    compare(it, "replay", "a round without graphs", UNIT_NS, WHOLE_TIME, (double)a->eager_ns,
            (double)b->eager_ns);
    compare(it, "replay", "a round with graphs", UNIT_NS, WHOLE_TIME, (double)a->replayed_ns,
            (double)b->replayed_ns);
    if (it->n)
        qsort(it->rows, it->n, sizeof(*it->rows), by_weight);
}

/* ---- how it is said ------------------------------------------------------------------------ */

/* "+12.3 %", "3.2x", "new", "gone" */
static const char *change(char *buffer, size_t size, double a, double b)
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

static void render_text(struct ag_text *text, const struct comparison *it, double least)
{
    const char *values[2];
    bool any = false;

    text_side(text, "A", &it->sides[0]);
    text_side(text, "B", &it->sides[1]);
    for (size_t i = 0; i < ag_options_count(); i++) {
        if (!settings_differ(it, i, values))
            continue;
        ag_text_add(text, "%s    %-24s %s -> %s\n", any ? "" : "  settings\n",
                    ag_option_info(i)->name + strlen("ALLOGRAFT_"), values[0], values[1]);
        any = true;
    }
    any = false;
    for (size_t i = 0; i < it->n; i++) {
        const struct row *row = &it->rows[i];
        char a[32], b[32], relative[32];

        if (row->weight < least)
            continue;
        if (!any)
            ag_text_add(text, "  %8s %8s  %12s %12s  %s\n", "weight", "change", "A", "B", "what");
        any = true;
        ag_text_add(text, "  %6.1f %% %8s  %12s %12s  %s: %s\n", row->weight,
                    change(relative, sizeof(relative), row->a, row->b),
                    unit_text(a, sizeof(a), row->unit, row->a),
                    unit_text(b, sizeof(b), row->unit, row->b), row->group, row->name);
    }
    if (!any)
        ag_text_add(text, it->n ? "  no number differs by that much\n" : "  no number differs\n");
}

static void render_json(struct ag_text *text, const struct comparison *it, double least)
{
    static const char *const units[] = {"count", "bytes", "ns", "percent"};
    const char *values[2];
    bool first = true;

    ag_text_add(text, "{\"schema\":\"allograft-diff/1\",\n\"settings\":[");
    for (size_t i = 0; i < ag_options_count(); i++) {
        if (!settings_differ(it, i, values))
            continue;
        ag_text_add(text, "%s\n {\"name\":\"%s\",\"a\":", first ? "" : ",",
                    ag_option_info(i)->name);
        ag_text_add_json(text, values[0]);
        ag_text_add(text, ",\"b\":");
        ag_text_add_json(text, values[1]);
        ag_text_add(text, "}");
        first = false;
    }
    ag_text_add(text, "],\n\"differences\":[");
    first = true;
    for (size_t i = 0; i < it->n; i++) {
        const struct row *row = &it->rows[i];

        if (row->weight < least)
            continue;
        ag_text_add(text, "%s\n {\"group\":\"%s\",\"what\":", first ? "" : ",", row->group);
        ag_text_add_json(text, row->name);
        ag_text_add(
            text,
            ",\"unit\":\"%s\",\"a\":%.0f,\"b\":%.0f,\"weight_percent\":%.3f,\"change_percent\":",
            units[row->unit], row->a, row->b, row->weight);
        if (row->a > 0)
            ag_text_add(text, "%.3f}", 100 * (row->b - row->a) / row->a);
        else
            ag_text_add(text, "null}");
        first = false;
    }
    ag_text_add(text, "]}\n");
}

/* ---- words --------------------------------------------------------------------------------- */

struct wishes {
    bool json;
    double least;
    const char *what[2];
    unsigned n;
};

static int parse_words(int argc, char **argv, struct wishes *wishes)
{
    for (int i = 1; i < argc; i++) {
        char *end = NULL;

        if (!strcmp(argv[i], "--json")) {
            wishes->json = true;
        } else if (!strcmp(argv[i], "--least") && i + 1 < argc) {
            wishes->least = strtod(argv[++i], &end);
            if (end == argv[i] || (*end && strcmp(end, "%") != 0) || !(wishes->least >= 0)) {
                command_complain("diff: --least is a share in percent, such as 1%%, not '%s'",
                                 argv[i]);
                return STATUS_USAGE;
            }
        } else if (argv[i][0] == '-') {
            command_complain("diff: no option '%s'; there are: --least N%%, --json, --help",
                             argv[i]);
            return STATUS_USAGE;
        } else if (wishes->n < 2) {
            wishes->what[wishes->n++] = argv[i];
        } else {
            wishes->n = 3;
        }
    }
    if (wishes->n == 2)
        return STATUS_OK;
    command_complain("diff: compares two reports, A and B");
    return STATUS_USAGE;
}

static int show(struct comparison *it, const struct wishes *wishes)
{
    struct ag_text text = {0};
    int status = STATUS_OK;

    for (unsigned i = 0; i < 2; i++)
        process_make_plain(&it->sides[i]);
    compare_all(it);
    (wishes->json ? render_json : render_text)(&text, it, wishes->least);
    if (it->no_memory || text.truncated) {
        command_complain("no memory for the whole report");
        status = STATUS_FAILED;
    } else {
        fwrite(text.data, 1, text.length, stdout);
    }
    ag_text_finish(&text);
    free(it->rows);
    return status;
}

int command_diff(int argc, char **argv)
{
    struct comparison comparison = {0};
    struct wishes wishes = {0};
    int status = STATUS_OK;

    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (parse_words(argc, argv, &wishes))
        return STATUS_USAGE;
    for (unsigned i = 0; i < 2; i++) {
        if (!process_read_or_say(AT_FDCWD, wishes.what[i], &comparison.sides[i]))
            status = STATUS_FAILED;
    }
    if (status == STATUS_OK)
        status = show(&comparison, &wishes);
    for (unsigned i = 0; i < 2; i++)
        process_finish(&comparison.sides[i]);
    return status;
}
