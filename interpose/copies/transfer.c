/* Copies through pinned slots: see transfer.h.
 *
 * The pieces go through the slots in turns. To a device, a piece is ready to be moved into its slot
 * when what was submitted of the slot before is done; the thread that makes the copy submits it to
 * the program's stream once it has been moved. To the host it is submitted first, and ready when it
 * has arrived. Only that thread calls the driver, in the order of the pieces, so the copy stands
 * where the program's call stands in the order of the stream.
 *
 * Small pieces begin and end soon, and stay in caches; but the bus needs some 3 us for each copy.
 * So pieces that follow one another are submitted together, while others cross the bus. */
#include "interpose/copies/transfer.h"

#include <string.h>

#include "interpose/copies/crew.h"
#include "interpose/copies/move.h"
#include "interpose/copies/reach.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"

/* The thread that makes a small copy moves pieces itself from the beginning, as the others take 20
 * to 50 us to wake up. During a large one the bus would run out of what is submitted: it takes one
 * only when nothing has come for long, as where others have the processors. */
#define HELP_PIECES 32u /* of a copy that is small */
#define HELP_BYTES  ((size_t)512 << 10)
#define AHEAD       2u    /* batches that are submitted before the crew is woken */
#define BETWEEN     2u    /* after that, before what has arrived is looked for and moved */
#define HELP_AFTER  1500u /* turns; some 80 us */
#define TURNS_AWAKE 4000u /* without a piece; longer than the largest takes */
#define BATCH_BYTES ((size_t)2 << 20)
#define BATCHES     16u /* of a copy to the host, which begins to be moved when one has arrived */
#define ON_THE_BUS  2u  /* batches; then the next one may grow */

/* Pieces are small where their pages are there. Else the kernel locks for each page a table that
 * all pages of 2 MiB share: then a piece of that size has such a table to itself. Larger pieces to
 * the host are slower: 16 MiB take 0.38 ms by 256 KiB, 0.42 by 512 KiB, 0.44 by 1 or 2 MiB
 * (H100). */
#define BYTES_IN    ((size_t)128 << 10)
#define BYTES_OUT   ((size_t)256 << 10)
#define TABLE_BYTES ((size_t)2 << 20)
#define LINE_BYTES  ((size_t)64) /* of a cache: no two slots share one */

struct run {
    struct ag_crew_job job; /* first: the crew knows only this */
    const struct ag_transfer *transfer;
    struct ag_slots *slots;
    struct ag_reach reach;    /* the host's memory, before the crew is woken */
    uint64_t id;              /* another one's is different */
    _Atomic uint32_t present; /* pieces whose pages the owner has seen, all of them plain */
    bool looks;               /* the owner does */
    uint32_t batch;           /* pieces that are submitted together, at most */
    uint32_t submitted;       /* pieces that the driver has */
    uint32_t ready;           /* pieces that may be moved; to the host: those that have arrived */
    uint32_t moved;           /* pieces that have been, with all before them */
    uint32_t helpers;         /* threads of ours */
    bool is_alone;            /* the crew has left */
    struct ag_wait wait;
};

/* Pieces that have a table to themselves begin with it. */
static size_t skew_of(const struct ag_transfer *transfer)
{
    bool is_whole = transfer->piece_bytes == TABLE_BYTES && transfer->what.height == 1 &&
                    transfer->what.depth == 1;

    return is_whole ? transfer->what.host % TABLE_BYTES : 0;
}

static size_t pieces_per_row(const struct ag_transfer *transfer)
{
    size_t bytes = transfer->what.width + skew_of(transfer);

    return (bytes + transfer->piece_bytes - 1) / transfer->piece_bytes;
}

bool ag_transfer_plan(struct ag_transfer *transfer, uint32_t wanted, size_t least_piece)
{
    const struct ag_copied *what = &transfer->what;
    size_t bytes = what->width * what->height * what->depth;
    size_t piece = bytes / wanted, most = what->to_host ? BYTES_OUT : BYTES_IN, n;

    transfer->is_present =
        piece <= BYTES_OUT || /* pages matter for larger ones alone */
        ag_reach_seems_present((const void *)(uintptr_t)what->host, ag_copied_host_bytes(what));
    most = transfer->is_present ? most : TABLE_BYTES;
    piece = (piece > least_piece ? piece : least_piece) + LINE_BYTES - 1;
    piece -= piece % LINE_BYTES;
    transfer->piece_bytes = piece < most ? piece : most;
    n = pieces_per_row(transfer);
    if (n > INT32_MAX / what->height / what->depth)
        return false;
    transfer->pieces = (uint32_t)(n * what->height * what->depth);
    transfer->reuses_slots = transfer->pieces > ag_slots_most(transfer->piece_bytes);
    return true;
}

