/* job.c: adds up the processes of a job: see job.h. */
#include "tools/report/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/report/guard/render_guard.h"
#include "interpose/core/report/verdict/sums.h"
#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"
#include "tools/base/list.h"
#include "tools/trace/trace_file.h"

bool job_add(struct job *job, struct process *process)
{
    void *processes = list_grow(job->processes, job->n, &job->capacity, sizeof(*job->processes));

    if (!processes) {
        process_finish(process);
        return false;
    }
    job->processes = processes;
    process_make_plain(process);
    job->processes[job->n++] = *process;
    return true;
}

bool job_is_trace(const char *path)
{
    char magic[sizeof(AG_TRACE_MAGIC)] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool found = fd >= 0 && pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
                 !memcmp(magic, AG_TRACE_MAGIC, sizeof(magic));

    if (fd >= 0)
        close(fd);
    return found;
}

bool job_add_trace(struct job *job, const char *path)
{
    char why[256];
    struct trace *trace;

    if (job->n_traces >= JOB_TRACES) {
        job->n_traces++;
        return true;
    }
    trace = trace_open(path, why, sizeof(why));
    if (!trace) {
        process_make_printable(why, sizeof(why));
        command_complain("%s: %s", path, why);
        return false;
    }
    job->trace_paths[job->n_traces] = path;
    job->traces[job->n_traces++] = trace;
    return true;
}

bool job_is_torn(const struct job *job)
{
    for (size_t i = 0; i < job->n_traces && i < JOB_TRACES; i++) {
        if (trace_is_torn(job->traces[i])) {
            command_complain("%s: it was truncated while it was read", job->trace_paths[i]);
            return true;
        }
    }
    return false;
}

void job_finish(struct job *job)
{
    for (size_t i = 0; i < job->n_traces && i < JOB_TRACES; i++)
        trace_close(job->traces[i]);
    for (size_t i = 0; i < job->n; i++)
        process_finish(&job->processes[i]);
    process_finish(&job->total);
    free(job->processes);
    *job = (struct job){0};
}

static int by_rank(const void *a, const void *b)
{
    const struct ag_stats_head *x = &((const struct process *)a)->stats->head;
    const struct ag_stats_head *y = &((const struct process *)b)->stats->head;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (strcmp(x->host, y->host) != 0)
        return strcmp(x->host, y->host);
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* ---- sums ---------------------------------------------------------------------------------- */

static void keep_larger(_Atomic uint64_t *sum, uint64_t value)
{
    if (value > *sum)
        *sum = value;
}

/* The row of the sum for a device. Devices of one model share a row. */
static unsigned device_row(struct ag_stats *sum, const struct ag_stats_device *device)
{
    unsigned n = sum->n_devices;

    for (unsigned i = 0; i < n; i++) {
        if (!strcmp(sum->devices[i].name, device->name) &&
            sum->devices[i].total_bytes == device->total_bytes)
            return i;
    }
    if (n == AG_STATS_DEVICES)
        return n - 1;
    sum->devices[n] = *device;
    sum->devices[n].ordinal = (int32_t)n;
    sum->n_devices = n + 1;
    return n;
}

static void add_place(struct ag_stats *sum, unsigned to, const struct ag_stats *stats,
                      unsigned from)
{
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        const struct ag_place_stats *added = &stats->slots[0].places[from][place];
        _Atomic uint64_t *sums = (_Atomic uint64_t *)(void *)&sum->slots[0].places[to][place];

        for (size_t i = 0; i < sizeof(*added) / sizeof(uint64_t); i++)
            sums[i] += ((const _Atomic uint64_t *)(const void *)added)[i];
        sum->peak_bytes[to][place] += stats->peak_bytes[from][place];
    }
    sum->peak_all[to] += ag_sum_peak(stats, from);
    sum->given_peak[to] += stats->given_peak[from];
}

