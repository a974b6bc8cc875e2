/* Says what the counters come to: see verdict.h.
 *
 * Each function adds one clause to a line, or none. What can hold a program back is asked for in
 * the order in which it matters, what keeps everything from working first, and two causes at most
 * are named. A cause of fewer than one in a hundred is none. The remedies are those of
 * docs/troubleshooting.md. */
#include "interpose/core/report/verdict/verdict.h"

#include <stddef.h>
#include <string.h>

#include "interpose/core/report/verdict/sums.h"
#include "interpose/core/settings/options.h"

#define MOST_CAUSES   2u
#define ENOUGH_CALLS  100u /* for a mean */
#define REPLAYED_WELL 90u  /* percent: what is not replayed needs no reason */
/* Operations: where graphs have fewer, they are what repeats by chance, and not what longer
 * sequences begin with. */
#define SHORT_GRAPH 6u

struct facts {
    const struct ag_stats *stats;
    const struct ag_moment *moment;
    struct ag_verdict *verdict;
    unsigned n_causes;
};

static unsigned long long count_of(const struct facts *it, unsigned id)
{
    return ag_stats_counter_of(it->stats, (enum ag_stat)id);
}

static bool is_replaying(const struct facts *it)
{
    return !strcmp(it->stats->head.replay, "on");
}

static bool is_set_to(const struct facts *it, enum ag_option_row row, const char *value)
{
    return !strcmp(ag_render_setting(it->stats, row), value);
}

static bool is_worth_saying(unsigned long long part, unsigned long long whole)
{
    return part && part >= whole / 100;
}

