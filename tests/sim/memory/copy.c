/* copy.c: what a copy does: where its bytes are, what the call must wait for, and the run. */
#include "tests/sim/sim_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Async uploads of pageable memory go in pieces, of which two may be under way on a stream: one
 * that has more waits for the work before it, also for the legacy stream's, and the third piece of
 * several uploads for the first of these. An H100 was asked of 2 and of 3 MiB, of two of 2 MiB, and
 * of eight of 1 MiB (R1024 to R1029, R1038). Uploads of 64 KiB are read into the command, as CUDA's
 * documentation has it; of these 2 MiB may be under way, while 4 MiB may not (R1056 to R1071). Here
 * the second MiB of them ends the first. */
#define PIECE       ((size_t)1 << 20)
#define MOST_PIECES 2u
#define NO_PIECE    ((size_t)64 << 10)
#define MOST_SMALL  ((size_t)1 << 20)

/* Copies from so many bytes on look for what was never written. */
#define LEAST_RUNS ((size_t)64 << 10)

enum side { SIDE_DEVICE, SIDE_PINNED, SIDE_MAPPED_HOST, SIDE_MANAGED, SIDE_PAGEABLE, SIDE_BAD };

static bool zombie_at(uint64_t address)
{
    for (const struct sim_block *block = sim_zombies(); block; block = block->next_zombie)
        if (address >= block->base && address - block->base < block->size)
            return true;
    return false;
}

static size_t extent(const struct sim_copy *copy, const struct sim_span *span)
{
    return (copy->depth - 1) * span->slice + (copy->height - 1) * span->pitch + copy->width;
}

/* Memory was there, and the copy is what shows that it is no more; a mapping that is gone shows at
 * once. */
static enum side classify_nothing(struct sim_span *span)
{
    if (sim_arena_has(span->address, NULL))
        return zombie_at(span->address) && !sim_is_reserved(span->address, 1) ? SIDE_DEVICE
                                                                              : SIDE_BAD;
    span->host = true;
    return span->address ? SIDE_PAGEABLE : SIDE_BAD;
}

static enum side classify(const struct sim_copy *copy, struct sim_span *span, int device,
                          bool to_write)
{
    const struct sim_block *block = sim_block_at(span->address);

    if (!block)
        return classify_nothing(span);
    if (!sim_block_holds(block, span->address, extent(copy, span)) ||
        !sim_mapped_open_to(block, span->address, extent(copy, span), device, to_write))
        return SIDE_BAD;
    switch (block->kind) {
    case SIM_BLOCK_MAPPED:
        return block->device == CU_DEVICE_CPU ? SIDE_MAPPED_HOST : SIDE_DEVICE;
    case SIM_BLOCK_HOST:
    case SIM_BLOCK_REGISTERED:
        return SIDE_PINNED;
    case SIM_BLOCK_MANAGED:
        return SIDE_MANAGED;
    default:
        return SIDE_DEVICE;
    }
}

/* ---- running ---- */

static int device_of(const struct sim_span *span, int fallback)
{
    const struct sim_block *block = sim_block_at(span->address);

    return !span->host && block && block->kind == SIM_BLOCK_POOL     ? block->device
           : !span->host && block && block->kind == SIM_BLOCK_NATIVE ? block->device
                                                                     : fallback;
}

/* A copy into a pool that was not opened to the other device was seen to succeed and copy nothing,
 * and to arrive, with no peer access or with one way of it (R981, R985). It is lost here with both
 * ways. */
static bool shut(const struct sim_span *span, int other_device)
{
    const struct sim_block *block = sim_block_at(span->address);
    bool there = false, back = false;

    if (span->host || !block || block->kind != SIM_BLOCK_POOL ||
        sim_pool_open_to(block->pool, other_device))
        return false;
    for (CUcontext ctx = sim_contexts(); ctx; ctx = ctx->next) {
        there |= ctx->device == other_device && sim_peer_device_open(ctx, block->device);
        back |= ctx->device == block->device && sim_peer_device_open(ctx, other_device);
    }
    return there && back;
}

static bool move_host(const struct sim_op *op, void *to, uint64_t from, size_t bytes)
{
    struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)from, bytes};

    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

    if (n == (ssize_t)bytes)
        return true;
    if (n < 0 && errno != EFAULT) { /* the system does not let us */
        memcpy(to, (const void *)(uintptr_t)from, bytes);
        return true;
    }
    sim_violation(op, from, bytes, NULL, "a copy reads or writes host memory that is gone");
    return false;
}

