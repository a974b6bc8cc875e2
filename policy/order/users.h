/* The threads that use CUDA: is the one that frees memory the only one?
 *
 * While a native cudaFree waits, other threads go on, and the device may be waiting for what they
 * do: a kernel polls a word that another thread's copy is to set. An ordered free has returned by
 * then, and its fence comes before the next work of every thread, that copy included. No free can
 * tell a kernel that polls from one that takes its time, nor whether another thread acts because
 * the free has returned or regardless of it. So frees are ordered while one thread alone uses CUDA,
 * and drain while others do (drain.h): then the thread waits that waits natively, and nobody else.
 * Draining is also faster there, since a fence holds the other threads' streams back.
 *
 * A thread counts from its first call of the driver that we see, which is the one that makes a
 * context current, if no other. It counts until it ends, or until it has called nothing during some
 * frees of others that drained: the thread that starts a program often leaves the work to another.
 * A thread that was mistaken for such a one counts for good once it comes back. */
#ifndef AG_POLICY_ORDER_USERS_H
#define AG_POLICY_ORDER_USERS_H

#include <stdatomic.h>
#include <stdbool.h>

struct ag_user {
    _Atomic bool seen; /* the thread has called the driver since the last look at all of them */
    bool counts, came_back;
    struct ag_user *next;
};

/* Of a thread that has not called the driver yet: shared by all such. */
extern struct ag_user ag_user_unknown;
extern _Thread_local struct ag_user *ag_user_own;
extern _Atomic unsigned ag_users_counted;

/* Has the calling thread been noted since the last look? */
static inline bool ag_users_knows_caller(void)
{
    return atomic_load_explicit(&ag_user_own->seen, memory_order_relaxed);
}

void ag_users_add(void);
/* The calling thread is about to call the driver. */
static inline void ag_users_note(void)
{
    if (__builtin_expect(!ag_users_knows_caller(), 0))
        ag_users_add();
}

static inline bool ag_users_are_several(void)
{
    return atomic_load_explicit(&ag_users_counted, memory_order_acquire) > 1;
}

/* The calling thread's free has drained since others use CUDA. Every so many times it is looked who
 * of them has called nothing meanwhile. Only while streams are watched: a thread that launches
 * kernels is seen when it has lost its pass. */
void ag_users_drained(void);

/* In a forked child the calling thread is the only one. */
void ag_users_begin_child(void);

#endif
