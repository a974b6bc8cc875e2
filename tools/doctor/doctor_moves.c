/* doctor_moves.c: measures what it takes to move a piece of memory between the device and the host,
 * as ALLOGRAFT_OOM=page does: to copy its bytes, and to map it to its other memory.
 *
 * The simulated driver makes the same calls, of a smaller piece; what they take is not shown. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/text.h"
#include "tools/base/complain.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_driver.h"

#define PIECE_BYTES     ((size_t)32 << 20) /* ALLOGRAFT_PAGE_PIECE, by default */
#define SIMULATED_BYTES ((size_t)4 << 20)
#define MOVES           5u /* each way, after one that is not timed */
#define TIMEOUT_S       30u

/* ---- measuring, in a process of its own, which ends with all that it has ---- */

/* Older drivers lack some of them. */
#define MOVE_CALLS(X)      \
    X(cuMemCreate)         \
    X(cuMemAddressReserve) \
    X(cuMemMap)            \
    X(cuMemUnmap)          \
    X(cuMemSetAccess)

static struct doctor_calls cu;
static struct {
#define MOVE_CALL(symbol) __typeof__(&symbol) symbol;
    MOVE_CALLS(MOVE_CALL)
#undef MOVE_CALL
} vmm;

/* NULL, or the name of what the driver lacks. */
static const char *find_calls(void)
{
    static const struct doctor_symbol symbols[] = {
#define ROW(symbol) {#symbol, offsetof(__typeof__(vmm), symbol)},
        MOVE_CALLS(ROW)
#undef ROW
    };

    return doctor_look_up("dlsym", symbols, sizeof(symbols) / sizeof(symbols[0]), &vmm);
}

/* Memory on one side, and the address that it is always mapped to. */
struct side {
    CUmemGenericAllocationHandle memory;
    CUdeviceptr alias;
};

static CUresult map_open(CUdeviceptr address, CUmemGenericAllocationHandle memory, size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = vmm.cuMemMap(address, bytes, 0, memory, 0);

    return result == CUDA_SUCCESS ? vmm.cuMemSetAccess(address, bytes, &access, 1) : result;
}

static CUresult make_memory_of(struct side *ret, bool on_device, size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    int node = 0;
    CUresult result;

    if (!on_device &&
        (cu.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0) != CUDA_SUCCESS ||
         node < 0))
        node = 0; /* of a machine that has one node */
    properties.location.type =
        on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
    properties.location.id = node;
    result = vmm.cuMemCreate(&ret->memory, bytes, &properties, 0);
    if (result == CUDA_SUCCESS)
        result = vmm.cuMemAddressReserve(&ret->alias, bytes, 0, 0, 0);
    return result == CUDA_SUCCESS ? map_open(ret->alias, ret->memory, bytes) : result;
}

static CUresult copy_across(const struct side *to, const struct side *from, size_t bytes,
                            uint64_t *ret_ns)
{
    uint64_t began = ag_clock_ns();
    CUresult result = cu.cuMemcpyDtoDAsync_v2(to->alias, from->alias, bytes, NULL);

    if (result == CUDA_SUCCESS)
        result = cu.cuStreamSynchronize(NULL);
    *ret_ns = ag_clock_ns() - began;
    return result;
}

static CUresult remap_piece(CUdeviceptr piece, const struct side *to, size_t bytes,
                            uint64_t *ret_ns)
{
    uint64_t began = ag_clock_ns();
    CUresult result = vmm.cuMemUnmap(piece, bytes);

    if (result == CUDA_SUCCESS)
        result = map_open(piece, to->memory, bytes);
    *ret_ns = ag_clock_ns() - began;
    return result;
}

static unsigned median_us(uint64_t *ns)
{
    qsort(ns, MOVES, sizeof(ns[0]), doctor_compare_times);
    return (unsigned)((ns[MOVES / 2] + 500) / 1000);
}

/* What a piece takes on its way to a side. */
struct taken {
    uint64_t copied_ns[MOVES], mapped_ns[MOVES];
};

/* The piece begins on sides[0], and moves to the other one and back. */
static CUresult move_to_and_fro(CUdeviceptr piece, const struct side *sides, size_t bytes,
                                struct taken *ret_taken)
{
    CUresult result = map_open(piece, sides[0].memory, bytes);
    uint64_t copied, mapped;

    for (unsigned i = 0; result == CUDA_SUCCESS && i < 2 * (MOVES + 1); i++) {
        const unsigned to = !(i % 2);

        result = copy_across(&sides[to], &sides[!to], bytes, &copied);
        if (result == CUDA_SUCCESS)
            result = remap_piece(piece, &sides[to], bytes, &mapped);
        if (result == CUDA_SUCCESS && i >= 2) {
            ret_taken[to].copied_ns[i / 2 - 1] = copied;
            ret_taken[to].mapped_ns[i / 2 - 1] = mapped;
        }
    }
    return result;
}

static CUresult measure_moves(size_t bytes, struct taken *ret_taken)
{
    struct side sides[2]; /* the device, the host */
    CUdeviceptr piece = 0;
    CUresult result = doctor_begin(&cu);

    if (result == CUDA_SUCCESS)
        result = make_memory_of(&sides[0], true, bytes);
    if (result == CUDA_SUCCESS)
        result = make_memory_of(&sides[1], false, bytes);
    if (result == CUDA_SUCCESS)
        result = vmm.cuMemAddressReserve(&piece, bytes, 0, 0, 0);
    return result == CUDA_SUCCESS ? move_to_and_fro(piece, sides, bytes, ret_taken) : result;
}

int doctor_moves_work(void)
{
    const char *missing, *name = NULL;
    struct taken taken[2];
    size_t bytes;
    CUresult result;

    (void)alarm(TIMEOUT_S);
    if (doctor_open_driver("dlsym", &cu))
        return STATUS_FAILED;
    missing = find_calls();
    if (missing) {
        printf("the driver has no %s", missing);
        return STATUS_OK;
    }
    bytes = doctor_driver_is_simulated() ? SIMULATED_BYTES : PIECE_BYTES;
    result = measure_moves(bytes, taken);
    if (result == CUDA_SUCCESS)
        printf("%zu %u %u %u %u", bytes, median_us(taken[1].copied_ns),
               median_us(taken[1].mapped_ns), median_us(taken[0].copied_ns),
               median_us(taken[0].mapped_ns));
    else if (cu.cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
        printf("%s", name);
    else
        printf("error %d", (int)result);
    return STATUS_OK;
}

/* ---- showing it ---- */

void doctor_moves(struct findings *findings)
{
    unsigned out_us, out_map_us, in_us, in_map_us;
    char text[200], size[32];
    size_t bytes;

    (void)doctor_run_child("moves", doctor_prepare_alone, NULL, text, sizeof(text));
    if (sscanf(text, "%zu %u %u %u %u", &bytes, &out_us, &out_map_us, &in_us, &in_map_us) != 5) {
        findings_add(findings, VERDICT_INFO, "bus", "moves",
                     "OOM=page: moving a piece of memory not measured: %s",
                     *text ? text : "the driver failed");
        return;
    }
    ag_text_size(size, sizeof(size), bytes);
    if (doctor_driver_is_simulated())
        findings_add(findings, VERDICT_INFO, "bus", "moves",
                     "OOM=page: a piece of %s moved to the host and back", size);
    else
        findings_add(findings, VERDICT_INFO, "bus", "moves",
                     "OOM=page: to move a piece of %s takes %u us of copying and %u us of mapping "
                     "to the host, %u us and %u us to the device",
                     size, out_us, out_map_us, in_us, in_map_us);
}
