/* metrics.c: renders counters as OpenMetrics: see metrics.h. Samples of one family must stand
 * together, so all processes are read first: metrics_read.c. */
#include "tools/top/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/live/live.h"
#include "interpose/core/report/verdict/sums.h"

/* ---- samples ------------------------------------------------------------------------------- */

static void add_family(struct ag_text *text, const char *name, const char *type, const char *unit,
                       const char *help)
{
    ag_text_add(text, "# TYPE allograft_%s %s\n", name, type);
    if (unit)
        ag_text_add(text, "# UNIT allograft_%s %s\n", name, unit);
    ag_text_add(text, "# HELP allograft_%s %s\n", name, help);
}

/* Escaped as in JSON, which has \u for bytes that are not UTF-8, and there for nothing else: texts
 * of processes have no control characters. OpenMetrics has no such escape, but the character. */
static void add_label(struct ag_text *text, const char *name, const char *value)
{
    struct ag_text json = {0};
    const char *at;

    ag_text_add_json(&json, value);
    text->truncated |= json.truncated;
    ag_text_add(text, ",%s=", name);
    for (at = json.truncated ? "" : json.data; *at;) {
        size_t length = *at == '\\' ? 2 : strcspn(at, "\\");

        if (!strncmp(at, "\\u", 2)) {
            ag_text_add(text, "\xef\xbf\xbd");
            length = strlen("\\ufffd");
        } else {
            ag_text_add(text, "%.*s", (int)length, at);
        }
        at += length;
    }
    ag_text_finish(&json);
}

/* The name, which the family's type completes, and the labels that every sample has; more may
 * follow, then end_sample(). None of them is new with each process: a database keeps a series for
 * every value that a label ever had. */
static void begin_sample(struct ag_text *text, const char *name, const char *type,
                         const struct metrics_process *process)
{
    const struct ag_stats_head *head = &process->process.stats->head;
    const char *suffix = !strcmp(type, "counter") ? "_total" : !strcmp(type, "info") ? "_info" : "";

    ag_text_add(text, "allograft_%s%s{uid=\"%u\"", name, suffix, process->uid);
    add_label(text, "program", head->program);
    if (head->rank >= 0)
        ag_text_add(text, ",rank=\"%d\"", head->rank);
    ag_text_add(text, ",slot=\"%u\"", process->slot);
}

static void end_sample(struct ag_text *text, double value)
{
    ag_text_add(text, "} %.17g\n", value);
}

/* ---- families ------------------------------------------------------------------------------ */

/* One number of each process. */
struct plain {
    const char *name, *type, *unit, *help;
    double (*of)(const struct process *process);
};

static double elapsed_s(const struct process *process)
{
    return (double)process_elapsed_ns(process) / 1e9;
}

static double cached_peak(const struct process *process)
{
    return (double)process->stats->cached_peak;
}

static double pending_peak(const struct process *process)
{
    return (double)process->stats->pending_bytes.peak;
}

static double frees_waited(const struct process *process)
{
    return (double)ag_sum_frees(process->stats).waited;
}

static double own_graphs(const struct process *process)
{
    return (double)process->stats->own_graphs.current;
}

static double own_graphs_bytes(const struct process *process)
{
    double sum = 0;

    for (unsigned i = 0; i < AG_STATS_DEVICES; i++)
        sum += (double)process->stats->own_graph_devices[i].bytes[AG_GRAPH_INSTANTIATED] +
               (double)process->stats->own_graph_devices[i].bytes[AG_GRAPH_LAUNCHED];
    return sum;
}

static double cache_hits(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_CACHE_HIT);
}

static double cache_misses(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_CACHE_MISS);
}

static double pinned_bytes(const struct process *process)
{
    return (double)process->stats->pinned_bytes.current;
}

static double pinned_hits(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_PINNED_HIT);
}

static double spilled(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_LADDER_SPILL);
}

static double moved_in(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_PAGE_IN);
}

static double moved_out(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_PAGE_OUT);
}

static double damaged(const struct process *process)
{
    return (double)(process_counter(process, AG_STAT_GUARD_BEFORE) +
                    process_counter(process, AG_STAT_GUARD_BEHIND) +
                    process_counter(process, AG_STAT_GUARD_INSIDE));
}

static double replayed(const struct process *process)
{
    return (double)process_counter(process, AG_STAT_REPLAY_REPLAYED);
}