/* --- pieces --- */

struct piece {
    uint64_t device;
    unsigned char *host, *slot;
    size_t bytes;
};

static struct piece piece_of(const struct run *run, uint32_t number)
{
    const struct ag_transfer *transfer = run->transfer;
    const struct ag_copied *what = &transfer->what;
    size_t per_row = pieces_per_row(transfer), row = number / per_row;
    size_t skew = skew_of(transfer), begin = number % per_row * transfer->piece_bytes;
    size_t x = begin > skew ? begin - skew : 0, end = begin + transfer->piece_bytes - skew;
    size_t y = row % what->height, z = row / what->height;
    uint64_t host = what->host + z * what->host_slice + y * what->host_pitch + x;

    return (struct piece){
        .device = what->device + z * what->device_slice + y * what->device_pitch + x,
        .host = (unsigned char *)(uintptr_t)host,
        .slot = ag_slots_memory(run->slots, number),
        .bytes = (end < what->width ? end : what->width) - x,
    };
}

/* Memory that the owner has seen is asked about by this thread once, for all of it. */
static bool reach_piece(const struct run *run, uint32_t number, struct piece piece)
{
    static _Thread_local uint64_t may_touch;
    bool for_writing = run->transfer->what.to_host;

    if (number < atomic_load_explicit(&run->present, memory_order_acquire)) {
        if (may_touch != run->id && ag_reach_may_touch(&run->reach))
            may_touch = run->id;
        if (may_touch == run->id)
            return true;
    }
    return ag_reach_is_present(&run->reach, piece.host, piece.bytes) ||
           ag_reach_get(piece.host, piece.bytes, for_writing);
}

/* Where slots have to be used again, the bus bounds the rate, or else the memory's: so the pieces
 * go through the cache then. A smaller copy's are all in their slots when the call returns: the
 * sooner they are there, the better. */
static bool move_in(const struct ag_crew_job *job, uint32_t number)
{
    const struct run *run = (const struct run *)(const void *)job;
    struct piece piece = piece_of(run, number);

    if (!reach_piece(run, number, piece))
        return false;
    if (run->transfer->reuses_slots)
        ag_move_to_shared_cache(piece.slot, piece.host, piece.bytes);
    else
        ag_move_past_cache(piece.slot, piece.host, piece.bytes);
    return true;
}

static bool move_out(const struct ag_crew_job *job, uint32_t number)
{
    const struct run *run = (const struct run *)(const void *)job;
    struct piece piece = piece_of(run, number);

    if (!reach_piece(run, number, piece))
        return false;
    ag_move_past_cache(piece.host, piece.slot, piece.bytes);
    return true;
}

/* The calling thread touches the program's memory itself. A handler of its fault may jump out of
 * here: then nobody else knows the job, and the thread is in no hook of ours. */
static void move_alone(const struct run *run, uint32_t number)
{
    struct piece piece = piece_of(run, number);
    int depth = ag_entry_depth;

    ag_entry_depth = 0;
    if (run->transfer->what.to_host)
        memcpy(piece.host, piece.slot, piece.bytes);
    else
        memcpy(piece.slot, piece.host, piece.bytes);
    ag_entry_depth = depth;
}

/* Has the piece been moved? Once one is left to the calling thread, that moves all the others, too:
 * where memory cannot be touched, the fault is that thread's, as natively. */
static bool is_moved(struct run *run, uint32_t number)
{
    enum ag_crew_piece state = ag_crew_piece_of(&run->job, number);

    if (state == AG_CREW_MOVED)
        return true;
    if (state == AG_CREW_LEFT && !run->is_alone) {
        ag_crew_close(&run->job);
        run->is_alone = true;
    }
    if (!run->is_alone || number >= run->ready)
        return false;
    if (ag_crew_piece_of(&run->job, number) != AG_CREW_MOVED)
        move_alone(run, number);
    return true;
}

/* The next piece to be submitted, and those after it, `most` in all, if they follow it both in the
 * slots and on the device: how many they are. */
