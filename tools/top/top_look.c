/* top_look.c: reads the counters of every process into the rows of `allograft top`: see top.h. */
#include <stdlib.h>
#include <string.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/report/verdict/sums.h"
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/top/top.h"

static struct top_counts counts_of_process(const struct process *process)
{
    struct top_counts counts = {.ns = ag_clock_ns()};

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned i = 0; i < AG_N_PLACEMENTS; i++) {
            const struct ag_place_stats *place = process_place(process, row, i);

            counts.allocs += place->allocs;
            counts.frees += place->frees;
            counts.bytes += place->alloc_bytes;
        }
    }
    counts.operations = process_counter(process, AG_STAT_REPLAY_SEEN);
    counts.replayed = process_counter(process, AG_STAT_REPLAY_REPLAYED);
    return counts;
}

static void fill_row(struct top_row *row, struct process *process)
{
    const struct ag_stats *stats = process->stats;

    row->state = process->state;
    row->pid = stats->head.pid;
    row->rank = stats->head.rank;
    memcpy(row->program, stats->head.program, sizeof(row->program));
    memcpy(row->host, stats->head.host, sizeof(row->host));
    memcpy(row->ended_by, stats->head.ended_by, sizeof(row->ended_by));
    row->before.ns = stats->head.started_ns;
    process_make_plain(process);
    row->elapsed_ns = process_elapsed_ns(process);
    row->now = counts_of_process(process);
    row->cache_hits = process_counter(process, AG_STAT_CACHE_HIT);
    row->cache_misses = process_counter(process, AG_STAT_CACHE_MISS);
    row->peak_all = ag_sum_peaks(stats);
    row->pinned_kept = stats->pinned_bytes.current;
    row->moved_in = process_counter(process, AG_STAT_PAGE_IN);
    row->moved_out = process_counter(process, AG_STAT_PAGE_OUT);
    row->simulated = stats->head.simulated != 0;
    row->replay_on = !strcmp(stats->head.replay, "on");
    for (unsigned device = 0; device < AG_STATS_DEVICES; device++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            row->current[place] += ag_live_of(stats, device, place);
            row->peak[place] += stats->peak_bytes[device][place];
        }
    }
}

static void remember_before(struct top_row *row, const struct top_table *before)
{
    for (size_t i = 0; before && i < before->n; i++) {
        if (!strcmp(before->rows[i].file, row->file))
            row->before = before->rows[i].now;
    }
}

uint64_t top_memory(const struct top_row *row)
{
    uint64_t sum = 0;

    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        sum += row->current[place];
    return sum;
}

/* Running processes first, by memory; then dead ones, newest first. */
static int by_importance(const void *a, const void *b)
{
    const struct top_row *x = a, *y = b;
    bool runs_x = x->state != AG_RECORD_DEAD, runs_y = y->state != AG_RECORD_DEAD;

    if (runs_x != runs_y)
        return runs_x ? -1 : 1;
    if (runs_x && top_memory(x) != top_memory(y))
        return top_memory(x) > top_memory(y) ? -1 : 1;
    return strcmp(y->file, x->file);
}

/* A file that cannot be read was removed meanwhile, or belongs to somebody else. */
static void look_at_file(int folder, const char *name, const struct top_table *before,
                         struct top_table *table)
{
    struct top_row *row = &table->rows[table->n];
    struct process process;
    const char *fault = process_read(folder, name, &process);

    if (fault) {
        table->n_others += fault == process_of_other_build;
        return;
    }
    memset(row, 0, sizeof(*row));
    memcpy(row->file, name, strlen(name) + 1);
    fill_row(row, &process);
    process_finish(&process);
    remember_before(row, before);
    table->n++;
}

bool top_look(int folder, const struct top_table *before, struct top_table *ret)
{
    struct folder_files files = {.folder = folder};
    bool good = folder_list(&files, 0, true) == STATUS_OK;

    *ret = (struct top_table){.rows = calloc(files.n + 1, sizeof(*ret->rows))};
    good = good && ret->rows;
    for (size_t i = 0; good && i < files.n; i++)
        look_at_file(folder, files.names[i], before, ret);
    if (good)
        qsort(ret->rows, ret->n, sizeof(*ret->rows), by_importance);
    free(files.names);
    return good;
}

void top_finish(struct top_table *table)
{
    free(table->rows);
    *table = (struct top_table){0};
}

double top_rate(const struct top_row *row, uint64_t now, uint64_t before)
{
    if (row->state == AG_RECORD_DEAD || row->now.ns <= row->before.ns || now < before)
        return 0;
    return (double)(now - before) * 1e9 / (double)(row->now.ns - row->before.ns);
}
