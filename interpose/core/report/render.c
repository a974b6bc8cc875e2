/* Renders counters as text and as JSON: see render.h. Each form is one traversal of the lists. */
#include "interpose/core/report/render.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/relaxed.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/errors/first_error.h"
#include "interpose/core/report/graphs/render_graphs.h"
#include "interpose/core/report/guard/render_guard.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/report/render_marks.h"
#include "interpose/core/report/render_pools.h"
#include "interpose/core/report/render_replay.h"
#include "interpose/core/report/verdict/sums.h"
#include "interpose/core/report/verdict/verdict.h"
#include "interpose/core/report/waits/render_waits.h"
#include "interpose/core/settings/options.h"

static const char *const hook_names[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) #symbol,
#include "interpose/core/driver/hooks.def"
};

/* What all functions here are about. */
struct view {
    struct ag_text *text;
    const struct ag_stats *stats;
    const struct ag_moment *moment;
};

#define ADD(view, ...) ag_text_add((view)->text, __VA_ARGS__)

/* The sum over slots of one member of a device's placement row. */
#define PLACE_SUM(view, device, place, member) \
    ag_stats_sum_of((view)->stats, offsetof(struct ag_stats_slot, places[device][place].member))

#define RULE_SUM(view, rule, member) \
    ag_stats_sum_of((view)->stats, offsetof(struct ag_stats_slot, rules[rule].member))

static uint64_t view_counter(const struct view *view, unsigned id)
{
    return ag_stats_counter_of(view->stats, (enum ag_stat)id);
}

static uint64_t hits(const struct view *view, unsigned hook)
{
    return ag_stats_sum_of(view->stats,
                           offsetof(struct ag_stats_slot, hits) + hook * sizeof(uint64_t));
}

/* Relaxed: each value is shown by itself. */
/* How long the process ran, or 0: nobody saw it end. */
static uint64_t elapsed_ns(const struct view *view)
{
    const struct ag_moment *moment = view->moment;

    if (!moment->alive || moment->ns < view->stats->head.started_ns)
        return 0;
    return moment->ns - view->stats->head.started_ns;
}

static uint64_t sum_of_group(const struct view *view, const char *group)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (!strcmp(ag_stat_rows[i].group, group))
            sum += view_counter(view, i);
    }
    return sum;
}

static unsigned n_devices(const struct view *view)
{
    uint32_t n = atomic_load_explicit(&view->stats->n_devices, memory_order_acquire);

    return n < AG_STATS_DEVICES_MET ? n : AG_STATS_DEVICES_MET;
}

static unsigned n_bypassing(const struct view *view)
{
    uint32_t n = atomic_load_explicit(&view->stats->n_bypassing, memory_order_acquire);

    return n < AG_STATS_BYPASSING ? n : AG_STATS_BYPASSING;
}

static unsigned n_rules(const struct view *view)
{
    uint32_t n = view->stats->head.n_rules;

    return n < AG_MAX_RULES ? n : AG_MAX_RULES;
}

/* The row of the counters' tables that stands for a device. */
static unsigned stats_row(const struct ag_stats_device *device)
{
    unsigned ordinal = (unsigned)device->ordinal;

    return ordinal < AG_STATS_DEVICES ? ordinal : AG_STATS_DEVICES - 1;
}

static bool intercepted(const struct view *view)
{
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        if (hits(view, i))
            return true;
    }
    return false;
}

/* --- warnings, in both forms --- */

/* Do ranges of NVTX begin iterations? */
static bool by_range(const struct view *view)
{
    return ag_text_begins(ag_render_setting(view->stats, AG_OPTION_GRAPH_ITERATION), "nvtx:");
}

/* Calls that rules failed. */
static uint64_t n_injected(const struct view *view)
{
    return sum_of_group(view, "injected") - view_counter(view, AG_STAT_INJECTED_CAPTURE);
}

