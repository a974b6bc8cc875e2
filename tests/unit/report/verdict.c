/* verdict.c: the three lines that a report begins with say what was counted, and nothing else. */
#include "interpose/core/report/verdict/verdict.h"

#include <string.h>

#include "interpose/core/report/live/live.h"
#include "interpose/core/report/render.h"
#include "interpose/core/settings/options.h"
#include "tests/common/check.h"

static const struct ag_moment moment = {.ns = 2000000, .ticks = 2000000, .alive = true};

static const char none_known[] =
    "nothing that these counts tell; `allograft tune` compares settings";

/* Every setting at its default but for `row`. */
static void set(enum ag_option_row row, const char *value)
{
    char *at = ag_stats.head.settings;

    for (size_t i = 0; i < ag_options_count(); i++) {
        at += sprintf(at, "default") + 1;
        at += sprintf(at, "%s", i == row ? value : ag_option_info(i)->default_text) + 1;
    }
}

static void begin(void)
{
    ag_live_reset();
    memset(&ag_stats.head, 0, sizeof(ag_stats.head));
    atomic_store(&ag_stats.n_bypassing, 0);
    set(AG_OPTION_POLICY, "auto");
}

/* A program with so many allocations and frees, all of the pool's; nothing waited. */
static void count_memory(uint64_t n)
{
    ag_stats_add(AG_STAT_REDIRECTED, n);
    ag_stats_add(AG_STAT_CACHE_HIT, n - 1);
    ag_stats_add(AG_STAT_CACHE_MISS, 1);
    ag_stats_add(AG_STAT_FREE_WATCHED, n);
}

static struct ag_verdict found(void)
{
    return ag_verdict_of(&ag_stats, &moment);
}

static void is(const char *line, const char *expected)
{
    CHECK_SAID(!strcmp(line, expected), "\"%s\" is not \"%s\"", line, expected);
}

static void has(const char *line, const char *part)
{
    CHECK_SAID(strstr(line, part), "\"%s\" is not in \"%s\"", part, line);
}

