/* Runs a segment both ways and compares: see verify.h.
 *
 * All of it is work on the stream, in order, and only the comparison waits: the memory is saved;
 * the graph runs; its results are saved; the memory is restored; the operations run one by one.
 * Once the graph has run, any failure is mended by restoring its results. */
#include "graph/replay/verify.h"

#include <inttypes.h>
#include <string.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/answers/answers.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"

#define MAX_BLOCKS  128u
#define MAX_BYTES   (256ull << 20) /* of all blocks; twice as much is needed beside them */
#define CHUNK_BYTES (256ull << 10) /* compared at a time */
#define TIMEOUT_NS  2000000000ull
#define ALIGN       256u

struct block {
    CUdeviceptr base;
    size_t size;
    uint64_t offset; /* where it is saved */
};

struct verify {
    CUstream stream;
    CUstream room_stream; /* private: room for both sets is allocated and freed on it */
    CUevent event;
    struct block blocks[MAX_BLOCKS];
    uint32_t n;
    uint64_t bytes;              /* of one set of them */
    CUdeviceptr before, results; /* two sets */
};

/* --- which memory --- */

/* Adds the program's block that the address lies in, if it is device memory: the driver's would be
 * the whole of a slab, of which other streams may write other pieces meanwhile. False: the segment
 * cannot be verified (memory that the host may read, too many blocks or bytes). */
static bool add_program_block(struct verify *verify, uint64_t address, bool must_be_memory)
{
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    CUdeviceptr base = 0;
    size_t size = 0;

    if (address < 4096 || address >> 56)
        return !must_be_memory;
    for (uint32_t i = 0; i < verify->n; i++) {
        if (address - verify->blocks[i].base < verify->blocks[i].size)
            return true;
    }
    if (ag_cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
        CUDA_SUCCESS)
        return !must_be_memory;
    if (ag_answer_attribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
            CUDA_SUCCESS ||
        ag_answer_attribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) != CUDA_SUCCESS)
        return !must_be_memory; /* it was freed */
    if (type != CU_MEMORYTYPE_DEVICE || verify->n == MAX_BLOCKS || address - base >= size ||
        size > MAX_BYTES - verify->bytes)
        return false;
    verify->blocks[verify->n++] = (struct block){base, size, verify->bytes};
    verify->bytes += (size + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    return verify->bytes <= MAX_BYTES;
}

/* Every word of a kernel's parameters may be a pointer. */
static bool add_params(struct verify *verify, const struct ag_kernel_payload *payload)
{
    for (uint32_t at = 0; at + sizeof(uint64_t) <= payload->bytes; at += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, payload->params + at, sizeof(word));
        if (!add_program_block(verify, word, false))
            return false;
    }
    return true;
}

static bool add_blocks_of_copy(struct verify *verify, const CUDA_MEMCPY3D *copy)
{
    return copy->dstMemoryType == CU_MEMORYTYPE_DEVICE &&
           add_program_block(verify, copy->dstDevice, true);
}

static bool add_blocks_of_op(struct verify *verify, const struct ag_op *op)
{
    const struct ag_copy_payload *copy = (const void *)op->payload;
    struct ag_fill_area area;

    switch (ag_op_kind(op)) {
    case AG_OP_KERNEL:
        return add_params(verify, (const void *)op->payload);
    case AG_OP_COPY:
        return add_program_block(verify, copy->to, true);
    case AG_OP_COPY_3D:
        return add_blocks_of_copy(verify, ag_op_copy_3d_params(&op->signature));
    case AG_OP_FILL:
    case AG_OP_FILL_2D:
        ag_op_fill_area(op, &area);
        return add_program_block(verify, area.to, true);
    }
    return false;
}

/* --- saving and restoring --- */

/* Saves all blocks in the set, or restores them from it; goes on where one fails. */
static bool copy_all(const struct verify *verify, CUdeviceptr set, bool restores)
{
    bool done = true;

    for (uint32_t i = 0; i < verify->n; i++) {
        CUdeviceptr saved = set + verify->blocks[i].offset, base = verify->blocks[i].base;

        done &= ag_cu.cuMemcpyDtoDAsync_v2(restores ? base : saved, restores ? saved : base,
                                           verify->blocks[i].size, verify->stream) == CUDA_SUCCESS;
    }
    return done;
}

/* --- room for it ---
 *
 * Never taken on the stream itself, which may be the legacy one: after a pool allocation there, a
 * thread that ends while its per-thread stream waits does not come back from the driver. */

static bool let_wait(const struct verify *verify, CUstream stream, CUstream for_stream)
{
    return ag_cu.cuEventRecord(verify->event, for_stream) == CUDA_SUCCESS &&
           ag_cu.cuStreamWaitEvent(stream, verify->event, 0) == CUDA_SUCCESS;
}

static void drop_tools(const struct verify *verify)
{
    if (verify->event)
        (void)ag_cu.cuEventDestroy_v2(verify->event);
    if (verify->room_stream)
        (void)ag_cu.cuStreamDestroy_v2(verify->room_stream);
}