static uint32_t join_pieces(const struct run *run, uint32_t most, struct piece *ret)
{
    struct piece next;
    uint32_t n = 1;

    *ret = piece_of(run, run->submitted);
    for (; n < most; n++) {
        next = piece_of(run, run->submitted + n);
        if (next.device != ret->device + ret->bytes || next.slot != ret->slot + ret->bytes)
            break;
        ret->bytes += next.bytes;
    }
    return n;
}

/* Gives the driver the next `n` pieces, which are joined. */
static CUresult submit(struct run *run, struct piece pieces, uint32_t n)
{
    CUstream stream = run->transfer->stream;
    CUresult result;

    result = run->transfer->what.to_host
                 ? ag_cu.cuMemcpyDtoHAsync_v2(pieces.slot, pieces.device, pieces.bytes, stream)
                 : ag_cu.cuMemcpyHtoDAsync_v2(pieces.device, pieces.slot, pieces.bytes, stream);
    if (result != CUDA_SUCCESS)
        return result;
    run->submitted += n;
    run->wait = (struct ag_wait){0};
    return ag_slots_submitted(run->slots, n, stream);
}

/* --- waiting --- */

/* Until the driver is done with the oldest batch. */
static CUresult wait_for_driver(struct run *run)
{
    struct ag_slots *slots = run->slots;

    run->wait = (struct ag_wait){0};
    return ag_cu.cuEventSynchronize(ag_slots_event(slots, slots->finished));
}

/* Until it is done with all of them, which are of one stream. */
static CUresult wait_for_last(struct run *run)
{
    struct ag_slots *slots = run->slots;
    CUresult result = ag_cu.cuEventSynchronize(ag_slots_event(slots, slots->last));

    return result == CUDA_SUCCESS ? ag_slots_look(slots) : result;
}

static bool is_small(const struct ag_transfer *transfer)
{
    return transfer->pieces <= HELP_PIECES && transfer->piece_bytes <= HELP_BYTES;
}

/* Does a piece while others are under way; else waits for them. */
static CUresult help_or_wait(struct run *run, bool others_move)
{
    bool helps = !others_move || run->helpers < 2 || is_small(run->transfer) ||
                 run->wait.turns >= HELP_AFTER;

    if (helps && ag_crew_move_one(&run->job)) {
        run->wait = (struct ag_wait){0};
        return CUDA_SUCCESS;
    }
    if (!others_move && run->wait.turns >= HELP_AFTER)
        return wait_for_driver(run);
    if (run->wait.turns < TURNS_AWAKE)
        ag_wait_pause_awake(&run->wait);
    else
        ag_wait_pause(&run->wait);
    return CUDA_SUCCESS;
}