static void has_not(const char *line, const char *part)
{
    CHECK_SAID(!strstr(line, part), "\"%s\" is in \"%s\"", part, line);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void says_nothing_of_nothing(void)
{
    begin();
    is(found().gained, "nothing");
    is(found().held_back, "the program allocated nothing by cudaMalloc or cuMemAlloc");
    is(found().to_try, none_known);
    ag_stats_add(AG_STAT_REDIRECTED, 5);
    ag_stats_add(AG_STAT_FREE_NATIVE, 5);
    is(found().gained, "nothing");
    has(found().held_back, "nothing; the program did not free and allocate in turns");
    ag_stats_add(AG_STAT_POOL_MADE, 1); /* by a rule, say */
    is(found().held_back, "nothing that was counted");
    begin();
    ag_stats_add(AG_STAT_REDIRECTED, 5);
    set(AG_OPTION_POLICY, "managed");
    is(found().held_back, "nothing that was counted");
}

static void says_what_memory_gained(void)
{
    begin();
    count_memory(200);
    ag_stats_add(AG_STAT_SLAB_CUT, 3);
    ag_stats_add(AG_STAT_SLAB_ASKED, 2);   /* whose slabs are the driver's */
    ag_stats_add(AG_STAT_FREE_NOTHING, 7); /* natively it would have waited for nothing, too */
    ag_stats_add(AG_STAT_FREE_REFUSED, 3); /* no free */
    is(found().gained, "200 of 200 allocations did not ask the driver; 200 of 207 frees did not "
                       "wait for the device");
    is(found().held_back, "nothing that was counted");
    is(found().to_try, none_known);
}

/* Ticks are nanoseconds here. */
static void add_times(unsigned place, uint64_t n, uint64_t ns)
{
    struct ag_place_stats *stats = &ag_stats.slots[0].places[0][place];

    stats->allocs = stats->frees = n;
    stats->alloc_ticks = n * ns;
    stats->free_ticks = 3 * n * ns;
}

static void compares_times_only_where_both_are_known(void)
{
    begin();
    count_memory(200);
    add_times(AG_PLACE_POOL, 200, 500);
    has_not(found().gained, "took");
    ag_stats_add(AG_STAT_PASSED, 100);
    add_times(AG_PLACE_NATIVE, 100, 40000);
    has(found().gained, "; a redirected allocation or free took 1.00 us on average, the driver's "
                        "own 80.00 us");
    add_times(AG_PLACE_NATIVE, 101, 40000); /* one that the cache handed out again */
    has_not(found().gained, "took");
    add_times(AG_PLACE_NATIVE, 99, 40000);
    has_not(found().gained, "took");
    add_times(AG_PLACE_NATIVE, 100, 40000);
    ag_stats.head.simulated = AG_SIMULATED;
    has_not(found().gained, "took");
}

static void says_what_else_was_gained(void)
{
    begin();
    ag_stats_add(AG_STAT_LADDER_RETRY, 1);
    ag_stats_add(AG_STAT_LADDER_SPILL, 2);
    ag_stats_add(AG_STAT_API_REPLAYS, 3);
    ag_stats_add(AG_STAT_ASYNC_KEPT, 1);
    is(found().gained, "1 call found room after caches and pools were emptied; 2 allocations that "
                       "did not fit got memory of the host; 3 replays of graphs by the control "
                       "API; 1 pool of the program's own kept freed memory");
}

static void says_why_frees_waited(void)
{
    begin();
    count_memory(1000);
    ag_stats_add(AG_STAT_FREE_DRAINED, 9); /* fewer than one in a hundred */
    ag_stats_add(AG_STAT_DRAIN_PINNED, 8);
    ag_stats_add(AG_STAT_DRAIN_PRINTF, 1);
    is(found().held_back, "nothing that was counted");
    ag_stats_add(AG_STAT_FREE_DRAINED, 2);
    is(found().held_back, "11 of 1011 frees waited for the device (most often: pinned host memory "
                          "exists)");
    has(found().to_try, "ALLOGRAFT_FREE=ordered, if");
    set(AG_OPTION_FREE, "ordered");
    is(found().to_try, none_known);
    set(AG_OPTION_FREE, "sync");
    ag_stats_add(AG_STAT_DRAIN_ASKED, 50);
    has(found().held_back, "(most often: ALLOGRAFT_FREE=sync)");
    is(found().to_try, "ALLOGRAFT_FREE=auto");
    begin();
    ag_stats_add(AG_STAT_FREE_DRAINED, 1);
    ag_stats_add(AG_STAT_DRAIN_NO_FENCE, 1); /* there is no remedy */
    has(found().held_back, "1 of 1 frees waited for the device (most often: no fence");
    is(found().to_try, none_known);
    begin();
    count_memory(100);
    ag_stats_add(AG_STAT_FREE_DRAINED, 3);
    ag_stats_add(AG_STAT_DRAIN_THREADS, 3); /* ordered ones might hang */
    has(found().held_back, "3 of 103 frees waited for the device (most often: several threads");
    is(found().to_try, none_known);
    ag_stats_add(AG_STAT_FREE_NATIVE, 4); /* the driver's own free waits, too */
    has(found().held_back, "7 of 107 frees waited for the device (most often: left to the driver)");
    has(found().gained, "100 of 107 frees did not wait");
    is(found().to_try, none_known);
}

static void says_what_guards_found(void)
{
    begin();
    ag_stats_add(AG_STAT_REDIRECTED, 10);
    ag_stats_add(AG_STAT_GUARDED, 10);
    is(found().gained, "10 blocks were guarded");
    ag_stats_add(AG_STAT_GUARD_CHECKED, 12);
    ag_stats_add(AG_STAT_FREE_DRAINED, 10);
    ag_stats_add(AG_STAT_DRAIN_GUARD, 10);
    is(found().gained, "12 checks of 10 guarded blocks found nothing");
    is(found().held_back, "10 of 10 frees waited for the device (most often: ALLOGRAFT_GUARD "
                          "checks blocks when they are freed)");
    is(found().to_try, none_known);
    ag_stats_add(AG_STAT_GUARD_BEHIND, 1);
    is(found().gained, "12 checks of 10 guarded blocks found 1 where it must not be written");
}

static void says_what_was_left_to_the_driver(void)
{
    begin();
    count_memory(100);
    ag_stats_add(AG_STAT_PASSED, 10);
    is(found().held_back, "nothing that was counted"); /* by a rule, say */
    ag_stats_add(AG_STAT_FALLBACK_EXPORTER, 10);
    has(found().held_back, "10 of 110 allocations were left to the driver (most often: the library "
                           "exports its memory");
    has(found().to_try, "a rule such as from=");
    ag_stats_add(AG_STAT_FALLBACK_NO_IPC, 20); /* no allocation */
    is(found().held_back, "nothing that was counted");
    begin();
    set(AG_OPTION_POLICY, "native");
    ag_stats_add(AG_STAT_PASSED, 10);
    is(found().held_back, "ALLOGRAFT_POLICY=native left all memory to the driver");
    is(found().to_try, none_known); /* it never allocated after a free */
    ag_stats_add(AG_STAT_FREE_NATIVE, 9);
    ag_stats.slots[0].places[0][AG_PLACE_NATIVE].alloc_bytes = 30;
    ag_stats.peak_bytes[0][AG_PLACE_NATIVE] = 30;
    is(found().to_try, none_known);
    ag_stats.peak_bytes[0][AG_PLACE_NATIVE] = 29;
    is(found().held_back, "ALLOGRAFT_POLICY=native left all memory to the driver; 9 of 9 frees "
                          "waited for the device");
    is(found().to_try, "ALLOGRAFT_POLICY=auto");
}

static void says_where_memory_ended(void)
{
    begin();
    count_memory(100);
    ag_stats_add(AG_STAT_LADDER_ERROR, 1);
    is(found().held_back, "1 allocation ran out of memory");
    is(found().to_try, "ALLOGRAFT_OOM=spill");
    ag_stats_add(AG_STAT_BUDGET_HIT, 1);
    is(found().held_back, "1 allocation ran out of memory, by ALLOGRAFT_LIMIT");
    is(found().to_try, "ALLOGRAFT_OOM=spill, or a larger ALLOGRAFT_LIMIT");
    set(AG_OPTION_OOM, "spill");
    is(found().to_try, none_known);
    ag_stats_add(AG_STAT_LADDER_SPILL, 2);
    has(found().held_back, "; 2 allocations spilled");
    is(found().to_try, "ALLOGRAFT_UNSPILL=1");
}

static void says_which_limit_was_too_small(void)
{
    begin();
    count_memory(100);
    ag_stats_add(AG_STAT_WAITED_PENDING, 1);
    is(found().held_back,
       "1 of 100 frees waited for the device (most often: at the limit on pending "
       "bytes (ALLOGRAFT_PENDING))");
    has(found().gained, "99 of 100 frees did not wait");
    is(found().to_try, "ALLOGRAFT_PENDING=50%");
    set(AG_OPTION_PENDING, "1GiB");
    is(found().to_try, none_known);
    begin();
    count_memory(100);
    ag_stats_add(AG_STAT_CACHE_RETURNED, 1);
    has(found().held_back, "the cache gave 1 block back, and had none for 1 of 100 allocations");
    is(found().to_try, none_known); /* its limit was not why */
    ag_stats_add(AG_STAT_CACHE_FULL, 1);
    is(found().to_try, "ALLOGRAFT_CACHE=50%");
    set(AG_OPTION_CACHE, "0");
    is(found().to_try, none_known);
}

static void says_what_went_past(void)
{
    begin();
    count_memory(100);
    snprintf(ag_stats.bypassing[0], sizeof(ag_stats.bypassing[0]), "libone.so");
    atomic_store(&ag_stats.n_bypassing, 1);
    is(found().held_back, "calls of libone.so went past Allograft (RTLD_DEEPBIND)");
    is(found().to_try, "allograft run --audit");
    atomic_store(&ag_stats.n_bypassing, 2);
    ag_stats_add(AG_STAT_LOOKUP_UNMATCHED, 1);
    has(found().held_back, "calls of libone.so and others went past");
    has(found().held_back, "cuGetProcAddress");
    begin();
    count_memory(100);
    snprintf(ag_stats.unseen[3], sizeof(ag_stats.unseen[3]), "libnvoptix.so.1");
    is(found().held_back,
       "libnvoptix.so.1 uses the device where Allograft does not see it, so frees waited");
    memset(ag_stats.unseen, 0, sizeof(ag_stats.unseen));
    begin();
    snprintf(ag_stats.head.trouble, sizeof(ag_stats.head.trouble), "the driver is odd");
    is(found().held_back, "nothing was redirected: the driver is odd");
    has(found().to_try, "`allograft doctor`");
}

/* The first two, in the order in which they matter. */
static void names_two_causes(void)
{
    begin();
    count_memory(100);
    ag_stats_add(AG_STAT_CACHE_RETURNED, 50);
    ag_stats_add(AG_STAT_FREE_DRAINED, 50);
    ag_stats_add(AG_STAT_DRAIN_MANAGED, 50);
    ag_stats_add(AG_STAT_LADDER_ERROR, 5);
    has(found().held_back, "5 allocations ran out of memory; 50 of 150 frees waited");
    has_not(found().held_back, "the cache");
    is(found().to_try, "ALLOGRAFT_OOM=spill");
}

/* The most, what that took of the device, and what is left. */
static void says_what_memory_it_took(void)
{
    struct ag_place_stats *pool = &ag_stats.slots[0].places[0][AG_PLACE_POOL];

    begin();
    pool->allocs = 3;
    pool->alloc_bytes = 3072;
    ag_stats.peak_bytes[0][AG_PLACE_POOL] = 3072;
    ag_stats.peak_bytes[0][AG_PLACE_NATIVE] = 1024; /* a report from before the peak of all */
    is(found().memory, "at most 4.00 KiB at a time; 3 blocks of 3.00 KiB in use now");
    ag_stats.peak_all[0] = 3072;
    ag_stats.given_peak[0] = 2 << 20;
    snprintf(ag_stats.head.ended_by, sizeof(ag_stats.head.ended_by), "exit");
    is(found().memory, "at most 3.00 KiB at a time; 2.00 MiB of the device, with what was kept for "
                       "later; 3 blocks of 3.00 KiB were never freed");
    pool->frees = 2;
    pool->freed_bytes = 2048;
    has(found().memory, "; 1 block of 1.00 KiB was never freed");
    pool->frees = 3;
    pool->freed_bytes = 3072;
    has(found().memory, "; all of it was freed");
}

/* ---- replay -------------------------------------------------------------------------------- */

static void begin_replay(uint64_t seen, uint64_t withheld, uint64_t replayed)
{
    begin();
    set(AG_OPTION_GRAPH, "legacy");
    ag_stats_replay(NULL);
    ag_stats_add(AG_STAT_REPLAY_STREAMS, 1);
    ag_stats_add(AG_STAT_REPLAY_SEEN, seen);
    ag_stats_add(AG_STAT_REPLAY_WITHHELD, withheld);
    ag_stats_add(AG_STAT_REPLAY_REPLAYED, replayed);
}

/* The share, the gain, and what it cost to find out. */
static void says_what_replay_gained(void)
{
    begin_replay(2000, 1900, 1880);
    ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 40);
    ag_stats_add(AG_STAT_REPLAY_BUILT, 12);
    ag_stats_add(AG_STAT_REPLAY_BUILD_NS, 2500000);
    ag_stats_add(AG_STAT_REPLAY_EAGER_ITERATIONS, 1);
    is(found().gained, "94.0 % of 2000 operations went out in 40 graph launches; to find out, it "
                       "built 12 graphs in 2.50 ms and ran 1 iteration without");
    ag_stats_compared(9000, 6000, false);
    has(found().gained, "; an iteration took 6.00 us instead of 9.00 us (1.50x); to find out");
    ag_stats_compared(9000, 6000, true); /* the host's time is not the program's */
    has(found().gained, "; 512 of them took the host 6.00 us instead of 9.00 us; to find out");
    is(found().held_back, "nothing that was counted"); /* it need not have allocated */
    ag_stats_compared(6000, 9000, false);
    has_not(found().gained, "instead");
    has(found().to_try, "ALLOGRAFT_GRAPH=off: ");
    ag_stats_compared(9000, 6000, false);
    ag_stats.head.simulated = AG_SIMULATED;
    has_not(found().gained, " us");
    has(found().gained, "it built 12 graphs and ran");
}