static double percent(unsigned long long part, unsigned long long whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* "s" after what there are several of. */
static const char *s(unsigned long long n)
{
    return n == 1 ? "" : "s";
}

/* Where the next clause of a line begins; that is inside of it. */
static size_t begin_clause(char *line, size_t size)
{
    size_t length = strnlen(line, size - 1);

    if (length && length + 3 < size) {
        memcpy(line + length, "; ", 3);
        length += 2;
    }
    return length;
}

#define ADD(line, ...)                                                      \
    do {                                                                    \
        size_t at_ = begin_clause(line, sizeof(line));                      \
        (void)ag_text_print((line) + at_, sizeof(line) - at_, __VA_ARGS__); \
    } while (0)

#define GAINED(it, ...) ADD((it)->verdict->gained, __VA_ARGS__)
#define HELD(it, ...)                               \
    do {                                            \
        ADD((it)->verdict->held_back, __VA_ARGS__); \
        (it)->n_causes++;                           \
    } while (0)

/* One remedy is enough: that of the first cause that has one. */
static void suggest_remedy(const struct facts *it, const char *remedy)
{
    struct ag_verdict *verdict = it->verdict;

    if (!*verdict->to_try)
        (void)ag_text_print(verdict->to_try, sizeof(verdict->to_try), "%s", remedy);
}

/* The row of a group that counts most, or AG_N_STATS; *ret_sum: of the group. */
static unsigned largest_of(const struct facts *it, const char *group, unsigned long long *ret_sum)
{
    unsigned largest = AG_N_STATS;

    *ret_sum = 0;
    for (unsigned id = 0; id < AG_N_STATS; id++) {
        unsigned long long n = strcmp(ag_stat_rows[id].group, group) ? 0 : count_of(it, id);

        *ret_sum += n;
        if (n && (largest == AG_N_STATS || n > count_of(it, largest)))
            largest = id;
    }
    return largest;
}

/* How many allocations of cudaMalloc and its like there were. */
static unsigned long long n_allocated(const struct facts *it)
{
    return count_of(it, AG_STAT_REDIRECTED) + count_of(it, AG_STAT_PASSED);
}

static unsigned long long n_freed(const struct facts *it)
{
    return ag_sum_frees(it->stats).all;
}

/* ---- what was gained ----------------------------------------------------------------------- */

/* Allocations and frees of one placement or several, all devices. */
struct calls {
    unsigned long long allocs, frees;
    double ns;
};

#define PLACE_SUM(it, device, place, member) \
    ag_stats_sum_of((it)->stats, offsetof(struct ag_stats_slot, places[device][place].member))

/* Adds up calls and their time in whole nanoseconds, as the JSON has them: what is read back says
 * the same. */
static void sum_calls(const struct facts *it, unsigned device, unsigned place, struct calls *ret)
{
    ret->allocs += PLACE_SUM(it, device, place, allocs);
    ret->frees += PLACE_SUM(it, device, place, frees);
    ret->ns += ag_render_ns(it->stats, it->moment, PLACE_SUM(it, device, place, alloc_ticks));
    ret->ns += ag_render_ns(it->stats, it->moment, PLACE_SUM(it, device, place, free_ticks));
}

/* What an allocation and its free took, beside what the driver's own took the same program; where
 * the driver served enough of them, and the cache handed none of those out again. */
static void compare_calls(const struct facts *it)
{
    struct calls ours = {0}, native = {0};
    char a[32], b[32];

    for (unsigned device = 0; device < AG_STATS_DEVICES; device++) {
        sum_calls(it, device, AG_PLACE_NATIVE, &native);
        for (unsigned place = AG_PLACE_NATIVE + 1; place < AG_N_PLACEMENTS; place++)
            sum_calls(it, device, place, &ours);
    }
    if (it->stats->head.simulated || native.allocs < ENOUGH_CALLS || native.frees < ENOUGH_CALLS ||
        native.allocs > count_of(it, AG_STAT_PASSED) || ours.allocs < ENOUGH_CALLS ||
        ours.frees < ENOUGH_CALLS || ours.ns <= 0 || native.ns <= 0)
        return;
    GAINED(it, "a redirected allocation or free took %s on average, the driver's own %s",
           ag_text_duration(a, sizeof(a), ours.ns / (double)(ours.allocs + ours.frees)),
           ag_text_duration(b, sizeof(b), native.ns / (double)(native.allocs + native.frees)));
}

/* What guards checked, and found. */
static void gain_checks(const struct facts *it)
{
    unsigned long long guarded = count_of(it, AG_STAT_GUARDED),
                       checked = count_of(it, AG_STAT_GUARD_CHECKED),
                       found = count_of(it, AG_STAT_GUARD_BEFORE) +
                               count_of(it, AG_STAT_GUARD_BEHIND) +
                               count_of(it, AG_STAT_GUARD_INSIDE);

    if (guarded && found)
        GAINED(it, "%llu check%s of %llu guarded block%s found %llu where it must not be written",
               checked, s(checked), guarded, s(guarded), found);
    else if (guarded && !checked)
        GAINED(it, "%llu block%s guarded", guarded, guarded == 1 ? " was" : "s were");
    else if (guarded)
        GAINED(it, "%llu check%s of %llu guarded block%s found nothing", checked, s(checked),
               guarded, s(guarded));
}

static void gain_memory(const struct facts *it)
{
    unsigned long long here = ag_sum_unasked(it->stats);
    unsigned long long ordered = ag_sum_frees(it->stats).ordered;

    if (here)
        GAINED(it, "%llu of %llu allocations did not ask the driver", here, n_allocated(it));
    if (ordered)
        GAINED(it, "%llu of %llu frees did not wait for the device", ordered, n_freed(it));
    if (here || ordered)
        compare_calls(it);
}

/* How long an iteration took both ways, by the last comparison. */
static void compare_iterations(const struct facts *it)
{
    double eager = (double)it->stats->eager_ns, replayed = (double)it->stats->replayed_ns;
    char a[32], b[32];

    if (it->stats->head.simulated || eager <= replayed || replayed <= 0)
        return;
    ag_text_duration(a, sizeof(a), replayed);
    ag_text_duration(b, sizeof(b), eager);
    if (it->stats->compared_unwaited)
        GAINED(it, "%u of them took the host %s instead of %s", AG_UNWAITED_ITERATION, a, b);
    else
        GAINED(it, "an iteration took %s instead of %s (%.2fx)", a, b, eager / replayed);
}

/* What replay cost to find out, whether anything came of it or not. */
static void add_replay_cost(const struct facts *it, char *line, size_t size)
{
    unsigned long long graphs = count_of(it, AG_STAT_REPLAY_BUILT);
    unsigned long long eager = count_of(it, AG_STAT_REPLAY_EAGER_ITERATIONS);
    char took[32];

    ag_text_duration(took, sizeof(took), (double)count_of(it, AG_STAT_REPLAY_BUILD_NS));
    if (it->stats->head.simulated)
        *took = '\0';
    (void)ag_text_print(line, size,
                        "to find out, it built %llu graph%s%s%s and ran %llu iteration%s "
                        "without",
                        graphs, s(graphs), *took ? " in " : "", took, eager, s(eager));
}

static void gain_replay(const struct facts *it)
{
    unsigned long long seen = count_of(it, AG_STAT_REPLAY_SEEN),
                       replayed = count_of(it, AG_STAT_REPLAY_REPLAYED),
                       launches = count_of(it, AG_STAT_REPLAY_LAUNCHES);
    char cost[160];

    if (!is_replaying(it) || !replayed)
        return;
    GAINED(it, "%.1f %% of %llu operations went out in %llu graph launch%s",
           percent(replayed, seen), seen, launches, launches == 1 ? "" : "es");
    compare_iterations(it);
    add_replay_cost(it, cost, sizeof(cost));
    GAINED(it, "%s", cost);
}

static void gain_rest(const struct facts *it)
{
    unsigned long long retried =
        count_of(it, AG_STAT_LADDER_RETRY) + count_of(it, AG_STAT_LADDER_OTHER);
    unsigned long long spilled = count_of(it, AG_STAT_LADDER_SPILL),
                       own = count_of(it, AG_STAT_API_REPLAYS),
                       kept = count_of(it, AG_STAT_ASYNC_KEPT);

    if (retried)
        GAINED(it, "%llu call%s found room after caches and pools were emptied", retried,
               s(retried));
    if (spilled)
        GAINED(it, "%llu allocation%s that did not fit got memory of the host", spilled,
               s(spilled));
    if (own)
        GAINED(it, "%llu replay%s of graphs by the control API", own, s(own));
    if (kept)
        GAINED(it, "%llu pool%s of the program's own kept freed memory", kept, s(kept));
}

/* ---- what held it back --------------------------------------------------------------------- */

static void held_by_nothing_working(struct facts *it)
{
    if (!*it->stats->head.trouble)
        return;
    HELD(it, "nothing was redirected: %s", it->stats->head.trouble);
    suggest_remedy(
        it, "`allograft doctor` says what this machine allows, `allograft options --check` what "
            "the settings are");
}

static void held_by_bypass(struct facts *it)
{
    unsigned n = it->stats->n_bypassing;

    if (n) {
        HELD(it, "calls of %.100s%s went past Allograft (RTLD_DEEPBIND)", it->stats->bypassing[0],
             n > 1 ? " and others" : "");
        suggest_remedy(it, "allograft run --audit");
    }
    for (unsigned i = 0; i < AG_STATS_UNSEEN; i++) {
        if (*it->stats->unseen[i])
            HELD(it, "%.63s uses the device where Allograft does not see it, so frees waited",
                 it->stats->unseen[i]);
    }
    if (count_of(it, AG_STAT_LOOKUP_UNMATCHED))
        HELD(it, "the program got addresses of cuGetProcAddress that are no known symbol's, and "
                 "calls by them were not seen");
}

/* Did the program allocate after a free? Else no policy keeps anything for it. */
static bool allocated_again(const struct facts *it)
{
    for (unsigned device = 0; device < AG_STATS_DEVICES; device++) {
        if (PLACE_SUM(it, device, AG_PLACE_NATIVE, alloc_bytes) >
            it->stats->peak_bytes[device][AG_PLACE_NATIVE])
            return true;
    }
    return false;
}

static void held_by_policy(struct facts *it)
{
    const struct ag_sum_frees frees = ag_sum_frees(it->stats);
    char waited[96] = "";

    if (!count_of(it, AG_STAT_PASSED) || !is_set_to(it, AG_OPTION_POLICY, "native"))
        return;
    if (frees.waited)
        (void)ag_text_print(waited, sizeof(waited), "; %llu of %llu frees waited for the device",
                            (unsigned long long)frees.waited, (unsigned long long)frees.all);
    HELD(it, "ALLOGRAFT_POLICY=native left all memory to the driver%s", waited);
    if (allocated_again(it))
        suggest_remedy(it, "ALLOGRAFT_POLICY=auto");
}

static void held_by_memory(struct facts *it)
{
    unsigned long long failed = count_of(it, AG_STAT_LADDER_ERROR),
                       over = count_of(it, AG_STAT_BUDGET_HIT),
                       spilled = count_of(it, AG_STAT_LADDER_SPILL);

    if (failed) {
        HELD(it, "%llu allocation%s ran out of memory%s", failed, s(failed),
             over ? ", by ALLOGRAFT_LIMIT" : "");
        if (is_set_to(it, AG_OPTION_OOM, "error"))
            suggest_remedy(it, over ? "ALLOGRAFT_OOM=spill, or a larger ALLOGRAFT_LIMIT"
                                    : "ALLOGRAFT_OOM=spill");
    }
    if (spilled) {
        HELD(it, "%llu allocation%s spilled, which the device reads over the bus", spilled,
             s(spilled));
        if (is_set_to(it, AG_OPTION_UNSPILL, "0"))
            suggest_remedy(it, "ALLOGRAFT_UNSPILL=1");
    }
}

/* Why most frees waited that did, the row of a drain or of those left to the driver. AG_N_STATS:
 * there is nothing to say, since all memory stayed the driver's, or too few did. */
static unsigned why_frees_waited(const struct facts *it, struct ag_sum_frees frees)
{
    static const enum ag_stat others[] = {AG_STAT_FREE_NATIVE, AG_STAT_WAITED_PENDING,
                                          AG_STAT_WAITED_RETURN};
    unsigned long long sum;
    unsigned why = largest_of(it, "drains", &sum);

    if (!is_worth_saying(frees.waited, frees.all) || frees.all == count_of(it, AG_STAT_FREE_NATIVE))
        return AG_N_STATS;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (why == AG_N_STATS || count_of(it, others[i]) > count_of(it, why))
            why = others[i];
    }
    return why;
}

