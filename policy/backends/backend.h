/* How memory comes from the driver and goes back to it. A file for each source: pools, managed
 * memory, the managed pool; backend.c chooses between them by the memory descriptor. */
#ifndef AG_POLICY_BACKEND_H
#define AG_POLICY_BACKEND_H

#include "interpose/core/settings/options.h"
#include "policy/contexts/context.h"
#include "policy/ledger.h"

/* Allocates at least `bytes` of that memory descriptor, usable by all work submitted from now on.
 * `context` is current. On success *ret_address and *ret_size (bytes the driver gave); on failure
 * both untouched. */
CUresult ag_backend_allocate(struct ag_context *context, size_t bytes, struct ag_mem_desc desc,
                             CUdeviceptr *ret_address, size_t *ret_size);

/* Gives blocks (linked by ->next), whose users are ordered before now, back to where they came
 * from; out of the ledger first. Single allocations go by the driver's own free, which waits for
 * the context: within a call of the program that natively waits for nothing, `timeout_ns` bounds
 * that (else UINT64_MAX). Those that cannot go back now (the wait was too long) are returned, still
 * in the ledger. */
struct ag_block *ag_backend_release(struct ag_context *context, struct ag_block *blocks,
                                    uint64_t timeout_ns);

/* Would one of the blocks go by the driver's own free? */
bool ag_backend_waits_for(const struct ag_block *blocks);

/* Pieces among KEPT blocks go back to their slabs. What is left: the others, and the slabs that are
 * whole again. No driver call. */
struct ag_block *ag_backend_return_pieces(struct ag_block *blocks);

/* Our pool can serve that device. Makes it on first use; not inside a capture. */
bool ag_pool_ready(struct ag_device *device);
/* Allocates from our pool of the context's device, or from another pool. */
CUresult ag_pool_allocate(struct ag_context *context, CUmemoryPool pool, size_t bytes,
                          CUdeviceptr *ret_address, size_t *ret_size);
/* Gives what the pool holds unused back to the device: any pool, also during a capture. */
void ag_pool_give_idle_back(CUmemoryPool pool);
/* Gives what our pool holds unused back to the driver; the managed pool has a function of its
 * own. */
void ag_pool_trim(struct ag_device *device);
/* Bytes that a pool, or our pool, holds from the device and nobody uses. */
uint64_t ag_pool_idle_in(CUmemoryPool pool);
uint64_t ag_pool_idle(struct ag_device *device);
/* What a pool of ours on the device needs, new as it is: it keeps `keep` for later, at most what
 * the program may have, and all devices that could enable peer access may use it: natively they
 * need nothing more than cuCtxEnablePeerAccess, and a copy into a pool that is not open succeeds
 * without copying. *ret_opened: all of them could be let in. Destroys the pool on failure. */
CUresult ag_pool_set_up(const struct ag_device *device, CUmemoryPool pool, struct ag_size keep,
                        bool *ret_opened);
/* ALLOGRAFT_POOL_KEEP; before the first pool. */
void ag_pool_configure(struct ag_size keep);
/* A forked child has no pools. */
void ag_pool_begin_child(struct ag_device *device);

/* ALLOGRAFT_OVERSUBSCRIBE. */
void ag_managed_configure(bool oversubscribe);
/* A single allocation of managed memory, advised and prefetched as its memory descriptor says. */
CUresult ag_managed_allocate(struct ag_context *context, size_t bytes, struct ag_mem_desc desc,
                             CUdeviceptr *ret_address, size_t *ret_size);
/* A single managed allocation on the device of that many bytes went back to the driver. */
void ag_managed_freed(struct ag_device *device, size_t bytes);
/* The bytes of those blocks that cuMemGetInfo does not report as free although an allocation would
 * get them. */
uint64_t ag_managed_kept(struct ag_device *device);
/* Is there room for `bytes` more of that memory descriptor, on the device or the host? */
bool ag_managed_fits(struct ag_context *context, size_t bytes, struct ag_mem_desc desc);
/* Moves the managed block to the device: it prefers to lie there from now on. The driver's
 * answer. */
CUresult ag_managed_move_to_device(struct ag_context *context, CUdeviceptr address, size_t bytes);

#endif