static void says_what_held_replay_back(void)
{
    begin_replay(1000, 100, 50);
    ag_stats_add(AG_STAT_REPLAY_SLEPT, 800);
    ag_stats_add(AG_STAT_REPLAY_RELEASED, 50);
    has(found().held_back, "80.0 % of the operations passed while streams had backed off");
    begin_replay(1000, 600, 50);
    ag_stats_add(AG_STAT_REPLAY_RELEASED, 550);
    ag_stats_add(AG_STAT_FLUSH_EVENT, 7);
    ag_stats_add(AG_STAT_FLUSH_STREAM, 8);
    is(found().held_back, "55.0 % of the operations were withheld in vain (most often ended by: a "
                          "wait for a stream, or a query of one)");
    ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 9); /* of 50 operations: they repeat by chance */
    ag_stats_add(AG_STAT_REPLAY_MISMATCHES, 5);
    is(found().to_try, none_known);
    begin_replay(1000, 600, 54);
    ag_stats_add(AG_STAT_REPLAY_LAUNCHES, 9);
    ag_stats_add(AG_STAT_REPLAY_MISMATCHES, 5);
    has(found().to_try, "ALLOGRAFT_GRAPH_SEGMENT=16: ");
    set(AG_OPTION_GRAPH_SEGMENT, "16");
    is(found().to_try, none_known);
    begin_replay(1000, 1001, 0); /* more came as a running process was read */
    ag_stats_add(AG_STAT_REPLAY_RELEASED, 900);
    ag_stats_add(AG_STAT_FLUSH_STREAM, 8);
    has(found().held_back, "90.0 % of the operations were withheld in vain");
    begin_replay(1000, 0, 0);
    ag_stats_add(AG_STAT_REPLAY_BUILT, 1);
    is(found().held_back, "100.0 % of the operations passed before they had repeated; to find out, "
                          "it built 1 graph in 0 ns and ran 0 iterations without");
    begin_replay(1000, 950, 901); /* well enough */
    has_not(found().held_back, "%");
}

