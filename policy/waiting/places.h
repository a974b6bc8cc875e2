/* How long waits at a place of the program usually take. Pure: a place is a number, and the caller
 * has the clock.
 *
 * What is foreseen is a time at which the wait is about to end, and from which its thread looks. It
 * is one number for each place, which follows the waits:
 *   - AG_PLACE_SEEN waits in a row that lasted longer: the shortest of them.
 *   - The thread looked for a while until the wait ended: a little later, or earlier, such that the
 *     next one looks for AG_PLACE_LOOK_NS. So it follows how late a timer wakes threads, too.
 *   - The wait had ended by the time: earlier.
 *   - It ended much earlier: no later than that, until AG_PLACE_SEEN_AGAIN in a row last longer,
 *     and so on until a wait ends while its thread looks.
 * A wait that ends early costs its thread time, one that ends late only some of its processor: so
 * this moves slowly towards late and fast towards early.
 *
 * Nothing is foreseen at a place that was never met, of one that another place has displaced, and
 * below AG_PLACE_LEAST_NS. What one of several threads has learnt may be lost, and is learnt again.
 */
#ifndef AG_WAITING_PLACES_H
#define AG_WAITING_PLACES_H

#include <stdint.h>

#define AG_PLACE_SEEN       4u
#define AG_PLACE_SEEN_AGAIN 24u
#define AG_PLACE_IDLE       8u
#define AG_PLACE_LOOK_NS    20000u
#define AG_PLACE_LEAST_NS   100000u
#define AG_PLACE_MOST_NS    1000000000u /* of longer waits this is foreseen */

/* A place by the call, by where that returns to, and by how deep the stack is: programs call the
 * driver through CUDA's runtime, which returns to the same place whoever called that. */
static inline uint64_t ag_place_of(unsigned call, const void *caller, const void *frame)
{
    uint64_t mixed = (uint64_t)(uintptr_t)caller * 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (uint64_t)(uintptr_t)frame ^ call) * 0xff51afd7ed558ccdu;
    return mixed ^ mixed >> 32;
}

/* When the next wait there is about to end, in ns from its beginning; 0: nobody knows. */
uint64_t ag_place_foreseen(uint64_t place);

/* A wait there is over, */
void ag_place_lasted(uint64_t place, uint64_t ns);     /* later than foreseen, if anything was, */
void ag_place_met(uint64_t place, uint64_t looked_ns); /* so long after the thread began to look, */
void ag_place_missed(uint64_t place);                  /* just before it began to look, */
void ag_place_early(uint64_t place, uint64_t ns); /* or before that, after this time at least */

/* It was too short to sleep in, and so will the next one be. */
void ag_place_forget(uint64_t place);
/* There was nothing to wait for. AG_PLACE_IDLE of these in a row, and the place is forgotten: to
 * find that out costs as much as the driver's own wait. */
void ag_place_idle(uint64_t place);

#endif