static void add_devices(struct ag_stats *sum, const struct ag_stats *stats)
{
    bool done[AG_STATS_DEVICES] = {false};

    for (unsigned i = 0; i < stats->n_devices && i < AG_STATS_DEVICES_MET; i++) {
        unsigned ordinal = (unsigned)stats->devices[i].ordinal;
        unsigned row = ordinal < AG_STATS_DEVICES ? ordinal : AG_STATS_DEVICES - 1;

        if (!done[row])
            add_place(sum, device_row(sum, &stats->devices[i]), stats, row);
        done[row] = true;
    }
}

static void sum_rule(struct ag_stats *sum, const char *text, const struct ag_rule_stats *rule)
{
    unsigned i = 0;

    while (i < sum->head.n_rules && strcmp(sum->head.rules[i], text) != 0)
        i++;
    if (i == sum->head.n_rules && i < AG_MAX_RULES) {
        snprintf(sum->head.rules[i], sizeof(sum->head.rules[i]), "%s", text);
        sum->head.n_rules++;
    }
    sum->slots[0].rules[i].hits +=
        rule->hits; /* rules beyond AG_MAX_RULES are counted as no rule */
    sum->slots[0].rules[i].bytes += rule->bytes;
    sum->slots[0].rules[i].held += rule->held;
    sum->slots[0].rules[i].failed += rule->failed;
}

static void sum_rules(struct ag_stats *sum, const struct ag_stats *stats)
{
    for (unsigned i = 0; i < stats->head.n_rules && i < AG_MAX_RULES; i++)
        sum_rule(sum, stats->head.rules[i], &stats->slots[0].rules[i]);
    sum->slots[0].rules[AG_MAX_RULES].hits += stats->slots[0].rules[AG_MAX_RULES].hits;
    sum->slots[0].rules[AG_MAX_RULES].bytes += stats->slots[0].rules[AG_MAX_RULES].bytes;
}

/* Pools of one kind on one device share a row. */
static void sum_pool(struct ag_stats *sum, const struct ag_stats *stats, unsigned row)
{
    const struct ag_app_pool_stats *pool = &stats->app_pools[row];
    unsigned i = 0;

    while (i + 1 < AG_APP_POOLS && sum->app_pools[i].kind != AG_APP_POOL_UNUSED &&
           (sum->app_pools[i].kind != pool->kind || sum->app_pools[i].device != pool->device))
        i++;
    sum->app_pools[i].kind = pool->kind;
    sum->app_pools[i].device = pool->device;
    sum->app_pools[i].raised |= pool->raised;
    sum->app_pools[i].has_levels |= pool->has_levels;
    sum->app_pools[i].reserved_high += pool->reserved_high;
    sum->app_pools[i].used_high += pool->used_high;
    for (unsigned which = 0; which < AG_N_APP_COUNTS; which++)
        sum->slots[0].app_pools[i][which] += stats->slots[0].app_pools[row][which];
}

static void add_mark(struct ag_stats *sum, const struct ag_mark_stats *mark)
{
    unsigned i = 0;

    while (i < sum->n_marks && strcmp(sum->marks[i].name, mark->name) != 0)
        i++;
    if (i == AG_MARKS)
        return;
    if (i == sum->n_marks) {
        memcpy(sum->marks[i].name, mark->name, sizeof(mark->name));
        sum->marks[i].first_ns = mark->first_ns;
        sum->n_marks = i + 1;
    }
    sum->marks[i].count += mark->count;
    if (mark->first_ns < sum->marks[i].first_ns)
        sum->marks[i].first_ns = mark->first_ns;
    keep_larger(&sum->marks[i].last_ns, mark->last_ns);
    sum->marks[i].bytes += mark->bytes;
}

/* Adds as many findings as there is room for. */
static void add_findings(struct ag_stats *sum, const struct ag_stats *stats)
{
    struct ag_guard_finding finding;
    unsigned n = 0;

    while (n < AG_GUARD_FINDINGS && sum->guard_findings[n].used)
        n++;
    for (unsigned i = 0; n < AG_GUARD_FINDINGS && ag_render_finding(stats, i, &finding); i++)
        sum->guard_findings[n++] = finding;
}

