/* The table of places: see places.h. A row is one word, which threads write without a lock: what
 * one of them has learnt may be lost, and is learnt again. Relaxed: nothing is found through it. */
#include "policy/waiting/places.h"

#include <stdatomic.h>

#define ROWS      1024u
#define SEEN_MASK 0xffu /* the low bits count long waits in a row, the others tell places apart */

static _Atomic uint32_t rows[ROWS];

static uint32_t tag_of(uint64_t place)
{
    return (uint32_t)(place >> 32) & ~SEEN_MASK;
}

static _Atomic uint32_t *row_of(uint64_t place)
{
    return &rows[place % ROWS];
}

static uint32_t seen_at(uint64_t place)
{
    uint32_t row = atomic_load_explicit(row_of(place), memory_order_relaxed);

    return (row & ~SEEN_MASK) == tag_of(place) ? row & SEEN_MASK : 0;
}

bool ag_place_is_long(uint64_t place)
{
    return seen_at(place) >= AG_PLACE_SEEN;
}

void ag_place_waited(uint64_t place, uint64_t ns)
{
    uint32_t seen = ns < AG_PLACE_LONG_NS ? 0 : seen_at(place) + 1;

    if (seen <= AG_PLACE_SEEN)
        atomic_store_explicit(row_of(place), tag_of(place) | seen, memory_order_relaxed);
}
