/* The thread that makes memory of the host ahead: see ahead.h.
 *
 * Its calls belong to no context, and it makes none while a capture is open. It looks again every
 * second as long as something is kept; else it sleeps until somebody asks.
 *
 * The driver makes and maps memory under one lock, and a thread that releases it and calls again
 * has it before one that waits for it wakes: beside memory of the host that was made without a
 * pause, the program's cuMemAlloc took up to seventeen seconds (H200). So a pause follows each
 * call, as long as that was, and none is made while pieces move. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/paging/ahead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/futex.h"
#include "interpose/core/base/threads/thread.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/report/stats.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/paging/handles.h"
#include "policy/paging/latch.h"
#include "policy/pinned/host_room.h"

#define AHEAD_PART   16u         /* of what the program may have of the device is made ahead */
#define LOOK_NS      1000000000u /* between looks whether it is to be kept */
#define LAST_CALL_NS 1000000000u /* the end of the process waits so long for a call */

enum { NOT_STARTED, STARTED, NO_THREAD };

static struct {
    _Atomic int state;
    _Atomic uint32_t asked, calls; /* calls: 1 while the thread calls the driver */
    uint64_t began_ns;             /* that call */
    _Atomic bool stopped;
    struct ag_device *_Atomic device; /* that it was asked for last */
    _Atomic size_t piece_bytes;
} self;

/* --- the thread --- */

/* Sequentially consistent: who stops it looks at `calls` afterwards, so one sees the other. */
static void end_call(void)
{
    atomic_store(&self.calls, 0);
    if (atomic_load(&self.stopped))
        ag_futex_wake(&self.calls);
}

/* May the driver be called? */
static bool begin_call(void)
{
    ag_latch_enter(); /* waits as long as pieces move */
    ag_latch_leave();
    atomic_store(&self.calls, 1);
    self.began_ns = ag_clock_ns();
    if (!atomic_load(&self.stopped) && !ag_capture_is_open())
        return true;
    end_call();
    return false;
}

/* Called after end_call(): others call the driver now. */
static void pause_after_call(void)
{
    ag_wait_asleep(ag_clock_ns() - self.began_ns);
}

static bool make_one(struct ag_device *device, size_t bytes)
{
    bool made;

    if (!begin_call())
        return false;
    made = ag_handle_make_ahead(device, bytes);
    if (made)
        ag_stats_add(AG_STAT_PAGE_AHEAD, bytes);
    end_call(); /* after the count: the report waits for it */
    pause_after_call();
    return made;
}

static bool give_one_back(struct ag_device *device)
{
    size_t bytes;

    if (!begin_call())
        return false;
    bytes = ag_handle_give_one_back(device);
    ag_stats_add(AG_STAT_PAGE_AHEAD_BACK, bytes);
    end_call();
    pause_after_call();
    return bytes != 0;
}

static void make_all(struct ag_device *device)
{
    size_t bytes = atomic_load(&self.piece_bytes);

    while (ag_handles_kept_on_host(device) + bytes <= ag_budget_size(device) / AHEAD_PART &&
           make_one(device, bytes))
        ;
}

static bool is_to_be_kept(const struct ag_device *device)
{
    struct ag_host_room room;

    ag_host_room_read("", &room);
    return ag_handles_are_scarce(device) && !ag_host_room_is_short(&room);
}

static bool is_any_kept(void)
{
    struct ag_device *device;

    for (unsigned i = 0; (device = ag_device_met(i)); i++)
        if (ag_handles_kept_on_host(device))
            return true;
    return false;
}

static void give_back_for(struct ag_device *device)
{
    while (ag_handles_kept_on_host(device) && !is_to_be_kept(device) && give_one_back(device))
        ;
}

static void give_back_for_all(void)
{
    struct ag_device *device;

    for (unsigned i = 0; (device = ag_device_met(i)); i++)
        give_back_for(device);
}

static void *make_ahead(void *unused)
{
    uint32_t seen = 0;

    (void)unused;
    (void)pthread_setname_np(pthread_self(), "allograft-ahead");
    (void)ag_capture_relax(); /* for good: of captures that begin meanwhile its calls are none */
    for (;;) {
        ag_futex_wait(&self.asked, seen, is_any_kept() ? LOOK_NS : AG_FUTEX_FOR_EVER);
        if (atomic_load(&self.asked) != seen) {
            seen = atomic_load(&self.asked);
            make_all(atomic_load(&self.device));
        } else {
            give_back_for_all();
        }
    }
    return NULL;
}

/* --- who asks it --- */

static bool start_making(void)
{
    int none = NOT_STARTED;

    if (atomic_compare_exchange_strong(&self.state, &none, STARTED) &&
        ag_thread_start(make_ahead, AG_THREAD_DRIVER_STACK_BYTES))
        atomic_store(&self.state, NO_THREAD);
    return atomic_load(&self.state) == STARTED;
}

void ag_ahead_look(struct ag_device *device, size_t piece_bytes)
{
    uint64_t wanted = ag_budget_size(device) / AHEAD_PART;

    if (!ag_handles_are_scarce(device) || ag_handles_kept_on_host(device) + piece_bytes > wanted ||
        atomic_load(&self.stopped))
        return;
    atomic_store(&self.device, device);
    atomic_store(&self.piece_bytes, piece_bytes);
    if (!start_making())
        return;
    atomic_fetch_add(&self.asked, 1);
    ag_futex_wake(&self.asked);
}

void ag_ahead_stop(void)
{
    uint64_t until = ag_clock_ns() + LAST_CALL_NS, now;

    if (atomic_load(&self.state) != STARTED)
        return;
    atomic_store(&self.stopped, true);
    while (atomic_load(&self.calls) && (now = ag_clock_ns()) < until)
        ag_futex_wait(&self.calls, 1, until - now);
}

void ag_ahead_begin_child(void)
{
    atomic_store(&self.state, NOT_STARTED);
    atomic_store(&self.asked, 0);
    atomic_store(&self.calls, 0);
    atomic_store(&self.stopped, false);
}