static const char *warning(const struct view *view, unsigned i)
{
    const char *trouble = view->stats->head.trouble;
    const char *kept_because = view->stats->head.kept_because;
    static char text[400];
    unsigned n = 0;

    if (*kept_because && n++ == i) {
        snprintf(text, sizeof(text), "the report could not be written: %s", kept_because);
        return text;
    }
    if (*trouble && n++ == i) {
        snprintf(text, sizeof(text), "nothing was redirected: %s", trouble);
        return text;
    }
    if (view->stats->head.simulated && n++ == i)
        return view->stats->head.simulated == AG_PARTLY_SIMULATED
                   ? "some of the processes ran on the simulated driver, not on a GPU: their times "
                     "mean nothing"
                   : "ran on the simulated driver, not on a GPU: times mean nothing";
    if (!*trouble && n_devices(view) && !view_counter(view, AG_STAT_REDIRECTED) &&
        !view_counter(view, AG_STAT_PASSED) && !n_injected(view) && n++ == i)
        return "the program allocated nothing through cudaMalloc or cuMemAlloc";
    if (n_injected(view) && n++ == i) {
        snprintf(text, sizeof(text), "rules failed %llu call%s on purpose, as out of memory",
                 (unsigned long long)n_injected(view), n_injected(view) == 1 ? "" : "s");
        return text;
    }
    if (view_counter(view, AG_STAT_LOOKUP_UNMATCHED) && n++ == i)
        return "cuGetProcAddress returned addresses that belong to no exported symbol: those calls "
               "were not intercepted";
    if (view_counter(view, AG_STAT_FALLBACK_NO_IPC) && n++ == i)
        return "the program asked for an IPC handle of memory that has none; set "
               "ALLOGRAFT_POLICY=native, or a rule that leaves such memory native";
    if (i >= n && i - n < n_bypassing(view)) {
        snprintf(text, sizeof(text),
                 "%.200s reaches the driver past Allograft (RTLD_DEEPBIND): its calls were not "
                 "intercepted",
                 view->stats->bypassing[i - n]);
        return text;
    }
    n += n_bypassing(view);
    for (unsigned k = 0; k < AG_STATS_UNSEEN; k++) {
        if (*view->stats->unseen[k] && n++ == i) {
            snprintf(text, sizeof(text),
                     "%.63s uses the device, or its memory, where Allograft does not see it: frees "
                     "wait, and memory is native",
                     view->stats->unseen[k]);
            return text;
        }
    }
    return i < n ? NULL : ag_render_replay_warning(view->stats, by_range(view), i - n);
}

const char *ag_render_warning(const struct ag_stats *stats, unsigned i)
{
    const struct view view = {NULL, stats, NULL};

    return warning(&view, i);
}

/* --- JSON --- */

static void json_process(struct ag_emitter *json, const struct view *view)
{
    const struct ag_stats_head *head = &view->stats->head;

    ag_emit_line(json, 0);
    ag_emit_object(json, "process");
    ag_emit_raw(json, "pid", "%d", head->pid);
    ag_emit_string(json, "program", head->program);
    ag_emit_string(json, "host", head->host);
    if (head->rank >= 0)
        ag_emit_raw(json, "rank", "%d", head->rank);
    else
        ag_emit_raw(json, "rank", "null");
    ag_emit_number(json, "elapsed_ns", elapsed_ns(view));
    ag_emit_string(json, "ended_by", *head->ended_by ? head->ended_by : "running");
    ag_emit_end(json);
}

static bool is_from_file(const char *source)
{
    return strcmp(source, "default") && strcmp(source, "environment");
}

static void json_settings(struct ag_emitter *json, const struct view *view)
{
    size_t at = 0;

    ag_emit_line(json, 0);
    ag_emit_array(json, "settings");
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *source = ag_render_next_text(view->stats, &at),
                   *value = ag_render_next_text(view->stats, &at);

        ag_emit_line(json, 1);
        ag_emit_object(json, NULL);
        ag_emit_string(json, "name", ag_option_info(i)->name);
        ag_emit_string(json, "value", value);
        ag_emit_string(json, "source", is_from_file(source) ? "file" : source);
        if (is_from_file(source))
            ag_emit_string(json, "place", source);
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

static void json_rule(struct ag_emitter *json, const struct view *view, unsigned i)
{
    ag_emit_number(json, "hits", RULE_SUM(view, i, hits));
    ag_emit_number(json, "bytes", RULE_SUM(view, i, bytes));
    if (RULE_SUM(view, i, held)) {
        ag_emit_number(json, "held", RULE_SUM(view, i, held));
        ag_emit_number(json, "failed", RULE_SUM(view, i, failed));
    }
    ag_emit_end(json);
}

static void json_rules(struct ag_emitter *json, const struct view *view)
{
    if (!n_rules(view))
        return;
    ag_emit_line(json, 0);
    ag_emit_array(json, "rules");
    for (unsigned i = 0; i < n_rules(view); i++) {
        ag_emit_line(json, 1);
        ag_emit_object(json, NULL);
        ag_emit_string(json, "text", view->stats->head.rules[i]);
        json_rule(json, view, i);
    }
    ag_emit_end(json);
    ag_emit_line(json, 0);
    ag_emit_object(json, "no_rule");
    json_rule(json, view, AG_MAX_RULES);
}

static void json_hooks(struct ag_emitter *json, const struct view *view)
{
    ag_emit_line(json, 1);
    ag_emit_object(json, "hooks");
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        if (hits(view, i))
            ag_emit_number(json, hook_names[i], hits(view, i));
    }
    ag_emit_end(json);
}

