/* Which copies the crew makes, and when: see copying.h.
 *
 * A copy that nothing speaks against is made by the crew once its stream is idle, if the call waits
 * for the stream anyway. That wait comes first, with nothing claimed and no signal blocked: it ends
 * when the program's work does, and a signal handler may jump out of it. What follows ends by
 * itself, and is left in one way only, so signals wait until it is over.
 *
 * The crew is one thread's at a time, and so are all rings of slots and what is learnt of rates.
 * Other threads' copies are the driver's meanwhile. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/copying.h"

#include <errno.h>
#include <unistd.h>

#include "graph/record/box.h"
#include "graph/record/memory.h"
#include "interpose/copies/crew.h"
#include "interpose/copies/move.h"
#include "interpose/copies/reach.h"
#include "interpose/copies/slots.h"
#include "interpose/copies/transfer.h"
#include "interpose/copies/worth.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/undisturbed.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "interpose/hooks/entry.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"
#include "policy/order/users.h"
#include "policy/paging/ranges.h"
#include "policy/pinned/host_room.h"

/* Below that, pieces save less than their submission takes: to the host the crew only begins after
 * it. */
#define LEAST_PIECE_OUT ((size_t)256 << 10)
#define LEAST_PIECE_IN  ((size_t)128 << 10)
#define LEAST_ROOM      8u /* times the slots: memory that is left for others */
#define LOOK_AROUND_NS  10000000u
#define LONGEST_ALONE   16u                 /* times that, where the caller was alone each time */
#define MANY_PAGES      ((size_t)256 << 20) /* of a copy to the host, where they are not there */
#define LEAST_ROW       ((size_t)64 << 10)
#define SLOTS_NS        8000000u /* what a ring takes to make at most, with its threads (H100) */
#define END_WAIT_NS     1000000000u
#define SHORT_NS        30000u /* less than the upload before, the crew's, has saved */
#define LONGEST_REST    255u
#define UNWAITED_BYTES  ((size_t)2 << 20) /* of an upload that natively waits for no work (H100) */
/* A process that copies no more than that is asked nothing about it: an eighth of what has to be
 * copied before slots are made. */
#define FIRST_BYTES ((size_t)32 << 20)

static struct {
    size_t least;      /* bytes that a copy must have */
    bool is_forced;    /* by ALLOGRAFT_COPY_FROM: whether that gains is not asked */
    bool has_no_slots; /* the driver refused them, or the host has no room */
    bool has_counted;  /* processors, for the first time */
    uint32_t threads;  /* that the settings want, or 0 */
    uint64_t look_ns;  /* when to count them again */
    uint64_t alone_ns; /* for how long the caller is taken to be alone */
    /* Until then the caller is the only one that has a processor; any thread's to read. */
    _Atomic uint64_t alone_until_ns;
    _Atomic(CUstream) left_on;  /* with an upload that may be unfinished; likewise */
    _Atomic size_t first_bytes; /* copied, of whatever memory, until FIRST_BYTES; likewise */
    uint32_t rest, next_rest;   /* uploads after which nobody waits for them now */
    struct ag_worth_table worth;
} self; /* but for the settings, the claimer's */

bool ag_copying_configure(const struct ag_options *options)
{
    if (options->copy == AG_COPY_BY_DRIVER)
        return false;
    self.threads = options->copy_threads;
    self.is_forced = options->copy_from != 0;
    self.least = self.is_forced ? options->copy_from : AG_WORTH_LEAST_BYTES;
    return true;
}

/* --- what is to be copied --- */

/* Rows that follow one another without a gap are one. */
static void join_rows(struct ag_copied *what)
{
    if (what->width == what->device_pitch && what->width == what->host_pitch) {
        what->width *= what->height;
        what->height = 1;
    }
    if (what->height == 1 && what->width == what->device_slice && what->width == what->host_slice) {
        what->width *= what->depth;
        what->depth = 1;
    }
}

/* Memory that moves (ALLOGRAFT_OOM=page) is the device's, wherever it lies: whoever copies is
 * inside the latch, so it stays there meanwhile. */
static enum ag_memory memory_at(uint64_t address, uint64_t bytes)
{
    return ag_range_holds(ag_context_current(), address, bytes) ? AG_MEMORY_DEVICE
                                                                : ag_memory_now(address, bytes);
}

