/* The program's own pools: a table of them, counters for each, and the release threshold that
 * ALLOGRAFT_APP_POOL_KEEP sets where the program has chosen none. */
#ifndef AG_POLICY_APP_POOLS_H
#define AG_POLICY_APP_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/options.h"

struct ag_device;

/* Called before the first pool is met. */
void ag_app_pools_configure(struct ag_size keep);

/* --- on the way of allocations: any thread, no lock, no driver call unless said --- */

/* Row of the pool that cuMemAllocAsync uses on a device (ordinal < 0: not known). */
unsigned ag_app_pools_current(int ordinal);
/* Is that the device's default pool? */
bool ag_app_pools_current_is_default(int ordinal);
/* The default pool's handle, or NULL. May ask the driver, of what the table does not know. */
CUmemoryPool ag_app_pools_default_handle(int ordinal);
/* Row of a pool that an allocation names, to count in (ag_stats_app_pool). A handle that is met for
 * the first time may be asked about. */
unsigned ag_app_pools_find(CUmemoryPool pool);
/* Has the row's pool memory of the device that no other process may get? */
bool ag_app_pools_is_private(unsigned row);
/* The program created that pool for other processes. */
void ag_app_pools_shared(CUmemoryPool pool);
/* Raises the release threshold of the row's pool, if that is still to be done; called before an
 * allocation from it. */
void ag_app_pools_keep(unsigned row);

/* --- what the other calls do, around the driver's own; each returns the driver's result --- */

/* Notes a pool that the program created, imported or asked for. `location` NULL: its place is not
 * known. */
CUresult ag_app_pools_made(CUresult result, const CUmemoryPool *pool, enum ag_app_pool_kind kind,
                           const CUmemLocation *location);
/* Notes that the program asked for the default pool (or the current one) of a location. */
CUresult ag_app_pools_given(CUresult result, const CUmemoryPool *pool, bool current,
                            const CUmemLocation *location, CUmemAllocationType type);
/* Notes that the program chose the pool of a location. */
CUresult ag_app_pools_chosen(CUresult result, CUmemoryPool pool, const CUmemLocation *location,
                             CUmemAllocationType type);
/* Notes that any other call named a pool. */
CUresult ag_app_pools_touched(CUresult result, CUmemoryPool pool);

/* Does what the driver's function of that name does; the driver's call is made inside. */
CUresult ag_app_pools_destroy(CUmemoryPool pool);
CUresult ag_app_pools_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CUresult ag_app_pools_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);

/* The primary context of a device is about to end. Pools and their attributes outlive it (580.159);
 * handles are not trusted to. */
void ag_app_pools_device_ending(int ordinal);
/* The process ends and the driver is still there: asks each pool for its highest levels. By the
 * helper (base/helper.h). */
void ag_app_pools_exit(void);
/* Is there any pool of the program's to ask? */
bool ag_app_pools_met(void);
/* A forked child has no pools. */
void ag_app_pools_begin_child(void);

/* --- for the rest of the policy; each asks the driver, and harms no capture --- */

/* Bytes of the device's memory that the program has from its pools. */
uint64_t ag_app_pools_used(const struct ag_device *device);
/* Bytes that pools of the device hold unused because of ALLOGRAFT_APP_POOL_KEEP: natively the
 * device would have them back. */
uint64_t ag_app_pools_held(const struct ag_device *device);
/* Gives those bytes back, as far as nothing uses them. */
void ag_app_pools_trim(const struct ag_device *device);

#endif
