/* mutant.c: a small redirect of cudaMalloc to a pool, right or wrong in one way as DIFF_MUTANT
 * says.
 *
 * It shows that the differential tests would notice each mistake: the right one passes, every wrong
 * one is caught. For programs of one host thread that call the driver by linked symbols. The right
 * way: memory comes from a private pool on a private stream that is waited for; a free makes all
 * later work of all contexts wait for all earlier work of the owner (a fence), gives the block
 * back behind it, and lets the host wait only where it could tell. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/mutants/redirect.h"

#define CONTROL(name, what) is_##name,
#define MUTANT(name, what)  is_##name,
enum mutant {
#include "mutants.def"
    N_MUTANTS
};

static enum mutant mutant;

#define MAX_BLOCKS   4096
#define MAX_CONTEXTS 16
#define MAX_STREAMS  256

struct context {
    CUcontext handle;
    int device;
    CUstream alloc_stream, free_stream;
    CUevent fence, allocated;
    CUstream streams[MAX_STREAMS]; /* the program's own */
    CUevent orphans[MAX_STREAMS];  /* the last work of those it destroyed */
    unsigned n_streams, n_orphans;
    bool has_nonblocking;
};

static struct block {
    CUdeviceptr p;
    size_t bytes;
    unsigned context;
    bool live, cached;
} blocks[MAX_BLOCKS];

static struct context contexts[MAX_CONTEXTS];
static unsigned n_blocks, n_contexts, n_captures;
static CUmemoryPool pools[2];
static unsigned retained[2]; /* by the program, of each device's primary context */
static bool visible, pending;
static size_t taken; /* of the budget */

#define BUDGET ((size_t)40 << 20)

/* ---- contexts ---- */

static bool from_managed_pool(void)
{
    return mutant == is_managed_pool || mutant == is_prefetch_races_free;
}

static void read_mutant(void)
{
    const char *text = getenv("DIFF_MUTANT");

    mutant = text ? (enum mutant)atoi(text) : is_correct;
}

static struct context *context_of(CUcontext handle)
{
    for (unsigned i = 0; handle && i < n_contexts; i++)
        if (contexts[i].handle == handle)
            return &contexts[i];
    return NULL;
}

static struct context *current(void)
{
    CUcontext handle = NULL;

    (void)REAL(cuCtxGetCurrent)(&handle);
    return context_of(handle);
}

static bool enter(struct context *context)
{
    CUcontext handle = NULL;

    (void)REAL(cuCtxGetCurrent)(&handle);
    return handle != context->handle && REAL(cuCtxPushCurrent_v2)(context->handle) == CUDA_SUCCESS;
}

static void leave(bool entered)
{
    CUcontext handle;

    if (entered)
        (void)REAL(cuCtxPopCurrent_v2)(&handle);
}