static double is_broken(const struct process *process)
{
    return process->stats->first_error.used != 0;
}

static double redirects_nothing(const struct process *process)
{
    return *process->stats->head.trouble != '\0';
}

static const struct plain plains[] = {
    {"elapsed_seconds", "gauge", "seconds", "Time since the process began.", elapsed_s},
    {"cached_peak_bytes", "gauge", "bytes", "Most freed memory in one context's cache.",
     cached_peak},
    {"pending_peak_bytes", "gauge", "bytes",
     "Most memory that was freed and whose order was not yet seen to be kept.", pending_peak},
    {"waiting_frees", "counter", NULL, "Frees that made the host wait for the device.",
     frees_waited},
    {"own_graphs", "gauge", NULL, "Executable graphs that the program has now.", own_graphs},
    {"own_graphs_bytes", "counter", "bytes",
     "Memory that the driver took for the program's graphs, where that is measured.",
     own_graphs_bytes},
    {"cache_hits", "counter", NULL, "Allocations answered without the driver.", cache_hits},
    {"cache_misses", "counter", NULL, "Allocations that went to the driver.", cache_misses},
    {"pinned_kept_bytes", "gauge", "bytes", "Freed pinned memory that is kept.", pinned_bytes},
    {"pinned_hits", "counter", NULL, "Allocations of pinned memory answered without the driver.",
     pinned_hits},
    {"spilled_allocations", "counter", NULL,
     "Allocations that went to the host for want of memory.", spilled},
    {"moved_in_bytes", "counter", "bytes", "Movable memory that moved to the device.", moved_in},
    {"moved_out_bytes", "counter", "bytes", "Movable memory that moved to the host.", moved_out},
    {"damaged_blocks", "counter", NULL, "Blocks that guards found written outside or after a free.",
     damaged},
    {"replayed_operations", "counter", NULL, "Operations launched in graphs.", replayed},
    {"sticky_error", "gauge", NULL,
     "1 after a call returned an error that every later one returns.", is_broken},
    {"not_redirecting", "gauge", NULL, "1 where nothing can be redirected in this process.",
     redirects_nothing},
};

/* One number of each process, device and placement. */
struct placed {
    const char *name, *type, *unit, *help;
    double (*of)(const struct ag_stats *stats, unsigned row, unsigned place);
    bool is_time;
};

static const struct ag_place_stats *place_stats(const struct ag_stats *stats, unsigned row,
                                                unsigned place)
{
    return &stats->slots[0].places[row][place];
}

static double memory(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)ag_live_of(stats, row, place);
}

static double peak(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)stats->peak_bytes[row][place];
}

/* One number of each process and device. */
struct of_device {
    const char *name, *type, *unit, *help;
    uint64_t (*of)(const struct ag_stats *stats, unsigned row);
};

static const struct of_device of_devices[] = {
    {"device_memory_peak_bytes", "gauge", "bytes",
     "Most memory that the program had on the device at a time.", ag_sum_peak},
    {"device_given_peak_bytes", "gauge", "bytes",
     "Most memory of the device that was used or kept for later at a time.", ag_sum_given},
};

static double allocs(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)place_stats(stats, row, place)->allocs;
}

static double frees(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)place_stats(stats, row, place)->frees;
}

static double failed_calls(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)place_stats(stats, row, place)->failed;
}

static double alloc_bytes(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)place_stats(stats, row, place)->alloc_bytes;
}

static double alloc_s(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)place_stats(stats, row, place)->alloc_ticks / 1e9;
}

static double free_s(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return (double)place_stats(stats, row, place)->free_ticks / 1e9;
}

static const struct placed placeds[] = {
    {"memory_bytes", "gauge", "bytes", "Memory that the program has now.", memory, false},
    {"memory_peak_bytes", "gauge", "bytes", "Most memory that the program ever had there.", peak,
     false},
    {"allocations", "counter", NULL, "Allocations.", allocs, false},
    {"frees", "counter", NULL, "Frees.", frees, false},
    {"failed_allocations", "counter", NULL, "Allocations that failed.", failed_calls, false},
    {"allocated_bytes", "counter", "bytes", "Memory that was allocated.", alloc_bytes, false},
    {"allocation_seconds", "counter", "seconds", "Time in allocations.", alloc_s, true},
    {"free_seconds", "counter", "seconds", "Time in frees.", free_s, true},
};

