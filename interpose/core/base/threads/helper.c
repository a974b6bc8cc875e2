/* The helper: a thread of ours that makes driver calls for which a thread of the program may only
 * wait within a bound.
 *
 * As a process ends, the driver has to complete pending work. The thread that ends the process may
 * be in no state to call it: a signal handler may have interrupted it within the driver, whose lock
 * it holds, or the device may never finish. So the helper makes the call, and the thread that ends
 * the process waits for the helper, for as long as it has reason to.
 *
 * Waiting is counted in slices, and a slice counts for no more than its length however late the
 * thread wakes. So a process that was stopped for a while, or that does not get the processor, is
 * given as many slices as any other.
 *
 * Work is numbered: `asked` is the last that was asked for, `done` the last that is finished,
 * `given_up` the last that nobody waits for any more. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/threads/helper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/futex.h"
#include "interpose/core/base/threads/thread.h"
#include "interpose/core/base/threads/wait.h"

#define SLICE_NS 20000000u

enum { NOT_STARTED, STARTING, RUNNING, NO_THREAD };

static struct {
    _Atomic int state;
    _Atomic uint32_t asked, done, given_up, doing, beats;
    void (*_Atomic work)(void);
} self;

static void *help(void *unused)
{
    uint32_t asked = 0;

    (void)pthread_setname_np(pthread_self(), "allograft-help");
    for (;;) {
        while (atomic_load(&self.asked) == asked)
            ag_futex_wait(&self.asked, asked, AG_FUTEX_FOR_EVER);
        asked = atomic_load(&self.asked);
        atomic_store(&self.doing, asked);
        atomic_load (&self.work)();
        atomic_store(&self.done, asked);
        ag_futex_wake(&self.done);
    }
    return unused;
}

/* Another thread may be starting it: that one will tell. */
static bool wait_for_start(void)
{
    struct ag_wait wait = {0};
    int state;

    while ((state = atomic_load(&self.state)) == STARTING)
        ag_wait_pause(&wait);
    return state == RUNNING;
}

bool ag_helper_start(void)
{
    int state = atomic_load_explicit(&self.state, memory_order_acquire);

    if (__builtin_expect(state == RUNNING, 1))
        return true;
    if (state == NOT_STARTED && atomic_compare_exchange_strong(&self.state, &state, STARTING))
        atomic_store(&self.state,
                     ag_thread_start(help, AG_THREAD_DRIVER_STACK_BYTES) ? NO_THREAD : RUNNING);
    return wait_for_start();
}

/* How much longer: less what the last slice took, in which the helper did or did not get on. */
static uint64_t less(uint64_t left, uint64_t took)
{
    return left == UINT64_MAX ? left : left > took ? left - took : 0;
}

/* Waits until `ticket` is done, or the timeout is over: then false. */
static bool wait_for_ticket(uint32_t ticket, const struct ag_timeout *timeout)
{
    uint64_t left = timeout->most_ns, silent_left = timeout->silent_ns, before = ag_clock_ns();
    uint32_t beats = atomic_load(&self.beats), done;

    while ((int32_t)((done = atomic_load(&self.done)) - ticket) < 0) {
        uint32_t beats_before = beats;
        uint64_t took;

        if (!left || !silent_left)
            return false;
        ag_futex_wait(&self.done, done, SLICE_NS);
        took = ag_clock_ns() - before;
        before += took;
        took = took < SLICE_NS ? took : SLICE_NS;
        beats = atomic_load(&self.beats);
        left = less(left, took);
        silent_left = beats == beats_before ? less(silent_left, took) : timeout->silent_ns;
    }
    return true;
}

bool ag_helper_do(void (*work)(void), const struct ag_timeout *timeout)
{
    uint32_t ticket;
    bool done;

    if (atomic_load(&self.state) != RUNNING)
        return false;
    atomic_store(&self.work, work);
    ticket = atomic_fetch_add(&self.asked, 1) + 1;
    ag_futex_wake(&self.asked);
    done = wait_for_ticket(ticket, timeout);
    if (!done)
        atomic_store(&self.given_up, ticket);
    return done;
}

bool ag_helper_beat(void)
{
    atomic_fetch_add(&self.beats, 1);
    return (int32_t)(atomic_load(&self.given_up) - atomic_load(&self.doing)) < 0;
}

void ag_helper_begin_child(void)
{
    atomic_store(&self.asked, 0);
    atomic_store(&self.done, 0);
    atomic_store(&self.doing, 0);
    atomic_store(&self.given_up, 0);
    atomic_store(&self.state, NOT_STARTED);
}
