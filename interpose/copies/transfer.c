/* Copies through pinned slots: see transfer.h.
 *
 * The pieces go through the slots in turns. To a device, a piece is ready to be moved into its slot
 * when what was submitted of the slot before is done; the thread that makes the copy submits it to
 * the program's stream once it has been moved. To the host it is submitted first, and ready when it
 * has arrived. Only that thread calls the driver, in the order of the pieces, so the copy stands
 * where the program's call stands in the order of the stream. */
#include "interpose/copies/transfer.h"

#include <string.h>

#include "interpose/copies/crew.h"
#include "interpose/copies/move.h"
#include "interpose/copies/reach.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"

/* The thread that makes the copy moves small pieces itself from the beginning, as the others take
 * 20 to 50 us to wake up. During a large one the bus would run out of what is submitted: it takes
 * one only when nothing has come for long, as where others have the processors. */
#define HELP_BYTES  ((size_t)512 << 10)
#define AHEAD       2u    /* pieces that are submitted before the crew is woken */
#define BETWEEN     2u    /* after that, before what has arrived is looked for and moved */
#define LEAST_SHARE 1u    /* pieces of a thread */
#define HELP_AFTER  1500u /* turns; some 80 us */
#define TURNS_AWAKE 4000u /* without a piece; longer than the largest takes */

struct run {
    struct ag_crew_job job; /* first: the crew knows only this */
    const struct ag_transfer *transfer;
    struct ag_slots *slots;
    struct ag_reach reach; /* the host's memory, before the crew is woken */
    uint64_t first;        /* the use that piece 0 is */
    uint32_t submitted;    /* pieces that the driver has */
    uint32_t ready;        /* pieces that may be moved; to the host: those that have arrived */
    uint32_t emptied;      /* to the host: those that have left them */
    uint32_t helpers;      /* threads of ours */
    bool is_alone;         /* the crew has left */
    struct ag_wait wait;
};

/* Pieces of the size of slots begin at multiples of it, so that no two of them have pages in one
 * table, whose lock is taken for each page that comes. */
static size_t skew_of(const struct ag_transfer *transfer)
{
    bool is_whole = transfer->piece_bytes == AG_SLOT_BYTES && transfer->what.height == 1 &&
                    transfer->what.depth == 1;

    return is_whole ? transfer->what.host % AG_SLOT_BYTES : 0;
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
    size_t piece = bytes / wanted;
    size_t n;

    piece = piece > least_piece ? piece : least_piece;
    transfer->piece_bytes = piece < AG_SLOT_BYTES ? piece : AG_SLOT_BYTES;
    n = pieces_per_row(transfer);
    if (n > INT32_MAX / what->height / what->depth)
        return false;
    transfer->pieces = (uint32_t)(n * what->height * what->depth);
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
        .slot = ag_slots_memory(run->slots, run->first + number),
        .bytes = (end < what->width ? end : what->width) - x,
    };
}

static bool reach_piece(const struct run *run, struct piece piece)
{
    bool for_writing = run->transfer->what.to_host;

    return ag_reach_is_present(&run->reach, piece.host, piece.bytes) ||
           ag_reach_get(piece.host, piece.bytes, for_writing);
}

static bool move_in(const struct ag_crew_job *job, uint32_t number)
{
    const struct run *run = (const struct run *)(const void *)job;
    struct piece piece = piece_of(run, number);

    if (!reach_piece(run, piece))
        return false;
    ag_move_past_cache(piece.slot, piece.host, piece.bytes);
    return true;
}