static void complete_wait(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (!pending)
        return;
    pending = false;
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    for (unsigned i = 0; i < n_contexts; i++)
        if (contexts[i].handle)
            (void)REAL(cuEventSynchronize)(contexts[i].fence);
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static void wait_at_exit(void)
{
    if (mutant != is_exit_does_not_wait)
        complete_wait();
}

static void note_visible(void)
{
    visible = true;
    complete_wait();
}

static void make_pool(int device)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = !device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuuint64_t keep = UINT64_MAX;
    int n_devices = 1, off = 0;

    if (from_managed_pool())
        props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;

    (void)REAL(cuDeviceGetCount)(&n_devices);
    (void)REAL(cuMemPoolCreate)(&pools[device], &props);
    (void)REAL(cuMemPoolSetAttribute)(pools[device], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    (void)REAL(cuMemPoolSetAttribute)(pools[device],
                                      CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off);
    if (n_devices > 1 && mutant != is_no_peer_access)
        (void)REAL(cuMemPoolSetAccess)(pools[device], &access, 1);
}

static CUresult met(CUresult result, const CUcontext *handle, int device)
{
    struct context *context = result == CUDA_SUCCESS ? context_of(*handle) : NULL;
    bool entered;

    if (result != CUDA_SUCCESS || context || n_contexts == MAX_CONTEXTS)
        return result;
    if (!n_contexts)
        (void)atexit(wait_at_exit);
    complete_wait();
    context = &contexts[n_contexts++];
    *context = (struct context){.handle = *handle, .device = device};
    if (!pools[device])
        make_pool(device);
    entered = enter(context);
    (void)REAL(cuEventCreate)(&context->fence, CU_EVENT_DISABLE_TIMING);
    (void)REAL(cuEventCreate)(&context->allocated, CU_EVENT_DISABLE_TIMING);
    (void)REAL(cuStreamCreate)(&context->alloc_stream, CU_STREAM_NON_BLOCKING);
    (void)REAL(cuStreamCreate)(&context->free_stream, CU_STREAM_NON_BLOCKING);
    leave(entered);
    return result;
}

/* A child has no driver, so none of this memory. */
static void in_child(void)
{
    pending = false;
    if (mutant != is_child_believes_metadata)
        n_blocks = n_contexts = 0;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    read_mutant();
    (void)pthread_atfork(NULL, NULL, in_child);
    return REAL(cuInit)(flags);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device)
{
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(handle, device);

    retained[device] += result == CUDA_SUCCESS;
    return met(result, handle, device);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *handle, unsigned int flags, CUdevice device)
{
    return met(REAL(cuCtxCreate_v2)(handle, flags, device), handle, device);
}

/* The context dies, and its memory with it. */
static void bury(struct context *context)
{
    bool entered = enter(context);

    (void)REAL(cuCtxSynchronize)();
    for (unsigned i = 0; i < n_blocks; i++) {
        if (&contexts[blocks[i].context] != context || (!blocks[i].live && !blocks[i].cached))
            continue;
        /* Plain managed memory goes with its context. */
        if (mutant != is_reset_leaks && mutant != is_managed_plain &&
            mutant != is_managed_reused_at_once)
            (void)REAL(cuMemFree_v2)(blocks[i].p);
        taken -= blocks[i].bytes;
        blocks[i].live = blocks[i].cached = false;
    }
    if (mutant != is_reset_leaks)
        (void)REAL(cuMemPoolTrimTo)(pools[context->device], 0);
    context->handle = NULL;
    leave(entered);
}

static void bury_primary(CUdevice device)
{
    CUcontext handle = NULL;
    struct context *context;

    if (REAL(cuDevicePrimaryCtxRetain)(&handle, device) == CUDA_SUCCESS)
        (void)REAL(cuDevicePrimaryCtxRelease_v2)(device);
    context = context_of(handle);
    if (context)
        bury(context);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    bury_primary(device);
    retained[device] = 0;
    return REAL(cuDevicePrimaryCtxReset_v2)(device);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    if (retained[device] == 1 && mutant != is_release_leaks)
        bury_primary(device);
    retained[device] -= retained[device] > 0;
    return REAL(cuDevicePrimaryCtxRelease_v2)(device);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle)
{
    struct context *context = context_of(handle);

    if (context)
        bury(context);
    return REAL(cuCtxDestroy_v2)(handle);
}

/* ---- the fence ---- */

static bool enumerates(void)
{
    switch (mutant) {
    case is_enumerated:
    case is_prefetch_races_free:
    case is_misses_a_stream:
    case is_misses_destroyed:
    case is_misses_default_streams:
    case is_misses_blocking_streams:
        return true;
    default:
        return false;
    }
}

static bool missed(const struct context *context, unsigned i)
{
    unsigned flags = 0;

    (void)REAL(cuStreamGetFlags)(context->streams[i], &flags);
    if (mutant == is_misses_blocking_streams)
        return !(flags & CU_STREAM_NON_BLOCKING);
    return mutant == is_misses_a_stream && i + 1 == context->n_streams;
}

/* The private stream comes after the stream's work. */
static void one_before(struct context *context, CUstream stream)
{
    (void)REAL(cuEventRecord)(context->allocated, stream);
    (void)REAL(cuStreamWaitEvent)(context->free_stream, context->allocated, 0);
}

static void for_each_stream(struct context *context, void (*visit)(struct context *, CUstream))
{
    bool defaults = mutant != is_misses_default_streams && mutant != is_misses_blocking_streams;

    if (defaults)
        visit(context, CU_STREAM_LEGACY);
    if (defaults)
        visit(context, CU_STREAM_PER_THREAD);
    for (unsigned i = 0; i < context->n_streams; i++)
        if (!missed(context, i))
            visit(context, context->streams[i]);
}

/* The host waits for all it knows of; nothing is left for later work to wait for. */
static void fence_streams(struct context *context)
{
    for_each_stream(context, one_before);
    for (unsigned i = 0; i < context->n_orphans && mutant != is_misses_destroyed; i++)
        (void)REAL(cuStreamWaitEvent)(context->free_stream, context->orphans[i], 0);
    (void)REAL(cuEventRecord)(context->fence, context->free_stream);
    (void)REAL(cuEventSynchronize)(context->fence);
}

static bool left_out(const struct context *context, const struct context *other)
{
    return mutant == is_other_contexts_not_fenced ||
           (mutant == is_peers_not_fenced && context->device != other->device);
}

static void wait_in_others(const struct context *context)
{
    for (unsigned i = 0; i < n_contexts; i++)
        if (contexts[i].handle && &contexts[i] != context && !left_out(context, &contexts[i]))
            (void)REAL(cuCtxWaitEvent)(contexts[i].handle, context->fence);
}

static bool by_null_stream(const struct context *context)
{
    return (mutant == is_by_null_stream || mutant == is_misses_later_streams) &&
           !context->has_nonblocking;
}

/* With the context current. */
static void fence(struct context *context)
{
    if (enumerates()) {
        fence_streams(context);
        return;
    }
    if (mutant == is_null_stream) {
        (void)REAL(cuEventRecord)(context->fence, CU_STREAM_LEGACY);
        return;
    }
    if (by_null_stream(context)) {
        (void)REAL(cuEventRecord)(context->fence, CU_STREAM_LEGACY);
        (void)REAL(cuStreamWaitEvent)(context->free_stream, context->fence, 0);
        wait_in_others(context);
        return;
    }
    (void)REAL(cuCtxRecordEvent)(context->handle, context->fence);
    if (mutant == is_no_device_barrier || mutant == is_reuse_at_once) {
        (void)REAL(cuStreamWaitEvent)(context->free_stream, context->fence, 0);
        return;
    }
    (void)REAL(cuCtxWaitEvent)(context->handle, context->fence);
    wait_in_others(context);
}

/* ---- streams and captures ---- */

static CUresult created(CUresult result, const CUstream *stream, unsigned flags)
{
    struct context *context = current();

    if (result != CUDA_SUCCESS || !context || context->n_streams == MAX_STREAMS)
        return result;
    context->streams[context->n_streams++] = *stream;
    if (!(flags & CU_STREAM_NON_BLOCKING) || context->has_nonblocking)
        return result;
    context->has_nonblocking = true;
    if (mutant != is_by_null_stream)
        return result;
    /* What the NULL stream was the fence of has to hold for the new stream too. */
    if (n_captures)
        complete_wait();
    else
        fence(context);
    return result;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return created(REAL(cuStreamCreate)(stream, flags), stream, flags);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    return created(REAL(cuStreamCreateWithPriority)(stream, flags, priority), stream, flags);
}

static bool busy(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    result = REAL(cuStreamQuery)(stream);
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result == CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    struct context *context = current();

    for (unsigned i = 0; context && i < context->n_streams; i++) {
        if (context->streams[i] != stream)
            continue;
        if (enumerates() && busy(stream)) {
            (void)REAL(cuEventCreate)(&context->orphans[context->n_orphans],
                                      CU_EVENT_DISABLE_TIMING);
            (void)REAL(cuEventRecord)(context->orphans[context->n_orphans++], stream);
        }
        memmove(&context->streams[i], &context->streams[i + 1],
                (context->n_streams - i - 1) * sizeof(stream));
        context->n_streams--;
    }
    return REAL(cuStreamDestroy_v2)(stream);
}

static CUresult capture(CUresult result, bool begins, bool ended)
{
    if (begins && result == CUDA_SUCCESS)
        n_captures++;
    if (ended && n_captures)
        n_captures--;
    return result;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return capture(REAL(cuStreamBeginCapture_v2)(stream, mode), true, false);
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    if (!stream)
        stream = CU_STREAM_PER_THREAD;
    return capture(REAL(cuStreamBeginCapture_v2)(stream, mode), true, false);
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return capture(REAL(cuStreamEndCapture)(stream, graph), false, true);
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    if (!stream)
        stream = CU_STREAM_PER_THREAD;
    return capture(REAL(cuStreamEndCapture)(stream, graph), false, true);
}

/* ---- allocation ---- */

static struct block *block_at(CUdeviceptr p, bool inside)
{
    for (unsigned i = n_blocks; i--;) {
        struct block *block = &blocks[i];
        if (p == block->p || (inside && block->live && p - block->p < block->bytes))
            return block;
    }
    return NULL;
}

static struct block *block_for(CUdeviceptr p)
{
    struct block *block = block_at(p, false);

    if (!block && n_blocks < MAX_BLOCKS)
        block = &blocks[n_blocks++];
    return block;
}

/* Everybody's later work comes after the allocation. */
static CUresult publish(struct context *context)
{
    if (mutant == is_unpublished)
        return CUDA_SUCCESS;
    if (mutant != is_new_context_not_told)
        return REAL(cuStreamSynchronize)(context->alloc_stream);
    (void)REAL(cuEventRecord)(context->allocated, context->alloc_stream);
    for (unsigned i = 0; i < n_contexts; i++)
        if (contexts[i].handle)
            (void)REAL(cuCtxWaitEvent)(contexts[i].handle, context->allocated);
    return CUDA_SUCCESS;
}

static void prefetch(struct context *context, CUdeviceptr p, size_t bytes)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context->device};

    (void)REAL(cuMemPrefetchAsync_v2)(p, bytes, here, 0, context->alloc_stream);
}

