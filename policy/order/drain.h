/* Must a free drain, that is wait on the host for all work of its context, as a native one does?
 *
 * Under ALLOGRAFT_FREE=auto frees are ordered on the device as long as nothing in the program could
 * tell, and drain from the moment that something could. Example: once the program has pinned host
 * memory, a kernel may write there; a program that reads it after a cudaFree, without another wait,
 * is right natively and must stay right. */
#ifndef AG_POLICY_ORDER_DRAIN_H
#define AG_POLICY_ORDER_DRAIN_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/settings/options.h"
#include "policy/order/users.h"

/* What lets somebody see that work is unfinished after cudaFree has returned. */
enum ag_visible {
    AG_VISIBLE_PINNED,
    AG_VISIBLE_REGISTERED,
    AG_VISIBLE_MANAGED,
    AG_VISIBLE_PAGEABLE,
    AG_VISIBLE_HOST_FUNCTION,
    AG_VISIBLE_SHARED,
    AG_VISIBLE_EXTERNAL,
    AG_VISIBLE_RDMA,
    AG_VISIBLE_PRINTF,
    AG_VISIBLE_PEERS,
    AG_VISIBLE_CONTEXTS,
    AG_VISIBLE_UNSEEN,
    AG_N_VISIBLE
};

/* Why a free drains. Of several reasons the first is counted. */
enum ag_drain {
    AG_DRAIN_EXITING,
    AG_DRAIN_ASKED,
    AG_DRAIN_GUARD,   /* blocks are checked when they are freed */
    AG_DRAIN_VISIBLE, /* + enum ag_visible */
    AG_DRAIN_CAPTURE = AG_DRAIN_VISIBLE + AG_N_VISIBLE,
    AG_DRAIN_NO_FENCE,
    AG_DRAIN_NO_THREAD,
    AG_DRAIN_THREADS, /* others use CUDA (users.h); no bit: that changes */
    AG_DRAIN_NOT,     /* it does not */
};

void ag_drain_configure(enum ag_free_mode mode, bool guarded);
/* From now on frees drain under ALLOGRAFT_FREE=auto. Called before the driver call that makes it
 * so; completes the host's pending wait. */
void ag_drain_note_visible(enum ag_visible how);
/* From now on every free drains: the process ends. */
void ag_drain_exiting(void);

/* Only for the functions here and in drain.c: bits of enum ag_drain. */
extern struct ag_drain_state {
    _Atomic unsigned reasons; /* whether they count or not */
    unsigned counting;        /* those that do, under ALLOGRAFT_FREE */
} ag_drain_state;

/* Why a free that begins now has to drain; AG_DRAIN_NOT if it need not. */
static inline enum ag_drain ag_drain_reason(void)
{
    unsigned bits = atomic_load_explicit(&ag_drain_state.reasons, memory_order_seq_cst) &
                    ag_drain_state.counting;

    return bits ? (enum ag_drain)__builtin_ctz(bits) : AG_DRAIN_NOT;
}
/* Was that noted, whether it counts or not? */
static inline bool ag_drain_has_noted(enum ag_visible how)
{
    return atomic_load_explicit(&ag_drain_state.reasons, memory_order_seq_cst) >>
               (AG_DRAIN_VISIBLE + how) &
           1;
}
/* Do frees not drain yet, and would they once something is noted? */
static inline bool ag_drain_may_begin(void)
{
    return ag_drain_state.counting == UINT_MAX && ag_drain_reason() == AG_DRAIN_NOT;
}
/* Does a free drain because other threads use CUDA? Not one that has nothing to order. */
static inline bool ag_drain_for_threads(void)
{
    return ag_drain_state.counting == UINT_MAX && ag_users_are_several();
}
/* ALLOGRAFT_FREE=ordered, and the process does not end: frees do not even drain in a capture. */
bool ag_drain_is_never(void);
/* Counts a free that has drained. */
void ag_drain_count(enum ag_drain why);

/* In a forked child nothing is visible yet. */
void ag_drain_begin_child(void);

#endif