static void says_why_nothing_was_replayed(void)
{
    begin();
    ag_stats_replay("the driver has no \"cuX\"");
    is(found().held_back, "nothing was replayed: the driver has no \"cuX\"");
    begin();
    set(AG_OPTION_GRAPH, "legacy");
    ag_stats_replay(NULL);
    is(found().held_back, "ALLOGRAFT_GRAPH marks no stream that the program used");
    is(found().to_try, "ALLOGRAFT_GRAPH=all");
    set(AG_OPTION_GRAPH, "all");
    is(found().to_try, none_known);
}

/* ---- forms --------------------------------------------------------------------------------- */

static void cuts_what_is_too_long(void)
{
    struct ag_verdict verdict;

    begin();
    memset(ag_stats.head.trouble, 'x', sizeof(ag_stats.head.trouble) - 1);
    memset(ag_stats.bypassing[0], 'y', sizeof(ag_stats.bypassing[0]) - 1);
    atomic_store(&ag_stats.n_bypassing, 1);
    ag_stats_add(AG_STAT_LOOKUP_UNMATCHED, 1);
    verdict = found();
    CHECK(strnlen(verdict.held_back, sizeof(verdict.held_back)) == sizeof(verdict.held_back) - 1 ||
          strstr(verdict.held_back, "cuGetProcAddress"));
}