static CUresult take_from_pool(struct context *context, CUdeviceptr *p, size_t bytes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    if (mutant == is_reuse_at_once || mutant == is_managed_reused_at_once)
        for (unsigned i = 0; i < n_blocks; i++)
            if (blocks[i].cached && blocks[i].bytes == bytes &&
                &contexts[blocks[i].context] == context) {
                blocks[i].cached = false;
                *p = blocks[i].p;
                return CUDA_SUCCESS;
            }
    if (mutant == is_managed_plain || mutant == is_managed_reused_at_once)
        return REAL(cuMemAllocManaged)(p, bytes, CU_MEM_ATTACH_GLOBAL);
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    result = REAL(cuMemAllocFromPoolAsync)(p, bytes, pools[context->device], context->alloc_stream);
    if (result == CUDA_SUCCESS && mutant == is_managed_pool && bytes)
        prefetch(context, *p, bytes);
    if (result == CUDA_SUCCESS)
        result = n_captures ? REAL(cuStreamSynchronize)(context->alloc_stream) : publish(context);
    if (result == CUDA_SUCCESS && mutant == is_prefetch_races_free && bytes)
        prefetch(context, *p, bytes);
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ret_p, size_t bytes)
{
    struct context *context = current();
    struct block *block;
    CUresult result;

    if (!ret_p || (!bytes && mutant != is_nothing_is_something) || !context ||
        (n_captures && mutant != is_capture_alloc_allowed))
        return REAL(cuMemAlloc_v2)(ret_p, bytes);
    if (mutant == is_rounded_size)
        bytes = (bytes + 4095) & ~(size_t)4095;
    if ((mutant == is_budget || mutant == is_budget_not_given_back) && taken + bytes > BUDGET)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = take_from_pool(context, ret_p, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    taken += bytes;
    block = block_for(*ret_p);
    if (!block)
        abort();
    *block = (struct block){*ret_p, bytes, (unsigned)(context - contexts), true, false};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *ret_p, size_t *ret_pitch, size_t width,
                                   size_t height, unsigned int element_bytes)
{
    size_t unit = mutant == is_other_pitch ? 256 : 512;
    size_t pitch = (width + unit - 1) / unit * unit;
    CUresult result;

    if (!width || !height || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) ||
        n_captures)
        return REAL(cuMemAllocPitch_v2)(ret_p, ret_pitch, width, height, element_bytes);
    result = cuMemAlloc_v2(ret_p, pitch * height);
    if (result == CUDA_SUCCESS)
        *ret_pitch = pitch;
    return result;
}

