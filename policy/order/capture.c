/* The list of open captures, and the guard: see capture.h.
 *
 * `ag_captures_open` counts the captures of the list and those that are about to begin. The guard
 * is a counter for each slot of threads, so that entering it costs no shared cache line: a thread
 * counts itself in and then reads `ag_captures_open`; a capture counts itself there and then waits
 * for the slots. All four accesses are sequentially consistent, so at least one of the two sees the
 * other; an acquire of the slots might be made before the capture is counted. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/order/capture.h"

#include <pthread.h>
#include <unistd.h>

#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"

#define MAX_CAPTURES 256u

_Atomic unsigned ag_captures_open;
struct ag_capture_guard ag_capture_guard[AG_SLOTS];

struct capture {
    CUstream stream;
    int thread; /* whose per-thread stream it is; 0 for other streams */
    struct ag_context *context;
};

static struct {
    struct ag_lock lock; /* guards the list */
    struct capture open[MAX_CAPTURES];
    unsigned n;
} captures = {.lock = AG_LOCK_INIT(AG_RANK_CAPTURES)};

/* --- the guard --- */

/* Waits for those inside the guard, for as long as it takes: a thread inside may be stopped before
 * its call for any time, and the call would end the capture. It comes out by itself, since nothing
 * inside waits for anybody. */
static void wait_for_guard(void)
{
    for (unsigned i = 0; i < AG_SLOTS; i++) {
        struct ag_wait wait = {0};

        while (atomic_load_explicit(&ag_capture_guard[i].inside, memory_order_seq_cst))
            ag_wait_pause(&wait);
    }
}

CUstreamCaptureMode ag_capture_relax(void)
{
    CUstreamCaptureMode previous = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (ag_cu.cuThreadExchangeStreamCaptureMode)
        (void)ag_cu.cuThreadExchangeStreamCaptureMode(&previous);
    return previous;
}

void ag_capture_restore(CUstreamCaptureMode previous)
{
    if (ag_cu.cuThreadExchangeStreamCaptureMode)
        (void)ag_cu.cuThreadExchangeStreamCaptureMode(&previous);
}

bool ag_capture_takes(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!ag_capture_is_open() || !ag_cu.cuStreamIsCapturing)
        return false;
    if (!stream && per_thread)
        stream = CU_STREAM_PER_THREAD;
    if (!stream || stream == CU_STREAM_LEGACY)
        return false;
    return ag_cu.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* --- the list --- */

/* The capture that a call of that flavour means; its context is not set. */
static struct capture capture_named(CUstream stream, bool per_thread)
{
    if (!stream && per_thread)
        stream = CU_STREAM_PER_THREAD;
    return (struct capture){stream, stream == CU_STREAM_PER_THREAD ? gettid() : 0, NULL};
}

/* True: no capture is open any more. */
static bool count_out(void)
{
    return atomic_fetch_sub_explicit(&ag_captures_open, 1, memory_order_seq_cst) == 1;
}

/* A capture was begun, or was not: then as count_out(). One that the list has no room for is never
 * counted out: the guard stays closed for good, which is slow but correct. */
static bool add_capture(struct capture capture, bool success)
{
    bool last = false;

    ag_lock_take(&captures.lock);
    if (!success)
        last = count_out();
    else if (captures.n < MAX_CAPTURES)
        captures.open[captures.n++] = capture;
    ag_lock_release(&captures.lock);
    return last;
}

/* Takes the capture out of the list, still counted as open. False: it was not there. */
static bool remove_capture(struct capture capture, struct ag_context **ret_context)
{
    bool found = false;

    ag_lock_take(&captures.lock);
    for (unsigned i = 0; i < captures.n && !found; i++) {
        found =
            captures.open[i].stream == capture.stream && captures.open[i].thread == capture.thread;
        if (!found)
            continue;
        *ret_context = captures.open[i].context;
        captures.open[i] = captures.open[--captures.n];
    }
    ag_lock_release(&captures.lock);
    return found;
}

/* Captures end with their context, or with the thread whose own stream it is: `context` is NULL. */
static void forget_captures(const struct ag_context *context, int thread)
{
    ag_lock_take(&captures.lock);
    for (unsigned i = captures.n; i-- > 0;) {
        const struct capture *capture = &captures.open[i];

        if (context ? capture->context != context : capture->thread != thread)
            continue;
        captures.open[i] = captures.open[--captures.n];
        (void)count_out();
    }
    ag_lock_release(&captures.lock);
}

void ag_capture_opening(void)
{
    atomic_fetch_add_explicit(&ag_captures_open, 1, memory_order_seq_cst);
    wait_for_guard();
}

/* --- threads that end --- */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

/* The driver destroys the thread's own streams, and their captures with them; what the program has
 * to do at the end of its threads comes first, so this waits for the second turn. */
static void capturing_thread_ends(void *turn)
{
    static char second;

    if (turn == &second || pthread_setspecific(key, &second))
        forget_captures(NULL, gettid());
}

static void make_end_key(void)
{
    has_key = !pthread_key_create(&key, capturing_thread_ends);
}

/* Without a key the capture is never counted out, as one that the list has no room for. */
static void note_capturing_thread(void)
{
    (void)pthread_once(&key_once, make_end_key);
    if (has_key)
        (void)pthread_setspecific(key, &captures);
}

bool ag_capture_opened(CUstream stream, bool per_thread, struct ag_context *context, bool success)
{
    struct capture capture = capture_named(stream, per_thread);

    if (success && capture.thread)
        note_capturing_thread();
    capture.context = context;
    return add_capture(capture, success);
}

bool ag_capture_ended(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    struct capture capture;
    struct ag_context *context;

    if (!ag_capture_is_open())
        return false;
    capture = capture_named(stream, per_thread);
    if (ag_cu.cuStreamIsCapturing &&
        ag_cu.cuStreamIsCapturing(capture.stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    return remove_capture(capture, &context) && count_out();
}

/* The stream must not be asked about once it is gone: the driver would crash. */
bool ag_capture_stream_destroying(CUstream stream, struct ag_context **ret_context)
{
    return ag_capture_is_open() && remove_capture((struct capture){.stream = stream}, ret_context);
}

bool ag_capture_stream_destroyed(CUstream stream, struct ag_context *context, bool success)
{
    return add_capture((struct capture){.stream = stream, .context = context}, !success);
}

void ag_capture_context_gone(const struct ag_context *context)
{
    forget_captures(context, 0);
}

void ag_capture_begin_child(void)
{
    ag_lock_init(&captures.lock, AG_RANK_CAPTURES);
    atomic_store(&ag_captures_open, 0);
    captures.n = 0;
    for (unsigned i = 0; i < AG_SLOTS; i++)
        atomic_store(&ag_capture_guard[i].inside, 0);
}
