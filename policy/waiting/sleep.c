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
#include "policy/waiting/looks.h"
#include "policy/waiting/places.h"

/* Under `auto` places are left to the driver until their waits are long, and again once less than
 * the second is foreseen. */
#define LONG_NS       1000000u
#define STILL_LONG_NS 500000u
#define NOTHING_NS    2000u /* the driver takes less where there is nothing to wait for */

static enum ag_wait_mode wait_mode; /* set before the first call is served */

void ag_sleep_configure(enum ag_wait_mode mode)
{
    wait_mode = mode;
}

void ag_sleep_begin(struct ag_sleep *sleep, uint64_t place)
{
    uint64_t foreseen = ag_place_foreseen(place);

    *sleep = (struct ag_sleep){
        .place = place,
        .began_ns = ag_clock_ns(),
        .foreseen_ns = foreseen,
        .may = foreseen >= STILL_LONG_NS || wait_mode == AG_WAIT_MODE_SLEEP,
        .saved_errno = errno,
        .result = CUDA_SUCCESS,
    };
}

/* The driver has waited. */
static void learn_native(const struct ag_sleep *sleep)
{
    uint64_t ns = ag_clock_ns() - sleep->began_ns;

    if (ns >= (wait_mode == AG_WAIT_MODE_AUTO ? LONG_NS : AG_PLACE_LEAST_NS))
        ag_place_lasted(sleep->place, ns);
    else if (ns >= NOTHING_NS)
        ag_place_forget(sleep->place);
}

CUresult ag_sleep_end(const struct ag_sleep *sleep)
{
    if (!sleep->learnt)
        learn_native(sleep);
    errno = sleep->saved_errno;
    return sleep->result;
}

/* --- the wait --- */

/* The driver's own wait follows where the event has been reached, too: only that prints what
 * kernels printed, and has pools give back what they do at a wait. It may sleep by a system call at
 * which a thread can be cancelled. */
static CUresult let_driver_wait(CUevent event)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    CUresult result;
    int state;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    result = ag_cu.cuEventSynchronize(event);
    (void)pthread_setcancelstate(state, NULL);
    ag_capture_restore(previous);
    return result;
}

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

static bool is_alone(void)
{
    ag_users_note();
    return !ag_users_are_several();
}

/* Another thread may record an event of the program's anew: see sleep.h. */
static CUresult wait_for(struct ag_sleep *sleep, CUevent event, bool is_ours)
{
    const struct ag_looks looks = {.place = sleep->place,
                                   .began_ns = sleep->began_ns,
                                   .foreseen_ns = is_ours || is_alone() ? sleep->foreseen_ns : 0,
                                   .gives_up = !is_ours};
    uint64_t began_ns = ag_clock_ns(), awake_ns = processor_ns();
    CUresult result = ag_looks_wait(&looks, event);

    sleep->learnt = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        result = let_driver_wait(event);
    awake_ns = processor_ns() - awake_ns;
    count(ag_clock_ns() - began_ns, awake_ns);
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

static bool enter_guard(void)
{
    bool is_in = ag_capture_guard_enter();

    if (!is_in)
        ag_stats_add(AG_STAT_WAIT_CAPTURE, 1);
    return is_in;
}

/* Inside the guard. */
static CUresult record_now(const struct place *place, CUevent event)
{
    CUresult result;

    if (!place->stream) {
        result = ag_cu.cuCtxRecordEvent(place->current, event);
        return result == CUDA_SUCCESS && covers_more(place) ? CUDA_ERROR_NOT_SUPPORTED : result;
    }
    return ag_cu.cuEventRecord(event, place->stream);
}

static bool record(const struct place *place, CUevent event)
{
    CUresult result;

    if (!enter_guard())
        return false;
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
    is_done = record(place, own->event) && wait_for(sleep, own->event, true) == CUDA_SUCCESS;
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

static bool leaves_it_to_us(void)
{
    unsigned how;

    if (!ask_how(&how))
        return false;
    if (how != CU_CTX_SCHED_AUTO)
        ag_stats_add(AG_STAT_WAIT_FLAGS, 1);
    return how == CU_CTX_SCHED_AUTO;
}

/* May the wait sleep in the current context? */
static bool enter(struct place *place)
{
    place->generation = atomic_load_explicit(&ag_context_generation, memory_order_acquire);
    return ag_cu.cuCtxGetCurrent(&place->current) == CUDA_SUCCESS && place->current &&
           leaves_it_to_us();
}

/* What the driver said when it was first asked. Under `sleep` a place learns nothing from waits for
 * nothing: its next long one is to sleep, too. */
static bool has_to_wait(struct ag_sleep *sleep, CUresult result)
{
    sleep->learnt = result == CUDA_SUCCESS;
    if (sleep->learnt && wait_mode == AG_WAIT_MODE_AUTO)
        ag_place_idle(sleep->place);
    return result == CUDA_ERROR_NOT_READY;
}

/* --- what the program waits for --- */

/* A green context has no row: its wait is for a part of the work. */
static bool sleep_for_all(struct ag_sleep *sleep, CUcontext handle, bool is_legacy)
{
    struct place place = {.is_legacy = is_legacy};

    if (!enter(&place) || (handle && handle != place.current))
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
    return sleep->may && sleep_for_all(sleep, handle, false);
}

/* Asked of the legacy stream, the driver may do more than look. */
bool ag_sleep_for_stream(struct ag_sleep *sleep, CUstream stream, bool per_thread)
{
    struct place place = {.stream = !stream && per_thread ? CU_STREAM_PER_THREAD : stream};
    CUresult result;

    if (!sleep->may)
        return false;
    if (!place.stream || place.stream == CU_STREAM_LEGACY)
        return sleep_for_all(sleep, NULL, true);
    if (!enter_guard())
        return false;
    result = ag_cu.cuStreamQuery(place.stream);
    ag_capture_guard_leave();
    return has_to_wait(sleep, result) && enter(&place) && sleep_at(sleep, &place);
}

/* Under `auto` the driver would not sleep for it. */
bool ag_sleep_for_event(struct ag_sleep *sleep, CUevent event)
{
    CUresult result;

    if (!sleep->may || (wait_mode == AG_WAIT_MODE_AUTO && !is_alone()) || !enter_guard())
        return false;
    result = ag_cu.cuEventQuery(event);
    ag_capture_guard_leave();
    if (!has_to_wait(sleep, result) || !leaves_it_to_us())
        return false;
    sleep->result = wait_for(sleep, event, false);
    return sleep->result == CUDA_SUCCESS;
}

/* The driver has the copy only after this. Natively it has it before what other threads submit
 * meanwhile, and before a capture that they begin: so no other may use CUDA. With several contexts
 * the copy may wait for the work of another one. */
bool ag_sleep_before_copy(struct ag_sleep *sleep, size_t bytes, bool per_thread)
{
    if (sleep->may && bytes && is_alone() && ag_context_count() == 1)
        (void)ag_sleep_for_stream(sleep, NULL, per_thread);
    return false;
}

/* Under `auto` they stay as they are: a short wait is the driver's, which would sleep at once. */
unsigned ag_sleep_flags_of_event(unsigned flags)
{
    unsigned how;

    return wait_mode == AG_WAIT_MODE_SLEEP && ask_how(&how) && how == CU_CTX_SCHED_AUTO
               ? flags | CU_EVENT_BLOCKING_SYNC
               : flags;
}
