/* Ends of segments that nothing flushes: see history.h.
 *
 * What an operation is told by is its *context*: a hash of it and the CONTEXT - 1 before it, older
 * ones shifted out. In a loop, each place has the same context every round.
 *
 * The anchor is the smallest context that was seen within the window: once a whole round has
 * passed, that is the same place every round, wherever one began to look. Where it is not seen any
 * more (a prologue had it, or the program does something else now), the smallest one since then
 * serves, its candidate, with a window of its own that doubles while it does not repeat; it takes
 * over when the window is over. Both need a few numbers, and no table of the past.
 *
 * After an irregularity the state must soon be what it is after every such: so an irregular end
 * makes segments begin at a place that is the same each time, even if what was before is short.
 * Only where the segment began at such a place and would be short, the end is left out: its state
 * is known. */
#include "graph/learn/history.h"

#include <stddef.h>

#include "interpose/base/pages.h"

#define CONTEXT         16u /* operations; as long as the usual shortest segment */
#define NO_CONTEXT      UINT64_MAX
#define FIRST_PROBATION 256u  /* of the candidate, in operations */
#define RUN_TO_ACT      32u   /* regular rounds, after which the candidate acts within rounds */
#define LEAST_QUIET     512u  /* operations without a flush, after which anchors count */
#define MOST_FLUSHED    8192u /* operations between flushes that make iterations */
#define LEAST_TAIL      7u    /* operations left before a flush, beside the one that comes */
#define FIRST_TAIL      10u   /* ... by a round's first graph: see below */
#define SLOW_TAIL       2u    /* ... of a slow program, with it */
#define LEAST_CAP       8u    /* where operations come slowly: see below */
#define EAGER_NS        4000u /* that an operation may take because it is not withheld */

/* Of operations that are withheld, in ns, without what launching a graph takes (H200): */
#define LAUNCH_NS   2000u
#define WITHHELD_NS 1000u /* at most, or they were not */
#define LIGHT_NS    220u
#define HEAVY_NS    280u

enum event {
    EV_NONE,
    EV_REGULAR,  /* the anchor, at the usual distance */
    EV_SURPRISE, /* the anchor, at another one */
    EV_MISSING,  /* the usual distance, and no anchor */
};

struct anchor {
    uint64_t context;
    uint64_t at; /* position where it was seen last */
    uint64_t gap,
        usual;          /* the last distance; the last one that came twice in a row, or the first */
    uint32_t seen, run; /* run: regular ones in a row */
};

struct ag_history {
    struct ag_history_limits limits;
    uint64_t context, position; /* of the last operation; counted from 1 */
    uint64_t deadline;          /* position at which there is more to look at than the context */
    uint32_t length, target;    /* operations; target: of the segment that runs */
    uint32_t cap;               /* as the pace allows */
    bool strong;                /* the segment began at an iteration's begin or at a flush */
    bool is_first;              /* the segment that runs is the first after a flush */
    bool updating, again;       /* segments grow more slowly; again: as long as the one before */
    uint64_t flushed_at, quiet;
    uint64_t flushed_after[2];       /* contexts, of the last flushes */
    uint64_t between, usual_between; /* operations between the last two flushes; when that came
                                        twice in a row, else 0 */
    struct anchor anchor, candidate;
    uint64_t probation;
    const struct anchor *acting;
    uint64_t n_iterations;

    unsigned shift, slow, quick; /* cap: the limit's shifted right; votes for another shift */
    bool is_heavy;               /* the host takes long for an operation, though it is withheld */
    unsigned otherwise;          /* votes for that to change */
    uint64_t last_ns, last_ns_at;
    uint32_t n_ended; /* segments since then */
};

/* --- where iterations begin --- */

static bool one_an_iteration(const struct ag_history *history)
{
    return history->limits.cap == UINT32_MAX;
}

static void begin_anchor(const struct ag_history *history, struct anchor *anchor, uint64_t context)
{
    *anchor =
        (struct anchor){.context = context, .at = history->position, .seen = context != NO_CONTEXT};
}

static void begin_understudy(struct ag_history *history)
{
    begin_anchor(history, &history->candidate, NO_CONTEXT);
    history->probation = FIRST_PROBATION;
}

/* What the operation at this position, which is at this anchor or not, says about it. */
static enum event note(struct anchor *anchor, uint64_t position, bool is_there)
{
    uint64_t gap = position - anchor->at;

