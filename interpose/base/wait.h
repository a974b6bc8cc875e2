/* Waiting for what another thread is about to do: for a few turns awake, then asleep.
 *
 *     struct ag_wait wait = {0};
 *     while (!atomic_load(&done))
 *         ag_wait_turn(&wait);
 *
 * Nobody wakes who sleeps here: whoever is waited for pays nothing for it, neither a store nor a
 * look, and a wait ends some ten to 200 microseconds late. */
#ifndef AG_BASE_WAIT_H
#define AG_BASE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct ag_wait {
    unsigned turns; /* so far */
};

/* One turn of it. Keeps errno, and is no point at which a thread is cancelled. */
void ag_wait_turn(struct ag_wait *wait);
/* The same, unless ag_clock_ns() is past `until_ns`: then false, at once. */
bool ag_wait_turn_until(struct ag_wait *wait, uint64_t until_ns);

#endif