static void json_coverage(struct ag_emitter *json, const struct view *view)
{
    ag_emit_line(json, 0);
    ag_emit_object(json, "coverage");
    ag_emit_bool(json, "intercepted", intercepted(view));
    ag_emit_bool(json, "redirecting", !*view->stats->head.trouble);
    ag_emit_string(json, "libcuda", view->stats->head.driver);
    ag_render_object_json(json, view->stats, 1, "lookups", "lookups");
    json_hooks(json, view);
    ag_emit_line(json, 1);
    ag_render_group_json(json, view->stats, "calls");
    ag_render_object_json(json, view->stats, 1, "fallbacks", "fallbacks");
    ag_emit_line(json, 1);
    ag_emit_array(json, "bypassing");
    for (unsigned i = 0; i < n_bypassing(view); i++)
        ag_emit_string(json, NULL, view->stats->bypassing[i]);
    ag_emit_end(json);
    ag_emit_array(json, "unseen");
    for (unsigned i = 0; i < AG_STATS_UNSEEN; i++) {
        if (*view->stats->unseen[i])
            ag_emit_string(json, NULL, view->stats->unseen[i]);
    }
    ag_emit_end(json);
    ag_emit_end(json);
}

static void json_placement(struct ag_emitter *json, const struct view *view, unsigned device,
                           unsigned place)
{
    /* What was freed is read first, as for bytes: other threads go on, and no free is counted whose
     * allocation is not. Where a count was lost, as a file took the counters over, one may be. */
    uint64_t frees = PLACE_SUM(view, device, place, frees);
    uint64_t allocs = PLACE_SUM(view, device, place, allocs);

    ag_emit_line(json, 2);
    ag_emit_object(json, ag_placement_names[place]);
    ag_emit_number(json, "allocs", allocs);
    ag_emit_number(json, "frees", frees);
    ag_emit_number(json, "failed", PLACE_SUM(view, device, place, failed));
    ag_emit_number(json, "alloc_bytes", PLACE_SUM(view, device, place, alloc_bytes));
    ag_emit_number(json, "current_bytes", ag_live_of(view->stats, device, place));
    ag_emit_number(json, "current_blocks", allocs > frees ? allocs - frees : 0);
    ag_emit_number(json, "peak_bytes", ag_relaxed(&view->stats->peak_bytes[device][place]));
    ag_emit_raw(
        json, "alloc_ns", "%.0f",
        ag_render_ticks(view->stats, view->moment, PLACE_SUM(view, device, place, alloc_ticks)));
    ag_emit_raw(
        json, "free_ns", "%.0f",
        ag_render_ticks(view->stats, view->moment, PLACE_SUM(view, device, place, free_ticks)));
    ag_emit_array(json, "size_histogram");
    for (unsigned i = 0; i < AG_SIZE_CLASSES; i++) {
        uint64_t count = PLACE_SUM(view, device, place, sizes[i]);

        if (!count)
            continue;
        ag_emit_object(json, NULL);
        ag_emit_number(json, "up_to_bytes", 1ull << (i + 9));
        ag_emit_number(json, "count", count);
        ag_emit_end(json);
    }
    ag_emit_end(json);
    ag_emit_end(json);
}