    if (!is_there)
        return gap == anchor->usual ? EV_MISSING : EV_NONE;
    anchor->at = position;
    if (!anchor->seen++)
        return EV_SURPRISE;
    if (gap == anchor->usual) {
        anchor->run++;
        anchor->gap = gap;
        return EV_REGULAR;
    }
    if (!anchor->usual || gap == anchor->gap)
        anchor->usual = gap;
    anchor->run = 0;
    anchor->gap = gap;
    return EV_SURPRISE;
}

/* Is it to be expected again? */
static bool is_alive(const struct anchor *anchor, uint64_t position)
{
    uint64_t gap = anchor->gap > anchor->usual ? anchor->gap : anchor->usual;

    return anchor->seen >= 2 && position - anchor->at <= 2 * gap;
}

static enum event watch_understudy(struct ag_history *history)
{
    struct anchor *candidate = &history->candidate;
    enum event event;

    if (history->context < candidate->context) {
        begin_anchor(history, candidate, history->context);
        return EV_NONE;
    }
    event = note(candidate, history->position, history->context == candidate->context);
    if (history->position - candidate->at >= history->probation) {
        begin_anchor(history, candidate, NO_CONTEXT);
        if (history->probation < AG_HISTORY_WINDOW)
            history->probation *= 2;
        return EV_NONE;
    }
    return event;
}

/* The anchor is silent for this operation: does its candidate act? */
static bool understudy_acts(const struct ag_history *history)
{
    return !is_alive(&history->anchor, history->position) ||
           (history->candidate.run >= RUN_TO_ACT && history->candidate.usual <= history->cap);
}

static enum event watch(struct ag_history *history)
{
    struct anchor *anchor = &history->anchor;
    enum event event;

    history->acting = anchor;
    if (history->context < anchor->context) {
        begin_anchor(history, anchor, history->context);
        begin_understudy(history);
        return EV_NONE;
    }
    if (history->context == anchor->context) {
        begin_understudy(history);
        return note(anchor, history->position, true);
    }
    event = note(anchor, history->position, false);
    if (history->position - anchor->at >= AG_HISTORY_WINDOW) {
        *anchor = history->candidate;
        begin_understudy(history);
        return EV_NONE;
    }
    if (event != EV_NONE) {
        (void)watch_understudy(history);
        return event;
    }
    event = watch_understudy(history);
    if (!understudy_acts(history))
        return EV_NONE;
    history->acting = &history->candidate;
    return event;
}

static void sooner(uint64_t *deadline, const struct ag_history *history, uint64_t position)
{
    if (position > history->position && position < *deadline)
        *deadline = position;
}

static void set_deadline(struct ag_history *history)
{
    const struct anchor *anchor = &history->anchor, *candidate = &history->candidate;
    uint64_t deadline = anchor->at + AG_HISTORY_WINDOW;

    sooner(&deadline, history, anchor->at + anchor->usual);
    sooner(&deadline, history, candidate->at + candidate->usual);
    sooner(&deadline, history, candidate->at + history->probation);
    history->deadline = deadline;
}

/* --- where segments end --- */

static bool is_armed(const struct ag_history *history)
{
    return !history->limits.flush_only &&
           (history->limits.marked || history->position - history->flushed_at > history->quiet);
}

static bool ends_at(struct ag_history *history, enum event event)
{
    uint64_t usual = history->acting->usual;
    bool is_short = history->length < history->limits.shortest;

    if (event == EV_MISSING && one_an_iteration(history))
        return false;
    if (event == EV_REGULAR && one_an_iteration(history))
        return !is_short;
    if (event == EV_REGULAR && usual <= history->cap)
        return history->length + usual > history->target;
    return !is_short || !history->strong;
}

/* Operations until the next anchor, or 0 when none is expected. */
static uint64_t remaining(const struct ag_history *history)
{
    uint64_t since = history->position - history->acting->at, usual = history->acting->usual;

    return is_armed(history) && since < usual ? usual - since : 0;
}

/* Do operations come slowly, to segments that grow? */
static bool is_slow(const struct ag_history *history)
{
    return history->shift && history->limits.first < history->limits.cap;
}

/* Is a flush expected so soon that what is left would not be worth a graph? Beside a first graph
 * that has just been launched another one takes the device 2 us more, as long as it takes the host
 * to come to the end (H200: rounds of 12 operations 20.2 us in two graphs, 19.3 in one; of 20
 * operations 27.7 and 29.0), unless it is slow or updates nodes as well. */
