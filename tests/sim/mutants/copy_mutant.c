/* copy_mutant.c: a small crew of one for copies of pageable memory, right or wrong in one way as
 * DIFF_MUTANT says.
 *
 * It shows that the random programs of diff_run.py --pageable would notice each mistake, as
 * mutant.c does of allocations. The right way: the bytes go through a few slots of pinned memory,
 * each of which is the crew's again when an event behind its slice has come; each slice is on the
 * very stream that the program names; where no slot is free, the driver does the copy. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/mutants/redirect.h"

#define CONTROL(name, what) is_##name,
#define MUTANT(name, what)  is_##name,
enum mutant {
#include "copy_mutants.def"
    N_MUTANTS
};

static enum mutant mutant;

#define N_SLOTS    6
#define SLOT_BYTES ((size_t)16 << 10)

static struct slot {
    unsigned char *bytes;
    CUevent event; /* behind the last slice; NULL: none */
} slots[N_SLOTS];

static unsigned next_slot;
static CUcontext owner; /* of the slots and their events */
static CUstream aside;  /* of crews that go wrong on it */
static CUevent between;

/* What a wrong crew does later. */
static struct {
    void *to;
    const void *from;
    size_t n;
} left;

static void read_mutant(void)
{
    const char *text = getenv("DIFF_MUTANT");

    mutant = text ? (enum mutant)atoi(text) : is_right_crew;
}

static void catch_up(void)
{
    if (left.n)
        memcpy(left.to, left.from, left.n);
    left.n = 0;
}

static void leave_to_later(void *to, const void *from, size_t n)
{
    catch_up();
    left.to = to;
    left.from = from;
    left.n = n;
}

/* ---- slots ---- */

static void drop_slots(void)
{
    catch_up();
    for (unsigned i = 0; i < N_SLOTS; i++) {
        if (slots[i].bytes)
            (void)REAL(cuMemFreeHost)(slots[i].bytes);
        if (slots[i].event)
            (void)REAL(cuEventDestroy_v2)(slots[i].event);
        slots[i] = (struct slot){0};
    }
    owner = NULL;
    aside = NULL;
    between = NULL;
}

