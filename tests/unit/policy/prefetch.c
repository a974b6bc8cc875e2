/* policy/managed/prefetch.c on a driver of this file: what is prefetched before which launch, where
 * and when not. */
#include "policy/managed/prefetch.h"

#include <string.h>

#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/managed/kernel_params.h"
#include "policy/managed/residency.h"
#include "policy/order/capture.h"
#include "tests/common/check.h"

#define MIB      (1ull << 20)
#define BLOCK(i) (0x7f0000000000u + ((uint64_t)(i) << 32))
#define STREAM   ((CUstream)(uintptr_t)0x5000)

struct ag_driver ag_cu;

/* --- what prefetch.c stands on --- */

static struct ag_device devices[2] = {{.ordinal = 0, .total_bytes = 1000 * MIB},
                                      {.ordinal = 1, .total_bytes = 1000 * MIB}};
static struct ag_context contexts[2] = {{.device = &devices[0]}, {.device = &devices[1]}};
static unsigned n_devices = 1, current;
_Atomic unsigned ag_captures_open;
struct ag_capture_guard ag_capture_guard[AG_SLOTS];

struct ag_context *ag_context_current(void)
{
    return &contexts[current];
}

struct ag_device *ag_device_met(unsigned i)
{
    return i < n_devices ? &devices[i] : NULL;
}

uint64_t ag_budget_of(uint64_t total_bytes);
uint64_t ag_budget_of(uint64_t total_bytes)
{
    return total_bytes;
}

/* --- the driver --- */

static struct {
    CUdeviceptr address;
    size_t bytes;
    CUstream stream;
    int device;
} prefetched[64];
static unsigned n_prefetched, n_refused, n_asked;
static CUresult answer;
static CUstreamCaptureStatus stream_status;
static CUstream capturing_stream;

static unsigned inside_guard(void)
{
    return atomic_load(&ag_capture_guard[ag_slot()].inside);
}

static CUresult note(CUdeviceptr address, size_t bytes, int device, CUstream stream)
{
    CHECK(inside_guard() == 1 && !ag_captures_open);
    CHECK(n_prefetched < N_OF(prefetched));
    if (answer != CUDA_SUCCESS) {
        n_refused++;
        return answer;
    }
    prefetched[n_prefetched].address = address;
    prefetched[n_prefetched].bytes = bytes;
    prefetched[n_prefetched].stream = stream;
    prefetched[n_prefetched++].device = device;
    return CUDA_SUCCESS;
}