/* Is it a copy for the crew, by what memory is on each side? */
static bool is_pageable_copy(struct ag_copied *what, enum ag_memory to, enum ag_memory from)
{
    what->to_host = to == AG_MEMORY_PAGEABLE;
    return what->to_host ? from == AG_MEMORY_DEVICE
                         : to == AG_MEMORY_DEVICE && from == AG_MEMORY_PAGEABLE;
}

/* The memory of this device is the host's, or the device walks the host's page tables: there is
 * nothing that could be staged. */
static bool reads_host_memory(const struct ag_device *device)
{
    return device->is_integrated || device->uses_host_pages;
}

/* --- the stream --- */

/* Is the stream one whose order we know: of the current context, and no green one's? */
static bool is_own_stream(const struct ag_context *context, CUstream stream)
{
    CUcontext its = NULL;

    if (ag_context_inside)
        return false;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return true;
    return ag_cu.cuStreamGetCtx && ag_cu.cuStreamGetCtx(stream, &its) == CUDA_SUCCESS &&
           its == atomic_load(&context->handle);
}

struct attempt {
    struct ag_copying *copying;
    struct ag_transfer transfer;
    const struct ag_context *context;
    int thread;     /* where the stream is the thread's own; else 0 */
    CUevent begun;  /* the copy returns once this is done; or NULL */
    bool is_queued; /* the stream has work, of which it is not known yet whose it is */
};

/* Could others have submitted work by the end of a wait, which natively comes after the copy? */
static bool others_may_submit(void)
{
    return ag_users_are_several() || ag_context_count() > 1;
}

/* Waits for the stream where the call would. False: the copy is the driver's, or an error is. An
 * asynchronous upload after unfinished work is the driver's, too: one of more than 2 MiB waits for
 * that work, and a program may have come to need it (R1002, R1025); but not if the work may be
 * earlier copies of ours alone, for which comes_to_rest() waits. */
static bool await_stream(struct attempt *attempt)
{
    const struct ag_transfer *transfer = &attempt->transfer;
    CUresult result = ag_cu.cuStreamQuery(transfer->stream);

    if (result != CUDA_ERROR_NOT_READY)
        return result == CUDA_SUCCESS;
    if ((transfer->waits || transfer->what.to_host) && !others_may_submit())
        return ag_cu.cuStreamSynchronize(transfer->stream) == CUDA_SUCCESS;
    /* Relaxed: a hint, of which comes_to_rest() makes sure. */
    attempt->is_queued =
        atomic_load_explicit(&self.left_on, memory_order_relaxed) == transfer->stream;
    if (!attempt->is_queued)
        ag_stats_add(AG_STAT_COPIES_QUEUED, 1);
    return attempt->is_queued;
}

/* --- the host's memory --- */

/* Is the memory there, as far as its ends say? The driver may refuse what is not, such as addresses
 * of a device that are no memory any more. */
static bool is_there(const struct ag_copied *what)
{
    const unsigned char *first = (const unsigned char *)(uintptr_t)what->host;

    return ag_reach_get(first, 1, what->to_host) &&
           ag_reach_get(first + ag_copied_host_bytes(what) - 1, 1, what->to_host);
}

/* --- with the crew claimed --- */

/* The caller was found alone: the next look comes after twice the time, as it takes some 30 us. */
static void note_alone(uint64_t now_ns)
{
    uint64_t longest = (uint64_t)LONGEST_ALONE * LOOK_AROUND_NS;

    self.alone_ns = self.alone_ns ? 2 * self.alone_ns : LOOK_AROUND_NS;
    if (self.alone_ns > longest)
        self.alone_ns = longest;
    self.look_ns = now_ns + self.alone_ns;
}

/* How many processors are there for the crew now? Takes some 10 us, and more the first time. */
static void count_processors(void)
{
    uint64_t now_ns = ag_clock_ns();

    if (now_ns < self.look_ns)
        return;
    if (!self.has_counted)
        ag_crew_configure(self.threads);
    self.has_counted = true;
    self.look_ns = now_ns + LOOK_AROUND_NS;
    ag_crew_look_around();
    if (ag_crew_size() < 2)
        note_alone(now_ns);
    else
        self.alone_ns = 0;
    atomic_store_explicit(&self.alone_until_ns, self.alone_ns ? self.look_ns : 0,
                          memory_order_relaxed);
}

