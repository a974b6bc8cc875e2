/* Waiting asleep: see sleep.h.
 *
 * Delicate is what other threads do meanwhile. A capture that they begin must not be ended by a
 * call that natively would have come before it: so the event is recorded inside the capture guard,
 * and whatever comes after that is about the event alone, in a capture mode that forbids nothing.
 * A signal handler may jump out of the wait: so nothing is held that others need. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/waiting/sleep.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/order/users.h"
#include "policy/waiting/events.h"
#include "policy/waiting/places.h"

/* Awake for longer than waking a thread takes, so that a wait of that length is not twice as long;
 * where waits are known to be long, for as long as a device that is done needs to say so. */
#define SPIN_NS      50000u
#define SPIN_LONG_NS 10000u

static enum ag_wait_mode wait_mode; /* set before the first call is served */

void ag_sleep_configure(enum ag_wait_mode mode)
{
    wait_mode = mode;
}

void ag_sleep_begin(struct ag_sleep *sleep, uint64_t place)
{
    bool is_long = ag_place_is_long(place);

    *sleep = (struct ag_sleep){
        .place = place,
        .began_ns = ag_clock_ns(),
        .spin_ns = is_long ? SPIN_LONG_NS : SPIN_NS,
        .may = is_long || wait_mode == AG_WAIT_MODE_SLEEP,
        .saved_errno = errno,
        .result = CUDA_SUCCESS,
    };
}

CUresult ag_sleep_end(const struct ag_sleep *sleep)
{
    ag_place_waited(sleep->place, ag_clock_ns() - sleep->began_ns);
    errno = sleep->saved_errno;
    return sleep->result;
}

/* --- the wait --- */

/* What the calling thread has had of its processor; 0 where nobody can tell. */
static uint64_t processor_ns(void)
{
    struct timespec used;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used))
        return 0;
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* The driver knows events for which it does not sleep: what the thread has not had of the processor
 * is what counts. */
static void count(uint64_t wall_ns, uint64_t awake_ns)
{
    uint64_t asleep_ns = wall_ns > awake_ns ? wall_ns - awake_ns : 0;

    ag_stats_add(asleep_ns > awake_ns ? AG_STAT_WAIT_SLEPT : AG_STAT_WAIT_AWAKE, 1);
    ag_stats_add(AG_STAT_WAIT_ASLEEP_NS, asleep_ns);
}

/* The driver may wait by a system call at which a thread can be cancelled. */
static CUresult sleep_until(CUevent event)
{
    uint64_t wall_ns, awake_ns;
    CUresult result;
    int state;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    wall_ns = ag_clock_ns();
    awake_ns = processor_ns();
    result = ag_cu.cuEventSynchronize(event);
    awake_ns = processor_ns() - awake_ns;
    count(ag_clock_ns() - wall_ns, awake_ns);
    (void)pthread_setcancelstate(state, NULL);
    return result;
}

/* The driver's wait follows where the event has been reached, too: only that prints what kernels
 * printed, and has pools give back what they do at a wait. */
static CUresult wait_for(CUevent event, uint64_t spin_ns)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    CUresult result = ag_fence_poll(event, spin_ns);

    if (result == CUDA_ERROR_NOT_READY) {
        result = sleep_until(event);
    } else if (result == CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_WAIT_AWAKE, 1);
        result = ag_cu.cuEventSynchronize(event);
    }
    ag_capture_restore(previous);
    return result;
}

/* --- where the event is recorded --- */

struct place {
    CUcontext current;
    unsigned generation;    /* of contexts, from before that was asked for */
    CUstream stream;        /* all of this stream, */
    struct ag_context *all; /* or, where it is NULL, of this context */
    bool is_legacy;         /* which stands for the legacy stream */
};

/* Has a non-blocking stream, which the wait would cover as well? Asked again once the event is
 * recorded, since the flag is set before such a stream is there. */
static bool covers_more(const struct place *place)
{
    return place->is_legacy &&
           atomic_load_explicit(&place->all->has_nonblocking_stream, memory_order_seq_cst);
}

/* Inside the guard. A stream that is idle is nothing to wait for, and the driver says so. */
static CUresult record_now(const struct place *place, CUevent event)
{
    CUresult result;

    if (!place->stream) {
        result = ag_cu.cuCtxRecordEvent(place->current, event);
        return result == CUDA_SUCCESS && covers_more(place) ? CUDA_ERROR_NOT_SUPPORTED : result;
    }
    result = ag_cu.cuStreamQuery(place->stream);
    return result == CUDA_ERROR_NOT_READY ? ag_cu.cuEventRecord(event, place->stream)
                                          : CUDA_ERROR_NOT_SUPPORTED;
}

