/* The thread that releases withheld work when nothing comes: a host that polls memory which a
 * withheld kernel is to write must not wait for ever.
 *
 * Withholding reads no clock: each operation changes the stream's `turn`, each beginning its
 * `stretch`. The watchdog looks every half of the time allowed. A stream whose turn has not changed
 * since the last look, or whose stretch is the same for the eighth time, goes out. While nothing
 * was withheld for some looks it sleeps on `asleep`, which withholding reads; so waking it costs a
 * system call only then.
 *
 * At the end of the process it is what waits for the device: the thread that ends may have been
 * interrupted by a signal within the driver, and would then wait for itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>

#include "graph/stream.h"
#include "interpose/base/clock.h"
#include "interpose/base/futex.h"
#include "interpose/base/log.h"
#include "interpose/base/thread.h"
#include "interpose/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order.h"

#define PATIENT_LOOKS 8u   /* that one stretch may last */
#define IDLE_LOOKS    200u /* before it goes to sleep */
#define STACK_BYTES   (128u << 10)

enum { NOT_STARTED, STARTING, AWAKE, ASLEEP, NO_THREAD };

static _Atomic int state = NOT_STARTED;

/* The wait at the end. */
enum { NOT_ASKED, ASKED, WAITED };

static struct {
    _Atomic int state;
    _Atomic uint64_t until; /* ns */
} at_end;

static uint64_t look_ns = 100000;

static struct look {
    uint32_t turn, stretch, same_stretch;
} looks[AG_MAX_STREAMS];

struct round {
    bool any;
};

void ag_watchdog_configure(uint64_t hold_ns)
{
    look_ns = hold_ns / 2 ? hold_ns / 2 : 1;
}

static void release(struct ag_stream *stream, uint32_t stretch)
{
    bool pushed = false;

    if (!ag_stream_own_within(stream, 0)) /* who owns it is getting on */
        return;
    if (stream->mode == AG_STREAM_HOLDING &&
        atomic_load_explicit(&stream->stretch, memory_order_relaxed) == stretch &&
        ag_context_make_current(stream->context, &pushed) == CUDA_SUCCESS) {
        ag_segment_flushed(stream, AG_FLUSH_WATCHDOG);
        ag_stats_add(AG_STAT_REPLAY_WATCHDOG, 1);
        /* The segment goes on where it is, one by one: where it ends is for the program to say. */
        ag_segment_submit(stream);
        ag_context_restore(pushed);
    }
    ag_stream_disown(stream);
}

static void look_at(struct ag_stream *stream, void *data)
{
    struct look *last = &looks[atomic_load_explicit(&stream->number, memory_order_relaxed)];
    uint32_t turn = atomic_load_explicit(&stream->turn, memory_order_relaxed);
    uint32_t stretch = atomic_load_explicit(&stream->stretch, memory_order_relaxed);
    struct round *round = data;

    if (!atomic_load_explicit(&stream->holding, memory_order_acquire))
        return;
    round->any = true;
    last->same_stretch = last->stretch == stretch ? last->same_stretch + 1 : 0;
    if (last->same_stretch && (last->turn == turn || last->same_stretch >= PATIENT_LOOKS))
        release(stream, stretch);
    last->turn = turn;
    last->stretch = stretch;
}

static void await_idle(struct ag_context *context, void *unused)
{
    uint64_t now = ag_clock_ns(), until = atomic_load(&at_end.until);

    (void)unused;
    (void)ag_order_wait_idle(context, now < until ? until - now : 0);
}

static void wait_at_the_end(void)
{
    ag_context_each(await_idle, NULL);
    atomic_store(&at_end.state, WAITED);
    ag_futex_wake(&at_end.state);
}

static void *watch(void *unused)
{
    unsigned idle = IDLE_LOOKS - 2; /* it may be started long before it is needed */

    (void)unused;
    (void)pthread_setname_np(pthread_self(), "allograft-watch");
    for (;;) {
        struct round round = {false};

        ag_futex_wait(&at_end.state, NOT_ASKED, look_ns);
        if (atomic_load_explicit(&at_end.state, memory_order_acquire) == ASKED)
            wait_at_the_end();
        ag_stream_each_open(look_at, &round);
        idle = round.any ? 0 : idle + 1;
        if (idle < IDLE_LOOKS)
            continue;
        atomic_store_explicit(&state, ASLEEP, memory_order_seq_cst);
        round.any = false;
        ag_stream_each_open(look_at, &round); /* what began before it could see that we sleep */
        if (!round.any && atomic_load(&at_end.state) != ASKED)
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
    if (ag_thread_start(watch, STACK_BYTES))
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
    return atomic_load_explicit(&state, memory_order_relaxed) != NO_THREAD;
}

void ag_watchdog_last(uint64_t timeout_ns)
{
    uint64_t now = ag_clock_ns(), until = now + timeout_ns;

    /* It is to be out of the driver, which may be ended next, when this thread goes on. */
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