/* Is it that the host could see a difference? */
static bool is_visible(unsigned why)
{
    return why >= AG_STAT_DRAIN_PINNED && why <= AG_STAT_DRAIN_CONTEXTS;
}

static void held_by_waits(struct facts *it)
{
    const struct ag_sum_frees frees = ag_sum_frees(it->stats);
    unsigned why = why_frees_waited(it, frees);

    if (why == AG_N_STATS)
        return;
    HELD(it, "%llu of %llu frees waited for the device (most often: %s)",
         (unsigned long long)frees.waited, (unsigned long long)frees.all, ag_stat_rows[why].label);
    if (why == AG_STAT_DRAIN_ASKED)
        suggest_remedy(it, "ALLOGRAFT_FREE=auto");
    else if (why == AG_STAT_WAITED_PENDING && is_set_to(it, AG_OPTION_PENDING, "25%"))
        suggest_remedy(it, "ALLOGRAFT_PENDING=50%");
    else if (is_visible(why) && is_set_to(it, AG_OPTION_FREE, "auto"))
        suggest_remedy(
            it, "ALLOGRAFT_FREE=ordered, if the program never reads results without a wait of its "
                "own");
}

static void held_by_fallbacks(struct facts *it)
{
    unsigned long long sum, passed = count_of(it, AG_STAT_PASSED);
    unsigned why = largest_of(it, "fallbacks", &sum);

    if (why == AG_N_STATS || why == AG_STAT_FALLBACK_NO_IPC || !passed ||
        !is_worth_saying(sum, n_allocated(it)))
        return;
    HELD(it, "%llu of %llu allocations were left to the driver (most often: %s)", passed,
         n_allocated(it), ag_stat_rows[why].label);
    if (why == AG_STAT_FALLBACK_EXPORTER)
        suggest_remedy(it, "a rule such as from=LIBRARY*:pool, if that library shares no memory");
}

