/* Which calls are timed: see timing.h. */
#include "interpose/core/report/timing.h"

_Thread_local struct ag_timing ag_timing;

/* The intervals are 1 .. 2 * AG_TIMED_EVERY - 1, each as often: a program that calls at a beat is
 * not met at the same call of it each time. */
void ag_timing_take_sample(void)
{
    uint32_t random = ag_timing.random ? ag_timing.random : 1 + ag_slot();

    ag_timing.stands_for = 1;
    if (ag_timing.n_timed < AG_TIMED_FIRST) {
        ag_timing.n_timed++;
    } else if (!ag_trace_on()) {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        ag_timing.random = random;
        ag_timing.skip = (uint32_t)((uint64_t)random * (2 * AG_TIMED_EVERY - 1) >> 32);
        ag_timing.stands_for = AG_TIMED_EVERY;
    }
    ag_timing.began = ag_clock_ticks();
}