static void json_devices(struct ag_emitter *json, const struct view *view)
{
    ag_emit_line(json, 0);
    ag_emit_array(json, "devices");
    for (unsigned i = 0; i < n_devices(view); i++) {
        const struct ag_stats_device *device = &view->stats->devices[i];

        ag_emit_line(json, 1);
        ag_emit_object(json, NULL);
        ag_emit_raw(json, "ordinal", "%d", device->ordinal);
        ag_emit_string(json, "name", device->name);
        ag_emit_number(json, "total_bytes", device->total_bytes);
        ag_emit_number(json, "peak_bytes", ag_sum_peak(view->stats, stats_row(device)));
        ag_emit_number(json, "given_peak_bytes",
                       ag_relaxed(&view->stats->given_peak[stats_row(device)]));
        ag_emit_object(json, "placements");
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            json_placement(json, view, stats_row(device), place);
        ag_emit_end(json);
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

static void json_frees(struct ag_emitter *json, const struct view *view)
{
    ag_emit_line(json, 0);
    ag_emit_object(json, "frees");
    ag_render_group_json(json, view->stats, "frees");
    ag_render_object_json(json, view->stats, 1, "fences", "fences");
    ag_render_object_json(json, view->stats, 1, "drain_reasons", "drains");
    ag_render_object_json(json, view->stats, 1, "late_waits", "late_waits");
    ag_emit_line(json, 1);
    ag_emit_number(json, "waited", ag_sum_frees(view->stats).waited);
    ag_emit_number(json, "pending_peak_bytes", ag_relaxed(&view->stats->pending_bytes.peak));
    ag_emit_end(json);
    ag_emit_line(json, 0);
    ag_emit_object(json, "cache");
    ag_render_group_json(json, view->stats, "cache");
    ag_emit_number(json, "peak_bytes", ag_relaxed(&view->stats->cached_peak));
    ag_emit_end(json);
    ag_emit_line(json, 0);
    ag_emit_object(json, "slabs");
    ag_render_group_json(json, view->stats, "slabs");
    ag_emit_number(json, "held_bytes", ag_relaxed(&view->stats->slab_bytes.current));
    ag_emit_number(json, "peak_bytes", ag_relaxed(&view->stats->slab_bytes.peak));
    ag_emit_end(json);
    ag_emit_line(json, 0);
    ag_emit_object(json, "pinned");
    ag_render_group_json(json, view->stats, "pinned");
    ag_emit_number(json, "held_bytes", ag_relaxed(&view->stats->pinned_bytes.current));
    ag_emit_number(json, "peak_bytes", ag_relaxed(&view->stats->pinned_bytes.peak));
    ag_emit_end(json);
    ag_render_object_json(json, view->stats, 0, "pool", "pool");
}

static void json_pressure(struct ag_emitter *json, const struct view *view)
{
    ag_emit_line(json, 0);
    ag_emit_object(json, "pressure");
    ag_render_group_json(json, view->stats, "pressure");
    ag_emit_number(json, "bus_gib_ns", ag_relaxed(&view->stats->bus_gib_ns));
    ag_emit_number(json, "move_least_ns", ag_sum_moves(view->stats).least_ns);
    ag_emit_end(json);
}

static void json_warnings(struct ag_emitter *json, const struct view *view)
{
    ag_emit_line(json, 0);
    ag_emit_array(json, "warnings");
    for (unsigned i = 0; warning(view, i); i++)
        ag_emit_string(json, NULL, warning(view, i));
    ag_emit_end(json);
}

void ag_render_json(struct ag_text *text, const struct ag_stats *stats,
                    const struct ag_moment *moment, const struct ag_holders_view *holders)
{
    static const char *const groups[] = {"injected", "copies", "async",  "ipc",
                                         "api",      "trace",  "waiting"};
    const struct view it = {text, stats, moment}, *view = &it;
    struct ag_emitter emitter = {.text = text}, *json = &emitter;

    ag_emit_object(json, NULL);
    ag_emit_string(json, "schema", "allograft-stats/1");
    ag_emit_string(json, "version", stats->head.version);
    ag_emit_bool(json, "simulated", stats->head.simulated);
    json_process(json, view);
    ag_verdict_json(json, stats, moment);
    json_settings(json, view);
    json_rules(json, view);
    json_coverage(json, view);
    json_devices(json, view);
    json_frees(json, view);
    ag_render_object_json(json, stats, 0, "managed", "managed");
    json_pressure(json, view);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        ag_render_object_json(json, stats, 0, groups[i], groups[i]);
    ag_render_guard_json(json, stats);
    ag_render_graphs_json(json, stats);
    ag_render_marks_json(json, stats);
    ag_render_replay_json(json, stats);
    ag_render_pools_json(json, stats);
    ag_first_error_json(json, view->stats);
    json_warnings(json, view);
    ag_render_holders_json(json, holders);
    ag_render_waits_json(json, holders);
    ag_emit_end(json);
    ag_text_add(text, "\n");
}

/* --- text --- */

/* The lines of a group whose counters are not zero. */
static void text_group(const struct view *view, const char *group, const char *title)
{
    if (!sum_of_group(view, group))
        return;
    ADD(view, "  %s\n", title);
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        uint64_t count = view_counter(view, i);

        if (count && !strcmp(ag_stat_rows[i].group, group))
            ADD(view, "    %-52s %14llu\n", ag_stat_rows[i].label, (unsigned long long)count);
    }
}

/* What a call took, or "-" where times mean nothing. */
static void text_mean(const struct view *view, char *text, size_t size, double ns, uint64_t calls)
{
    if (view->stats->head.simulated)
        snprintf(text, size, "-");
    else
        ag_text_duration(text, size, calls ? ns / (double)calls : 0);
}

static void text_placement(const struct view *view, unsigned device, unsigned place)
{
    uint64_t allocs = PLACE_SUM(view, device, place, allocs);
    uint64_t frees = PLACE_SUM(view, device, place, frees);
    double alloc_ns =
        ag_render_ticks(view->stats, view->moment, PLACE_SUM(view, device, place, alloc_ticks));
    double free_ns =
        ag_render_ticks(view->stats, view->moment, PLACE_SUM(view, device, place, free_ticks));
    char total[32], current[32], peak[32], per_alloc[32], per_free[32];

    if (!allocs && !PLACE_SUM(view, device, place, failed))
        return;
    ag_text_size(total, sizeof(total), PLACE_SUM(view, device, place, alloc_bytes));
    ag_text_size(current, sizeof(current), ag_live_of(view->stats, device, place));
    ag_text_size(peak, sizeof(peak), ag_relaxed(&view->stats->peak_bytes[device][place]));
    text_mean(view, per_alloc, sizeof(per_alloc), alloc_ns, allocs);
    text_mean(view, per_free, sizeof(per_free), free_ns, frees);
    ADD(view, "    %-8s %10llu %10llu %12s %12s %12s %10s %10s\n", ag_placement_names[place],
        (unsigned long long)allocs, (unsigned long long)frees, total, peak, current, per_alloc,
        per_free);
}

/* One line of "<=size: count" for the sizes asked for on a device. */
static void text_sizes(const struct view *view, unsigned device)
{
    bool first = true;

    for (unsigned i = 0; i < AG_SIZE_CLASSES; i++) {
        uint64_t count = 0;
        char size[32];

        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            count += PLACE_SUM(view, device, place, sizes[i]);
        if (!count)
            continue;
        ag_text_size(size, sizeof(size), 1ull << (i + 9));
        ADD(view, "%s%s: %llu", first ? "    sizes up to " : ", ", size, (unsigned long long)count);
        first = false;
    }
    if (!first)
        ADD(view, "\n");
}

/* What the program had, and what the device gave, at a time. */
static void text_most(const struct view *view, unsigned row)
{
    char had[32], gave[32];

    ADD(view, "    the most at a time: %s",
        ag_text_size(had, sizeof(had), ag_sum_peak(view->stats, row)));
    if (view->stats->given_peak[row])
        ADD(view, "; of the device, with what was kept for later: %s",
            ag_text_size(gave, sizeof(gave), ag_relaxed(&view->stats->given_peak[row])));
    ADD(view, "\n");
}

static void text_devices(const struct view *view)
{
    const char *ended_by = view->stats->head.ended_by; /* nothing in the process's own dump */
    bool running = !*ended_by || !strcmp(ended_by, "running");

    for (unsigned i = 0; i < n_devices(view); i++) {
        const struct ag_stats_device *device = &view->stats->devices[i];
        char total[32];

        ag_text_size(total, sizeof(total), device->total_bytes);
        ADD(view, "  device %d, %s, %s\n", device->ordinal, device->name, total);
        ADD(view, "    %-8s %10s %10s %12s %12s %12s %10s %10s\n", "memory", "allocs", "frees",
            "total", "peak", running ? "now" : "at exit", "per alloc", "per free");
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            text_placement(view, stats_row(device), place);
        text_most(view, stats_row(device));
        text_sizes(view, stats_row(device));
    }
}

static void text_coverage(const struct view *view)
{
    ADD(view, "  coverage\n");
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        uint64_t count = view_counter(view, i);

        if (count &&
            (!strcmp(ag_stat_rows[i].group, "lookups") || !strcmp(ag_stat_rows[i].group, "calls")))
            ADD(view, "    %-52s %14llu\n", ag_stat_rows[i].label, (unsigned long long)count);
    }
}