static void held_by_cache(struct facts *it)
{
    unsigned long long returned = count_of(it, AG_STAT_CACHE_RETURNED),
                       full = count_of(it, AG_STAT_CACHE_FULL),
                       missed = count_of(it, AG_STAT_CACHE_MISS);

    if (!is_worth_saying(returned, n_freed(it)) || !is_worth_saying(missed, n_allocated(it)) ||
        !count_of(it, AG_STAT_CACHE_HIT))
        return;
    HELD(it, "the cache gave %llu block%s back, and had none for %llu of %llu allocations",
         returned, s(returned), missed, n_allocated(it));
    if (is_worth_saying(full, n_freed(it)) && is_set_to(it, AG_OPTION_CACHE, "25%"))
        suggest_remedy(it, "ALLOGRAFT_CACHE=50%");
}

/* ---- what held replay back ----------------------------------------------------------------- */

/* The largest part of what was not replayed, and why. */
static void held_by_operations(struct facts *it)
{
    unsigned long long seen = count_of(it, AG_STAT_REPLAY_SEEN), sum;
    unsigned long long slept = count_of(it, AG_STAT_REPLAY_SLEPT),
                       released = count_of(it, AG_STAT_REPLAY_RELEASED);
    unsigned long long apart = count_of(it, AG_STAT_REPLAY_WITHHELD) + slept; /* read later */
    unsigned long long rest = seen > apart ? seen - apart : 0;
    unsigned why = largest_of(it, "flushes", &sum);

    if (slept >= released && slept >= rest)
        HELD(it,
             "%.1f %% of the operations passed while streams had backed off: nothing repeated, or "
             "graphs were no faster",
             percent(slept, seen));
    else if (released >= rest && why != AG_N_STATS)
        HELD(it, "%.1f %% of the operations were withheld in vain (most often ended by: %s)",
             percent(released, seen), ag_stat_rows[why].label);
    else
        HELD(it, "%.1f %% of the operations passed before they had repeated", percent(rest, seen));
}

