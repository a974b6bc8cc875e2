/* Ends of segments that nothing flushes: see history.h.
 *
 * An operation is recognised by the rolling hash of it and the 15 before it. In a loop each place
 * has the same rolling hash in every iteration.
 *
 * The anchor is the place with the smallest rolling hash within the window. Once a whole iteration
 * was seen, that is the same place in every iteration, wherever one began to look. When the anchor
 * comes no more (it was in a prologue, or the program does something else now), the place with the
 * smallest hash since then is the *candidate*. It has a window of its own, which doubles while the
 * candidate does not repeat, and becomes the anchor when the anchor's window is over. Both need a
 * few numbers, and no table of the past. (backoff.c needs a table; it says why.)
 *
 * After an irregularity the state should soon be what it is after any other irregularity. So an
 * irregular end makes the next segment begin at a place that is the same each time, even if the
 * segment before it is short. The end is left out only where the segment itself began at such a
 * place and would be short: its state is known. */
#include "graph/learn/history.h"

#include <stddef.h>

#include "interpose/core/base/pages.h"

#define NO_HASH UINT64_MAX

enum event {
    EV_NONE,
    EV_REGULAR,  /* the anchor, at the usual distance */
    EV_SURPRISE, /* the anchor, at another one */
    EV_MISSING,  /* the usual distance, and no anchor */
};

struct anchor {
    uint64_t hash;       /* the rolling hash there */
    uint64_t at;         /* position where it was seen last */
    uint64_t gap, usual; /* distances: the last; the last that came twice in a row, or the first */
    uint32_t seen;
};

struct ag_history {
    struct ag_history_limits limits;
    uint64_t rolling, position; /* position: of the last operation, counted from 1 */
    uint64_t deadline;          /* position at which there is more to check than the hash */
    uint64_t whole_at;          /* position from which the hash covers what came in a row */
    uint32_t length, target;    /* operations; target: of the segment that runs */
    uint32_t cap;               /* as the pace allows */
    bool at_known_place;        /* the segment began at an anchor or at a flush */
    bool is_first;              /* the segment that runs is the first after a flush */
    bool updating, again;       /* segments grow more slowly; again: as long as the one before */
    bool had_updates;           /* since the last flush */
    uint32_t updating_votes;    /* flushes in a row that speak against `updating` */
    uint64_t flushed_at;
    uint64_t unflushed;        /* operations without a flush, after which anchors count */
    uint64_t flushed_after[2]; /* rolling hashes, of the last flushes */
    uint64_t between;          /* operations between the last two flushes; 0: there were none */
    struct anchor anchor, candidate;
    uint64_t probation;
    const struct anchor *acting;
    uint64_t n_anchors;

    unsigned shift;                       /* cap: the limit's, shifted right by this */
    unsigned votes_shorter, votes_longer; /* for another shift */
    uint64_t last_ns, last_ns_at;
};

/* --- where iterations begin --- */

static void begin_anchor(const struct ag_history *history, struct anchor *anchor, uint64_t hash)
{
    *anchor = (struct anchor){.hash = hash, .at = history->position, .seen = hash != NO_HASH};
}

static void begin_candidate(struct ag_history *history)
{
    begin_anchor(history, &history->candidate, NO_HASH);
    history->probation = AG_ANCHOR_PROBATION;
}

/* Notes the operation at this position, which is at this anchor or is not. */
static enum event note_position(struct anchor *anchor, uint64_t position, bool is_there)
{
    uint64_t gap = position - anchor->at;

    if (!is_there)
        return gap == anchor->usual ? EV_MISSING : EV_NONE;
    anchor->at = position;
    if (!anchor->seen++)
        return EV_SURPRISE;
    if (gap == anchor->usual) {
        anchor->gap = gap;
        return EV_REGULAR;
    }
    if (!anchor->usual || gap == anchor->gap)
        anchor->usual = gap;
    anchor->gap = gap;
    return EV_SURPRISE;
}

/* May it come again? */
static bool is_alive(const struct anchor *anchor, uint64_t position)
{
    uint64_t gap = anchor->gap > anchor->usual ? anchor->gap : anchor->usual;

    return anchor->seen >= 2 && position - anchor->at <= 2 * gap;
}

static enum event watch_candidate(struct ag_history *history)
{
    struct anchor *candidate = &history->candidate;
    enum event event;

    if (history->rolling < candidate->hash) {
        begin_anchor(history, candidate, history->rolling);
        return EV_NONE;
    }
    event = note_position(candidate, history->position, history->rolling == candidate->hash);
    if (history->position - candidate->at >= history->probation) {
        begin_anchor(history, candidate, NO_HASH);
        if (history->probation < AG_HISTORY_WINDOW)
            history->probation *= 2;
        return EV_NONE;
    }
    return event;
}