static void add_info(struct ag_text *text, const struct metrics_processes *processes)
{
    add_family(text, "process", "info", NULL, "A process that runs under Allograft.");
    for (size_t i = 0; i < processes->n; i++) {
        const struct ag_stats_head *head = &processes->list[i].process.stats->head;

        begin_sample(text, "process", "info", &processes->list[i]);
        ag_text_add(text, ",pid=\"%d\",pid_namespace=\"%llu\"", head->pid,
                    (unsigned long long)head->pid_namespace);
        add_label(text, "host", head->host);
        add_label(text, "version", head->version);
        add_label(text, "driver", head->driver);
        add_label(text, "simulated", head->simulated ? "yes" : "no");
        end_sample(text, 1);
    }
}

static void add_plain(struct ag_text *text, const struct metrics_processes *processes,
                      const struct plain *family)
{
    add_family(text, family->name, family->type, family->unit, family->help);
    for (size_t i = 0; i < processes->n; i++) {
        begin_sample(text, family->name, family->type, &processes->list[i]);
        end_sample(text, family->of(&processes->list[i].process));
    }
}

/* Was anything ever asked for there? */
static bool is_place_used(const struct ag_stats *stats, unsigned row, unsigned place)
{
    return place_stats(stats, row, place)->allocs || place_stats(stats, row, place)->failed;
}

static void add_placed_of(struct ag_text *text, const struct metrics_process *process,
                          const struct placed *family)
{
    const struct ag_stats *stats = process->process.stats;

    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            if (!is_place_used(stats, row, place))
                continue;
            begin_sample(text, family->name, family->type, process);
            ag_text_add(text, ",device=\"%u\",placement=\"%s\"", row, ag_placement_names[place]);
            end_sample(text, family->of(stats, row, place));
        }
    }
}

static void add_placed(struct ag_text *text, const struct metrics_processes *processes,
                       const struct placed *family)
{
    add_family(text, family->name, family->type, family->unit, family->help);
    for (size_t i = 0; i < processes->n; i++) {
        /* Times of the simulated driver mean nothing. */
        if (!family->is_time || !processes->list[i].process.stats->head.simulated)
            add_placed_of(text, &processes->list[i], family);
    }
}

static void add_of_devices(struct ag_text *text, const struct metrics_processes *processes,
                           const struct of_device *family)
{
    add_family(text, family->name, family->type, family->unit, family->help);
    for (size_t i = 0; i < processes->n; i++) {
        for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
            uint64_t value = family->of(processes->list[i].process.stats, row);

            if (!value)
                continue;
            begin_sample(text, family->name, family->type, &processes->list[i]);
            ag_text_add(text, ",device=\"%u\"", row);
            end_sample(text, (double)value);
        }
    }
}

/* The counters of the report, by the names that they have in its JSON. Most of a process are 0, and
 * left out. */
static void add_counter_family(struct ag_text *text, const struct metrics_processes *processes)
{
    add_family(text, "counter", "counter", NULL,
               "The counters of the JSON report that are not 0, by their groups and names there.");
    for (size_t i = 0; i < processes->n; i++) {
        for (unsigned id = 0; id < AG_N_STATS; id++) {
            uint64_t value = process_counter(&processes->list[i].process, id);

            if (!value)
                continue;
            begin_sample(text, "counter", "counter", &processes->list[i]);
            add_label(text, "group", ag_stat_rows[id].group);
            add_label(text, "name", ag_stat_rows[id].key);
            end_sample(text, (double)value);
        }
    }
}

bool metrics_render(const struct folders *folders, struct ag_text *text)
{
    struct metrics_processes processes;
    bool good = metrics_read(folders, &processes);

    if (good) {
        add_info(text, &processes);
        for (size_t i = 0; i < sizeof(plains) / sizeof(plains[0]); i++)
            add_plain(text, &processes, &plains[i]);
        for (size_t i = 0; i < sizeof(placeds) / sizeof(placeds[0]); i++)
            add_placed(text, &processes, &placeds[i]);
        for (size_t i = 0; i < sizeof(of_devices) / sizeof(of_devices[0]); i++)
            add_of_devices(text, &processes, &of_devices[i]);
        add_counter_family(text, &processes);
        ag_text_add(text, "# EOF\n");
    }
    metrics_finish(&processes);
    return good && !text->truncated;
}