static bool is_flushed_soon(const struct ag_history *history)
{
    uint64_t at = history->flushed_at + history->usual_between;
    bool is_early = history->is_first && !history->updating && !history->is_heavy;
    uint32_t least = is_early ? FIRST_TAIL : LEAST_TAIL;

    return history->usual_between && history->position <= at && at - history->position < least &&
           !is_slow(history);
}

static bool ends_by_length(const struct ag_history *history)
{
    uint64_t left;

    if (history->length < history->target || is_flushed_soon(history))
        return false;
    left = remaining(history);
    return !left || left >= history->limits.shortest;
}

/* --- the pace --- */

static uint32_t full_cap(const struct ag_history *history)
{
    return one_an_iteration(history) ? AG_HISTORY_WINDOW : history->limits.cap;
}

static void set_shift(struct ag_history *history, unsigned shift)
{
    bool grown = history->target >= history->cap;

    history->shift = shift;
    history->slow = history->quick = 0;
    history->cap = full_cap(history) >> shift;
    if (grown || history->target > history->cap)
        history->target = history->cap;
}

/* Is the host, with what the program does between operations, quick beside the device? */
static void weigh(struct ag_history *history, uint64_t ns, uint64_t n)
{
    enum { VOTES = 16 };
    uint64_t launching = (uint64_t)history->n_ended * LAUNCH_NS,
             each = ns > launching ? (ns - launching) / n : 0;

    if (each > WITHHELD_NS)
        return;
    if (history->is_heavy ? each < LIGHT_NS : each > HEAVY_NS)
        history->otherwise++;
    else
        history->otherwise = 0;
    if (history->otherwise < VOTES)
        return;
    history->is_heavy = !history->is_heavy;
    history->otherwise = 0;
}

/* What the driver takes for operations that are not withheld is not the program's pace. A slow
 * program gains nearly as much by graphs of 8 as by longer ones (2.3 and 2.5 us of 2.7 an
 * operation, H200), and its device has less left to do when the host begins to wait. */
static void keep_pace(struct ag_history *history, uint64_t now_ns)
{
    enum { VOTES_SHORTER = 4, VOTES_LONGER = 64 };
    uint64_t n = history->position - history->last_ns_at, each;

    if (!history->limits.hold_ns || one_an_iteration(history))
        return;
    if (history->last_ns && now_ns > history->last_ns && n) {
        weigh(history, now_ns - history->last_ns, n);
        each = (now_ns - history->last_ns) / n;
        each = each > EAGER_NS ? each - EAGER_NS : 0;
        history->slow = each * history->cap > history->limits.hold_ns ? history->slow + 1 : 0;
        history->quick =
            each * history->cap * 4 <= history->limits.hold_ns ? history->quick + 1 : 0;
    }
    history->last_ns = now_ns;
    history->last_ns_at = history->position;
    history->n_ended = 0;
    if (history->slow >= VOTES_SHORTER && history->cap / 2 >= LEAST_CAP)
        set_shift(history, history->shift + 1);
    else if (history->quick >= VOTES_LONGER && history->shift)
        set_shift(history, history->shift - 1);
}

/* --- growth --- */

/* A slow program's device may have nothing to do but what comes: it gets the first operation at
 * once or after few others, and when the host begins to wait, little is left to do.
 * Otherwise, while the second segment comes together, the device must have enough in the first; but
 * it does not begin before that is complete. */
static uint32_t first_length(const struct ag_history *history)
{
    uint32_t first = history->limits.first;

    if (first >= history->cap || one_an_iteration(history))
        return history->cap;
    if (is_slow(history)) {
        first >>= history->shift;
        return first ? first : 1;
    }
    return history->is_heavy && 2 * first < history->cap ? 2 * first : first;
}

static void leave_short_tail(struct ag_history *history)
{
    uint64_t at = history->flushed_at + history->usual_between + history->length, left;

    if (!history->usual_between || !is_slow(history) || at <= history->position)
        return;
    left = at - history->position; /* of this segment on, until the flush */
    if (left <= SLOW_TAIL)
        history->target = (uint32_t)left;
    else if (left - SLOW_TAIL < history->target)
        history->target = (uint32_t)(left - SLOW_TAIL);
}

/* The device, which takes a microsecond for an operation at the least, must not run dry while the
 * next segment comes together. */