static enum event watch_anchors(struct ag_history *history)
{
    struct anchor *anchor = &history->anchor;
    enum event event, of_candidate;

    history->acting = anchor;
    if (history->position < history->whole_at)
        return EV_NONE;
    if (history->rolling < anchor->hash) {
        begin_anchor(history, anchor, history->rolling);
        begin_candidate(history);
        return EV_NONE;
    }
    if (history->rolling == anchor->hash) {
        if (history->candidate.hash != NO_HASH)
            begin_candidate(history);
        history->candidate.at = history->position;
        return note_position(anchor, history->position, true);
    }
    event = note_position(anchor, history->position, false);
    if (history->position - anchor->at >= AG_HISTORY_WINDOW) {
        *anchor = history->candidate;
        begin_candidate(history);
        return EV_NONE;
    }
    of_candidate = watch_candidate(history);
    if (event != EV_NONE || is_alive(anchor, history->position))
        return event;
    history->acting = &history->candidate;
    return of_candidate;
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
           (history->limits.marked || history->position - history->flushed_at > history->unflushed);
}

static bool ends_at(struct ag_history *history, enum event event)
{
    uint64_t usual = history->acting->usual;
    bool is_short = history->length < history->limits.shortest;

    if (event == EV_REGULAR && usual <= history->cap)
        return history->length + usual > history->target;
    return !is_short || !history->at_known_place;
}

/* Operations until the next anchor, or 0 when none is expected. */
static uint64_t remaining(const struct ag_history *history)
{
    uint64_t since = history->position - history->acting->at, usual = history->acting->usual;

    return is_armed(history) && since < usual ? usual - since : 0;
}

/* Do operations come slowly, into segments that grow? */
static bool comes_slowly(const struct ag_history *history)
{
    return history->shift && history->limits.first < history->limits.cap;
}