/* Defaults of replay where it was not asked for: nobody wants to know. */
static bool is_idle_setting(const struct view *view, const char *name, const char *mark)
{
    return !*mark && !*view->stats->head.replay && !strncmp(name, "GRAPH_", strlen("GRAPH_"));
}

/* Wrapped at 100 columns; what is no default is marked. Rules stand below by themselves. */
static void text_all_settings(const struct view *view)
{
    const char *config = NULL;
    size_t column = 100, at = 0;

    ADD(view, "  settings");
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *name = ag_option_info(i)->name + strlen("ALLOGRAFT_");
        const char *source = ag_render_next_text(view->stats, &at),
                   *value = ag_render_next_text(view->stats, &at);
        const char *mark = is_from_file(source) ? "+" : strcmp(source, "default") ? "*" : "";
        char number[16];
        size_t length;

        if (is_idle_setting(view, name, mark))
            continue;
        snprintf(number, sizeof(number), "%u", n_rules(view));
        if (i == AG_OPTION_RULES && n_rules(view))
            value = number;
        if (i == AG_OPTION_CONFIG && *mark)
            config = value;
        length = 2 + strlen(name) + strlen(value) + strlen(mark);
        if (column + length > 100) {
            ADD(view, "\n   ");
            column = 3;
        }
        ADD(view, " %s=%s%s", name, value, mark);
        column += length;
    }
    ADD(view, "\n    (* set by you");
    if (config)
        ADD(view, ", + by %s", config);
    ADD(view, ")\n");
}

