/* render.c: every counter is in the report. render_replay.c: the section of a report that tells of
 * graphs, its shares, and its warnings. */
#include "interpose/core/report/render.h"

#include <string.h>

#include "interpose/core/report/live/live.h"
#include "interpose/core/settings/options.h"
#include "tests/common/check.h"

/* The report of what was counted, as text or JSON; memory of the function. */
static const char *report(void (*render)(struct ag_text *, const struct ag_stats *,
                                         const struct ag_moment *, const struct ag_holders_view *))
{
    static const struct ag_moment moment = {.alive = true};
    static char copy[40000];
    struct ag_text text = {0};

    render(&text, &ag_stats, &moment, NULL);
    CHECK(text.length < sizeof(copy));
    memcpy(copy, text.data, text.length + 1);
    ag_text_finish(&text);
    return copy;
}

static void has(const char *text, const char *part)
{
    CHECK_SAID(strstr(text, part), "\"%s\" is not in\n%s", part, text);
}

static void has_not(const char *text, const char *part)
{
    CHECK_SAID(!strstr(text, part), "\"%s\" is in\n%s", part, text);
}

/* The settings of the process, with this value of ALLOGRAFT_GRAPH_ITERATION. */
static void set_iteration(const char *value)
{
    char *at = ag_stats.head.settings;

    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *text = i == AG_OPTION_GRAPH_ITERATION ? value : "x";

        at += sprintf(at, "default") + 1;
        at += sprintf(at, "%s", text) + 1;
    }
}

static void says_nothing_when_off(void)
{
    ag_live_reset();
    has_not(report(ag_render_text), "  replay\n");
    has_not(report(ag_render_text), "replayed");
    has(report(ag_render_json), "\"replay\":{\"state\":\"off\",\"reason\":\"\",");
    has(report(ag_render_json), "\"warnings\":[]");
}

static void says_why_it_is_unavailable(void)
{
    ag_live_reset();
    ag_stats_replay("the driver has no \"cuX\"");
    has_not(report(ag_render_text), "  replay\n");
    has(report(ag_render_text), "  warning: nothing was replayed: the driver has no \"cuX\"\n");
    has(report(ag_render_json),
        "\"state\":\"unavailable\",\"reason\":\"the driver has no \\\"cuX\\\"\",");
}

static void shows_shares(void)
{
    const char *text;

    ag_live_reset();
    ag_stats_replay(NULL);
    ag_stats_add(AG_STAT_REPLAY_STREAMS, 2);
    ag_stats_add(AG_STAT_REPLAY_SEEN, 2000);
    ag_stats_add(AG_STAT_REPLAY_WITHHELD, 1900);
    ag_stats_add(AG_STAT_REPLAY_REPLAYED, 1880);
    ag_stats_add(AG_STAT_REPLAY_RELEASED, 20);
    ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 40);
    ag_stats_add(AG_STAT_REPLAY_UPDATED, 100);
    ag_stats_add(AG_STAT_REPLAY_BUILD_NS, 2500000);
    ag_stats_add(AG_STAT_FLUSH_STREAM, 30);
    ag_stats_add(AG_STAT_FLUSH_END, 10);
    text = report(ag_render_text);
    has(text,
        "\n  replay\n    streams marked                                                    2\n");
    has(text, " 2000\n");
    has(text, " 1880  94.0 %\n");
    has(text, " 20  1.0 %\n");
    has(text, " 40  47.0 operations each\n");
    has(text, " 100  2.5 a launch\n");
    has(text, " 2.50 ms\n");
    has(text, "\n  why withheld work went out\n");
    has(text, "query of one                           30  75.0 %\n");
    has(text, " 10  25.0 %\n");
    has_not(text, "an iteration with");
    has_not(text, "could not be built");
    has_not(text, "warning");
    ag_stats_compared(9000, 6000, false);
    text = report(ag_render_text);
    has(text, " 9.00 us\n");
    has(text, " 6.00 us  1.50 x the speed\n");
    ag_stats_compared(9000, 6000, true); /* the host's time is no speed of the program */
    text = report(ag_render_text);
    has(text, "512 operations without graphs, for the host (median)");
    has(text, " 6.00 us  the device may take longer\n");
    has_not(text, "the speed");
    ag_stats_compared(9000, 6000, false);
    text = report(ag_render_json);
    has(text, "\"state\":\"on\",\"reason\":\"\",");
    has(text, "\"operations\":2000,\"withheld\":1900,\"replayed\":1880,");
    has(text, "\"eager_ns\":9000,\"replayed_ns\":6000,\"compared_unwaited\":false,");
    has(text, "\"flushes\":{\"stream\":30,\"event\":0,");
    for (const char *c = text; *c; c++)
        CHECK(*c == '\n' || (unsigned char)*c >= 0x20);
}