static bool move_out(const struct ag_crew_job *job, uint32_t number)
{
    const struct run *run = (const struct run *)(const void *)job;
    struct piece piece = piece_of(run, number);

    if (!reach_piece(run, piece))
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

/* Gives the driver the next piece. */
static CUresult submit(struct run *run)
{
    uint64_t use = run->first + run->submitted;
    struct piece piece = piece_of(run, run->submitted);
    CUstream stream = run->transfer->stream;
    CUresult result;

    result = run->transfer->what.to_host
                 ? ag_cu.cuMemcpyDtoHAsync_v2(piece.slot, piece.device, piece.bytes, stream)
                 : ag_cu.cuMemcpyHtoDAsync_v2(piece.device, piece.slot, piece.bytes, stream);
    if (result != CUDA_SUCCESS)
        return result;
    run->submitted++;
    run->wait = (struct ag_wait){0};
    run->slots->used = use + 1;
    result = ag_cu.cuEventRecord(ag_slots_event(run->slots, use), stream);
    return result;
}

/* --- waiting --- */

/* Until the driver is done with the oldest use. */
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
    CUresult result = ag_cu.cuEventSynchronize(ag_slots_event(slots, slots->used - 1));

    if (result == CUDA_SUCCESS)
        slots->finished = slots->used;
    return result;
}

/* Does a piece while others are under way; else waits for them. */
static CUresult help_or_wait(struct run *run, bool others_move)
{
    bool helps = !others_move || run->helpers < 2 || run->transfer->piece_bytes <= HELP_BYTES ||
                 run->wait.turns >= HELP_AFTER;

    if (helps && ag_crew_move_one(&run->job)) {
        run->wait = (struct ag_wait){0};
        return CUDA_SUCCESS;
    }
    if (!others_move)
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
    const struct ag_transfer *transfer = run->transfer;
    const struct ag_copied *what = &transfer->what;
    uint32_t shares = (transfer->pieces + LEAST_SHARE - 1) / LEAST_SHARE;

    ag_reach_look(&run->reach, (const void *)(uintptr_t)what->host, ag_copied_host_bytes(what),
                  what->to_host);
    run->helpers = ag_crew_open(&run->job, at_most(shares, transfer->threads));
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
        run->ready = at_most(run->slots->finished + AG_CREW_SLOTS - run->first, end);
        ag_crew_ready(&run->job, run->ready);
        if (is_moved(run, run->submitted))
            result = submit(run);
        else
            result = help_or_wait(run, run->submitted < run->ready);
    }
    if (run->transfer->waits && result == CUDA_SUCCESS)
        result = wait_for_last(run);
    return result;
}

/* To the host: is a piece left for which there is a slot? */
static bool can_submit(const struct run *run, uint32_t end)
{
    return run->submitted < end && run->submitted < run->emptied + AG_CREW_SLOTS;
}

static CUresult submit_before(struct run *run, uint32_t end)
{
    CUresult result = CUDA_SUCCESS;

    while (can_submit(run, end) && result == CUDA_SUCCESS)
        result = submit(run);
    return result;
}

/* The bus works while the crew wakes up, and the crew wakes up while the rest is submitted. */
static CUresult bring_out(struct run *run)
{
    uint32_t end = run->job.end;
    CUresult result = submit_before(run, end < AHEAD ? end : AHEAD);

    open_crew(run);
    while (run->emptied < end && result == CUDA_SUCCESS) {
        result = submit_before(run, at_most((uint64_t)run->submitted + BETWEEN, end));
        if (result == CUDA_SUCCESS)
            result = look_at_driver(run);
        if (result != CUDA_SUCCESS)
            break;
        if (run->slots->finished > run->first)
            run->ready = (uint32_t)(run->slots->finished - run->first);
        ag_crew_ready(&run->job, run->ready);
        if (run->emptied < run->ready && is_moved(run, run->emptied)) {
            run->emptied++;
            run->wait = (struct ag_wait){0};
        } else if (!can_submit(run, end)) {
            result = help_or_wait(run, run->emptied < run->ready);
        }
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

CUresult ag_transfer_run(const struct ag_transfer *transfer, struct ag_slots *slots)
{
    struct run run = {
        .job = {.move = transfer->what.to_host ? move_out : move_in, .end = transfer->pieces},
        .transfer = transfer,
        .slots = slots,
        .first = slots->used,
    };
    CUresult result;

    result = transfer->what.to_host ? bring_out(&run) : bring_in(&run);
    ag_crew_close(&run.job);
    if (result != CUDA_SUCCESS)
        drain_slots(&run);
    return result;
}