static void text_rule(const struct view *view, unsigned i, const char *what)
{
    char bytes[32];

    ag_text_size(bytes, sizeof(bytes), RULE_SUM(view, i, bytes));
    ADD(view, "    %10llu %12s  %s\n", (unsigned long long)RULE_SUM(view, i, hits), bytes, what);
    if (RULE_SUM(view, i, held))
        ADD(view, "    %24sfailed %llu of the %llu call%s that it held for\n", "",
            (unsigned long long)RULE_SUM(view, i, failed),
            (unsigned long long)RULE_SUM(view, i, held), RULE_SUM(view, i, held) == 1 ? "" : "s");
}

static void text_rules(const struct view *view)
{
    if (!n_rules(view))
        return;
    ADD(view, "  rules\n    %10s %12s\n", "allocs", "total");
    for (unsigned i = 0; i < n_rules(view); i++)
        text_rule(view, i, view->stats->head.rules[i]);
    text_rule(view, AG_MAX_RULES, "(no rule)");
}

/* Rules that applied to nothing, most often for a mistake in them: where there was anything that
 * they could have applied to. The whole report has the table instead. */
static void text_idle_rules(const struct view *view)
{
    uint64_t met = RULE_SUM(view, AG_MAX_RULES, hits);

    for (unsigned i = 0; i < n_rules(view); i++)
        met += RULE_SUM(view, i, hits) + RULE_SUM(view, i, held);
    for (unsigned i = 0; met && i < n_rules(view); i++) {
        if (!RULE_SUM(view, i, hits) && !RULE_SUM(view, i, held))
            ADD(view, "  rule %u decided nothing: %s\n", i + 1, view->stats->head.rules[i]);
    }
}

/* How far moves were from what the bus alone would take. */
static void text_moves(const struct view *view)
{
    struct ag_sum_moves sums = ag_sum_moves(view->stats);
    char all[32], copies[32], maps[32], waits[32], rest[32], least[32], gib[32];

    if (!sums.least_ns)
        return;
    ADD(view,
        "    moving took %s: mapping beside copies %s, copies alone %s, waiting for the device %s, "
        "the rest %s\n",
        ag_text_duration(all, sizeof(all), (double)sums.ns),
        ag_text_duration(maps, sizeof(maps), (double)sums.map_ns),
        ag_text_duration(copies, sizeof(copies), (double)sums.copy_ns),
        ag_text_duration(waits, sizeof(waits), (double)sums.wait_ns),
        ag_text_duration(rest, sizeof(rest), (double)sums.rest_ns));
    ADD(view, "    the bus alone takes %s for it, as fast as it was once (%s a GiB, both ways)\n",
        ag_text_duration(least, sizeof(least), (double)sums.least_ns),
        ag_text_duration(gib, sizeof(gib), (double)ag_relaxed(&view->stats->bus_gib_ns)));
}