static bool put_host(struct sim_op *op, uint64_t to, void *from, size_t bytes)
{
    struct iovec local = {from, bytes}, remote = {(void *)(uintptr_t)to, bytes};

    ssize_t n = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);

    if (n == (ssize_t)bytes)
        return true;
    if (n < 0 && errno != EFAULT) {
        memcpy((void *)(uintptr_t)to, from, bytes);
        return true;
    }
    if (op->work.u.copy.host_waits_here) {
        op->work.u.copy.is_gone = true;
        return false;
    }
    sim_violation(op, to, bytes, NULL, "a copy reads or writes host memory that is gone");
    return false;
}

/* ThreadSanitizer would keep a note of each word, in as much memory again, and whether two accesses
 * of the device's memory meet is for the simulation to say. */
static void move_bytes(void *to, const void *from, size_t bytes)
{
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
    if ((uintptr_t)to - (uintptr_t)from >= bytes) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
        return;
    }
#endif
    memmove(to, from, bytes);
}

/* What was never written needs no copy where nothing was written either. */
static void move_by_runs(uint64_t to, unsigned char *dst, uint64_t from, const unsigned char *src,
                         size_t bytes)
{
    for (size_t at = 0, part; at < bytes; at += part) {
        bool is_empty;
        part = sim_arena_run_of(from + at, src + at, bytes - at, &is_empty);
        if (is_empty) {
            part = sim_arena_run_of(to + at, dst + at, part, &is_empty);
            if (!is_empty)
                memset(dst + at, 0, part);
            continue;
        }
        sim_arena_gather(to + at, dst + at, part);
        move_bytes(dst + at, src + at, part);
    }
}

static void move_row(uint64_t to, unsigned char *dst, uint64_t from, const unsigned char *src,
                     size_t bytes)
{
    if (bytes >= LEAST_RUNS && (dst + bytes <= src || src + bytes <= dst))
        move_by_runs(to, dst, from, src, bytes);
    else
        move_bytes(dst, src, bytes);
}

static bool run_row(struct sim_op *op, const struct sim_copy *copy, size_t y, size_t z,
                    size_t width)
{
    uint64_t from = copy->src.address + z * copy->src.slice + y * copy->src.pitch;
    uint64_t to = copy->dst.address + z * copy->dst.slice + y * copy->dst.pitch;
    unsigned char *src = NULL, *dst = NULL;

    if (copy->staged)
        src = copy->staged + (z * copy->height + y) * copy->width;
    else if (!copy->src.host && !(src = sim_check(op, from, width, false, false)))
        return false;
    if (!copy->dst.host && !(dst = sim_check(op, to, width, true, false)))
        return false;
    if (src && dst && !copy->staged) {
        move_row(to, dst, from, src, width);
        return true;
    }
    if (dst)
        sim_arena_gather(to, dst, width);
    if (src && dst)
        move_bytes(dst, src, width);
    else if (dst)
        return move_host(op, dst, from, width);
    else if (src)
        return put_host(op, to, src, width);
    else
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, width);
    return true;
}

static bool flat(const struct sim_copy *copy, const struct sim_span *span)
{
    return (copy->height == 1 || span->pitch == copy->width) &&
           (copy->depth == 1 || span->slice == copy->width * copy->height);
}

/* Programs may have a CLOCK_MONOTONIC of their own, which calls the simulation. */
static uint64_t raw_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* It takes no less than a card's does, also where little was ever written: what moving memory costs
 * is weighed against what using it elsewhere does. */
static void run_line(struct sim_op *op, const struct sim_copy *copy, size_t bytes)
{
    uint64_t from = raw_ns(), ns, least = sim_least_copy_ns(bytes);

    if (!run_row(op, copy, 0, 0, bytes))
        return;
    do
        ns = raw_ns() - from;
    while (ns < least);
    sim_note_copied(bytes, ns);
}