static void held_by_replay(struct facts *it)
{
    unsigned long long seen = count_of(it, AG_STAT_REPLAY_SEEN),
                       replayed = count_of(it, AG_STAT_REPLAY_REPLAYED),
                       launches = count_of(it, AG_STAT_REPLAY_LAUNCHES),
                       mismatches = count_of(it, AG_STAT_REPLAY_MISMATCHES);
    const struct ag_stats *stats = it->stats;
    char cost[160];

    if (*stats->head.replay && !is_replaying(it))
        HELD(it, "nothing was replayed: %s", stats->head.replay);
    if (!is_replaying(it))
        return;
    if (!count_of(it, AG_STAT_REPLAY_STREAMS)) {
        HELD(it, "ALLOGRAFT_GRAPH marks no stream that the program used");
        if (!is_set_to(it, AG_OPTION_GRAPH, "all"))
            suggest_remedy(it, "ALLOGRAFT_GRAPH=all");
    } else if (seen && percent(replayed, seen) < REPLAYED_WELL) {
        held_by_operations(it);
    }
    if (!replayed && count_of(it, AG_STAT_REPLAY_BUILT)) {
        add_replay_cost(it, cost, sizeof(cost));
        ADD(it->verdict->held_back, "%s", cost);
    }
    if (!stats->head.simulated && !stats->compared_unwaited && stats->eager_ns &&
        stats->replayed_ns > stats->eager_ns)
        suggest_remedy(
            it, "ALLOGRAFT_GRAPH=off: in the last comparison an iteration was slower with graphs");
    if (mismatches && is_worth_saying(10 * mismatches, launches) &&
        replayed >= SHORT_GRAPH * launches && percent(replayed, seen) < REPLAYED_WELL &&
        is_set_to(it, AG_OPTION_GRAPH_SEGMENT, "growing"))
        suggest_remedy(
            it,
            "ALLOGRAFT_GRAPH_SEGMENT=16: what a sequence began with was often not what followed");
}

