/* Calls in which the host may wait for the device are timed where ALLOGRAFT_WAITS asks for it
 * (interpose/core/report/waits/).
 *
 * Nothing is held while the driver waits, and nothing is to be given back: a signal handler may
 * jump out of the wait, which then does not count. */
#ifndef AG_ENTRY_WAITS_H
#define AG_ENTRY_WAITS_H

#include "interpose/core/report/waits/waits.h"
#include "interpose/hooks/entry.h"

/* A call of the program's, which may be outside of every hook of ours by now. */
struct ag_entry_wait {
    struct ag_waiting wait;
    enum ag_wait_kind kind;
    const char *call;
};

/* What the thread calls meanwhile is our own: it may be its first stack. */
static inline void ag_entry_wait_end(const struct ag_entry_wait *it)
{
    int saved_errno, depth;

    if (!AG_UNLIKELY(it->wait.began_ns != 0))
        return;
    saved_errno = errno;
    depth = ag_entry_depth;
    ag_entry_depth = 1;
    ag_waiting_end(&it->wait, it->kind, it->call);
    ag_entry_depth = depth;
    errno = saved_errno;
}

/* In a hook, after AG_ENTER: what comes until it returns is a wait. */
#define AG_TIMES_WAIT(what, symbol)  \
    const struct ag_entry_wait timed \
        __attribute__((cleanup(ag_entry_wait_end), unused)) = {ag_waiting_begin(), what, #symbol}

#endif
