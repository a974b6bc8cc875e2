/* Who waits for the device: which call made the host wait, how long, and from which stack. What
 * ALLOGRAFT_WAITS asks for.
 *
 * A wait is the time within a call that can wait: what the driver does there by itself counts as
 * well, since nobody outside of it can tell the two apart. Waits of less than AG_WAIT_BOUND_NS are
 * summed without a stack. While it is off, hooks of such calls are not handed out, or cost what
 * they cost without it. */
#ifndef AG_WAITS_H
#define AG_WAITS_H

#include "interpose/core/base/clock.h"
#include "interpose/core/report/holders/holders.h"
#include "interpose/core/report/trace/trace.h"

/* A call of the driver that finds nothing to wait for takes 0.2 to 1.6 us (an H200: synchronising
 * an idle stream 0.4, an asynchronous copy of pinned memory 1.1, of 4 KiB of pageable memory 1.6),
 * and taking a stack down 0.6 to 1.5 us. */
#define AG_WAIT_BOUND_NS 5000u

/* Begins to count, in the tables of ag_holders_begin(), if it was asked to and there are any. */
void ag_waits_begin(void);

static inline bool ag_waits_on(void)
{
    return ag_holders_any(AG_HOLDERS_OF_WAITS);
}

/* A call that may wait. */
struct ag_waiting {
    uint64_t began_ns; /* 0: nobody wants to know */
    uint64_t began_ticks;
};

/* Only for the function below: counts the wait. */
void ag_waiting_add(const struct ag_waiting *wait, enum ag_wait_kind kind, const char *call);

static inline struct ag_waiting ag_waiting_begin(void)
{
    struct ag_waiting wait = {0, 0};

    if (ag_waits_on())
        wait = (struct ag_waiting){ag_clock_ns(), ag_trace_began()};
    return wait;
}

/* The calling thread has waited in `call`, a text that stays. */
static inline void ag_waiting_end(const struct ag_waiting *wait, enum ag_wait_kind kind,
                                  const char *call)
{
    if (__builtin_expect(wait->began_ns != 0, 0))
        ag_waiting_add(wait, kind, call);
}

#endif
