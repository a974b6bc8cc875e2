/* Guards around the program's blocks (ALLOGRAFT_GUARD): who writes outside of a block, or into one
 * that was freed, is found and named.
 *
 *   poison  a block is filled when it is allocated, and when it is freed; freed ones are kept for a
 *           while, and whether the fill is still there is checked before they are used again
 *   canary  AG_GUARD_EDGE bytes before and after a block are checked when it is freed
 *   page    a block ends where its memory does, at an address after which nothing is mapped, and a
 *           freed one is unmapped (paged.h): the device itself refuses what is wrong
 *
 * Blocks that are still there are checked when the process or their context ends. Under guards a
 * free waits for all work of the context, as natively: so the block is idle when it is checked, and
 * nothing else waits longer than natively.
 *
 * With canaries the program's address lies AG_GUARD_SHIFT bytes inside what the driver gave. From
 * ag_guard_begin() to ag_guard_end() the block is in the ledger under the program's address, and
 * its `size` what lies after that; everybody else works with it as with any other. */
#ifndef AG_POLICY_GUARD_H
#define AG_POLICY_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"

struct ag_block;
struct ag_block_seen;
struct ag_context;
struct ag_device;

#define AG_GUARD_SHIFT 512u /* textures need that alignment */

extern enum ag_guard ag_guard_mode; /* only for the functions here */

/* Called before the first allocation. */
void ag_guard_configure(enum ag_guard mode);
/* `taker`: gets each freed block that was kept, once it is checked. It is KEPT, and its users are
 * done. */
void ag_guard_give_to(void (*taker)(struct ag_block *block));
void ag_guard_begin_child(void);

static inline bool ag_guard_is_on(void)
{
    return __builtin_expect(ag_guard_mode != AG_GUARD_OFF, 0);
}

/* Is the next allocation to be guarded? Counts why not. `exported`: its caller hands it on. */
bool ag_guard_wants(bool exported);
/* Bytes to allocate for a block of `bytes`. */
size_t ag_guard_room(size_t bytes);

/* Guards a KEPT block of ag_guard_room(bytes) that the program is about to get. Where it cannot,
 * the block stays as it is, and why is counted. */
void ag_guard_begin(struct ag_block *block, size_t bytes, const void *caller);

/* Guards again a block that was guarded until just now, and is the program's again since the driver
 * refused to free it: what lies around it is still there. */
void ag_guard_resume(struct ag_block *block, size_t bytes, const void *caller);

enum ag_guard_end {
    AG_GUARD_CHECK,    /* all work that may use it is done */
    AG_GUARD_CAPTURED, /* a capture was open: nobody can look */
    AG_GUARD_ASYNC,    /* it is freed in the order of a stream, which is not waited for */
};
/* The program frees a guarded block, which is KEPT: it is checked, and is what it was before
 * ag_guard_begin(). True: it is the guard's for a while, which gives it to the taker. */
bool ag_guard_end(struct ag_block *block, const void *caller, enum ag_guard_end how);

/* Finds the block that the driver knows by `base`, and the program by another address. *ret_seen
 * may be written where there is none. */
bool ag_guard_look(CUdeviceptr base, struct ag_block_seen *ret_seen);
/* Is the program's address of blocks another than the driver's? Then nobody else can have them. */
bool ag_guard_shifts(void);
/* The program asked for a handle of memory: blocks from now on are not guarded, if that would shift
 * them. */
void ag_guard_note_shared(void);

/* An allocation of a kind that is never guarded. */
void ag_guard_note_other(void);

/* Gives freed blocks back that are kept on that device, once all work of their contexts is done,
 * for which it waits so long at most. True: there were any. */
bool ag_guard_relieve(const struct ag_device *device, uint64_t timeout_ns);
/* The context, whose work is done, is about to end: checks its blocks. */
void ag_guard_context_dying(const struct ag_context *context);
/* A block of a context that ends is what it was before ag_guard_begin(). */
void ag_guard_drop(struct ag_block *block);

/* Is there anything to check when the process ends? */
bool ag_guard_met(void);
/* Checks all blocks, once the work of their contexts is done. */
void ag_guard_check_all(void);

#endif