static void grow(struct ag_history *history)
{
    uint32_t times = history->updating || history->is_heavy ? 2 : history->is_first ? 4 : 3;

    history->again = history->updating && !history->is_first && !history->again;
    if (!history->again)
        history->target =
            history->target < history->cap / times ? history->target * times : history->cap;
    history->is_first = false;
    leave_short_tail(history);
}

/* --- from outside --- */

/* Do flushes come at the same place? Others (the watchdog's) tell nothing of iterations. */
static bool is_place_of_flushes(struct ag_history *history)
{
    uint64_t *after = history->flushed_after;
    bool known = history->context == after[0] || history->context == after[1] || !after[0];

    after[1] = after[0];
    after[0] = history->context;
    return known;
}

static void flushed(struct ag_history *history)
{
    uint64_t between = history->position - history->flushed_at;
    bool was_armed = is_armed(history);

    if (between && !is_place_of_flushes(history))
        history->quiet = was_armed ? 0 : LEAST_QUIET;
    else if (between)
        history->quiet =
            between <= MOST_FLUSHED && 2 * between > LEAST_QUIET ? 2 * between : LEAST_QUIET;
    if (between) {
        history->usual_between = between == history->between ? between : 0;
        history->between = between;
    }
    history->target = first_length(history);
    history->is_first = true;
    history->again = false;
    history->length = 0;
    history->strong = true;
    history->flushed_at = history->position;
    history->last_ns = 0;
    leave_short_tail(history);
}

static struct ag_freelist freelist;

void ag_history_prepare(void)
{
    struct ag_history *history =
        ag_freelist_is_full(&freelist) ? NULL : ag_pages_get(sizeof(*history));

    if (!history)
        return;
    ag_pages_ready(history, sizeof(*history));
    ag_history_free(history);
}

struct ag_history *ag_history_new(const struct ag_history_limits *limits)
{
    struct ag_history *history = ag_freelist_take_or_get(&freelist, sizeof(*history));

    if (!history)
        return NULL;
    history->limits = *limits;
    history->quiet = LEAST_QUIET;
    history->acting = &history->anchor;
    begin_anchor(history, &history->anchor, limits->marked ? 0 : NO_CONTEXT);
    history->anchor.seen = 0;
    begin_understudy(history);
    set_shift(history, 0);
    flushed(history);
    return history;
}

void ag_history_free(struct ag_history *history)
{
    if (!history)
        return;
    *history = (struct ag_history){0};
    ag_freelist_put_or_free(&freelist, history, sizeof(*history));
}

/* Most operations: no anchor, none missing, and no reason to end. */
static inline bool passes_by(const struct ag_history *history)
{
    return history->context > history->anchor.context &&
           history->context > history->candidate.context && history->position < history->deadline &&
           history->length < history->target;
}

static bool decide(struct ag_history *history, bool mark)
{
    enum event event = EV_NONE;

    if (history->limits.marked) {
        event = note(&history->anchor, history->position, mark);
    } else if (!history->limits.flush_only) {
        event = watch(history);
        set_deadline(history);
    }
    if (event == EV_REGULAR || event == EV_SURPRISE)
        history->n_iterations++;
    if (event != EV_NONE && history->length && is_armed(history) && ends_at(history, event)) {
        history->strong = event != EV_MISSING;
        return true;
    }
    if (!ends_by_length(history))
        return false;
    history->strong = false;
    return true;
}

bool ag_history_advance(struct ag_history *history, uint64_t hash, bool mark, uint64_t now_ns)
{
    bool ends = false;

    history->context = (history->context << 64 / CONTEXT) + hash;
    history->position++;
    if (now_ns)
        keep_pace(history, now_ns);
    if (!passes_by(history))
        ends = decide(history, mark);
    history->length++;
    return ends;
}

void ag_history_ended(struct ag_history *history, bool by_flush)
{
    if (by_flush) {
        flushed(history);
        return;
    }
    history->length = 1;
    history->n_ended++;
    grow(history);
}

void ag_history_updating(struct ag_history *history, bool updating)
{
    history->updating = updating;
}

uint32_t ag_history_length(const struct ag_history *history)
{
    return history->length;
}

uint32_t ag_history_target(const struct ag_history *history)
{
    return history->target;
}

void ag_history_iterations(const struct ag_history *history, uint64_t *ret_count,
                           uint32_t *ret_period)
{
    *ret_count = history->n_iterations;
    *ret_period = (uint32_t)history->acting->gap;
}