/* Only one context has them at a time: no other's copies are taken. */
static bool have_slots(void)
{
    CUcontext context = NULL;

    if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
        return false;
    if (owner)
        return owner == context;
    for (unsigned i = 0; i < N_SLOTS; i++)
        if (REAL(cuMemHostAlloc)((void **)&slots[i].bytes, SLOT_BYTES, 0) != CUDA_SUCCESS)
            return false;
    owner = context;
    (void)REAL(cuEventCreate)(&between, CU_EVENT_DISABLE_TIMING);
    return REAL(cuStreamCreate)(&aside, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

static struct slot *free_slot(void)
{
    struct slot *slot = &slots[next_slot];

    if (slot->event && mutant != is_slot_reused) {
        if (mutant == is_waits_for_slots)
            (void)REAL(cuEventSynchronize)(slot->event);
        if (REAL(cuEventQuery)(slot->event) == CUDA_ERROR_NOT_READY)
            return NULL;
    }
    next_slot = (next_slot + 1) % N_SLOTS;
    return slot;
}

static CUresult taken(struct slot *slot, CUstream stream)
{
    if (!slot->event)
        (void)REAL(cuEventCreate)(&slot->event, CU_EVENT_DISABLE_TIMING);
    return REAL(cuEventRecord)(slot->event, stream);
}

/* ---- slices ---- */

/* Where a slice goes: the stream itself, if all is right. */
static CUstream stream_for(CUstream stream)
{
    if (mutant != is_slices_elsewhere && mutant != is_not_behind && mutant != is_not_before)
        return stream;
    if (mutant == is_not_before) {
        (void)REAL(cuEventRecord)(between, stream);
        (void)REAL(cuStreamWaitEvent)(aside, between, 0);
    }
    return aside;
}

static void join(CUstream stream)
{
    if (mutant != is_not_behind)
        return;
    (void)REAL(cuEventRecord)(between, aside);
    (void)REAL(cuStreamWaitEvent)(stream, between, 0);
}

static CUresult slice_up(CUdeviceptr to, const unsigned char *from, size_t n, CUstream stream,
                         bool is_last)
{
    struct slot *slot = free_slot();
    CUstream on = stream_for(stream);
    CUresult result;

    if (!slot)
        return REAL(cuMemcpyHtoDAsync_v2)(to, from, n, stream);
    if (is_last && mutant == is_source_read_late)
        leave_to_later(slot->bytes, from, n);
    else
        memcpy(slot->bytes, from, n);
    result = REAL(cuMemcpyHtoDAsync_v2)(to, slot->bytes, n, on);
    join(stream);
    return result ? result : taken(slot, on);
}

static CUresult slice_down(unsigned char *to, CUdeviceptr from, size_t n, CUstream stream,
                           bool is_last)
{
    struct slot *slot = free_slot();
    CUstream on = mutant == is_not_before ? stream : stream_for(stream);
    CUresult result;

    if (!slot)
        return REAL(cuMemcpyDtoHAsync_v2)(to, from, n, stream);
    result = REAL(cuMemcpyDtoHAsync_v2)(slot->bytes, from, n, on);
    if (!result)
        result = taken(slot, on);
    if (!result && mutant != is_back_unfinished)
        result = REAL(cuEventSynchronize)(slot->event);
    if (is_last && mutant == is_back_early)
        leave_to_later(to, slot->bytes, n);
    else if (!result)
        memcpy(to, slot->bytes, n);
    return result;
}

static CUresult line_up(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    if (mutant == is_odd_bytes_lost && n > 4)
        n &= ~(size_t)3;
    for (size_t at = 0; at < n && !result; at += SLOT_BYTES) {
        size_t some = n - at < SLOT_BYTES ? n - at : SLOT_BYTES;
        result = slice_up(to + at, (const unsigned char *)from + at, some, stream, at + some == n);
    }
    return result;
}

static CUresult line_down(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t at = 0; at < n && !result; at += SLOT_BYTES) {
        size_t some = n - at < SLOT_BYTES ? n - at : SLOT_BYTES;
        result = slice_down((unsigned char *)to + at, from + at, some, stream, at + some == n);
    }
    return result;
}

/* ---- which copies are the crew's ---- */

/* Memory that the driver knows has a type. */
static bool is_pageable(const void *p)
{
    unsigned type;

    return p && REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            (CUdeviceptr)(uintptr_t)p) != CUDA_SUCCESS;
}

static bool is_on_device(CUdeviceptr p, size_t n)
{
    unsigned type = 0;
    size_t bytes = 0;
    CUdeviceptr base = 0;
    int managed = 1;

    return REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE &&
           REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p) ==
               CUDA_SUCCESS &&
           !managed && REAL(cuMemGetAddressRange_v2)(&base, &bytes, p) == CUDA_SUCCESS &&
           n <= bytes - (p - base);
}

static bool has_memops(CUdeviceptr p)
{
    int on = 0;

    return mutant != is_memops_ignored &&
           REAL(cuPointerGetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p) == CUDA_SUCCESS &&
           on;
}