static void is_first_in_every_form(void)
{
    struct ag_text text = {0}, whole = {0}, json = {0};
    const char *details = NULL;

    begin();
    snprintf(ag_stats.head.program, sizeof(ag_stats.head.program), "p");
    set(AG_OPTION_POLICY, "native");
    ag_stats_add(AG_STAT_PASSED, 10);
    ag_stats.head.simulated = AG_SIMULATED;
    ag_render_short(&text, &ag_stats, &moment, NULL);
    is(strchr(text.data, '\n'),
       "\n  gained:    nothing\n"
       "  held back: ALLOGRAFT_POLICY=native left all memory to the driver\n"
       "  try:       nothing that these counts tell; `allograft tune` compares settings\n"
       "  memory:    at most 0 B at a time; none in use now\n"
       "  warning: ran on the simulated driver, not on a GPU: times mean nothing\n"
       "  (the details: ALLOGRAFT_STATS=full, or a file)\n");
    ag_render_text(&whole, &ag_stats, &moment, NULL);
    details = strstr(text.data, "  (the details");
    CHECK(details && !strncmp(text.data, whole.data, (size_t)(details - text.data)));
    has(whole.data, "\n  settings\n");
    has(whole.data, "\n  coverage\n");
    ag_render_json(&json, &ag_stats, &moment, NULL);
    has(json.data, "\"verdict\":{\"gained\":\"nothing\",\"held_back\":\"ALLOGRAFT_POLICY=native "
                   "left all memory to the driver\",\"try\":\"nothing that these counts tell;");
    has(json.data, "\"memory\":\"at most 0 B at a time; none in use now\"}");
    ag_text_finish(&text);
    ag_text_finish(&whole);
    ag_text_finish(&json);
}

int main(void)
{
    says_nothing_of_nothing();
    says_what_memory_gained();
    compares_times_only_where_both_are_known();
    says_what_else_was_gained();
    says_why_frees_waited();
    says_what_guards_found();
    says_what_was_left_to_the_driver();
    says_where_memory_ended();
    says_which_limit_was_too_small();
    says_what_went_past();
    names_two_causes();
    says_what_memory_it_took();
    says_what_replay_gained();
    says_what_held_replay_back();
    says_why_nothing_was_replayed();
    cuts_what_is_too_long();
    is_first_in_every_form();
    return 0;
}
