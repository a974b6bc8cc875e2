/* Graph replay in a report: see render_replay.h. */
#include "interpose/core/report/render_replay.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/report/render_parts.h"

static uint64_t replay_counter(const struct ag_stats *stats, unsigned id)
{
    return ag_stats_counter_of(stats, (enum ag_stat)id);
}

static bool is_unavailable(const struct ag_stats *stats)
{
    return *stats->head.replay && strcmp(stats->head.replay, "on") != 0;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

void ag_render_replay_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    bool unavailable = is_unavailable(stats), asked = *stats->head.replay != '\0';

    ag_emit_line(json, 0);
    ag_emit_object(json, "replay");
    ag_emit_string(json, "state", unavailable ? "unavailable" : asked ? "on" : "off");
    ag_emit_string(json, "reason", unavailable ? stats->head.replay : "");
    ag_emit_line(json, 1);
    ag_render_group_json(json, stats, "replay");
    ag_emit_line(json, 1);
    ag_emit_number(json, "eager_ns", stats->eager_ns);
    ag_emit_number(json, "replayed_ns", stats->replayed_ns);
    ag_emit_bool(json, "compared_unwaited", stats->compared_unwaited);
    ag_render_object_json(json, stats, 1, "flushes", "flushes");
    ag_render_object_json(json, stats, 1, "staging", "staging");
    ag_emit_end(json);
}

/* ---- text ---------------------------------------------------------------------------------- */

/* "12.3 %", or nothing of nothing. */
static const char *percent_text(char *buffer, size_t size, uint64_t part, uint64_t whole)
{
    (void)ag_text_print(buffer, size, "%.1f %%",
                        whole ? 100.0 * (double)part / (double)whole : 0.0);
    return whole ? buffer : "";
}

/* "42.0 per launch" */
static const char *per_launch(char *buffer, size_t size, uint64_t n, uint64_t launches)
{
    (void)ag_text_print(buffer, size, "%.1f a launch",
                        launches ? (double)n / (double)launches : 0.0);
    return launches ? buffer : "";
}

/* What stands after a row's number; "" for most. */
static const char *remark(const struct ag_stats *stats, unsigned id, char *buffer, size_t size)
{
    uint64_t count = replay_counter(stats, id);

    switch (id) {
    case AG_STAT_REPLAY_WITHHELD:
    case AG_STAT_REPLAY_REPLAYED:
    case AG_STAT_REPLAY_RELEASED:
    case AG_STAT_REPLAY_SLEPT:
        return percent_text(buffer, size, count, replay_counter(stats, AG_STAT_REPLAY_SEEN));
    case AG_STAT_REPLAY_LAUNCHES:
        (void)ag_text_print(
            buffer, size, "%.1f operations each",
            count ? (double)replay_counter(stats, AG_STAT_REPLAY_REPLAYED) / (double)count : 0.0);
        return buffer;
    case AG_STAT_REPLAY_UPDATED:
        return per_launch(buffer, size, count, replay_counter(stats, AG_STAT_REPLAY_LAUNCHES));
    case AG_STAT_REPLAY_EAGER_ITERATIONS:
        return percent_text(buffer, size, count, replay_counter(stats, AG_STAT_REPLAY_ITERATIONS));
    default:
        return "";
    }
}

static void add_value_row(struct ag_text *text, const char *label, const char *value,
                          const char *after)
{
    ag_text_add(text, "    %-52s %14s%s%s\n", label, value, *after ? "  " : "", after);
}

static void add_counter(struct ag_text *text, const struct ag_stats *stats, unsigned id,
                        const char *after)
{
    char value[32];

    if (id == AG_STAT_REPLAY_BUILD_NS)
        ag_text_duration(value, sizeof(value), (double)replay_counter(stats, id));
    else
        snprintf(value, sizeof(value), "%llu", (unsigned long long)replay_counter(stats, id));
    add_value_row(text, ag_stat_rows[id].label, value, after);
}