static bool is_ours(CUdeviceptr device, const void *host, size_t n, CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    bool ours;

    catch_up();
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    ours = n && REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE && is_pageable(host) &&
           is_on_device(device, n) && have_slots();
    (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return ours;
}

static CUresult at_once_up(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    CUresult result =
        mutant == is_no_wait_at_once ? CUDA_SUCCESS : REAL(cuStreamSynchronize)(stream);

    if (!result)
        result = line_up(to, from, n, stream);
    return result || !has_memops(to) ? result : REAL(cuStreamSynchronize)(stream);
}

static bool is_up(const CUDA_MEMCPY2D *rows, bool *ret_down)
{
    size_t bytes = rows->Height ? (rows->Height - 1) * rows->dstPitch + rows->WidthInBytes : 0;

    *ret_down = rows->srcMemoryType == CU_MEMORYTYPE_DEVICE &&
                rows->dstMemoryType == CU_MEMORYTYPE_HOST && rows->Height > 0;
    return rows->srcMemoryType == CU_MEMORYTYPE_HOST &&
           rows->dstMemoryType == CU_MEMORYTYPE_DEVICE && bytes;
}

static CUresult rows_on(const CUDA_MEMCPY2D *rows, CUstream stream)
{
    bool down, up = is_up(rows, &down);
    CUresult result = CUDA_SUCCESS;

    if (!(up && is_ours(rows->dstDevice, rows->srcHost, rows->WidthInBytes, stream)) &&
        !(down && is_ours(rows->srcDevice, rows->dstHost, rows->WidthInBytes, stream)))
        return REAL(cuMemcpy2DAsync_v2)(rows, stream);
    for (size_t y = 0; y < rows->Height && !result; y++)
        result =
            up ? line_up(rows->dstDevice + y * rows->dstPitch,
                         (const char *)rows->srcHost + y * rows->srcPitch, rows->WidthInBytes,
                         stream)
               : line_down((char *)rows->dstHost + y * rows->dstPitch,
                           rows->srcDevice + y * rows->srcPitch,
                           mutant == is_gaps_written && y + 1 < rows->Height ? rows->dstPitch
                                                                             : rows->WidthInBytes,
                           stream);
    return result;
}

/* ---- the calls, and their per-thread twins, in which the stream 0 is another one ---- */

#define STREAM(stream, standard) ((stream) ? (stream) : (standard))

#define CREW(at_once_suffix, suffix, standard)                                                  \
    EXPORT CUresult cuMemcpyHtoDAsync_v2##suffix(CUdeviceptr to, const void *from, size_t n,    \
                                                 CUstream stream)                               \
    {                                                                                           \
        return is_ours(to, from, n, STREAM(stream, standard))                                   \
                   ? line_up(to, from, n, STREAM(stream, standard))                             \
                   : REAL(cuMemcpyHtoDAsync_v2)(to, from, n, STREAM(stream, standard));         \
    }                                                                                           \
    EXPORT CUresult cuMemcpyDtoHAsync_v2##suffix(void *to, CUdeviceptr from, size_t n,          \
                                                 CUstream stream)                               \
    {                                                                                           \
        return is_ours(from, to, n, STREAM(stream, standard))                                   \
                   ? line_down(to, from, n, STREAM(stream, standard))                           \
                   : REAL(cuMemcpyDtoHAsync_v2)(to, from, n, STREAM(stream, standard));         \
    }                                                                                           \
    EXPORT CUresult cuMemcpyHtoD_v2##at_once_suffix(CUdeviceptr to, const void *from, size_t n) \
    {                                                                                           \
        return is_ours(to, from, n, standard)                                                   \
                   ? at_once_up(to, from, n, standard)                                          \
                   : REAL(cuMemcpyHtoD_v2##at_once_suffix)(to, from, n);                        \
    }                                                                                           \
    EXPORT CUresult cuMemcpyDtoH_v2##at_once_suffix(void *to, CUdeviceptr from, size_t n)       \
    {                                                                                           \
        return is_ours(from, to, n, standard)                                                   \
                   ? line_down(to, from, n, standard)                                           \
                   : REAL(cuMemcpyDtoH_v2##at_once_suffix)(to, from, n);                        \
    }                                                                                           \
    EXPORT CUresult cuMemcpy2DAsync_v2##suffix(const CUDA_MEMCPY2D *rows, CUstream stream)      \
    {                                                                                           \
        return rows_on(rows, STREAM(stream, standard));                                         \
    }

/* cuda.h declares the twins for per-thread builds only. */
extern CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t n);
extern CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t n);
CREW(, , CU_STREAM_LEGACY)
CREW(_ptds, _ptsz, CU_STREAM_PER_THREAD)

/* ---- the ends of contexts ---- */

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    drop_slots();
    return REAL(cuDevicePrimaryCtxReset_v2)(device);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    drop_slots();
    return REAL(cuDevicePrimaryCtxRelease_v2)(device);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle)
{
    drop_slots();
    return REAL(cuCtxDestroy_v2)(handle);
}

EXPORT CUresult cuInit(unsigned int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, read_mutant);
    return REAL(cuInit)(flags);
}