static CUresult prefetch_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                            unsigned int flags, CUstream stream)
{
    CHECK(flags == 0 && location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    return note(address, bytes, location.id, stream);
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CHECK(inside_guard() == 1);
    n_asked++;
    *status = stream == capturing_stream ? stream_status : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* Function 1: (p, u32, struct of 20 bytes at 16, p at 40). Function 2: a struct of 24 bytes at 4,
 * function 3: none. */
static const struct ag_param sizes[][4] = {
    {{0, 8}, {8, 4}, {16, 20}, {40, 8}}, {{4, 24}, {0, 0}}, {{0, 0}}};

static CUresult param(CUfunction function, size_t i, size_t *offset, size_t *size)
{
    uintptr_t number = (uintptr_t)function / 16;

    if (number < 1 || number > N_OF(sizes))
        return CUDA_ERROR_INVALID_HANDLE;
    if (i >= 4 || !sizes[number - 1][i].size)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = sizes[number - 1][i].offset;
    *size = sizes[number - 1][i].size;
    return CUDA_SUCCESS;
}

static CUfunction function(uintptr_t number)
{
    return (CUfunction)(number * 16);
}

/* --- launches --- */

static void launch(uintptr_t number, CUstream stream, bool per_thread, void **params, void **extra)
{
    struct ag_launch launch = {.function = function(number),
                               .stream = stream,
                               .per_thread = per_thread,
                               .params = params,
                               .extra = extra};

    ag_prefetch_before(&launch);
    CHECK(!inside_guard());
}

static void *nothing_there(void)
{
    static uint64_t zeros[8];

    return zeros;
}

/* A launch of function 1 whose first parameter is `pointer`. */
static void launch_with(uint64_t pointer)
{
    uint32_t number = 5; /* what lies behind it is none of its parameters */
    void *params[] = {&pointer, &number, nothing_there(), nothing_there()};

    launch(1, STREAM, false, params, NULL);
}

static void expect(unsigned i, uint64_t address, size_t bytes, CUstream stream, int device)
{
    CHECK_SAID(n_prefetched == i + 1, "%u prefetches", n_prefetched);
    CHECK(prefetched[i].address == address && prefetched[i].bytes == bytes);
    CHECK(prefetched[i].stream == stream && prefetched[i].device == device);
}

static void begin(void)
{
    n_prefetched = n_refused = n_asked = 0;
    answer = CUDA_SUCCESS;
    for (unsigned i = 0; i < 8; i++)
        ag_residency_add(BLOCK(i), 4 * MIB, AG_RESIDENT_HOST);
}

static void end(void)
{
    for (unsigned i = 0; i < 8; i++)
        (void)ag_residency_remove(BLOCK(i));
}

static void pointers_of_every_kind(void)
{
    struct {
        uint64_t first, second;
        uint32_t half;
    } __attribute__((packed)) twenty = {BLOCK(1) + 77, 12, 0x7f00};
    uint64_t last = BLOCK(2) + 4 * MIB - 1, none = BLOCK(3) - 8;
    uint32_t number = 5;
    void *params[] = {&none, &number, &twenty, &last};

    begin();
    launch(1, STREAM, false, params, NULL);
    CHECK(n_prefetched == 2);
    n_prefetched = 1;
    expect(0, BLOCK(1), 4 * MIB, STREAM, 0);
    n_prefetched = 2;
    expect(1, BLOCK(2), 4 * MIB, STREAM, 0);
    launch(1, STREAM, false, params, NULL);
    CHECK(n_prefetched == 2 && n_asked == 1); /* they are there */
    params[2] = NULL;                         /* the driver will say what it thinks of that */
    none = BLOCK(3);
    launch(1, STREAM, false, params, NULL);
    expect(2, BLOCK(3), 4 * MIB, STREAM, 0);
    end();
}

/* A struct that begins at offset 4: its words at offsets 8, 16 and so on count. */
static void words_are_aligned_as_the_kernel_sees_them(void)
{
    unsigned char bytes[24] = {0};
    uint64_t pointer = BLOCK(4), odd = BLOCK(5);
    void *params[] = {bytes};

    begin();
    memcpy(bytes + 4, &pointer, sizeof(pointer));
    memcpy(bytes + 13, &odd, sizeof(odd));
    launch(2, STREAM, false, params, NULL);
    expect(0, BLOCK(4), 4 * MIB, STREAM, 0);
    end();
}

static void packed_buffers(void)
{
    uint64_t words[3] = {7, BLOCK(6) + 100, BLOCK(7)};
    size_t size = 2 * sizeof(words[0]) + 7;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *unknown[] = {(void *)(uintptr_t)9,
                       words,
                       CU_LAUNCH_PARAM_BUFFER_POINTER,
                       words,
                       CU_LAUNCH_PARAM_BUFFER_SIZE,
                       &size,
                       CU_LAUNCH_PARAM_END};
    void *sizeless[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_END};
    void *params[] = {&words[2], &words[0], nothing_there(), nothing_there()};

    begin();
    launch(1, STREAM, false, params, extra); /* both: the driver refuses it */
    launch(1, STREAM, false, NULL, unknown);
    launch(1, STREAM, false, NULL, sizeless);
    launch(1, STREAM, false, NULL, NULL);
    CHECK(n_prefetched == 0);
    launch(99, STREAM, false, NULL, extra); /* needs no layout */
    expect(0, BLOCK(6), 4 * MIB, STREAM, 0);
    end();
}

static void streams(void)
{
    uint64_t pointer = BLOCK(0);
    void *params[] = {&pointer, nothing_there(), nothing_there(), nothing_there()};

    begin();
    launch(1, NULL, false, params, NULL);
    expect(0, BLOCK(0), 4 * MIB, NULL, 0);
    pointer = BLOCK(1);
    launch(1, NULL, true, params, NULL);
    expect(1, BLOCK(1), 4 * MIB, CU_STREAM_PER_THREAD, 0);
    pointer = BLOCK(2);
    launch(1, CU_STREAM_LEGACY, true, params, NULL);
    expect(2, BLOCK(2), 4 * MIB, CU_STREAM_LEGACY, 0);
    end();
}

static void never_in_a_capture(void)
{
    begin();
    ag_captures_open = true;
    launch_with(BLOCK(0));
    CHECK(n_prefetched == 0 && n_asked == 0);
    ag_captures_open = false;
    /* One that nobody told us of. */
    capturing_stream = STREAM;
    for (stream_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
         stream_status <= CU_STREAM_CAPTURE_STATUS_INVALIDATED; stream_status++) {
        launch_with(BLOCK(0));
        CHECK(n_prefetched == 0);
    }
    capturing_stream = NULL;
    launch_with(BLOCK(0)); /* it has not been forgotten */
    expect(0, BLOCK(0), 4 * MIB, STREAM, 0);
    end();
}

static void refusals(void)
{
    uint64_t failed = ag_stats_counter(AG_STAT_LAUNCH_PREFETCH_FAILED);

    begin();
    answer = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < 10; i++)
        launch_with(BLOCK(0));
    CHECK(n_refused == 3); /* and no more of that */
    CHECK(ag_stats_counter(AG_STAT_LAUNCH_PREFETCH_FAILED) == failed + 3);
    launch_with(BLOCK(1));
    answer = CUDA_SUCCESS;
    launch_with(BLOCK(1));
    expect(0, BLOCK(1), 4 * MIB, STREAM, 0);
    end();
}

static void old_drivers(void)
{
    uint64_t unknown = ag_stats_counter(AG_STAT_LAUNCH_UNKNOWN);

    begin();
    ag_cu.cuMemPrefetchAsync_v2 = NULL;
    ag_cu.cuMemPrefetchAsync = note;
    ag_cu.cuStreamIsCapturing = NULL;
    launch_with(BLOCK(0));
    expect(0, BLOCK(0), 4 * MIB, STREAM, 0);
    ag_cu.cuFuncGetParamInfo = NULL;
    launch_with(BLOCK(1));
    CHECK(n_prefetched == 1 && ag_stats_counter(AG_STAT_LAUNCH_UNKNOWN) == unknown + 1);
    ag_cu.cuFuncGetParamInfo = param;
    ag_cu.cuMemPrefetchAsync = NULL;
    launch_with(BLOCK(1));
    CHECK(n_prefetched == 1);
    ag_cu.cuMemPrefetchAsync_v2 = prefetch_v2;
    ag_cu.cuStreamIsCapturing = is_capturing;
    end();
}

static void two_devices(void)
{
    begin();
    n_devices = 2;
    launch_with(BLOCK(0));
    expect(0, BLOCK(0), 4 * MIB, STREAM, 0);
    current = 1;
    launch_with(BLOCK(0));
    expect(1, BLOCK(0), 4 * MIB, STREAM, 1);
    launch_with(BLOCK(0));
    current = 0;
    launch_with(BLOCK(1));
    launch_with(BLOCK(0));
    CHECK(n_prefetched == 4);
    for (unsigned i = 0; i < 8; i++)
        launch_with(BLOCK(i));
    CHECK(n_prefetched == 10 && ag_residency_is_complete(0));
    current = 1; /* where nothing is */
    launch_with(BLOCK(5));
    expect(10, BLOCK(5), 4 * MIB, STREAM, 1);
    current = 0;
    n_devices = 1;
    end();
}

/* Nothing is asked of anybody once everything is where it is used. */
static void nothing_to_do(void)
{
    uint64_t looked;

    begin();
    launch_with(BLOCK(0) + 5);
    for (unsigned i = 1; i < 8; i++)
        launch_with(BLOCK(i));
    CHECK(n_prefetched == 8 && ag_residency_is_complete(0));
    looked = ag_stats_counter(AG_STAT_LAUNCH_LOOKED);
    launch_with(BLOCK(0));
    CHECK(ag_stats_counter(AG_STAT_LAUNCH_LOOKED) == looked);
    (void)ag_residency_remove(BLOCK(3)); /* freed, given again */
    ag_residency_add(BLOCK(3), MIB, AG_RESIDENT_HOST);
    launch_with(BLOCK(3));
    expect(8, BLOCK(3), MIB, STREAM, 0);
    end();
    launch_with(BLOCK(0));
    CHECK(n_prefetched == 9);
}

int main(void)
{
    ag_cu.cuFuncGetParamInfo = param;
    ag_cu.cuMemPrefetchAsync_v2 = prefetch_v2;
    ag_cu.cuStreamIsCapturing = is_capturing;
    pointers_of_every_kind();
    words_are_aligned_as_the_kernel_sees_them();
    packed_buffers();
    streams();
    never_in_a_capture();
    refusals();
    old_drivers();
    two_devices();
    nothing_to_do();
    return 0;
}
