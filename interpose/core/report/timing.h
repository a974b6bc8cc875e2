/* How long allocations and frees take, for the report: every call that asks the driver for memory
 * or waits for it, and of the others a sample.
 *
 * Reading the counter takes 8 to 10 ns, and two readings a call would be a third of all that a call
 * does which a freed block answers. So a thread times its first AG_TIMED_FIRST calls, and of those
 * after that one in AG_TIMED_EVERY, at intervals that vary; such a call stands for so many. A call
 * that turns out to take its time is timed from there on, and stands for itself. */
#ifndef AG_REPORT_TIMING_H
#define AG_REPORT_TIMING_H

#include <stdint.h>

#include "interpose/core/report/trace/trace.h"

#define AG_TIMED_FIRST 256u
#define AG_TIMED_EVERY 16u

struct ag_timing {
    uint64_t began;      /* 0: the call is not timed */
    uint32_t stands_for; /* calls */
    uint32_t skip;       /* calls that are not timed, before the next one that is */
    uint32_t n_timed, random;
};

/* The calling thread's. For the functions here and in timing.c. */
extern _Thread_local struct ag_timing ag_timing;

void ag_timing_take_sample(void);

/* A call of the program's begins. */
static inline void ag_timing_begin(void)
{
    ag_timing.began = 0;
    if (ag_timing.skip && !ag_trace_on())
        ag_timing.skip--;
    else
        ag_timing_take_sample();
}

/* Now it asks the driver, or waits. */
static inline void ag_timing_is_slow(void)
{
    if (!ag_timing.began)
        ag_timing.began = ag_clock_ticks();
    ag_timing.stands_for = 1;
}

struct ag_timed {
    uint64_t began, ticks; /* of the call; 0 if it was not timed */
    uint64_t sum;          /* ticks of all calls that it stands for */
};

/* The call is over. */
static inline struct ag_timed ag_timing_end(void)
{
    struct ag_timed timed = {.began = ag_timing.began};

    if (timed.began) {
        timed.ticks = ag_clock_ticks() - timed.began;
        timed.sum = timed.ticks * ag_timing.stands_for;
    }
    return timed;
}

#endif
