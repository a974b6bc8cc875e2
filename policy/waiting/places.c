/* The table of places: see places.h. A row is one word, which threads write without a lock.
 * Relaxed: nothing is found through it. */
#include "policy/waiting/places.h"

#include <stdatomic.h>
#include <stdbool.h>

#define ROWS    1024u
#define UNIT_NS 1000u
#define MARGIN  100u /* earlier than the shortest of the waits that lasted longer */

/* Where the wait had ended: so much earlier, or a part of what was foreseen if that is more. */
#define MISSED_STEP 32u
#define MISSED_PART 128u
#define FOLLOW_PART 8 /* of what a look was too long or too short */

/* Where things are in a row; the tag above them tells places apart. */
#define TIME_BITS   20u
#define SHORTEST_AT TIME_BITS
#define SEEN_AT     (2 * TIME_BITS)
#define SEEN_BITS   5u
#define WARY_AT     (SEEN_AT + SEEN_BITS)
#define IDLE_AT     (WARY_AT + 1)
#define IDLE_BITS   3u
#define TAG_AT      (IDLE_AT + IDLE_BITS)

#define MASK(bits) ((1u << (bits)) - 1)

_Static_assert(AG_PLACE_MOST_NS / UNIT_NS <= MASK(TIME_BITS), "a time has its place in a row");
_Static_assert(AG_PLACE_SEEN_AGAIN <= MASK(SEEN_BITS), "a count has its place in a row");
_Static_assert(AG_PLACE_IDLE - 1 <= MASK(IDLE_BITS), "a count has its place in a row");

struct row {
    uint32_t foreseen;       /* in microseconds */
    uint32_t seen, shortest; /* of the waits in a row that lasted longer */
    bool wary;               /* one ended early, and none has been met since */
    uint32_t idle;           /* waits in a row, the last ones, that had nothing to wait for */
};

static _Atomic uint64_t rows[ROWS];

static _Atomic uint64_t *row_of(uint64_t place)
{
    return &rows[place % ROWS];
}

/* False: the place is not there. */
static bool load_row(uint64_t place, struct row *row)
{
    uint64_t word = atomic_load_explicit(row_of(place), memory_order_relaxed);

    *row = (struct row){0};
    if (word >> TAG_AT != place >> TAG_AT)
        return false;
    row->foreseen = (uint32_t)word & MASK(TIME_BITS);
    row->shortest = (uint32_t)(word >> SHORTEST_AT) & MASK(TIME_BITS);
    row->seen = (uint32_t)(word >> SEEN_AT) & MASK(SEEN_BITS);
    row->wary = word >> WARY_AT & 1;
    row->idle = (uint32_t)(word >> IDLE_AT) & MASK(IDLE_BITS);
    return true;
}

static void store_row(uint64_t place, const struct row *row)
{
    const uint64_t tag = place >> TAG_AT, seen = row->seen, shortest = row->shortest;
    const uint64_t wary = row->wary ? UINT64_C(1) << WARY_AT : 0, idle = row->idle;
    uint64_t word = tag << TAG_AT | idle << IDLE_AT | wary | seen << SEEN_AT |
                    shortest << SHORTEST_AT | row->foreseen;

    atomic_store_explicit(row_of(place), word, memory_order_relaxed);
}

/* What was seen before counts no more. */
static void set_foreseen(uint64_t place, int64_t us, bool wary)
{
    const struct row row = {.foreseen = us > 0 ? (uint32_t)us : 0, .wary = wary};

    store_row(place, &row);
}

static uint32_t in_us(uint64_t ns)
{
    return (uint32_t)((ns < AG_PLACE_MOST_NS ? ns : AG_PLACE_MOST_NS) / UNIT_NS);
}

uint64_t ag_place_foreseen(uint64_t place)
{
    struct row row;
    uint64_t ns;

    (void)load_row(place, &row);
    ns = (uint64_t)row.foreseen * UNIT_NS;
    return ns < AG_PLACE_LEAST_NS ? 0 : ns;
}

void ag_place_lasted(uint64_t place, uint64_t ns)
{
    uint32_t us = in_us(ns);
    struct row row;

    (void)load_row(place, &row);
    if (!row.seen || us < row.shortest)
        row.shortest = us;
    row.seen++;
    row.idle = 0;
    if (row.seen < (row.wary ? AG_PLACE_SEEN_AGAIN : AG_PLACE_SEEN))
        store_row(place, &row);
    else
        set_foreseen(place, (int64_t)row.shortest - MARGIN, row.wary);
}

void ag_place_met(uint64_t place, uint64_t looked_ns)
{
    int64_t longer = (int64_t)in_us(looked_ns) - AG_PLACE_LOOK_NS / UNIT_NS;
    struct row row;

    if (load_row(place, &row))
        set_foreseen(place, row.foreseen + longer / FOLLOW_PART, false);
}

void ag_place_missed(uint64_t place)
{
    struct row row;
    uint32_t part;

    if (!load_row(place, &row))
        return;
    part = row.foreseen / MISSED_PART;
    set_foreseen(place, (int64_t)row.foreseen - (part > MISSED_STEP ? part : MISSED_STEP),
                 row.wary);
}

void ag_place_early(uint64_t place, uint64_t ns)
{
    set_foreseen(place, in_us(ns), true);
}

void ag_place_forget(uint64_t place)
{
    struct row row;

    if (load_row(place, &row) && (row.foreseen || row.seen))
        set_foreseen(place, 0, row.wary);
}

void ag_place_idle(uint64_t place)
{
    struct row row;

    if (!load_row(place, &row) || !row.foreseen)
        return;
    if (++row.idle < AG_PLACE_IDLE)
        store_row(place, &row);
    else
        set_foreseen(place, 0, row.wary);
}
