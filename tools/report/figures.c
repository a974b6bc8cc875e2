/* figures.c: the numbers of a process that are compared between ranks, their medians and outliers,
 * and the overview: see job.h. */
#include "tools/report/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/verdict/sums.h"

const struct figure_row figure_rows[N_FIGURES] = {
    [FIGURE_ELAPSED] = {"elapsed_ns", "time", UNIT_NS},
    [FIGURE_PEAK] = {"peak_bytes", "peak", UNIT_BYTES},
    [FIGURE_ALLOCS] = {"allocs", "allocs", UNIT_COUNT},
    [FIGURE_CALL_NS] = {"alloc_and_free_ns", "in calls", UNIT_NS},
    [FIGURE_GIVEN] = {"given_peak_bytes", "of device", UNIT_BYTES},
    [FIGURE_WAITED] = {"frees_that_waited", "waits", UNIT_COUNT},
    [FIGURE_CACHED] = {"cached_percent", "cached", UNIT_PERCENT},
    [FIGURE_REPLAYED] = {"replayed_percent", "replayed", UNIT_PERCENT},
};

const char outlier_rule[] = "more than 1.5 times the median, or less than the median / 1.5 (a time "
                            "in calls must also differ by "
                            "1 % of the process's time, a share by 5 points)";

enum unit figure_unit_of_key(const char *key)
{
    size_t length = strlen(key);

    if (length > 3 && !strcmp(key + length - 3, "_ns"))
        return UNIT_NS;
    return length >= 5 && !strcmp(key + length - 5, "bytes") ? UNIT_BYTES : UNIT_COUNT;
}

/* ---- one process --------------------------------------------------------------------------- */

struct memory {
    double allocs, frees, peak, call_ns;
};

static struct memory sum_memory(const struct process *process)
{
    struct memory sum = {0};

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned i = 0; i < AG_N_PLACEMENTS; i++) {
            const struct ag_place_stats *place = process_place(process, row, i);

            sum.allocs += (double)place->allocs;
            sum.frees += (double)place->frees;
            sum.call_ns += (double)place->alloc_ticks + (double)place->free_ticks;
        }
    }
    sum.peak = (double)ag_sum_peaks(process->stats);
    return sum;
}

static bool percent_of(double part, double whole, double *ret)
{
    *ret = whole > 0 ? 100 * part / whole : 0;
    return whole > 0;
}

static double counter_figure(const struct process *process, enum ag_stat id)
{
    return (double)process_counter(process, id);
}

bool figure_of(const struct process *process, enum figure figure, double *ret)
{
    const struct memory memory = sum_memory(process);

    if (process->stats->head.simulated && figure_rows[figure].unit == UNIT_NS)
        return false;
    switch (figure) {
    case FIGURE_ELAPSED:
        *ret = (double)process_elapsed_ns(process);
        return *ret > 0;
    case FIGURE_PEAK:
        *ret = memory.peak;
        return true;
    case FIGURE_ALLOCS:
        *ret = memory.allocs;
        return true;
    case FIGURE_CALL_NS:
        *ret = memory.call_ns;
        return *ret > 0 || !memory.allocs; /* not known of processes from before a reboot */
    case FIGURE_GIVEN:
        *ret = (double)ag_sum_all_given(process->stats);
        return *ret > 0; /* not known of reports from before it was counted */
    case FIGURE_WAITED:
        *ret = (double)ag_sum_frees(process->stats).waited;
        return true;
    case FIGURE_CACHED:
        return percent_of(counter_figure(process, AG_STAT_CACHE_HIT),
                          counter_figure(process, AG_STAT_CACHE_HIT) +
                              counter_figure(process, AG_STAT_CACHE_MISS),
                          ret);
    default:
        return percent_of(counter_figure(process, AG_STAT_REPLAY_REPLAYED),
                          counter_figure(process, AG_STAT_REPLAY_SEEN), ret);
    }
}