void sim_run_copy(struct sim_op *op)
{
    const struct sim_copy *copy = &op->work.u.copy;
    int from = device_of(&copy->src, op->device), to = device_of(&copy->dst, op->device);

    if (shut(&copy->src, to) || shut(&copy->dst, from) || shut(&copy->src, op->device) ||
        shut(&copy->dst, op->device))
        return;
    sim_advance_clock(copy->width * copy->height * copy->depth / 64);
    if (flat(copy, &copy->src) && flat(copy, &copy->dst)) {
        run_line(op, copy, copy->width * copy->height * copy->depth);
        return;
    }
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            if (!run_row(op, copy, y, z, copy->width))
                return;
}

/* ---- submitting ---- */

static size_t bytes_of(const struct sim_copy *copy)
{
    return copy->width * copy->height * copy->depth;
}

static size_t pieces_of(size_t bytes)
{
    return bytes <= NO_PIECE ? 0 : (bytes + PIECE - 1) / PIECE;
}

static size_t pieces_under_way(CUstream stream)
{
    size_t pieces = 0;

    for (unsigned i = 0; i < 2 && stream->uploads[i]; i++)
        pieces += pieces_of(bytes_of(&stream->uploads[i]->work.u.copy));
    return pieces;
}

/* The oldest upload that may be under way is over when this returns. */
static void end_upload(CUstream stream)
{
    struct sim_op *first = stream->uploads[0];

    stream->uploads[0] = stream->uploads[1];
    stream->uploads[1] = NULL;
    sim_wait(first);
    sim_op_unref(first);
}

static bool is_over(const struct sim_small_uploads *small)
{
    return !small->last || small->last->state == SIM_OP_DONE;
}

/* There is room for a small upload when this returns. The host does not get to know what is over:
 * no program may rely on it. */
static void make_room_in_commands(CUstream stream, size_t bytes)
{
    struct sim_small_uploads *small = stream->small_uploads;
    struct sim_op *first = small[0].last;

    if (is_over(&small[1]))
        small[1].bytes = 0;
    if (small[1].bytes + bytes <= MOST_SMALL)
        return;
    small[0] = small[1];
    small[1] = (struct sim_small_uploads){0};
    if (first)
        sim_finish_op(first);
    sim_op_unref(first);
}

/* What a copy from pageable memory waits for before its source is read. */
static void wait_to_stage(CUstream stream, size_t bytes, bool async)
{
    size_t pieces = pieces_of(bytes);

    if (!async || pieces > MOST_PIECES) {
        if (async)
            sim_stream_wait_for_legacy(stream);
        (void)sim_stream_drain(stream);
    }
    if (async && !pieces)
        make_room_in_commands(stream, bytes);
    while (async && pieces && stream->uploads[0] && pieces_under_way(stream) + pieces > MOST_PIECES)
        end_upload(stream);
}

static void note_upload(CUstream stream, struct sim_op *op)
{
    size_t bytes = bytes_of(&op->work.u.copy);

    if (pieces_of(bytes)) {
        stream->uploads[stream->uploads[0] != NULL] = sim_op_ref(op);
        return;
    }
    sim_op_unref(stream->small_uploads[1].last);
    stream->small_uploads[1].last = sim_op_ref(op);
    stream->small_uploads[1].bytes += bytes;
}

/* Takes the bytes of a pageable source as they are now. */
static void stage(struct sim_copy *copy)
{
    copy->staged = malloc(bytes_of(copy));
    if (!copy->staged)
        abort();
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            memcpy(copy->staged + (z * copy->height + y) * copy->width,
                   (const void *)(uintptr_t)(copy->src.address + z * copy->src.slice +
                                             y * copy->src.pitch),
                   copy->width);
}

/* The bytes cannot be written: a fault of the thread that called, as where the source cannot be
 * read (stage), and as by memcpy. Its handler may see to it that they can. */
static void write_here(struct sim_op *op)
{
    struct sim_copy *copy = &op->work.u.copy;

    while (copy->is_gone) {
        copy->is_gone = false;
        for (size_t z = 0; z < copy->depth; z++)
            for (size_t y = 0; y < copy->height; y++)
                memset((void *)(uintptr_t)(copy->dst.address + z * copy->dst.slice +
                                           y * copy->dst.pitch),
                       0, copy->width);
        sim_run_copy(op);
    }
}

static bool sync_memops(const struct sim_span *span)
{
    const struct sim_block *block = sim_block_at(span->address);

    return block && block->sync_memops;
}

/* Is it of memory, or made in a context, of which synchronous calls are to wait for all of the
 * copy? */
