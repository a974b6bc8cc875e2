/* The threads that use CUDA: is the one that frees memory the only one?
 *
 * An ordered free lets its thread go on, and leaves a fence to whoever works next. Where several
 * threads use CUDA, that is worse than the wait it saves:
 *   - What others ask of their own events and streams natively goes on beside a cudaFree (asked of
 *     an H200). After an ordered free it waits, for nobody knows whether they ask because the free
 *     has returned.
 *   - A barrier holds the streams of all threads back. Beside a free that waits for an event, they
 *     run on (natively even their launches wait for it).
 * So frees are ordered while one thread alone uses CUDA, and drain (drain.h) while others do. Two
 * to eight threads that allocate, launch two kernels and free are 1.1 to 3.1 times as fast by that.
 * Not those of a thread that has never submitted anything, which may be one of many that only
 * allocate: 16 such do 40 M pairs of 64 KiB a second, and 0.6 M if their frees drain.
 *
 * A thread counts from its first call of the driver that we see, which is the one that makes a
 * context current, if no other. It counts until it ends, or until it has called nothing during some
 * frees of others that drained: the thread that starts a program often leaves the work to another.
 */
#ifndef AG_POLICY_ORDER_USERS_H
#define AG_POLICY_ORDER_USERS_H

#include <stdatomic.h>
#include <stdbool.h>

struct ag_user {
    /* The thread has called the driver since the last look at all of them. Relaxed: a thread that
     * sees late that it was taken back is missing for one look. */
    _Atomic bool seen;
    bool counts;
    struct ag_user *next;
};

/* The row of every thread that has not called the driver yet. */
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
    if (__builtin_expect(!atomic_load_explicit(&ag_user_own->seen, memory_order_relaxed), 0))
        ag_users_add();
}

static inline bool ag_users_are_more_than(unsigned n)
{
    return atomic_load_explicit(&ag_users_counted, memory_order_acquire) > n;
}

static inline bool ag_users_are_several(void)
{
    return ag_users_are_more_than(1);
}

/* The calling thread's free has drained since others use CUDA. Every so many times it is looked who
 * of them has called nothing meanwhile: true, and all threads are to lose their permits. Only while
 * streams are watched: a thread that launches kernels is seen when it has lost its permit. */
bool ag_users_drained(bool watched);

/* In a forked child the calling thread is the only one. */
void ag_users_begin_child(void);

#endif
