/* The watchdog's thread: see watchdog.h. A host that polls memory which a withheld kernel is to
 * write must not wait for ever, so withheld work goes out when nothing more comes: stalled.c looks.
 *
 * After some looks at which nothing was withheld it sleeps, with `state` ASLEEP, which withholding
 * reads: so only then does waking it cost a system call.
 *
 * When the process ends, this thread waits for the device. The thread that ends the process may
 * have been interrupted by a signal inside the driver, and would wait for itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>

#include "graph/replay/watchdog.h"
#include "graph/tuning.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/futex.h"
#include "interpose/core/base/threads/thread.h"
#include "policy/contexts/context.h"
#include "policy/order/fence.h"

enum { NOT_STARTED, STARTING, AWAKE, ASLEEP, NO_THREAD };

static _Atomic int state = NOT_STARTED;

/* The wait at the end. */
enum { NOT_ASKED, ASKED, WAITED };

static struct {
    _Atomic int state;
    _Atomic uint64_t until; /* ns */
} at_end;

static uint64_t look_ns = 100000;
static bool (*look)(void);

void ag_watchdog_configure(uint64_t hold_ns, bool (*look_at_all)(void))
{
    look_ns = hold_ns / 2 ? hold_ns / 2 : 1;
    look = look_at_all;
}

static void await_idle(struct ag_context *context, void *unused)
{
    uint64_t now = ag_clock_ns(), until = atomic_load(&at_end.until);

    (void)unused;
    (void)ag_fence_wait_idle(context, now < until ? until - now : 0);
}

static void wait_at_the_end(void)
{
    ag_context_each(await_idle, NULL);
    atomic_store(&at_end.state, WAITED);
    ag_futex_wake(&at_end.state);
}

static void *run_watchdog(void *unused)
{
    unsigned idle = AG_WATCHDOG_IDLE_LOOKS - 2; /* it may be started long before it is needed */

    (void)unused;
    (void)pthread_setname_np(pthread_self(), "allograft-watch");
    for (;;) {
        ag_futex_wait(&at_end.state, NOT_ASKED, look_ns);
        if (atomic_load_explicit(&at_end.state, memory_order_acquire) == ASKED)
            wait_at_the_end();
        idle = look() ? 0 : idle + 1;
        if (idle < AG_WATCHDOG_IDLE_LOOKS)
            continue;
        atomic_store_explicit(&state, ASLEEP, memory_order_seq_cst);
        /* What began to be withheld before it could see that we sleep. */
        if (!look() && atomic_load(&at_end.state) != ASKED)
            ag_futex_wait(&state, ASLEEP, AG_FUTEX_FOR_EVER);
        atomic_store_explicit(&state, AWAKE, memory_order_seq_cst);
        idle = 0;
    }
    return NULL;
}

void ag_watchdog_start(void)
{
    int none = NOT_STARTED, starting = STARTING;

    if (!atomic_compare_exchange_strong(&state, &none, STARTING))
        return;
    if (ag_thread_start(run_watchdog, AG_THREAD_DRIVER_STACK_BYTES))
        atomic_store(&state, NO_THREAD);
    else /* unless it sleeps already, and has said so */
        (void)atomic_compare_exchange_strong(&state, &starting, AWAKE);
}

bool ag_watchdog_wake(void)
{
    int now = atomic_load_explicit(&state, memory_order_seq_cst);

    if (__builtin_expect(now == AWAKE, 1))
        return true;
    if (now == NOT_STARTED)
        ag_watchdog_start();
    if (now == ASLEEP && atomic_compare_exchange_strong(&state, &now, AWAKE))
        ag_futex_wake(&state);
    return atomic_load_explicit(&state, memory_order_relaxed) !=
           NO_THREAD; /* relaxed: that is for good */
}

void ag_watchdog_wait_at_exit(uint64_t timeout_ns)
{
    uint64_t now = ag_clock_ns(), until = now + timeout_ns;

    /* The watchdog must have left the driver when this thread goes on, which may unload it next. */
    atomic_store(&at_end.until, until - timeout_ns / 10);
    atomic_store(&at_end.state, ASKED);
    if (!ag_watchdog_wake())
        return;
    ag_futex_wake(&at_end.state);
    for (; atomic_load(&at_end.state) == ASKED && now < until; now = ag_clock_ns())
        ag_futex_wait(&at_end.state, ASKED, until - now);
    atomic_store(&at_end.state, NOT_ASKED);
}

void ag_watchdog_begin_child(void)
{
    atomic_store(&state, NOT_STARTED);
    atomic_store(&at_end.state, NOT_ASKED);
}