static bool is_to_wait(CUcontext ctx, const struct sim_copy *copy)
{
    return ctx->flags & CU_CTX_SYNC_MEMOPS || sync_memops(&copy->src) || sync_memops(&copy->dst);
}

/* Is it managed memory that prefers the host? */
static bool prefers_host(const struct sim_span *span)
{
    struct sim_residency *residency = sim_residency_of(sim_block_at(span->address));
    size_t n;

    if (!residency)
        return false;
    const struct sim_page *page = sim_residency_pages(residency, span->address, 1, &n);
    return sim_is_host(page->preferred);
}

/* An upload from memory of the host to managed memory is staged as one to the device is (R1072 to
 * R1077, R1088, R1089); but where that prefers the host and the call does not say what the upload
 * is from, it is a copy within the host (R1078, R1090). */
static bool is_staged(const struct sim_copy *copy, enum side dst)
{
    return dst == SIDE_MAPPED_HOST ||
           (dst == SIDE_MANAGED && (copy->src.as_host || !prefers_host(&copy->dst)));
}

/* Does the host wait for the copy? Between device memories not even the synchronous calls do. Host
 * memory that was mapped is of the host to those, and of the device to the others. */
static bool host_waits(CUcontext ctx, const struct sim_copy *copy, enum side src, enum side dst,
                       bool async)
{
    bool host_to_host = src != SIDE_DEVICE && dst != SIDE_DEVICE;

    if (copy->of_batch) /* not even for pageable memory (R547) */
        return false;
    if (async)
        return dst == SIDE_PAGEABLE ||
               (src == SIDE_PAGEABLE && host_to_host && !is_staged(copy, dst)) ||
               (copy->src.as_host && src == SIDE_MANAGED) ||
               (copy->dst.as_host && dst == SIDE_MANAGED);
    if (src == SIDE_PAGEABLE && dst == SIDE_DEVICE)
        return is_to_wait(ctx, copy); /* staged: the last leg may still be on its way */
    if (src == SIDE_DEVICE && dst == SIDE_DEVICE)
        return is_to_wait(ctx, copy);
    return true;
}

void sim_copy_for_node(struct sim_copy *copy)
{
    copy->src.host = !sim_block_at(copy->src.address) && !sim_arena_has(copy->src.address, NULL);
    copy->dst.host = !sim_block_at(copy->dst.address) && !sim_arena_has(copy->dst.address, NULL);
}

/* Host memory that was registered for reading only; it is told at the call (H100, 580.159). */
static bool is_read_only(const struct sim_copy *copy)
{
    const struct sim_block *block = sim_block_at(copy->dst.address);

    return block && block->kind == SIM_BLOCK_REGISTERED && block->read_only_mask;
}

CUresult sim_copy_submit(CUstream handle, CUcontext ctx, struct sim_copy *copy, bool async)
{
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_check_legacy(stream);
    if (result == CUDA_SUCCESS && !async)
        result = sim_capture_check_sync(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!copy->width || !copy->height || !copy->depth)
        return CUDA_SUCCESS;
    struct sim_work work = {.kind = SIM_WORK_COPY, .u.copy = *copy};
    if (stream->capture) {
        sim_copy_for_node(&work.u.copy);
        return sim_submit(stream, &work, NULL);
    }
    enum side src = classify(copy, &copy->src, ctx->device, false);
    enum side dst = classify(copy, &copy->dst, ctx->device, true);
    if (src == SIDE_BAD || dst == SIDE_BAD || (dst == SIDE_PINNED && is_read_only(copy)))
        return CUDA_ERROR_INVALID_VALUE;
    work.u.copy = *copy;
    if (src == SIDE_PAGEABLE && !copy->reads_late) {
        if (!copy->of_batch)
            wait_to_stage(stream, bytes_of(copy), async);
        stage(&work.u.copy);
    }
    bool wait = host_waits(ctx, copy, src, dst, async);
    struct sim_op *op = NULL;
    work.u.copy.host_waits_here = wait && dst == SIDE_PAGEABLE;
    sim_enqueue(stream, &work, NULL, &op);
    if (src == SIDE_PAGEABLE && async && !copy->of_batch && !copy->reads_late)
        note_upload(stream, op);
    if (wait) {
        sim_wait(op);
        write_here(op);
    }
    sim_op_unref(op);
    return wait ? ctx->fault : CUDA_SUCCESS;
}