/* ---- free ---- */

/* While a capture is open the driver's own free says whether it is legal, and waits. */
static CUresult free_in_capture(struct context *context, struct block *block)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr probe;
    bool entered = enter(context);
    CUresult result = CUDA_SUCCESS;

    if (mutant == is_capture_free_allowed)
        (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    if (mutant == is_capture_free_does_not_wait) {
        result = REAL(cuStreamQuery)(context->free_stream);
        result = result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
    } else {
        result = REAL(cuMemAlloc_v2)(&probe, 1);
        if (result == CUDA_SUCCESS)
            result = REAL(cuMemFree_v2)(probe);
    }
    if (mutant == is_capture_free_allowed)
        (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    block->live = result != CUDA_SUCCESS;
    if (mutant == is_capture_free_does_not_wait)
        block->cached = result == CUDA_SUCCESS; /* given back at the next reset */
    else if (result == CUDA_SUCCESS)
        result = REAL(cuMemFree_v2)(block->p);
    leave(entered);
    return result;
}

static CUresult free_behind_fence(struct context *context, struct block *block)
{
    struct context *around = mutant == is_wrong_context && current() ? current() : context;
    bool entered = enter(around);
    CUresult result;

    fence(around);
    leave(entered);
    entered = enter(context);
    if (mutant == is_reuse_at_once || mutant == is_managed_reused_at_once)
        block->cached = true;
    else if (mutant == is_null_stream)
        (void)REAL(cuMemFreeAsync)(block->p, CU_STREAM_LEGACY);
    else
        (void)REAL(cuMemFreeAsync)(block->p, context->free_stream);
    result = visible ? REAL(cuEventSynchronize)(around->fence) : CUDA_SUCCESS;
    pending |= !visible;
    leave(entered);
    return result;
}

/* What every call says once a kernel has faulted; else CUDA_SUCCESS. */
static CUresult broken(void)
{
    size_t bytes;
    CUresult result = REAL(cuMemGetInfo_v2)(&bytes, NULL);

    return result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED
               ? result
               : CUDA_SUCCESS;
}

static CUresult free_plainly(struct block *block)
{
    CUresult result = REAL(cuMemFree_v2)(block->p);

    block->live = result != CUDA_SUCCESS;
    return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    struct block *block = block_at(p, mutant == is_inner_free_accepted);
    struct context *context = block ? &contexts[block->context] : NULL;

    if (!block) {
        if (mutant != is_foreign_free_does_not_wait)
            complete_wait();
        return REAL(cuMemFree_v2)(p);
    }
    if (!block->live) {
        if (mutant == is_second_free_accepted)
            return CUDA_SUCCESS;
        return block->cached ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemFree_v2)(p);
    }
    if (broken())
        return broken();
    if (mutant != is_budget_not_given_back)
        taken -= block->bytes;
    if (mutant == is_managed_plain)
        return free_plainly(block);
    if (n_captures && mutant != is_capture_ignored)
        return free_in_capture(context, block);
    block->live = false;
    if (mutant == is_plain_free)
        return REAL(cuMemFree_v2)(p);
    return free_behind_fence(context, block);
}