static void warns(void)
{
    ag_live_reset();
    ag_stats_replay(NULL);
    has(report(ag_render_text), "warning: ALLOGRAFT_GRAPH marks no stream");
    has(report(ag_render_text),
        "    launched in graphs                                                0\n");
    set_iteration("nvtx:step");
    has(report(ag_render_text), "warning: no range or mark of NVTX");
    ag_stats_add(AG_STAT_REPLAY_STREAMS, 1);
    has_not(report(ag_render_text), "marks no stream");
    has(report(ag_render_text), "warning: no range or mark of NVTX");
    ag_stats_add(AG_STAT_REPLAY_MARKS, 1);
    has_not(report(ag_render_text), "warning");
    ag_stats_add(AG_STAT_REPLAY_VERIFY_DIFFERENT, 1);
    has(report(ag_render_text), "warning: ALLOGRAFT_GRAPH_VERIFY found");
    ag_live_reset();
    ag_stats_replay(NULL);
    set_iteration("auto");
    has_not(report(ag_render_text), "NVTX had");
}

/* Does text tell of these counters in words of its own? */
static bool is_told_otherwise(const char *group)
{
    return !strcmp(group, "pool") || !strcmp(group, "own_graphs");
}

/* A group of stats.def that render.c does not know would be in no report. */
static void shows_every_counter(void)
{
    const char *text;

    ag_live_reset();
    ag_stats_replay(NULL);
    for (unsigned i = 0; i < AG_N_STATS; i++)
        ag_stats_add((enum ag_stat)i, 7000 + i);
    text = report(ag_render_json);
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        char member[96];

        snprintf(member, sizeof(member), "\"%s\":%u", ag_stat_rows[i].key, 7000 + i);
        has(text, member);
    }
    text = report(ag_render_text);
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (!is_told_otherwise(ag_stat_rows[i].group))
            has(text, ag_stat_rows[i].label);
    }
}

/* 3 s, of which the bus alone needs 2.5 GiB at half a second each. */
static void says_how_far_moves_were_from_the_bus(void)
{
    const char *text;

    ag_live_reset();
    has_not(report(ag_render_text), "moving took");
    has(report(ag_render_json), "\"bus_gib_ns\":0,\"move_least_ns\":0}");
    ag_stats_add(AG_STAT_PAGE_IN, 5ull << 29);
    ag_stats_add(AG_STAT_PAGE_OUT, 1ull << 30);
    ag_stats_add(AG_STAT_PAGE_WAIT_NS, 100000000);
    ag_stats_add(AG_STAT_PAGE_NS, 2900000000);
    ag_stats_add(AG_STAT_PAGE_COPY_NS, 500000000);
    ag_stats_add(AG_STAT_PAGE_MAP_NS, 2000000000);
    ag_stats.bus_gib_ns = 500000000;
    text = report(ag_render_text);
    has(text, "    moving took 3.00 s: mapping beside copies 2.00 s, copies alone 500.00 ms, "
              "waiting for the device 100.00 ms, the rest 400.00 ms\n");
    has(text,
        "    the bus alone takes 1.25 s for it, as fast as it was once (500.00 ms a GiB, both "
        "ways)\n");
    has(report(ag_render_json), "\"bus_gib_ns\":500000000,\"move_least_ns\":1250000000}");
}

/* A report on a process that goes on: a dump of its own, or what the command reads. */
static void says_now_of_what_is_running(void)
{
    static const char *const ends[] = {"", "running", "exit", "killed"};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const char *text;

        ag_live_reset();
        ag_stats_device_met(0, "a card", 1 << 30);
        strcpy(ag_stats.head.ended_by, ends[i]);
        text = report(ag_render_text);
        has(text, i < 2 ? " now " : " at exit ");
        has_not(text, i < 2 ? " at exit " : " now ");
    }
}

/* A block that comes and goes while the counts are added up may be among the frees alone. */
static void has_no_fewer_blocks_than_none(void)
{
    ag_live_reset();
    ag_stats_device_met(0, "a card", 1 << 30);
    ag_stats.slots[ag_slot()].places[0][0].allocs = 2;
    ag_stats.slots[ag_slot()].places[0][0].frees = 3;
    has(report(ag_render_json), "\"allocs\":2,\"frees\":3,");
    has_not(report(ag_render_json), "\"current_blocks\":1"); /* 2^64 - 1 */
}

int main(void)
{
    says_nothing_when_off();
    says_why_it_is_unavailable();
    shows_shares();
    warns();
    shows_every_counter();
    says_how_far_moves_were_from_the_bus();
    says_now_of_what_is_running();
    has_no_fewer_blocks_than_none();
    return 0;
}
