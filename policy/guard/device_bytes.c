/* Writing and reading guards on the device: see device_bytes.h. */
#include "policy/guard/device_bytes.h"

#include <string.h>

#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/order/private_stream.h"

/* The most bytes that are compared of one block: the host reads some 10 GB/s, so they take half as
 * long as a native cudaMalloc and cudaFree. */
#define MOST_BYTES ((size_t)256 << 10)

static struct ag_freelist parts;

/* The stream to work on, with its context current. */
struct work {
    struct ag_context *context;
    CUstream stream;
    bool pushed;
    CUstreamCaptureMode mode; /* of the thread before: a capture may begin meanwhile */
};

static CUresult begin_guard_work(struct work *work, struct ag_context *context)
{
    CUresult result = ag_context_make_current(context, &work->pushed);

    if (result != CUDA_SUCCESS)
        return result;
    work->context = context;
    work->mode = ag_capture_relax();
    if (ag_private_stream_begin_alloc(context, &work->stream))
        return CUDA_SUCCESS;
    ag_capture_restore(work->mode);
    ag_context_restore(work->pushed);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Waits for the work, so that all that is submitted from now on comes after it. */
static CUresult finish_guard_work(const struct work *work, CUresult result)
{
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuStreamSynchronize(work->stream);
    ag_capture_restore(work->mode);
    ag_context_restore(work->pushed);
    return result;
}

CUresult ag_guard_write_canaries(struct ag_context *context, CUdeviceptr address, size_t bytes,
                                 struct ag_guard_edges edges)
{
    unsigned char canary[AG_GUARD_MOST_EDGE];
    struct work work;
    CUresult result = begin_guard_work(&work, context);

    if (result != CUDA_SUCCESS)
        return result;
    memset(canary, AG_FILL_CANARY, sizeof(canary));
    if (edges.before)
        result =
            ag_cu.cuMemcpyHtoDAsync_v2(address - edges.before, canary, edges.before, work.stream);
    if (edges.behind && result == CUDA_SUCCESS)
        result = ag_cu.cuMemcpyHtoDAsync_v2(address + bytes, canary, edges.behind, work.stream);
    return finish_guard_work(&work, result);
}

/* Adds what differs among `n` bytes that lie `at` bytes into the whole. */
static void compare_bytes(const unsigned char *bytes, size_t n, uint64_t at, unsigned char value,
                          struct ag_guard_wrong *wrong)
{
    if (!n || (bytes[0] == value && !memcmp(bytes, bytes + 1, n - 1)))
        return;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == value)
            continue;
        if (!wrong->n++)
            wrong->first = at + i;
    }
}

CUresult ag_guard_read_canaries(struct ag_context *context, CUdeviceptr address, size_t bytes,
                                struct ag_guard_edges edges, struct ag_guard_wrong *ret_before,
                                struct ag_guard_wrong *ret_behind)
{
    unsigned char before[AG_GUARD_MOST_EDGE], behind[AG_GUARD_MOST_EDGE];
    struct work work;
    CUresult result = begin_guard_work(&work, context);

    *ret_before = *ret_behind = (struct ag_guard_wrong){0};
    if (result != CUDA_SUCCESS)
        return result;
    if (edges.before)
        result =
            ag_cu.cuMemcpyDtoHAsync_v2(before, address - edges.before, edges.before, work.stream);
    if (edges.behind && result == CUDA_SUCCESS)
        result = ag_cu.cuMemcpyDtoHAsync_v2(behind, address + bytes, edges.behind, work.stream);
    result = finish_guard_work(&work, result);
    if (result != CUDA_SUCCESS)
        return result;
    compare_bytes(before, edges.before, 0, AG_FILL_CANARY, ret_before);
    compare_bytes(behind, edges.behind, 0, AG_FILL_CANARY, ret_behind);
    return CUDA_SUCCESS;
}

CUresult ag_guard_fill(struct ag_context *context, CUdeviceptr address, size_t bytes,
                       unsigned char value)
{
    struct work work;
    CUresult result = begin_guard_work(&work, context);

    if (result != CUDA_SUCCESS)
        return result;
    return finish_guard_work(&work, ag_cu.cuMemsetD8Async(address, value, bytes, work.stream));
}

/* Bytes [from, to) of the block, into `part`. */
static CUresult compare_part(const struct work *work, CUdeviceptr address, size_t from, size_t to,
                             unsigned char value, unsigned char *part, struct ag_guard_wrong *wrong)
{
    CUresult result = ag_cu.cuMemcpyDtoHAsync_v2(part, address + from, to - from, work->stream);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuStreamSynchronize(work->stream);
    if (result == CUDA_SUCCESS)
        compare_bytes(part, to - from, from, value, wrong);
    return result;
}

CUresult ag_guard_compare(struct ag_context *context, CUdeviceptr address, size_t bytes,
                          unsigned char value, struct ag_guard_wrong *ret_wrong, bool *ret_all)
{
    unsigned char *part = ag_freelist_take_or_get(&parts, MOST_BYTES);
    size_t end = bytes <= MOST_BYTES ? bytes : MOST_BYTES / 2;
    struct work work;
    CUresult result = part ? begin_guard_work(&work, context) : CUDA_ERROR_OUT_OF_MEMORY;

    *ret_wrong = (struct ag_guard_wrong){0};
    *ret_all = end == bytes;
    if (result == CUDA_SUCCESS) {
        result = compare_part(&work, address, 0, end, value, part, ret_wrong);
        if (result == CUDA_SUCCESS && !*ret_all)
            result =
                compare_part(&work, address, bytes - MOST_BYTES / 2, bytes, value, part, ret_wrong);
        result = finish_guard_work(&work, result);
    }
    if (part)
        ag_freelist_put_or_free(&parts, part, MOST_BYTES);
    return result;
}
