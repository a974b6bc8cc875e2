/* The thread that submits withheld work when the program stops submitting, and that waits for the
 * device when the process ends. */
#ifndef AG_GRAPH_WATCHDOG_H
#define AG_GRAPH_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

/* hold_ns: the longest that anything may be withheld without a further operation. `look` is called
 * by the thread, twice in that time; it submits what has stalled, and says whether anything was
 * withheld. */
void ag_watchdog_configure(uint64_t hold_ns, bool (*look)(void));
/* Something is about to be withheld: wakes the thread. Cheap while it is awake; false: there is no
 * thread to be had, so nothing may be withheld. */
bool ag_watchdog_wake(void);
/* Starts the thread, if it never was. */
void ag_watchdog_start(void);
/* The process ends: waits until all contexts have done what was submitted to them, for
 * `timeout_ns` at most. */
void ag_watchdog_wait_at_exit(uint64_t timeout_ns);
void ag_watchdog_begin_child(void);

#endif