/* The one that came soonest. */
static void keep_earliest_error(struct ag_stats *sum, const struct ag_stats *stats)
{
    if (stats->first_error.used &&
        (!sum->first_error.used || stats->first_error.after_ns < sum->first_error.after_ns))
        sum->first_error = stats->first_error;
}

static void add_bypassing(struct ag_stats *sum, const char *library)
{
    for (unsigned i = 0; i < sum->n_bypassing; i++) {
        if (!strcmp(sum->bypassing[i], library))
            return;
    }
    if (sum->n_bypassing < AG_STATS_BYPASSING)
        snprintf(sum->bypassing[sum->n_bypassing++], sizeof(sum->bypassing[0]), "%s", library);
}

static void sum_unseen(struct ag_stats *sum, const char *library)
{
    unsigned i = 0;

    while (i < AG_STATS_UNSEEN && *sum->unseen[i] && strcmp(sum->unseen[i], library))
        i++;
    if (i < AG_STATS_UNSEEN)
        snprintf(sum->unseen[i], sizeof(sum->unseen[i]), "%s", library);
}

static void sum_counters(struct ag_stats *sum, const struct ag_stats *stats)
{
    for (unsigned i = 0; i < AG_N_STATS; i++)
        sum->slots[0].counters[i] += stats->slots[0].counters[i];
    for (unsigned i = 0; i < AG_N_HOOKS; i++)
        sum->slots[0].hits[i] += stats->slots[0].hits[i];
    keep_larger(&sum->pending_bytes.peak, stats->pending_bytes.peak);
    keep_larger(&sum->cached_peak, stats->cached_peak);
    sum->slab_bytes.current += stats->slab_bytes.current;
    keep_larger(&sum->slab_bytes.peak, stats->slab_bytes.peak);
    sum->pinned_bytes.current += stats->pinned_bytes.current;
    keep_larger(&sum->pinned_bytes.peak, stats->pinned_bytes.peak);
    if (stats->bus_gib_ns && (!sum->bus_gib_ns || stats->bus_gib_ns < sum->bus_gib_ns))
        sum->bus_gib_ns = stats->bus_gib_ns;
    sum->own_graphs.current += stats->own_graphs.current;
    keep_larger(&sum->own_graphs.peak, stats->own_graphs.peak);
    for (unsigned i = 0; i < AG_STATS_DEVICES; i++) {
        sum->own_graph_devices[i].is_measured |= stats->own_graph_devices[i].is_measured;
        sum->own_graph_devices[i].has_levels |= stats->own_graph_devices[i].has_levels;
        for (unsigned which = 0; which < AG_N_GRAPH_BYTES; which++)
            sum->own_graph_devices[i].bytes[which] += stats->own_graph_devices[i].bytes[which];
    }
    if (stats->eager_ns > sum->eager_ns) {
        sum->eager_ns = stats->eager_ns;
        sum->replayed_ns = stats->replayed_ns;
        sum->compared_unwaited = stats->compared_unwaited;
    }
}

/* ---- head and settings --------------------------------------------------------------------- */

/* The text that begins at `at`; *ret_next is where the next one begins. */
static const char *text_at(const struct ag_stats_head *head, size_t at, size_t *ret_next)
{
    size_t room = at < sizeof(head->settings) ? sizeof(head->settings) - at : 0;
    size_t length = room ? strnlen(head->settings + at, room) : 0;

    *ret_next = length < room ? at + length + 1 : at;
    return length < room ? head->settings + at : "";
}

bool job_setting(const struct process *process, size_t i, const char **ret_source,
                 const char **ret_value)
{
    size_t at = 0;

    for (size_t row = 0; row <= i; row++) {
        *ret_source = text_at(&process->stats->head, at, &at);
        *ret_value = text_at(&process->stats->head, at, &at);
    }
    return **ret_source != '\0';
}

