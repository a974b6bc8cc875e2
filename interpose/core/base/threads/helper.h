/* A thread of ours for driver calls that a thread of the program may only wait for within a bound.
 */
#ifndef AG_BASE_HELPER_H
#define AG_BASE_HELPER_H

#include <stdbool.h>
#include <stdint.h>

/* How long somebody waits for the helper. UINT64_MAX: for ever. */
struct ag_timeout {
    uint64_t most_ns;
    uint64_t silent_ns; /* without a beat */
};

/* Starts the thread, once; after that a load and a branch. False when there is none. Not in a
 * signal handler. */
bool ag_helper_start(void);
/* Has the thread do `work` and waits until it is done, or timeout is over: false then, and when
 * there is no thread. Async-signal-safe. */
bool ag_helper_do(void (*work)(void), const struct ag_timeout *timeout);
/* Called by the work, to say that it gets on. False when nobody waits for it any more: it is to end
 * then. */
bool ag_helper_beat(void);
/* A forked child has no such thread. */
void ag_helper_begin_child(void);

#endif