/* ---- memory -------------------------------------------------------------------------------- */

static bool has_ended(const struct facts *it)
{
    const char *ended_by = it->stats->head.ended_by;

    return *ended_by && strcmp(ended_by, "running") != 0;
}

/* The most at a time, what that took of the devices, and what is left of it. */
static void say_memory(const struct facts *it)
{
    const struct ag_sum_left left = ag_sum_left(it->stats);
    uint64_t given = ag_sum_all_given(it->stats);
    char size[32];

    ADD(it->verdict->memory, "at most %s at a time",
        ag_text_size(size, sizeof(size), ag_sum_peaks(it->stats)));
    if (given)
        ADD(it->verdict->memory, "%s of the device, with what was kept for later",
            ag_text_size(size, sizeof(size), given));
    if (left.blocks)
        ADD(it->verdict->memory, "%llu block%s of %s %s", (unsigned long long)left.blocks,
            s(left.blocks), ag_text_size(size, sizeof(size), left.bytes),
            !has_ended(it)     ? "in use now"
            : left.blocks == 1 ? "was never freed"
                               : "were never freed");
    else
        ADD(it->verdict->memory, has_ended(it) ? "all of it was freed" : "none in use now");
}

/* ---- nothing of all that ------------------------------------------------------------------- */

static void say_nothing_was_to_gain(struct facts *it)
{
    if (it->n_causes || *it->verdict->gained)
        return;
    if (!n_allocated(it))
        HELD(it, "the program allocated nothing by cudaMalloc or cuMemAlloc");
    else if (is_set_to(it, AG_OPTION_POLICY, "auto") && !count_of(it, AG_STAT_POOL_MADE))
        HELD(it,
             "nothing; the program did not free and allocate in turns, so its memory stayed the "
             "driver's");
}

struct ag_verdict ag_verdict_of(const struct ag_stats *stats, const struct ag_moment *moment)
{
    static void (*const causes[])(struct facts *it) = {
        held_by_nothing_working, held_by_bypass,    held_by_policy, held_by_memory,
        held_by_waits,           held_by_fallbacks, held_by_cache,  held_by_replay,
    };
    struct ag_verdict verdict = {"", "", "", ""};
    struct facts facts = {stats, moment, &verdict, 0}, *it = &facts;

    gain_checks(it);
    gain_memory(it);
    gain_replay(it);
    gain_rest(it);
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]) && it->n_causes < MOST_CAUSES; i++)
        causes[i](it);
    say_nothing_was_to_gain(it);
    if (!*verdict.gained)
        ADD(verdict.gained, "nothing");
    if (!*verdict.held_back)
        ADD(verdict.held_back, "nothing that was counted");
    suggest_remedy(it, "nothing that these counts tell; `allograft tune` compares settings");
    say_memory(it);
    return verdict;
}

void ag_verdict_text(struct ag_text *text, const struct ag_stats *stats,
                     const struct ag_moment *moment)
{
    const struct ag_verdict verdict = ag_verdict_of(stats, moment);

    ag_text_add(text,
                "  gained:    %s\n  held back: %s\n  try:       %s\n"
                "  memory:    %s\n",
                verdict.gained, verdict.held_back, verdict.to_try, verdict.memory);
}

void ag_verdict_json(struct ag_emitter *json, const struct ag_stats *stats,
                     const struct ag_moment *moment)
{
    const struct ag_verdict verdict = ag_verdict_of(stats, moment);

    ag_emit_line(json, 0);
    ag_emit_object(json, "verdict");
    ag_emit_string(json, "gained", verdict.gained);
    ag_emit_string(json, "held_back", verdict.held_back);
    ag_emit_string(json, "try", verdict.to_try);
    ag_emit_string(json, "memory", verdict.memory);
    ag_emit_end(json);
}
