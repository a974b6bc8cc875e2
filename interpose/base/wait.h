/* Waits for what another thread is about to do: awake for a few turns, then asleep.
 *
 *     struct ag_wait wait = {0};
 *     while (!atomic_load(&done))
 *         ag_wait_turn(&wait);
 *
 * A thread that sleeps here is not woken. So waiting costs the other thread nothing, neither a
 * store nor a load, and a wait ends some 10 to 200 microseconds late. */
#ifndef AG_BASE_WAIT_H
#define AG_BASE_WAIT_H

struct ag_wait {
    unsigned turns; /* so far */
};

/* One turn of it. Keeps errno, and is no point at which a thread is cancelled. */
void ag_wait_turn(struct ag_wait *wait);

#endif