static CUresult look_at_driver(struct run *run)
{
    CUresult result = ag_slots_look(run->slots);

    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

/* --- both ways --- */

static uint32_t at_most(uint64_t n, uint32_t most)
{
    return n < most ? (uint32_t)n : most;
}

static void open_crew(struct run *run)
{
    const struct ag_copied *what = &run->transfer->what;

    ag_reach_look(&run->reach, (const void *)(uintptr_t)what->host, ag_copied_host_bytes(what),
                  what->to_host);
    run->helpers = ag_crew_open(&run->job, at_most(run->job.end, run->transfer->threads));
}

/* Pieces before `ready` may be moved. The owner has time to see whether their pages are there,
 * which else would cost the others a tenth of theirs; what it has seen is moved meanwhile. Relaxed:
 * the owner's own store. */
static void let_move(struct run *run, uint32_t ready)
{
    uint32_t present = atomic_load_explicit(&run->present, memory_order_relaxed);
    struct piece first, last;
    uint32_t end;

    run->ready = ready;
    while (run->looks && present < ready) {
        end = at_most((uint64_t)present + TABLE_BYTES / run->transfer->piece_bytes, ready);
        first = piece_of(run, present);
        last = piece_of(run, end - 1);
        run->looks = ag_reach_is_present(&run->reach, first.host,
                                         (size_t)(last.host - first.host) + last.bytes);
        if (!run->looks)
            break;
        present = end;
        atomic_store_explicit(&run->present, present, memory_order_release);
        ag_crew_ready(&run->job, present);
    }
    ag_crew_ready(&run->job, ready);
}

/* Counts what has been moved, up to `end`. True: something more. */
static bool see_moved(struct run *run, uint32_t end)
{
    uint32_t before = run->moved;

    while (run->moved < end && run->moved < run->ready && is_moved(run, run->moved))
        run->moved++;
    if (run->moved == before)
        return false;
    run->wait = (struct ag_wait){0};
    return true;
}

/* Submits what has been moved, but while the bus has enough to do, no less than a batch. False:
 * there is too little. */
static bool submit_moved(struct run *run, CUresult *ret)
{
    struct piece pieces;
    uint32_t n, moved = run->moved - run->submitted;
    bool is_all;

    if (!moved)
        return false;
    n = join_pieces(run, moved, &pieces);
    is_all = n < moved || n == run->batch || run->moved == run->job.end;
    if (!is_all && run->slots->batches >= ON_THE_BUS)
        return false;
    *ret = submit(run, pieces, n);
    return true;
}

static CUresult bring_in(struct run *run)
{
    uint32_t end = run->job.end;
    CUresult result = CUDA_SUCCESS;

    open_crew(run);
    while (run->submitted < end && result == CUDA_SUCCESS) {
        result = look_at_driver(run);
        if (result != CUDA_SUCCESS)
            break;
        let_move(run, at_most((uint64_t)run->slots->finished + run->slots->n, end));
        (void)see_moved(run, at_most((uint64_t)run->submitted + run->batch, end));
        if (!submit_moved(run, &result))
            result = help_or_wait(run, run->moved < run->ready);
    }
    if (run->transfer->waits && result == CUDA_SUCCESS)
        result = wait_for_last(run);
    return result;
}

/* To the host: is a batch left for which there are slots? */
static bool can_submit(const struct run *run, uint32_t end)
{
    return run->submitted < end &&
           at_most((uint64_t)run->submitted + run->batch, end) <= run->moved + run->slots->n;
}

static CUresult submit_before(struct run *run, uint32_t end)
{
    CUresult result = CUDA_SUCCESS;
    struct piece pieces;
    uint32_t n;

    while (can_submit(run, end) && result == CUDA_SUCCESS) {
        n = join_pieces(run, at_most(run->batch, end - run->submitted), &pieces);
        result = submit(run, pieces, n);
    }
    return result;
}

/* The bus works while the crew wakes up, and the crew wakes up while the rest is submitted. */
static CUresult bring_out(struct run *run)
{
    uint32_t end = run->job.end;
    CUresult result = submit_before(run, at_most((uint64_t)AHEAD * run->batch, end));

    open_crew(run);
    while (run->moved < end && result == CUDA_SUCCESS) {
        uint64_t next = run->submitted + (uint64_t)BETWEEN * run->batch;

        result = submit_before(run, at_most(next, end));
        if (result == CUDA_SUCCESS)
            result = look_at_driver(run);
        if (result != CUDA_SUCCESS)
            break;
        let_move(run, run->slots->finished);
        if (!see_moved(run, end) && !can_submit(run, end))
            result = help_or_wait(run, run->moved < run->ready);
    }
    return result;
}

/* After an error some slots may still be in use, and their events may not tell. */
static void drain_slots(struct run *run)
{
    if (ag_cu.cuStreamSynchronize(run->transfer->stream) == CUDA_SUCCESS)
        run->slots->finished = run->slots->used;
    else
        run->slots->is_broken = true;
}

/* To the host all pieces of a batch arrive together, so it is no larger than some part of all. */
static uint32_t batch_of(const struct ag_transfer *transfer)
{
    uint32_t most = at_most(BATCH_BYTES / transfer->piece_bytes, AG_CREW_SLOTS / 2);
    uint32_t share = transfer->what.to_host ? transfer->pieces / BATCHES : most;

    return at_most(share ? share : 1, most);
}

/* One piece after the other arrives of a small copy to the host: the owner would look at each. */
static bool is_looked_at(const struct ag_transfer *transfer)
{
    return transfer->what.height == 1 && transfer->what.depth == 1 &&
           (!transfer->what.to_host || !is_small(transfer));
}

static uint64_t runs; /* counted by whoever has the crew */

CUresult ag_transfer_run(const struct ag_transfer *transfer, struct ag_slots *slots)
{
    struct run run = {
        .job = {.move = transfer->what.to_host ? move_out : move_in, .end = transfer->pieces},
        .transfer = transfer,
        .slots = slots,
        .batch = batch_of(transfer),
        .id = ++runs,
        .looks = is_looked_at(transfer),
    };
    CUresult result;

    ag_slots_cut(slots, transfer->piece_bytes, transfer->pieces);
    result = transfer->what.to_host ? bring_out(&run) : bring_in(&run);
    ag_crew_close(&run.job);
    if (result != CUDA_SUCCESS)
        drain_slots(&run);
    return result;
}