static bool host_has_room(void)
{
    struct ag_host_room room;

    ag_host_room_read("", &room);
    return !room.total_bytes || room.available_bytes / LEAST_ROOM >= AG_SLOTS_BYTES;
}

/* A process that copies little has nothing made. */
static struct ag_slots *slots_for(struct attempt *attempt, size_t bytes)
{
    struct ag_slots *slots = ag_slots_find(attempt->context);

    if (!slots &&
        (self.has_no_slots || !(self.is_forced || ag_worth_slots(&self.worth, bytes, SLOTS_NS))))
        return NULL;
    count_processors();
    if (slots || ag_crew_size() < 2)
        return slots;
    slots = host_has_room() ? ag_slots_make(attempt->context, ag_crew_size()) : NULL;
    self.has_no_slots = !slots;
    return slots;
}

/* Are all slots free, or in use for this stream, before whose work is done this copy cannot be made
 * either? Where they are in use for another, that may wait for something that the program does
 * after this call. */
static bool are_slots_free(struct ag_slots *slots, const struct attempt *attempt)
{
    CUresult result = ag_slots_look(slots);

    return result == CUDA_SUCCESS ||
           (result == CUDA_ERROR_NOT_READY && slots->stream == attempt->transfer.stream &&
            slots->thread == attempt->thread && (attempt->is_queued || ag_slots_wait(slots)));
}

/* Is what is unfinished on the stream copies of ours, and next to nothing else? They go on as fast
 * as the bus, and end by themselves. Nobody counts what the program has submitted after them; but
 * if the stream is idle once they are done, nothing is left of that either, and this copy stands
 * where any copy on an idle stream does. A native call waits here as well: the driver has two
 * pieces of 1 MiB at most under way on a stream (H100).
 * Other work that soon ends, like a small copy of the driver's, is waited for as well; where it
 * does not, no later copy waits here until the crew has made one again, or more of them. */