/* How long an iteration takes with and without graphs, by the last comparison of
 * graph/learn/profit. Where nobody waits, the host runs ahead of the device, so its time is not the
 * program's. */
static void add_iteration_times(struct ag_text *text, const struct ag_stats *stats)
{
    double eager = (double)stats->eager_ns, replayed = (double)stats->replayed_ns;
    bool unwaited = stats->compared_unwaited;
    char value[32], after[48], label[64] = "an iteration without graphs (median, last comparison)";

    if (eager <= 0 || replayed <= 0)
        return;
    (void)ag_text_print(after, sizeof(after), "%.2f x the speed", eager / replayed);
    if (unwaited)
        snprintf(label, sizeof(label), "%u operations without graphs, for the host (median)",
                 AG_UNWAITED_ITERATION);
    add_value_row(text, label, ag_text_duration(value, sizeof(value), eager), "");
    add_value_row(text, unwaited ? "with graphs" : "an iteration with graphs",
                  ag_text_duration(value, sizeof(value), replayed),
                  unwaited ? "the device may take longer" : after);
}

/* Adds the counts of staging, if there was anything to keep. */
static void add_staging(struct ag_text *text, const struct ag_stats *stats)
{
    bool said = false;
    char value[32];

    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (strcmp(ag_stat_rows[i].group, "staging") || !replay_counter(stats, i))
            continue;
        if (!said)
            ag_text_add(text, "  host data of withheld copies\n");
        said = true;
        if (i == AG_STAT_STAGING_BYTES)
            add_value_row(text, ag_stat_rows[i].label,
                          ag_text_size(value, sizeof(value), replay_counter(stats, i)), "");
        else
            add_counter(text, stats, i, "");
    }
}

void ag_render_replay_text(struct ag_text *text, const struct ag_stats *stats)
{
    uint64_t flushes = 0;
    char after[48];

    if (!*stats->head.replay || is_unavailable(stats))
        return;
    ag_text_add(text, "  replay\n");
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        bool always =
            i == AG_STAT_REPLAY_STREAMS || i == AG_STAT_REPLAY_SEEN || i == AG_STAT_REPLAY_REPLAYED;

        if (!strcmp(ag_stat_rows[i].group, "replay") && (always || replay_counter(stats, i)))
            add_counter(text, stats, i, remark(stats, i, after, sizeof(after)));
        if (!strcmp(ag_stat_rows[i].group, "flushes"))
            flushes += replay_counter(stats, i);
    }
    add_iteration_times(text, stats);
    if (flushes)
        ag_text_add(text, "  why withheld work went out\n");
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (!strcmp(ag_stat_rows[i].group, "flushes") && replay_counter(stats, i))
            add_counter(text, stats, i,
                        percent_text(after, sizeof(after), replay_counter(stats, i), flushes));
    }
    add_staging(text, stats);
}

const char *ag_render_replay_warning(const struct ag_stats *stats, bool by_range, unsigned i)
{
    bool on = *stats->head.replay && !is_unavailable(stats);
    static char text[256];
    unsigned n = 0;

    if (is_unavailable(stats) && n++ == i) {
        snprintf(text, sizeof(text), "nothing was replayed: %.128s", stats->head.replay);
        return text;
    }
    if (on && !replay_counter(stats, AG_STAT_REPLAY_STREAMS) && n++ == i)
        return "ALLOGRAFT_GRAPH marks no stream that the program used: nothing was replayed";
    if (on && by_range && !replay_counter(stats, AG_STAT_REPLAY_MARKS) && n++ == i)
        return "no range or mark of NVTX had the name that ALLOGRAFT_GRAPH_ITERATION gives";
    if (replay_counter(stats, AG_STAT_REPLAY_VERIFY_DIFFERENT) && n++ == i)
        return "ALLOGRAFT_GRAPH_VERIFY found launches of graphs that computed other bytes than the "
               "program's own calls: a bug of ours, or of a program that is not deterministic; set "
               "ALLOGRAFT_GRAPH=off";
    return NULL;
}