static CUresult freed_async(CUresult result, CUdeviceptr p)
{
    struct block *block = block_at(p, false);

    /* Plain managed memory is not freed in stream order; the program has waited. */
    if (block && block->live && result == CUDA_ERROR_NOT_SUPPORTED)
        result = REAL(cuMemFree_v2)(p);
    if (block && block->live && result == CUDA_SUCCESS) {
        block->live = false;
        taken -= block->bytes;
    }
    return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream)
{
    return freed_async(REAL(cuMemFreeAsync)(p, stream), p);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream)
{
    return freed_async(REAL(cuMemFreeAsync)(p, stream ? stream : CU_STREAM_PER_THREAD), p);
}

/* ---- who can see ---- */

#define NOTED(oversight, symbol, parameters, ...)   \
    EXPORT CUresult symbol parameters               \
    {                                               \
        if (mutant != is_##oversight##_not_noticed) \
            note_visible();                         \
        return REAL(symbol)(__VA_ARGS__);           \
    }

NOTED(pinned, cuMemAllocHost_v2, (void **pp, size_t bytes), pp, bytes)
NOTED(pinned, cuMemHostAlloc, (void **pp, size_t bytes, unsigned int flags), pp, bytes, flags)
NOTED(registered, cuMemHostRegister_v2, (void *p, size_t bytes, unsigned int flags), p, bytes,
      flags)
NOTED(managed, cuMemAllocManaged, (CUdeviceptr * p, size_t bytes, unsigned int flags), p, bytes,
      flags)
NOTED(host_functions, cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *data), stream, fn,
      data)