static bool comes_to_rest(struct ag_slots *slots, const struct attempt *attempt)
{
    CUstream stream = attempt->transfer.stream;
    uint64_t until;
    struct ag_wait wait = {0};
    CUresult result = CUDA_ERROR_NOT_READY;

    if (ag_slots_wait(slots)) {
        until = ag_clock_after(SHORT_NS);
        while ((result = ag_cu.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY &&
               ag_wait_for_device_until(&wait, until))
            ;
    }
    if (result == CUDA_SUCCESS) {
        self.next_rest = 0;
        return true;
    }
    atomic_store_explicit(&self.left_on, NULL, memory_order_relaxed);
    self.next_rest = self.next_rest < LONGEST_REST ? 2 * self.next_rest + 1 : LONGEST_REST;
    self.rest = self.next_rest;
    return false;
}

/* The next upload may wait for this one, unless such waits have been in vain of late: where kernels
 * come between uploads, they gain nothing. */
static void note_upload(CUstream stream)
{
    if (self.rest)
        self.rest--;
    else
        atomic_store_explicit(&self.left_on, stream, memory_order_relaxed);
}

/* Two for each thread, so that none has to wait long for the last; all slots in turns, where tests
 * or the curious ask for the crew. */
static uint32_t pieces_wanted(void)
{
    return 2 * (self.is_forced ? AG_CREW_SLOTS : ag_crew_size());
}

static uint32_t threads_for(const struct ag_transfer *transfer, size_t bytes)
{
    bool is_large = transfer->what.to_host ? !transfer->is_present && bytes >= MANY_PAGES
                                           : transfer->reuses_slots && ag_move_can_share();

    return is_large ? ag_crew_size_large() : ag_crew_size();
}

static size_t least_piece(bool to_host)
{
    size_t least = to_host ? LEAST_PIECE_OUT : LEAST_PIECE_IN;
    size_t piece = self.least / 8 > 64 ? self.least / 8 : 64;

    return piece < least ? piece : least;
}

static bool is_blocking(CUstream stream)
{
    unsigned flags = 0;

    return stream == CU_STREAM_PER_THREAD || !ag_cu.cuStreamGetFlags ||
           ag_cu.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS ||
           !(flags & CU_STREAM_NON_BLOCKING);
}

/* Would the copy, on an idle stream, wait for work of the legacy one in a way that is not as
 * natively? The call of an upload that is not large returns meanwhile, and natively the next one
 * waits: the driver has room for two pieces of 1 MiB on a stream (H100). It counts its own. And
 * where a piece has to have arrived before the next can be moved, the wait would be one with the
 * crew claimed and no signal handled. */
static bool minds_legacy(const struct ag_transfer *transfer, size_t bytes)
{
    bool waits_inside = transfer->waits || transfer->what.to_host || transfer->reuses_slots;

    return waits_inside || (bytes <= UNWAITED_BYTES && bytes > AG_MEMORY_COMMAND_BYTES);
}

static bool may_wait_for_legacy(const struct ag_transfer *transfer, size_t bytes)
{
    bool is_idle;

    if (!minds_legacy(transfer, bytes) || !transfer->stream ||
        transfer->stream == CU_STREAM_LEGACY || !is_blocking(transfer->stream))
        return false;
    if (!ag_capture_guard_enter())
        return true;
    is_idle = ag_cu.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS;
    ag_capture_guard_leave();
    return !is_idle;
}

/* Whose is the copy? With AG_WORTH_CREW everything is ready for it. */
static enum ag_worth weigh(struct attempt *attempt, struct ag_slots *slots, size_t bytes)
{
    enum ag_worth worth = AG_WORTH_CREW;

    if (slots->is_broken || ag_crew_size() < 2)
        return AG_WORTH_DRIVER;
    if (!are_slots_free(slots, attempt) || (attempt->is_queued && !comes_to_rest(slots, attempt)) ||
        may_wait_for_legacy(&attempt->transfer, bytes)) {
        ag_stats_add(AG_STAT_COPIES_QUEUED, 1);
        return AG_WORTH_DRIVER;
    }
    if (!self.is_forced)
        worth = ag_worth_of(&self.worth, attempt->transfer.what.to_host, bytes);
    if (worth != AG_WORTH_CREW)
        ag_stats_add(worth == AG_WORTH_TIMED ? AG_STAT_COPIES_TIMED : AG_STAT_COPIES_SLOWER, 1);
    return worth;
}

/* Natively the call of a larger upload returns once the work before it is done, on whatever stream.
 * The query of a blocking stream does not tell of the legacy one's, for which the copy waits on the
 * device; but then its first piece has not arrived. */
static void see_whether_begun(struct attempt *attempt, struct ag_slots *slots, size_t bytes)
{
    if (bytes <= UNWAITED_BYTES || slots->finished)
        return;
    if (ag_slots_look(slots) == CUDA_ERROR_NOT_READY && !slots->finished)
        attempt->begun = ag_slots_event(slots, 0);
}

/* True: the copy was made. */
static bool copy_claimed(struct attempt *attempt)
{
    const struct ag_copied *what = &attempt->transfer.what;
    size_t bytes = what->width * what->height * what->depth;
    struct ag_slots *slots = slots_for(attempt, bytes);
    enum ag_worth worth;
    uint64_t from_ns;

    if (!slots)
        return false;
    if (!ag_transfer_plan(&attempt->transfer, pieces_wanted(), least_piece(what->to_host)))
        return false;
    worth = weigh(attempt, slots, bytes);
    from_ns = ag_clock_ns();
    if (worth == AG_WORTH_TIMED)
        attempt->copying->from_ns = from_ns;
    if (worth != AG_WORTH_CREW)
        return false;
    attempt->transfer.threads = threads_for(&attempt->transfer, bytes);
    slots->stream = attempt->transfer.stream;
    slots->thread = attempt->thread;
    attempt->copying->result = ag_transfer_run(&attempt->transfer, slots);
    if (attempt->copying->result == CUDA_SUCCESS && !attempt->transfer.waits && !what->to_host) {
        note_upload(slots->stream);
        see_whether_begun(attempt, slots, bytes);
    }
    if (attempt->copying->result == CUDA_SUCCESS)
        ag_worth_took(&self.worth, what->to_host, bytes, true, ag_clock_ns() - from_ns);
    ag_stats_add(AG_STAT_COPIES_CREW, 1);
    ag_stats_add(AG_STAT_COPIES_CREW_BYTES, bytes);
    return true;
}

/* The thread is neither cancelled nor interrupted while it has the crew. A fault is still its own.
 */
static bool copy_undisturbed(struct attempt *attempt)
{
    struct ag_undisturbed before;
    bool copied = false;

    ag_undisturbed_begin(&before);
    if (ag_crew_claim()) {
        copied = copy_claimed(attempt);
        ag_crew_release();
    } else {
        ag_stats_add(AG_STAT_COPIES_BUSY, 1);
    }
    ag_undisturbed_end(&before);
    return copied;
}

/* --- the steps --- */

/* A capture that another thread has begun since the call came in goes on. */
static bool try_copy(struct attempt *attempt)
{
    CUstreamCaptureMode mode = ag_capture_relax();
    int depth = ag_entry_depth;
    bool copied = false;

    if (await_stream(attempt)) {
        ag_entry_depth = 1;
        copied = copy_undisturbed(attempt);
        ag_entry_depth = depth;
    }
    /* Nothing is claimed any more: this ends when the program's work does, as in await_stream().
     * Once the slot is another copy's, this one is done. */
    if (attempt->begun)
        attempt->copying->result = ag_cu.cuEventSynchronize(attempt->begun);
    ag_capture_restore(mode);
    return copied;
}

/* The hook was left before a call that waits: errno is kept here. */
static bool copy_it(struct ag_copying *copying, struct ag_copied *what,
                    struct ag_copying_place place)
{
    int error = errno;
    bool copied;
    struct attempt attempt = {
        .copying = copying,
        .context = ag_context_current(),
        .transfer = {.stream = ag_entry_named(place.stream, place.per_thread),
                     .waits = place.waits},
    };

    join_rows(what);
    if (what->width < LEAST_ROW && what->width < self.least)
        return false;
    copying->to_host = what->to_host;
    copying->bytes = what->width * what->height * what->depth;
    attempt.transfer.what = *what;
    attempt.thread = attempt.transfer.stream == CU_STREAM_PER_THREAD ? gettid() : 0;
    copied = attempt.context && !reads_host_memory(attempt.context->device) &&
             is_own_stream(attempt.context, attempt.transfer.stream) && is_there(what) &&
             try_copy(&attempt);
    errno = error;
    return copied;
}

/* Relaxed: a count alone. */
static bool is_among_the_first(size_t bytes)
{
    size_t before = atomic_load_explicit(&self.first_bytes, memory_order_relaxed);

    if (self.is_forced || before >= FIRST_BYTES)
        return false;
    (void)atomic_fetch_add_explicit(&self.first_bytes, bytes, memory_order_relaxed);
    return before + bytes <= FIRST_BYTES;
}

/* Nothing is asked of the driver where the size says it all, nor of anybody while the crew is known
 * to gain nothing. */
static bool is_worth_a_look(size_t bytes, enum ag_copying_way way)
{
    uint64_t alone_until_ns;

    if (bytes < self.least || is_among_the_first(bytes) || ag_capture_is_open() || !ag_reach_can())
        return false;
    /* Relaxed: a time alone; who reads an old one asks once more. */
    alone_until_ns = atomic_load_explicit(&self.alone_until_ns, memory_order_relaxed);
    if (alone_until_ns && ag_clock_ns() < alone_until_ns)
        return false;
    if (way == AG_COPYING_EITHER || self.is_forced ||
        !ag_worth_rests(&self.worth, way == AG_COPYING_TO_HOST, bytes))
        return true;
    ag_stats_add(AG_STAT_COPIES_SLOWER, 1);
    return false;
}

bool ag_copying_line(struct ag_copying *copying, enum ag_copying_way way, uint64_t to,
                     uint64_t from, size_t bytes, struct ag_copying_place place)
{
    struct ag_copied what = {.width = bytes, .height = 1, .depth = 1};
    enum ag_memory to_kind, from_kind;

    if (!is_worth_a_look(bytes, way) || bytes > INT64_MAX)
        return false;
    to_kind = memory_at(to, bytes);
    from_kind = to_kind ? memory_at(from, bytes) : AG_MEMORY_UNKNOWN;
    if (!is_pageable_copy(&what, to_kind, from_kind) ||
        (way != AG_COPYING_EITHER && what.to_host != (way == AG_COPYING_TO_HOST)))
        return false;
    what.device = what.to_host ? from : to;
    what.host = what.to_host ? to : from;
    what.device_pitch = what.host_pitch = what.device_slice = what.host_slice = bytes;
    return copy_it(copying, &what, place);
}

/* The address of one side's first byte, and the distances of its rows and slices. */
static uint64_t side_of(const CUDA_MEMCPY3D *box, bool source, size_t *ret_pitch, size_t *ret_slice)
{
    CUmemorytype type = source ? box->srcMemoryType : box->dstMemoryType;
    uint64_t host = (uintptr_t)(source ? box->srcHost : box->dstHost);
    uint64_t address = type == CU_MEMORYTYPE_HOST ? host : source ? box->srcDevice : box->dstDevice;
    size_t pitch = source ? box->srcPitch : box->dstPitch;
    size_t height = source ? box->srcHeight : box->dstHeight;
    size_t x = source ? box->srcXInBytes : box->dstXInBytes;
    size_t y = source ? box->srcY : box->dstY, z = source ? box->srcZ : box->dstZ;

    *ret_pitch = pitch;
    *ret_slice = pitch * height;
    return address + (z * height + y) * pitch + x;
}

/* 0 for what the driver refuses. */
static size_t bytes_of(const CUDA_MEMCPY3D *copy)
{
    size_t bytes;

    if (copy->WidthInBytes > INT32_MAX || copy->Height > INT32_MAX)
        return 0;
    bytes = copy->WidthInBytes * copy->Height;
    return !bytes || copy->Depth > INT64_MAX / bytes ? 0 : bytes * copy->Depth;
}

bool ag_copying_box(struct ag_copying *copying, const CUDA_MEMCPY3D *copy,
                    struct ag_copying_place place)
{
    struct ag_copied what = {0};
    enum ag_memory to_kind, from_kind;
    CUDA_MEMCPY3D box;

    if (!copy || !is_worth_a_look(bytes_of(copy), AG_COPYING_EITHER))
        return false;
    box = *copy;
    if (!ag_box_resolve(&box, memory_at, &to_kind, &from_kind) ||
        !is_pageable_copy(&what, to_kind, from_kind))
        return false;
    what.width = box.WidthInBytes;
    what.height = box.Height;
    what.depth = box.Depth;
    what.device = side_of(&box, what.to_host, &what.device_pitch, &what.device_slice);
    what.host = side_of(&box, !what.to_host, &what.host_pitch, &what.host_slice);
    return copy_it(copying, &what, place);
}

bool ag_copying_rectangle(struct ag_copying *copying, const CUDA_MEMCPY2D *copy,
                          struct ag_copying_place place)
{
    CUDA_MEMCPY3D box;

    if (!copy)
        return false;
    box = ag_box_of_rectangle(copy);
    return ag_copying_box(copying, &box, place);
}

/* --- around it --- */

CUresult ag_copying_driver_took(const struct ag_copying *copying, CUresult result)
{
    if (copying->from_ns && result == CUDA_SUCCESS && ag_crew_claim()) {
        ag_worth_took(&self.worth, copying->to_host, copying->bytes, false,
                      ag_clock_ns() - copying->from_ns);
        ag_crew_release();
    }
    return result;
}

/* A copy of that context's that is under way in another thread ends by itself, if the driver is
 * asked for no more than that. */
void ag_copying_context_gone(const struct ag_context *context)
{
    uint64_t left = END_WAIT_NS;
    struct ag_wait wait = {0};

    if (!ag_entry_has_copies())
        return;
    while (!ag_crew_claim()) {
        if (!ag_wait_pause_within(&wait, &left)) {
            atomic_store(&ag_entry_copies, false); /* whose ring is whose is not known any more */
            return;
        }
    }
    ag_slots_context_gone(context);
    ag_crew_release();
}

/* What a parent has pinned is not pinned in its child. */
void ag_copying_begin_child(void)
{
    if (ag_slots_any())
        atomic_store(&ag_entry_copies, false);
    ag_crew_begin_child();
}