/* ---- all processes ------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void figure_find_medians(struct job *job)
{
    double *values = malloc((job->n ? job->n : 1) * sizeof(*values));

    for (unsigned figure = 0; values && figure < N_FIGURES; figure++) {
        size_t n = 0;

        for (size_t i = 0; i < job->n; i++)
            n += figure_of(&job->processes[i], figure, &values[n]);
        qsort(values, n, sizeof(*values), by_value);
        job->medians[figure].known = n != 0;
        job->medians[figure].any_above_zero = n && values[n - 1] > 0;
        job->medians[figure].value = n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : 0;
    }
    free(values);
}

bool figure_is_outlier(const struct job *job, const struct process *process, enum figure figure)
{
    double value, median = job->medians[figure].value, distance, least = 0;

    if (job->n < 2 || !job->medians[figure].known || !figure_of(process, figure, &value))
        return false;
    if (figure == FIGURE_CALL_NS)
        least = (double)process_elapsed_ns(process) / 100;
    else if (figure_rows[figure].unit == UNIT_PERCENT)
        least = 5;
    distance = value > median ? value - median : median - value;
    return distance > least && (value > 1.5 * median || 1.5 * value < median);
}

bool figure_is_shown(const struct job *job, enum figure figure)
{
    return job->medians[figure].any_above_zero || figure <= FIGURE_CALL_NS;
}

/* ---- overview ------------------------------------------------------------------------------ */

static void add_overview_row(struct overview_row *rows, unsigned *n, const char *label,
                             enum unit unit, double part, double whole)
{
    struct overview_row *row = &rows[*n];

    if (whole <= 0 || *n == OVERVIEW_ROWS)
        return;
    snprintf(row->label, sizeof(row->label), "%s", label);
    row->unit = unit;
    row->part = part;
    row->whole = whole;
    ++*n;
}

unsigned overview(const struct process *process, double elapsed_ns,
                  struct overview_row rows[OVERVIEW_ROWS])
{
    const struct memory memory = sum_memory(process);
    const struct ag_sum_frees frees = ag_sum_frees(process->stats);
    double redirected = counter_figure(process, AG_STAT_REDIRECTED), hits, operations;
    char label[64];
    unsigned n = 0;

    add_overview_row(rows, &n, "allocations redirected", UNIT_COUNT, redirected,
                     redirected + counter_figure(process, AG_STAT_PASSED));
    hits = counter_figure(process, AG_STAT_CACHE_HIT);
    add_overview_row(rows, &n, "allocations answered by the cache", UNIT_COUNT, hits,
                     hits + counter_figure(process, AG_STAT_CACHE_MISS));
    add_overview_row(rows, &n, "frees that made the host wait", UNIT_COUNT, (double)frees.waited,
                     (double)frees.all);
    if (!process->stats->head.simulated)
        add_overview_row(rows, &n, "time in allocations and frees", UNIT_NS, memory.call_ns,
                         elapsed_ns);
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) { /* each at its own time */
        double peak = 0;

        for (unsigned row = 0; row < AG_STATS_DEVICES; row++)
            peak += (double)process->stats->peak_bytes[row][place];
        snprintf(label, sizeof(label), "peak memory, %s", ag_placement_names[place]);
        if (peak > 0)
            add_overview_row(rows, &n, label, UNIT_BYTES, peak, memory.peak);
    }
    operations = counter_figure(process, AG_STAT_REPLAY_SEEN);
    add_overview_row(rows, &n, "operations launched in graphs", UNIT_COUNT,
                     counter_figure(process, AG_STAT_REPLAY_REPLAYED), operations);
    return n;
}

void overview_text(struct ag_text *text, const struct process *process, double elapsed_ns)
{
    struct overview_row rows[OVERVIEW_ROWS];
    unsigned n = overview(process, elapsed_ns, rows);
    char part[32], whole[32];

    if (n)
        ag_text_add(text, "  in short\n");
    for (unsigned i = 0; i < n; i++)
        ag_text_add(text, "    %-36s %14s of %12s %7.1f %%\n", rows[i].label,
                    unit_text(part, sizeof(part), rows[i].unit, rows[i].part),
                    unit_text(whole, sizeof(whole), rows[i].unit, rows[i].whole),
                    100 * rows[i].part / rows[i].whole);
}
