/* Waits that sleep: what ALLOGRAFT_WAIT asks for.
 *
 * The driver waits awake: a core for each thread that waits. Here a thread waits for an event of
 * ours, at which it looks now and then (looks.h), recorded where the program's call says:
 *   - on the stream that it names;
 *   - of the context (cuCtxRecordEvent), for a wait for all of that, and for one for the legacy
 *     stream while the context has no non-blocking stream. An event on the legacy stream itself
 *     would hold back what other threads submit to blocking streams meanwhile.
 *
 * The event is recorded before the thread waits, so the wait covers what was submitted before the
 * call, as natively, and nothing later. An event of the program's might be recorded anew meanwhile:
 * so it is waited for in this way only while one thread alone uses CUDA, and only for as long as is
 * foreseen. Then the driver's own function waits, which sleeps under `sleep`: for that the
 * program's events are made such that it does (CU_EVENT_BLOCKING_SYNC).
 *
 * What the call returns is CUDA_SUCCESS where the event was reached; in every other case the
 * driver's own function is called, and answers. That does so from the start, too, where there is
 * nothing to wait for; where an event would not be the same wait or could be noticed: while a
 * capture is open; where the program has said how its context waits; for streams of another context
 * than the current one; for the legacy stream beside non-blocking ones; and under `auto` where
 * waits are not known to be long.
 *
 * A wait is no point at which a thread is cancelled, as it is none natively. */
#ifndef AG_WAITING_SLEEP_H
#define AG_WAITING_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"

/* A call of the program's that waits. */
struct ag_sleep {
    uint64_t place, began_ns, foreseen_ns;
    bool may;    /* sleep at all */
    bool learnt; /* the place has learnt from this wait, or is to learn nothing */
    int saved_errno;
    CUresult result; /* what the call returns */
};

void ag_sleep_configure(enum ag_wait_mode mode);

/* Begins and ends a call; in between the caller asks one of the functions below or, where that says
 * false, the driver's own, and sets the result. Nothing has to be given back if it never ends. */
void ag_sleep_begin(struct ag_sleep *sleep, uint64_t place);
CUresult ag_sleep_end(const struct ag_sleep *sleep);

/* Waits for all that was submitted to the stream, or to the context (NULL: the current one). True:
 * it is done, and `result` says what the call returns. */
bool ag_sleep_for_stream(struct ag_sleep *sleep, CUstream stream, bool per_thread);
bool ag_sleep_for_context(struct ag_sleep *sleep, CUcontext handle);
/* Waits for the program's event, for which the driver may sleep. */
bool ag_sleep_for_event(struct ag_sleep *sleep, CUevent event);
/* Waits for what a copy of `bytes` without a stream would wait for before it begins. False. */
bool ag_sleep_before_copy(struct ag_sleep *sleep, size_t bytes, bool per_thread);

/* The flags with which the program's event is made. */
unsigned ag_sleep_flags_of_event(unsigned flags);

#endif
