/* Waits for what another thread is about to do: awake for a few turns, then asleep.
 *
 *     struct ag_wait wait = {0};
 *     while (!atomic_load(&done))
 *         ag_wait_pause(&wait);
 *
 * A thread that sleeps here is not woken. So waiting costs the other thread nothing, neither a
 * store nor a load, and a wait ends some 10 to 200 microseconds late. */
#ifndef AG_BASE_WAIT_H
#define AG_BASE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct ag_wait {
    unsigned turns;       /* so far */
    uint64_t asleep_from; /* for the device: ns of ag_clock_ns(); 0 before the first turn */
};

/* One turn of it. Keeps errno, and is no point at which a thread is cancelled. */
void ag_wait_pause(struct ag_wait *wait);
/* One turn of a wait that never sleeps: for what takes some 100 microseconds, where whoever is
 * waited for has a processor, too. */
void ag_wait_pause_awake(struct ag_wait *wait);
/* Pauses as ag_wait_pause() does, unless ag_clock_ns() is past `until_ns`: then false, at once.
 * UINT64_MAX: for ever, and the clock is not read. */
bool ag_wait_pause_until(struct ag_wait *wait, uint64_t until_ns);
/* A slice of a wait: pauses as ag_wait_pause() does, unless *left_ns is 0: then false, at once.
 * Takes from *left_ns what that took, but at most a millisecond, however late the thread wakes. So
 * a process that was stopped for a while, or that does not get the processor, is given as many
 * slices as any other. */
bool ag_wait_pause_within(struct ag_wait *wait, uint64_t *left_ns);
/* Pauses so for what the device is about to do, where the driver would wait awake: so does this,
 * for 20 ms. */
bool ag_wait_for_device_until(struct ag_wait *wait, uint64_t until_ns);

/* Sleeps for that, or until a signal handler has run. Keeps errno, and is no point at which a
 * thread is cancelled. The thread's timer slack is 1 ns meanwhile; it wakes some 5 to 50 us late,
 * and a handler that jumps out of the sleep leaves it so. */
void ag_wait_asleep(uint64_t ns);

#endif