static void append_setting(char *texts, size_t *at, size_t capacity, const char *text)
{
    size_t length = strlen(text) + 1;

    if (*at + length > capacity)
        return;
    memcpy(texts + *at, text, length);
    *at += length;
}

/* A setting whose value differs between processes says so. */
static void merge_settings(struct job *job, struct ag_stats_head *sum)
{
    size_t at = 0;

    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *source, *value, *others_source, *others_value;

        (void)job_setting(&job->processes[0], i, &source, &value);
        for (size_t k = 1; k < job->n; k++) {
            (void)job_setting(&job->processes[k], i, &others_source, &others_value);
            if (strcmp(value, others_value) != 0) {
                value = "(differs)";
                source = "environment";
                break;
            }
        }
        append_setting(sum->settings, &at, sizeof(sum->settings), source);
        append_setting(sum->settings, &at, sizeof(sum->settings), value);
    }
}

static void merge_head(struct ag_stats_head *sum, const struct ag_stats_head *head)
{
    if (strcmp(sum->program, head->program) != 0)
        snprintf(sum->program, sizeof(sum->program), "several programs");
    if (strcmp(sum->host, head->host) != 0)
        snprintf(sum->host, sizeof(sum->host), "several hosts");
    if (strcmp(sum->ended_by, head->ended_by) != 0)
        snprintf(sum->ended_by, sizeof(sum->ended_by), "several");
    if (!*sum->trouble)
        memcpy(sum->trouble, head->trouble, sizeof(sum->trouble));
    if (!sum->simulated != !head->simulated)
        sum->simulated = AG_PARTLY_SIMULATED;
    if (*head->replay && strcmp(sum->replay, "on") != 0)
        memcpy(sum->replay, head->replay, sizeof(sum->replay));
}

static void begin_sum(struct job *job)
{
    struct ag_stats_head *sum = &job->total.stats->head;

    *sum = job->processes[0].stats->head;
    memset(sum->settings, 0, sizeof(sum->settings));
    memset(sum->rules, 0, sizeof(sum->rules));
    sum->n_rules = 0;
    sum->rank = -1;
    merge_settings(job, sum);
}

bool job_add_up(struct job *job)
{
    struct ag_stats *sum = job->total.stats = process_new_stats();
    uint64_t longest = 0;

    if (!sum)
        return false;
    qsort(job->processes, job->n, sizeof(*job->processes), by_rank);
    begin_sum(job);
    for (size_t i = 0; i < job->n; i++) {
        const struct ag_stats *stats = job->processes[i].stats;

        merge_head(&sum->head, &stats->head);
        sum_counters(sum, stats);
        add_devices(sum, stats);
        sum_rules(sum, stats);
        for (unsigned row = 0; row < AG_APP_POOLS; row++) {
            if (stats->app_pools[row].kind != AG_APP_POOL_UNUSED)
                sum_pool(sum, stats, row);
        }
        for (unsigned k = 0; k < stats->n_marks && k < AG_MARKS; k++)
            add_mark(sum, &stats->marks[k]);
        add_findings(sum, stats);
        keep_earliest_error(sum, stats);
        for (unsigned k = 0; k < stats->n_bypassing && k < AG_STATS_BYPASSING; k++)
            add_bypassing(sum, stats->bypassing[k]);
        for (unsigned k = 0; k < AG_STATS_UNSEEN; k++) {
            if (*stats->unseen[k])
                sum_unseen(sum, stats->unseen[k]);
        }
        if (process_elapsed_ns(&job->processes[i]) > longest)
            longest = process_elapsed_ns(&job->processes[i]);
        job->elapsed_ns += (double)process_elapsed_ns(&job->processes[i]);
    }
    job->total.moment = (struct ag_moment){.ns = longest ? longest : 1, .alive = longest != 0};
    job->total.moment.ticks = job->total.moment.ns;
    job->total.is_plain = true;
    figure_find_medians(job);
    return true;
}