NOTED(host_functions, cuStreamAddCallback,
      (CUstream stream, CUstreamCallback fn, void *data, unsigned int flags), stream, fn, data,
      flags)

NOTED(batches, cuMemcpyBatchAsync_v2,
      (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
       size_t *first, size_t n_attributes, CUstream stream),
      to, from, sizes, n, attributes, first, n_attributes, stream)

EXPORT CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,
                                           size_t n, CUmemcpyAttributes *attributes, size_t *first,
                                           size_t n_attributes, CUstream stream)
{
    return cuMemcpyBatchAsync_v2(to, from, sizes, n, attributes, first, n_attributes,
                                 stream ? stream : CU_STREAM_PER_THREAD);
}

EXPORT CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn fn, void *data)
{
    return cuLaunchHostFunc(stream ? stream : CU_STREAM_PER_THREAD, fn, data);
}

EXPORT CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback fn, void *data,
                                         unsigned int flags)
{
    return cuStreamAddCallback(stream ? stream : CU_STREAM_PER_THREAD, fn, data, flags);
}

/* A query that finds work unfinished asks again when what is pending has been waited for. */
#define ASKED_AGAIN(symbol, parameters, ...)                                    \
    EXPORT CUresult symbol parameters                                           \
    {                                                                           \
        CUresult result = REAL(symbol)(__VA_ARGS__);                            \
                                                                                \
        if (result != CUDA_ERROR_NOT_READY || mutant == is_queries_do_not_wait) \
            return result;                                                      \
        complete_wait();                                                        \
        return REAL(symbol)(__VA_ARGS__);                                       \
    }

ASKED_AGAIN(cuEventQuery, (CUevent event), event)
ASKED_AGAIN(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), ms, start, end)
ASKED_AGAIN(cuStreamQuery, (CUstream stream), stream)

EXPORT CUresult cuStreamQuery_ptsz(CUstream stream)
{
    return cuStreamQuery(stream ? stream : CU_STREAM_PER_THREAD);
}

/* As the random programs call it: with one argument. */
EXPORT int execl(const char *path, const char *name, ...)
{
    char *argv[3] = {(char *)(uintptr_t)name, NULL, NULL};
    va_list more;

    va_start(more, name);
    argv[1] = va_arg(more, char *);
    va_end(more);
    wait_at_exit();
    return execv(path, argv);
}

EXPORT __attribute__((noreturn)) void _exit(int status)
{
    wait_at_exit();
    REAL(_exit)(status);
    __builtin_unreachable();
}

/* ---- what the program may ask ---- */

EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr p)
{
    CUresult result = REAL(cuPointerGetAttributes)(n, attributes, data, p);
    struct block *block = block_at(p, true);

    for (unsigned i = 0; result == CUDA_SUCCESS && block && block->live && i < n; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT)
            *(CUcontext *)data[i] = contexts[block->context].handle;
    return result;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
    CUresult result = REAL(cuPointerGetAttribute)(data, attribute, p);
    struct block *block = block_at(p, true);

    if (result == CUDA_SUCCESS && block && block->live &&
        attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        *(CUmemoryPool *)data = NULL;
    /* Nobody sets it where these are compared (run_mutants.py); managed memory has it on. */
    if (result == CUDA_SUCCESS && block && block->live &&
        attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        *(int *)data = 0;
    return result;
}
