/* How long waits at a place of the program usually take. Pure: a place is a number, and the caller
 * has the clock.
 *
 * A place is long once its last AG_PLACE_SEEN waits have each taken AG_PLACE_LONG_NS, and short
 * again after one that did not: who sleeps then comes late by what waking a thread takes, some tens
 * of microseconds, which is 2 % of such a wait. Nothing is known of a place that was never met, of
 * one that another place has displaced, or while another thread writes to the same row: then it is
 * short. */
#ifndef AG_WAITING_PLACES_H
#define AG_WAITING_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define AG_PLACE_SEEN    4u
#define AG_PLACE_LONG_NS 1000000u

/* A place by the call, by where that returns to, and by how deep the stack is: programs call the
 * driver through CUDA's runtime, which returns to the same place whoever called that. */
static inline uint64_t ag_place_of(unsigned call, const void *caller, const void *frame)
{
    uint64_t mixed = (uint64_t)(uintptr_t)caller * 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (uint64_t)(uintptr_t)frame ^ call) * 0xff51afd7ed558ccdu;
    return mixed ^ mixed >> 32;
}

bool ag_place_is_long(uint64_t place);
/* A wait there is over. */
void ag_place_waited(uint64_t place, uint64_t ns);

#endif
