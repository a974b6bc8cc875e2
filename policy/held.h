/* Who holds memory (interpose/core/report/holders/): what hooks of allocations and frees tell of
 * it. While ALLOGRAFT_STACKS is off, a load and a branch each. */
#ifndef AG_POLICY_HELD_H
#define AG_POLICY_HELD_H

#include "interpose/core/driver/abi.h"
#include "interpose/core/report/holders/holders.h"

struct ag_device;

/* `result` is the driver's, or ours, of an allocation of `bytes` at `address`, in the current
 * context: it is counted, or told of as a failure. `device`: of memory of a pool; NULL: the current
 * context's. The trace is told of its stack: after it was told of the allocation. */
void ag_held_note(CUresult result, enum ag_held_kind kind, uint64_t address, size_t bytes,
                  const struct ag_device *device);

static inline CUresult ag_held_given(CUresult result, enum ag_held_kind kind,
                                     const CUdeviceptr *address, size_t bytes)
{
    if (ag_holders_any(AG_HOLDERS_OF_MEMORY))
        ag_held_note(result, kind, result == CUDA_SUCCESS && address ? *address : 0, bytes, NULL);
    return result;
}

/* Notes an allocation of host memory. */
static inline CUresult ag_held_given_host(CUresult result, void *const *address, size_t bytes)
{
    if (ag_holders_on())
        ag_held_note(result, AG_HELD_HOST,
                     result == CUDA_SUCCESS && address ? (uintptr_t)*address : 0, bytes, NULL);
    return result;
}

/* A free: begun before the driver's call, and ended by its result. */
struct ag_held_free {
    uint64_t address;
    bool counts;
    struct ag_held_block block;
};

static inline void ag_held_free_begin(struct ag_held_free *free, uint64_t address)
{
    free->address = address;
    free->counts = ag_holders_on() && ag_holders_take(address, &free->block);
}

static inline CUresult ag_held_free_end(const struct ag_held_free *free, CUresult result)
{
    if (__builtin_expect(free->counts && result != CUDA_SUCCESS, 0))
        ag_holders_put_back(free->address, &free->block);
    return result;
}

#endif
