/* What memory an address names, as replay has to know it: see memory.h.
 *
 * For each thread's slot a few ranges of device and pinned memory are remembered, with the epoch in
 * force before the driver was asked. Whatever frees such memory changes the epoch first. Pageable
 * memory is not remembered: the driver knows no bounds of it, and nobody tells when it is freed.
 *
 * Not in thread-local storage, of which the loader has little for libraries that are loaded late.
 */
#include "graph/record/memory.h"

#include <stddef.h>

#include "interpose/core/base/slot.h"
#include "interpose/core/driver/driver.h"
#include "policy/answers/lookup.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/ledger.h"

#define N_RANGES 16u

struct range {
    uint64_t epoch, first, last; /* epoch 0: nothing */
    const struct ag_context *context;
    enum ag_memory memory; /* DEVICE or PINNED */
};

_Atomic uint64_t ag_memory_epoch = 1;

static struct {
    _Alignas(64) atomic_flag busy; /* late threads share slots */
    unsigned next;
    struct range range[N_RANGES];
} known[AG_SLOTS];

/* The driver's answer about an address; zeros where it knows nothing. */
struct said {
    unsigned type, managed, access;
    int device;
    CUcontext context;
    CUmemoryPool pool;
    CUdeviceptr first, mapped;
    size_t bytes, mapped_bytes;
    void *host;
};

static bool ask_pointer(uint64_t address, struct said *said)
{
    static const CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,       CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_CONTEXT,           CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,  CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    enum { N_WANTED = sizeof(wanted) / sizeof(wanted[0]) };
    CUpointer_attribute attributes[N_WANTED];
    void *data[N_WANTED] = {&said->type,    &said->managed,      &said->access, &said->device,
                            &said->context, &said->pool,         &said->first,  &said->bytes,
                            &said->mapped,  &said->mapped_bytes, &said->host};

    *said = (struct said){0};
    for (unsigned i = 0; i < N_WANTED; i++)
        attributes[i] = wanted[i];
    return ag_cu.cuPointerGetAttributes &&
           ag_cu.cuPointerGetAttributes(N_WANTED, attributes, data, address) == CUDA_SUCCESS;
}

static void narrow_range(struct range *range, uint64_t first, uint64_t bytes)
{
    if (first > range->first)
        range->first = first;
    if (first + bytes - 1 < range->last)
        range->last = first + bytes - 1;
}

/* Managed memory that we gave to the program in place of device memory. */
static bool is_redirected(const struct ag_context *context, uint64_t address, struct range *range)
{
    struct ag_block_seen block;

    if (!ag_lookup_redirected(address, &block) || block.context->device != context->device)
        return false;
    narrow_range(range, block.address, block.requested);
    return true;
}

/* Memory of pools, and memory mapped by the program, belong to no context: access decides. Of the
 * latter the driver's range is all that was reserved, mapped or not. */
static bool is_device_memory(const struct ag_context *context, const struct said *said,
                             struct range *range)
{
    if (said->type != CU_MEMORYTYPE_DEVICE || said->device != context->device->ordinal)
        return false;
    if (said->context)
        return said->context == context->handle;
    if (said->access != CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE)
        return false;
    if (!said->pool)
        narrow_range(range, said->mapped, said->mapped_bytes);
    return said->pool || said->mapped_bytes;
}

/* Fills range->memory and the bounds within which that holds. */
static void learn_range(struct range *range, uint64_t address, uint64_t bytes)
{
    const struct ag_context *context = range->context;
    struct said said, last;

    range->memory = AG_MEMORY_UNKNOWN;
    range->first = 0;
    range->last = UINT64_MAX;
    if (!ask_pointer(address, &said))
        return;
    if (!said.type && !said.bytes) {
        if (ask_pointer(address + bytes - 1, &last) && !last.type && !last.bytes)
            range->memory = AG_MEMORY_PAGEABLE;
        return;
    }
    if (!said.bytes)
        return;
    narrow_range(range, said.first, said.bytes);
    if (said.managed)
        range->memory =
            is_redirected(context, address, range) ? AG_MEMORY_DEVICE : AG_MEMORY_UNKNOWN;
    else if (said.type == CU_MEMORYTYPE_HOST)
        range->memory = said.host == (void *)(uintptr_t)address &&
                                said.access == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                            ? AG_MEMORY_PINNED
                            : AG_MEMORY_UNKNOWN;
    else if (is_device_memory(context, &said, range))
        range->memory = AG_MEMORY_DEVICE;
}

static bool range_holds(const struct range *range, uint64_t first, uint64_t last)
{
    return range->first <= first && last <= range->last;
}

/* UNKNOWN when it is in none of the ranges, or another thread is using the slot. */
static enum ag_memory recall(const struct range *wanted)
{
    unsigned slot = ag_slot();
    enum ag_memory memory = AG_MEMORY_UNKNOWN;

    if (atomic_flag_test_and_set_explicit(&known[slot].busy, memory_order_acquire))
        return memory;
    for (unsigned i = 0; i < N_RANGES && !memory; i++) {
        const struct range *range = &known[slot].range[i];

        if (range->epoch == wanted->epoch && range->context == wanted->context &&
            range_holds(range, wanted->first, wanted->last))
            memory = range->memory;
    }
    atomic_flag_clear_explicit(&known[slot].busy, memory_order_release);
    return memory;
}

static void remember_range(const struct range *range)
{
    unsigned slot = ag_slot();

    if (atomic_flag_test_and_set_explicit(&known[slot].busy, memory_order_acquire))
        return;
    known[slot].range[known[slot].next++ % N_RANGES] = *range;
    atomic_flag_clear_explicit(&known[slot].busy, memory_order_release);
}

/* The range in force, without anything that is known of its memory. */
static struct range range_of(uint64_t address, uint64_t bytes)
{
    return (struct range){.epoch = atomic_load_explicit(&ag_memory_epoch, memory_order_acquire),
                          .first = address,
                          .last = address + bytes - 1,
                          .context = ag_context_current()};
}

/* Is there anything to ask about? */
static bool is_askable(const struct range *range)
{
    return range->context && range->first && range->first <= range->last;
}

enum ag_memory ag_memory_now(uint64_t address, uint64_t bytes)
{
    struct range range = range_of(address, bytes);
    uint64_t last = range.last;

    if (!is_askable(&range))
        return AG_MEMORY_UNKNOWN;
    learn_range(&range, address, bytes);
    return range_holds(&range, address, last) ? range.memory : AG_MEMORY_UNKNOWN;
}

enum ag_memory ag_memory_kind(uint64_t address, uint64_t bytes)
{
    struct range range = range_of(address, bytes);
    uint64_t last = range.last;
    enum ag_memory memory;

    if (!is_askable(&range))
        return AG_MEMORY_UNKNOWN;
    memory = recall(&range);
    if (memory)
        return memory;
    learn_range(&range, address, bytes);
    if (!range_holds(&range, address, last))
        return AG_MEMORY_UNKNOWN;
    if (range.memory == AG_MEMORY_DEVICE || range.memory == AG_MEMORY_PINNED)
        remember_range(&range);
    return range.memory;
}