/* Is a flush expected so soon that what is left would not be worth a graph? */
static bool is_flushed_soon(const struct ag_history *history)
{
    uint64_t at = history->flushed_at + history->between;
    bool is_early = history->is_first && !history->updating;
    uint32_t least = is_early ? AG_TAIL_FIRST : AG_TAIL_LEAST;

    return history->between && history->position <= at && at - history->position < least &&
           !comes_slowly(history);
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

static void set_shift(struct ag_history *history, unsigned shift)
{
    bool grown = history->target >= history->cap;

    history->shift = shift;
    history->votes_shorter = history->votes_longer = 0;
    history->cap = history->limits.cap >> shift;
    if (grown || history->target > history->cap)
        history->target = history->cap;
}

/* The time that the driver takes for operations that pass is not the program's pace. */
static void keep_pace(struct ag_history *history, uint64_t now_ns)
{
    uint64_t n = history->position - history->last_ns_at, each;

    if (!history->limits.hold_ns)
        return;
    if (history->last_ns && now_ns > history->last_ns && n) {
        each = (now_ns - history->last_ns) / n;
        each = each > AG_PACE_EAGER_NS ? each - AG_PACE_EAGER_NS : 0;
        history->votes_shorter =
            each * history->cap > history->limits.hold_ns ? history->votes_shorter + 1 : 0;
        history->votes_longer =
            each * history->cap * 4 <= history->limits.hold_ns ? history->votes_longer + 1 : 0;
    }
    history->last_ns = now_ns;
    history->last_ns_at = history->position;
    if (history->votes_shorter >= AG_PACE_VOTES_SHORTER && history->cap / 2 >= AG_PACE_LEAST_CAP)
        set_shift(history, history->shift + 1);
    else if (history->votes_longer >= AG_PACE_VOTES_LONGER && history->shift)
        set_shift(history, history->shift - 1);
}

/* --- growth --- */

/* The length of the first segment after a flush. While the second is recorded, the device should
 * have enough to do in the first; but it does not begin before the first is complete. Where
 * operations come slowly the device may be idle, so it gets them early, down to one by one. */
static uint32_t first_length(const struct ag_history *history)
{
    uint32_t first = history->limits.first;

    if (first >= history->cap)
        return history->cap;
    if (comes_slowly(history)) {
        first >>= history->shift;
        return first ? first : 1;
    }
    return first;
}

static void grow_target(struct ag_history *history)
{
    uint32_t times = history->updating   ? AG_GROWTH_SLOW
                     : history->is_first ? AG_GROWTH_SECOND
                                         : AG_GROWTH_LATER;

    history->again = history->updating && !history->is_first && !history->again;
    if (!history->again)
        history->target =
            history->target < history->cap / times ? history->target * times : history->cap;
    history->is_first = false;
}

/* --- from outside --- */

/* Notes where a flush came. True: others came there, so iterations may lie between flushes. (The
 * watchdog's come anywhere.) */
static bool note_place_of_flush(struct ag_history *history)
{
    uint64_t *after = history->flushed_after;
    bool known = history->rolling == after[0] || history->rolling == after[1] || !after[0];

    after[1] = after[0];
    after[0] = history->rolling;
    return known;
}

/* Other lengths ask for other graphs, so it changes only when it seems to stay. */
static void judge_updates(struct ag_history *history)
{
    uint32_t needed = history->updating ? AG_UPDATES_VOTES_NONE : AG_UPDATES_VOTES_SOME;

    history->updating_votes =
        history->had_updates == history->updating ? 0 : history->updating_votes + 1;
    history->had_updates = false;
    if (history->updating_votes < needed)
        return;
    history->updating = !history->updating;
    history->updating_votes = 0;
}

static void flushed(struct ag_history *history)
{
    uint64_t between = history->position - history->flushed_at;
    bool was_armed = is_armed(history);

    if (between && !note_place_of_flush(history))
        history->unflushed = was_armed ? 0 : AG_ANCHOR_UNFLUSHED;
    else if (between)
        history->unflushed = between <= AG_ANCHOR_BETWEEN && 2 * between > AG_ANCHOR_UNFLUSHED
                                 ? 2 * between
                                 : AG_ANCHOR_UNFLUSHED;
    if (between) {
        judge_updates(history);
        history->between = between;
    }
    history->target = first_length(history);
    history->is_first = true;
    history->again = false;
    history->length = 0;
    history->at_known_place = true;
    history->flushed_at = history->position;
    history->last_ns = 0;
}

static struct ag_freelist freelist;

void ag_history_prepare(void)
{
    ag_freelist_prepare(&freelist, sizeof(struct ag_history), sizeof(struct ag_history));
}

struct ag_history *ag_history_new(const struct ag_history_limits *limits)
{
    struct ag_history *history = ag_freelist_take_or_get(&freelist, sizeof(*history));

    if (!history)
        return NULL;
    history->limits = *limits;
    history->unflushed = AG_ANCHOR_UNFLUSHED;
    history->acting = &history->anchor;
    begin_anchor(history, &history->anchor, limits->marked ? 0 : NO_HASH);
    history->anchor.seen = 0;
    begin_candidate(history);
    history->whole_at = AG_ROLLING_OPS;
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

/* Is the operation no anchor, none missing, and the segment not full? So it is with most. */
static inline bool passes_by(const struct ag_history *history)
{
    return history->rolling > history->anchor.hash && history->rolling > history->candidate.hash &&
           history->position < history->deadline && history->length < history->target;
}

/* A function of its own, or each call would save registers for it. */
__attribute__((noinline)) static bool decide(struct ag_history *history, bool mark)
{
    enum event event = EV_NONE;

    if (history->limits.marked) {
        event = note_position(&history->anchor, history->position, mark);
    } else if (!history->limits.flush_only) {
        event = watch_anchors(history);
        set_deadline(history);
    }
    if (event == EV_REGULAR || event == EV_SURPRISE)
        history->n_anchors++;
    if (event != EV_NONE && history->length && is_armed(history) && ends_at(history, event)) {
        history->at_known_place = event != EV_MISSING;
        return true;
    }
    if (!ends_by_length(history))
        return false;
    history->at_known_place = false;
    return true;
}

bool ag_history_advance(struct ag_history *history, uint64_t hash, bool mark, uint64_t now_ns)
{
    bool ends = false;

    history->rolling = ag_rolling_hash(history->rolling, hash);
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
    grow_target(history);
}

/* A sampling has few operations in which to find a loop. A small hash of before the gap would keep
 * the candidate's place until its probation is over; and what ended the segment before the gap was
 * no flush of the program's. */
void ag_history_resumed(struct ag_history *history)
{
    begin_candidate(history);
    history->whole_at = history->position + AG_ROLLING_OPS;
    history->unflushed = 0;
    set_deadline(history);
}

void ag_history_updating(struct ag_history *history, bool updating)
{
    history->had_updates |= updating;
}

uint32_t ag_history_length(const struct ag_history *history)
{
    return history->length;
}

uint32_t ag_history_target(const struct ag_history *history)
{
    return history->target;
}

uint64_t ag_history_anchors(const struct ag_history *history)
{
    return history->n_anchors;
}