static void text_title(const struct view *view)
{
    const struct ag_stats_head *head = &view->stats->head;
    char elapsed[32];

    ADD(view, "allograft %s: %s (process %d)", head->version, head->program, head->pid);
    if (elapsed_ns(view))
        ADD(view, " after %s",
            ag_text_duration(elapsed, sizeof(elapsed), (double)elapsed_ns(view)));
    if (!*head->ended_by || !strcmp(head->ended_by, "running") || !strcmp(head->ended_by, "killed"))
        ADD(view, ", %s", *head->ended_by ? head->ended_by : "running");
    ADD(view, "\n");
}

/* What comes first in every form of the text. */
static void text_summary(const struct view *view)
{
    char first_error[256];

    text_title(view);
    ag_verdict_text(view->text, view->stats, view->moment);
    if (*ag_first_error_text(view->stats, first_error, sizeof(first_error)))
        ADD(view, "  first error: %s\n", first_error);
    ag_first_error_launched_text(view->text, view->stats);
    for (unsigned i = 0; warning(view, i); i++)
        ADD(view, "  warning: %s\n", warning(view, i));
    ag_render_guard_text(view->text, view->stats);
}

void ag_render_short(struct ag_text *text, const struct ag_stats *stats,
                     const struct ag_moment *moment, const struct ag_holders_view *holders)
{
    const struct view it = {text, stats, moment}, *view = &it;

    text_summary(view);
    text_idle_rules(view);
    ag_render_holders_text(text, holders);
    ag_render_waits_text(text, holders);
    ag_render_names_advice_text(text, holders);
    ADD(view, "  (the details: ALLOGRAFT_STATS=full, or a file)\n");
}

void ag_render_text(struct ag_text *text, const struct ag_stats *stats,
                    const struct ag_moment *moment, const struct ag_holders_view *holders)
{
    const struct view it = {text, stats, moment}, *view = &it;
    char cached[32], slabs[32];

    text_summary(view);
    text_all_settings(view);
    text_rules(view);
    text_devices(view);
    ag_render_replay_text(text, stats);
    text_group(view, "frees", "frees");
    text_group(view, "fences", "how work was ordered behind frees");
    text_group(view, "drains", "why frees waited for all work");
    text_group(view, "late_waits", "when the host waited for ordered frees later");
    text_group(view, "cache", "cache of freed blocks");
    if (ag_relaxed(&stats->cached_peak))
        ADD(view, "    %-52s %14s\n", "most bytes held",
            ag_text_size(cached, sizeof(cached), ag_relaxed(&stats->cached_peak)));
    text_group(view, "slabs", "slabs that small blocks are cut from");
    if (ag_relaxed(&stats->slab_bytes.peak))
        ADD(view, "    %-52s %14s\n", "most bytes in slabs",
            ag_text_size(slabs, sizeof(slabs), ag_relaxed(&stats->slab_bytes.peak)));
    text_group(view, "pinned", "pinned memory that is kept (ALLOGRAFT_HOST)");
    if (ag_relaxed(&stats->pinned_bytes.peak))
        ADD(view, "    %-52s %14s\n", "most bytes of it kept",
            ag_text_size(slabs, sizeof(slabs), ag_relaxed(&stats->pinned_bytes.peak)));
    text_group(view, "managed", "managed memory");
    text_group(view, "pressure", "want of memory");
    text_moves(view);
    text_group(view, "copies", "copies of pageable memory");
    text_group(view, "injected", "calls that rules failed");
    text_group(view, "guard", "guards of blocks");
    text_group(view, "ipc", "memory shared with other processes");
    ag_render_pools_text(text, stats);
    text_group(view, "async", "the program's own stream-ordered calls");
    ag_render_graphs_text(text, stats);
    text_group(view, "api", "control API");
    ag_render_marks_text(text, stats);
    ag_render_holders_text(text, holders);
    ag_render_waits_text(text, holders);
    ag_render_names_advice_text(text, holders);
    text_group(view, "waiting", "how threads waited for the device (ALLOGRAFT_WAIT)");
    text_group(view, "trace", "the trace (ALLOGRAFT_TRACE)");
    text_group(view, "fallbacks", "left to the driver because");
    text_coverage(view);
}
