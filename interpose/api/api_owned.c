/* Managed memory that the control API has allocated, counted until it is freed: by the API, or by
 * the program's own cudaFree where the library is in front of that.
 *
 * It is not in the ledger: the driver frees it as it frees what the program allocates by
 * cudaMallocManaged, and no limit or cache of ours concerns it. */
#include <stdatomic.h>
#include <stdlib.h>

#include "interpose/api/api.h"
#include "interpose/core/base/map.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"

struct ag_api_owned {
    CUdeviceptr address;
    size_t bytes;
    CUcontext context;
    int device;
    uint64_t began; /* its free, as the trace has it */
};

/* The blocks and their counts, guarded by ag_api_lock. */
static struct {
    struct ag_map blocks; /* address -> struct ag_api_owned */
    struct ag_api_owned_counts counts;
} owned;
_Atomic size_t ag_api_n_owned; /* written under the lock; relaxed: see api.h */

/* `more` is new, or was taken out a moment ago. */
static bool put_owned(struct ag_api_owned *more)
{
    if (!ag_map_put(&owned.blocks, more->address, more))
        return false;
    atomic_store_explicit(&ag_api_n_owned, owned.blocks.count, memory_order_relaxed);
    owned.counts.current_bytes += more->bytes;
    if (owned.counts.current_bytes > owned.counts.peak_bytes)
        owned.counts.peak_bytes = owned.counts.current_bytes;
    return true;
}

static struct ag_api_owned *remove_owned(CUdeviceptr address)
{
    struct ag_api_owned *found = address ? ag_map_take(&owned.blocks, address) : NULL;

    atomic_store_explicit(&ag_api_n_owned, owned.blocks.count, memory_order_relaxed);
    if (found)
        owned.counts.current_bytes -= found->bytes;
    return found;
}

void ag_api_owned_add(CUdeviceptr address, size_t bytes, int device, CUcontext context)
{
    struct ag_api_owned *fresh = malloc(sizeof(*fresh)), *stale;
    bool added;

    if (!fresh)
        return;
    *fresh = (struct ag_api_owned){
        .address = address, .bytes = bytes, .context = context, .device = device};
    ag_lock_take(&ag_api_lock);
    stale =
        remove_owned(address); /* it was freed past us: else the driver had not given it again */
    owned.counts.frees += stale != NULL;
    added = put_owned(fresh);
    owned.counts.allocations += added;
    ag_lock_release(&ag_api_lock);
    free(stale);
    if (!added)
        free(fresh);
}

struct ag_api_owned *ag_api_owned_take(CUdeviceptr address)
{
    struct ag_api_owned *found;

    if (!ag_api_owns())
        return NULL;
    ag_lock_take(&ag_api_lock);
    found = remove_owned(address);
    ag_lock_release(&ag_api_lock);
    if (found)
        found->began = ag_trace_began();
    return found;
}

void ag_api_owned_freed(struct ag_api_owned *block)
{
    ag_lock_take(&ag_api_lock);
    owned.counts.frees++;
    ag_lock_release(&ag_api_lock);
    if (ag_trace_on())
        ag_trace_add_call(block->began, (struct ag_trace_event){
                                            .kind = AG_TRACE_MANAGED_FREE,
                                            .device = (int16_t)block->device,
                                            .address = block->address,
                                            .size = block->bytes,
                                        });
    free(block);
}

void ag_api_owned_put_back(struct ag_api_owned *block)
{
    bool kept;

    ag_lock_take(&ag_api_lock);
    kept = put_owned(block);
    ag_lock_release(&ag_api_lock);
    if (!kept)
        free(block);
}

struct ag_api_owned_counts ag_api_owned_counts(void)
{
    struct ag_api_owned_counts now;

    ag_lock_take(&ag_api_lock);
    now = owned.counts;
    ag_lock_release(&ag_api_lock);
    return now;
}

/* One block of the context, taken out; NULL when there is none. */
static struct ag_api_owned *remove_one_of(CUcontext context)
{
    for (size_t i = 0; i < owned.blocks.capacity; i++) {
        struct ag_api_owned *block = owned.blocks.entries[i].value;

        if (owned.blocks.entries[i].key && block->context == context)
            return remove_owned(block->address);
    }
    return NULL;
}

void ag_api_owned_context_dying(CUcontext context)
{
    struct ag_api_owned *block;

    if (!ag_api_owns())
        return;
    do {
        ag_lock_take(&ag_api_lock);
        block = remove_one_of(context);
        owned.counts.frees += block != NULL;
        ag_lock_release(&ag_api_lock);
        free(block);
    } while (block);
}

void ag_api_owned_begin_child(void)
{
    /* It has no device memory. Another thread may have been at the table, which is left as it is.
     */
    owned.blocks = (struct ag_map){0};
    owned.counts = (struct ag_api_owned_counts){0};
    atomic_store(&ag_api_n_owned, 0);
}
