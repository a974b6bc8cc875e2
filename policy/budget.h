/* Bytes that we have of the driver, for each device, counted before it is asked for them; and how
 * many they may be, by ALLOGRAFT_LIMIT. */
#ifndef AG_POLICY_BUDGET_H
#define AG_POLICY_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/settings/options.h"
#include "policy/cache.h"
#include "policy/mem_desc.h"

struct ag_block;
struct ag_context;
struct ag_device;

/* Called before the first device is met. */
void ag_budget_configure(struct ag_size limit, struct ag_size cache);
bool ag_budget_is_limited(void);
/* Bytes that the program may have on a device with total_bytes; UINT64_MAX for no limit. */
uint64_t ag_budget_of(uint64_t total_bytes);
/* The device's bytes, as the program takes it for. */
uint64_t ag_budget_size(const struct ag_device *device);
/* Bytes the cache of a context on that device may hold, by ALLOGRAFT_CACHE. */
uint64_t ag_budget_cache_limit(const struct ag_device *device);

/* Takes `bytes` of the device's budget, for memory about to be asked of the driver. False, and
 * nothing taken, when they are not left. Any thread. */
bool ag_budget_take(struct ag_device *device, size_t bytes);
/* Takes them although they may not be left: for a little that is there already. */
void ag_budget_overdraw(struct ag_device *device, size_t bytes);
/* Gives them back, once the driver has the memory again, or has refused it. */
void ag_budget_give(struct ag_device *device, size_t bytes);

/* Bytes the program may still have: what is left, and what our caches would give at most. */
uint64_t ag_budget_left(struct ag_device *device);
/* The budget that is left, for the program to see; slabs that are partly in use count in full. */
uint64_t ag_budget_left_now(struct ag_device *device);

/* Bytes that ag_budget_take() took for memory without an address, which `handle` names. False when
 * there is no room to note it. */
bool ag_budget_note(struct ag_device *device, uint64_t handle, size_t bytes);
/* The handle was released: what was noted goes back to the budget. The driver keeps such memory as
 * long as it is mapped; a program that releases the handle first has it uncounted until then. */
void ag_budget_noted_gone(uint64_t handle);

/* The driver has given a block of `bytes`, or got it back: for given.h, and which blocks share its
 * pages? For ag_device_cached_room(). */
void ag_budget_note_given(struct ag_device *device, struct ag_mem_desc desc, size_t bytes);
void ag_budget_note_returned(struct ag_device *device, struct ag_mem_desc desc, size_t bytes);

/* Takes a KEPT block, which is about to go back to the driver, out of the ledger and off the
 * budget. */
void ag_budget_forget(struct ag_block *block);
void ag_budget_begin_child(void);

/* What freed blocks that are kept may take of the device beside those in use.
 *
 * A program of several phases frees blocks of sizes that it never asks for again. Were all of them
 * kept, it would take up to twice as much as natively (2.1 times: setup and solution of an
 * algebraic multigrid), which others may need. So what we have of the driver grows only as far as
 * the program itself has had at a time, and a tenth more. Beyond that, an allocation that the cache
 * has no block for
 *   1. gets a larger one, if the cache has one and what blocks in use are too large comes to no
 *      more than a tenth, or a 64th of the device, or 2 MiB: that calls nothing;
 *   2. else has cached blocks of so many bytes given back first. Natively the program's own free
 *      had done that, and waited as now.
 * What a block that was given back would have served shows that the bound is too narrow. Where that
 * comes to more than half of the peak, what it is more may come in addition, up to once more the
 * peak, and blocks in use may be so much too large; and a larger one is taken before the driver is
 * asked at all, which takes less of the device than a block for each size.
 *
 * By a model of the cache, the recorded program that took most when all was kept, 2.13 times its
 * peak (hypre), takes 1.13 like this, and asks the driver for no more blocks; four others take 1.0
 * to 1.08. 200 random programs of 4,000 turns and more (sizes of up to 64 MiB, one to 84 blocks in
 * use) ask the driver 33 times each. Were blocks in use never larger by more than a tenth, it would
 * be 400 times; without the addition 200; with everything kept, up to 17 times the peak, 83.
 *
 * The wait has an end, since the device may be waiting for the very thread that allocates. Where it
 * was in vain once, all is kept from then on. */
struct ag_bound {
    _Atomic uint64_t peak;        /* most bytes in use, since freed blocks are kept */
    _Atomic uint64_t asked_again; /* bytes that a block would have served, were it not given back */
    _Atomic bool off;
    /* The size of the block of each bin of the cache that was given back last; 0 once it is asked
     * for. */
    _Atomic uint64_t given_back[AG_CACHE_BINS];
};

/* The cache has no block of `size` bytes, of plain device memory: by how much would one of the
 * driver be beyond the bound, of what the context's cache could give? *ret_asks_again: the program
 * asks for what was given back, so often that a larger block is better than one of the driver's,
 * whatever the bound. */
uint64_t ag_budget_excess(struct ag_context *context, size_t size, bool *ret_asks_again);
/* How large a block may be that serves a request of `size` bytes, from ag_cache_block_size(). */
size_t ag_budget_largest(struct ag_context *context, size_t size);
/* Such a block is about to be the program's, for a request of `size` bytes. */
void ag_budget_note_larger(const struct ag_block *block, size_t size);
/* The program has freed a block, and nobody else has it yet. */
void ag_budget_note_freed(const struct ag_block *block);
/* These blocks, linked by ->next, are about to be given back for it. */
void ag_budget_note_given_back(const struct ag_block *blocks);
/* Returning blocks took too long: there is no bound any more. */
void ag_budget_keep_all(struct ag_device *device);
bool ag_budget_keeps_all(const struct ag_device *device);

#endif
