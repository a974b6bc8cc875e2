/* A placement's driver calls: one constant table each. */
#ifndef AG_POLICY_BACKEND_H
#define AG_POLICY_BACKEND_H

#include "context.h"
#include "ledger.h"
#include "options.h"

struct ag_backend {
    /* Can it serve that device? May make what it needs for that; not inside a capture. */
    bool (*ready)(struct ag_device *device);
    /* At least `bytes`, usable by all work submitted from now on. `context` is current. On success
     * *ret_address and *ret_size (bytes the driver gave); on failure both untouched. */
    CUresult (*allocate)(struct ag_context *context, size_t bytes, CUdeviceptr *ret_address,
                         size_t *ret_size);
};

extern const struct ag_backend ag_backend_pool, ag_backend_managed, ag_backend_native;

/* Gives blocks (linked by ->next) whose users are ordered before now back to their pool; out of the
 * books first. Those that cannot go back now (a capture is open) are returned, still in the books. */
struct ag_block *ag_pool_release(struct ag_context *context, struct ag_block *blocks);
/* Gives what the pool holds unused back to the device. */
void ag_pool_trim(struct ag_device *device);
/* Bytes the pool holds from the device, and bytes of them that are allocated; 0 and 0 without pool. */
void ag_pool_levels(struct ag_device *device, uint64_t *ret_reserved, uint64_t *ret_used);
/* All devices that could enable peer access may use the pool of device `ordinal`: natively they need
 * nothing more than cuCtxEnablePeerAccess, and a copy into a pool that is not open succeeds without
 * copying. False when one refused. */
bool ag_pool_open_to_peers(CUmemoryPool pool, int ordinal);
/* ALLOGRAFT_POOL_KEEP; before the first pool. */
void ag_pool_configure(struct ag_size keep);
/* A forked child has no pools. */
void ag_pool_forget(struct ag_device *device);

#endif