static bool record(const struct place *place, CUevent event)
{
    CUresult result;

    if (!ag_capture_guard_enter()) {
        ag_stats_add(AG_STAT_WAIT_CAPTURE, 1);
        return false;
    }
    result = record_now(place, event);
    ag_capture_guard_leave();
    return result == CUDA_SUCCESS;
}

static bool sleep_at(struct ag_sleep *sleep, const struct place *place)
{
    struct ag_sleep_event *own = ag_sleep_event_take(place->current, place->generation);
    bool is_done;

    if (!own)
        return false;
    is_done = record(place, own->event) && wait_for(own->event, sleep->spin_ns) == CUDA_SUCCESS;
    ag_sleep_event_give_back(own);
    return is_done;
}

/* How the program has its threads wait in the current context. False: the driver does not say. */
static bool ask_how(unsigned *ret_how)
{
    unsigned flags;

    if (ag_cu.cuCtxGetFlags(&flags) != CUDA_SUCCESS)
        return false;
    *ret_how = flags & CU_CTX_SCHED_MASK;
    return true;
}

/* May the wait sleep in the current context? */
static bool enter(const struct ag_sleep *sleep, struct place *place)
{
    unsigned how;

    if (!sleep->may)
        return false;
    place->generation = atomic_load_explicit(&ag_context_generation, memory_order_acquire);
    if (ag_cu.cuCtxGetCurrent(&place->current) != CUDA_SUCCESS || !place->current)
        return false;
    if (!ask_how(&how))
        return false;
    if (how != CU_CTX_SCHED_AUTO)
        ag_stats_add(AG_STAT_WAIT_FLAGS, 1);
    return how == CU_CTX_SCHED_AUTO;
}

/* --- what the program waits for --- */

/* A green context has no row: its wait is for a part of the work. */
static bool sleep_for_all(struct ag_sleep *sleep, CUcontext handle, bool is_legacy)
{
    struct place place = {.is_legacy = is_legacy};

    if (!enter(sleep, &place) || (handle && handle != place.current))
        return false;
    place.all = ag_context_find(place.current);
    if (!place.all || !place.all->device->has_fences)
        return false;
    if (covers_more(&place)) {
        ag_stats_add(AG_STAT_WAIT_LEGACY, 1);
        return false;
    }
    return sleep_at(sleep, &place);
}

bool ag_sleep_for_context(struct ag_sleep *sleep, CUcontext handle)
{
    return sleep_for_all(sleep, handle, false);
}

bool ag_sleep_for_stream(struct ag_sleep *sleep, CUstream stream, bool per_thread)
{
    struct place place = {.stream = !stream && per_thread ? CU_STREAM_PER_THREAD : stream};

    if (!place.stream || place.stream == CU_STREAM_LEGACY)
        return sleep_for_all(sleep, NULL, true);
    return enter(sleep, &place) && sleep_at(sleep, &place);
}

/* The driver sleeps for it from the first moment: so under `auto`, too, it is awake for as long as
 * a wait that is not long takes. */
bool ag_sleep_for_event(struct ag_sleep *sleep, CUevent event)
{
    if (ag_capture_is_open()) {
        ag_stats_add(AG_STAT_WAIT_CAPTURE, 1);
        return false;
    }
    sleep->result = wait_for(event, sleep->may ? sleep->spin_ns : AG_PLACE_LONG_NS);
    return sleep->result == CUDA_SUCCESS;
}

/* The driver has the copy only after this. Natively it has it before what other threads submit
 * meanwhile, and before a capture that they begin: so no other may use CUDA. With several contexts
 * the copy may wait for the work of another one. */
bool ag_sleep_before_copy(struct ag_sleep *sleep, size_t bytes, bool per_thread)
{
    ag_users_note();
    if (bytes && !ag_users_are_several() && ag_context_count() == 1)
        (void)ag_sleep_for_stream(sleep, NULL, per_thread);
    return false;
}

unsigned ag_sleep_flags_of_event(unsigned flags)
{
    unsigned how;

    return ask_how(&how) && how == CU_CTX_SCHED_AUTO ? flags | CU_EVENT_BLOCKING_SYNC : flags;
}