static bool get_room(struct verify *verify)
{
    if (!ag_cu.cuMemAllocAsync || !ag_cu.cuMemFreeAsync || !verify->bytes)
        return false;
    if (ag_cu.cuStreamCreate(&verify->room_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        ag_cu.cuEventCreate(&verify->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        ag_cu.cuMemAllocAsync(&verify->before, 2 * verify->bytes, verify->room_stream) !=
            CUDA_SUCCESS)
        goto out_tools;
    verify->results = verify->before + verify->bytes;
    if (let_wait(verify, verify->stream, verify->room_stream))
        return true;
    (void)ag_cu.cuMemFreeAsync(verify->before, verify->room_stream);
out_tools:
    drop_tools(verify);
    return false;
}

/* Where the free cannot be ordered after the stream's work, the memory is leaked. */
static void free_room(const struct verify *verify)
{
    if (let_wait(verify, verify->room_stream, verify->stream))
        (void)ag_cu.cuMemFreeAsync(verify->before, verify->room_stream);
    drop_tools(verify);
}

/* --- the comparison --- */

static bool wait_for_stream(CUstream stream)
{
    uint64_t until = ag_clock_after(TIMEOUT_NS);
    struct ag_wait wait = {0};
    CUresult result;

    while ((result = ag_cu.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY &&
           ag_wait_for_device_until(&wait, until))
        ;
    return result == CUDA_SUCCESS;
}

static void say_difference(const struct verify *verify, const struct block *block, uint64_t offset,
                           const unsigned char *replayed, const unsigned char *eager, uint32_t n)
{
    ag_log_error("ALLOGRAFT_GRAPH_VERIFY: a graph of %u operations wrote other bytes than the "
                 "operations one by one: block %u of %u, at %#" PRIx64 " of %zu bytes, from offset "
                 "%" PRIu64 ": %02x instead of %02x",
                 n, (unsigned)(block - verify->blocks) + 1, verify->n, (uint64_t)block->base,
                 block->size, offset, *replayed, *eager);
}

static enum ag_verify compare_block(const struct verify *verify, const struct block *block,
                                    unsigned char *room, uint32_t n)
{
    unsigned char *replayed = room, *eager = room + CHUNK_BYTES;

    for (uint64_t at = 0; at < block->size; at += CHUNK_BYTES) {
        size_t bytes = block->size - at < CHUNK_BYTES ? block->size - at : CHUNK_BYTES;
        size_t i = 0;

        if (ag_cu.cuMemcpyDtoHAsync_v2(replayed, verify->results + block->offset + at, bytes,
                                       verify->stream) != CUDA_SUCCESS ||
            ag_cu.cuMemcpyDtoHAsync_v2(eager, block->base + at, bytes, verify->stream) !=
                CUDA_SUCCESS)
            return AG_VERIFY_UNCOMPARED;
        if (!memcmp(replayed, eager, bytes))
            continue;
        while (replayed[i] == eager[i])
            i++;
        say_difference(verify, block, at + i, replayed + i, eager + i, n);
        return AG_VERIFY_DIFFERENT;
    }
    return AG_VERIFY_SAME;
}

static enum ag_verify compare_blocks(const struct verify *verify, uint32_t n)
{
    enum ag_verify answer = AG_VERIFY_SAME;
    unsigned char *room;

    if (!wait_for_stream(verify->stream))
        return AG_VERIFY_UNCOMPARED;
    room = ag_pages_get(2 * CHUNK_BYTES);
    if (!room)
        return AG_VERIFY_UNCOMPARED;
    for (uint32_t i = 0; i < verify->n && answer == AG_VERIFY_SAME; i++)
        answer = compare_block(verify, &verify->blocks[i], room, n);
    ag_pages_free(room, 2 * CHUNK_BYTES);
    return answer;
}

/* --- both ways --- */

static bool submit_all(const struct ag_op *ops, uint32_t n, CUstream stream)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ag_op_submit(&ops[i], stream) != CUDA_SUCCESS)
            return false;
    }
    return true;
}

/* The graph has run. */
static enum ag_verify run_again(const struct verify *verify, const struct ag_op *ops, uint32_t n)
{
    if (!copy_all(verify, verify->results, false))
        return AG_VERIFY_UNCOMPARED;
    if (!copy_all(verify, verify->before, true) || !submit_all(ops, n, verify->stream)) {
        (void)copy_all(verify, verify->results, true);
        return AG_VERIFY_UNCOMPARED;
    }
    return compare_blocks(verify, n);
}

enum ag_verify ag_verify_segment(struct ag_context *context, struct ag_graph *graph,
                                 const struct ag_op *ops, uint32_t n, CUstream stream,
                                 uint32_t *ret_updated)
{
    struct verify verify = {.stream = stream};
    enum ag_verify answer = AG_VERIFY_SKIPPED;
    CUstreamCaptureMode mode;

    for (uint32_t i = 0; i < n; i++) {
        if (!add_blocks_of_op(&verify, &ops[i]))
            return AG_VERIFY_SKIPPED;
    }
    if (!ag_fence_wait_idle(context, TIMEOUT_NS))
        return AG_VERIFY_SKIPPED;
    mode = ag_capture_relax(); /* another thread may begin a capture meanwhile */
    if (get_room(&verify)) {
        if (copy_all(&verify, verify.before, false) &&
            ag_graph_launch(graph, ops, stream, ret_updated) == CUDA_SUCCESS)
            answer = run_again(&verify, ops, n);
        free_room(&verify);
    }
    ag_capture_restore(mode);
    return answer;
}
