/* Slabs: blocks of memory that small allocations are cut from, so that an allocation for which no
 * freed block is there costs our metadata only. Natively small allocations share pages of the
 * device as well. No driver call is made here.
 *
 * A slab is an ordinary block of the ledger, KEPT as long as anything is cut from it; what is cut
 * are blocks of their own, *pieces*. A freed piece waits in the cache like any block. When it
 * leaves the cache it goes back to its slab, where its bytes join their neighbours' and are cut
 * again; like what is in the cache, they were freed in an order that lets anybody use them at once.
 * A slab that has all its pieces back is an ordinary KEPT block again: for the cache, for the next
 * slab, or for the driver.
 *
 * The slab's own entry of the ledger stays at its beginning, so the first 512 bytes are never cut:
 * the driver's answer to "what allocation is that?" leads to the slab and from there to the piece.
 *
 * The figures, and why they are what they are:
 *   - A slab has the 2 MiB that the driver takes for the first small allocation anyway. So a
 *     process that makes a handful takes no more memory than natively.
 *   - Up to ALLOGRAFT_SLAB, 64 KiB, is cut. cuMemAlloc takes 2.0 to 3.6 us up to that size and
 *     45 us for 2 MiB (H200, driver 580.159): even of the largest, 31 of one slab cost 1.5 us each.
 *     What is left at a slab's end is at most 1/32 of it. The most that may be set is 1/8.
 *   - There are no classes but the sizes of the cache, and nothing larger than 512 bytes is aligned
 *     to: cuMemAlloc promises no more.
 *   - Threads cut from shards, by their slots. A context has as many as it has slabs, at most one
 *     for each slot: 16 threads that allocate one block each share one slab, and what shards hold
 *     in reserve is never more than what is in use. While one thread gets a slab from the driver,
 *     others of its shard neither wait nor get one too: the driver has a block for each. */
#ifndef AG_POLICY_SLAB_H
#define AG_POLICY_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/base/slot.h"
#include "interpose/core/base/threads/spin.h"
#include "interpose/core/driver/abi.h"
#include "policy/mem_desc.h"

#define AG_SLAB_BYTES (2u << 20)
/* Under ALLOGRAFT_LIMIT every byte counts, also those of a slab that are not cut: a limit smaller
 * than that has no room for them. */
#define AG_SLAB_LIMIT (8u * AG_SLAB_BYTES)

struct ag_block;
struct ag_slab;

struct ag_slab_shard {
    _Alignas(64) struct ag_spin lock; /* guards all slabs of the shard */
    struct ag_slab *open;             /* those that pieces are cut from, the next one first */
    bool coming;                      /* a thread is getting memory for another one */
    struct ag_slab *freelist; /* not of memory: kept, since a late reader may look at them */
};

/* The slabs of one context. */
struct ag_slabs {
    _Atomic uint32_t n;       /* slabs that something is cut from */
    _Atomic uint32_t n_whole; /* of them, those whose pieces are all counted in the cache */
    struct ag_slab_shard shards[AG_SLOTS];
};

/* A piece that has just been cut, not yet in the ledger. */
struct ag_slab_piece {
    struct ag_slab_shard *shard;
    struct ag_slab *slab;
    CUdeviceptr address;
};

/* ALLOGRAFT_SLAB: the largest size that is cut; 0: none. */
void ag_slab_configure(uint64_t largest);
void ag_slab_begin_child(void);
uint64_t ag_slab_largest(void);

void ag_slabs_init(struct ag_slabs *slabs);
/* Bytes of all that something is cut from. */
uint64_t ag_slabs_bytes(struct ag_slabs *slabs);
/* Bytes of the slabs whose pieces were all in the cache when ag_cache_count_pieces() last
 * looked. */
uint64_t ag_slabs_whole_bytes(struct ag_slabs *slabs);
/* The context is gone, with all its memory. */
void ag_slabs_clear(struct ag_slabs *slabs);

enum ag_slab_cut {
    AG_SLAB_CUT,
    AG_SLAB_NEEDED, /* no slab has room: the caller makes one */
    AG_SLAB_COMING, /* none has, and another thread makes one */
};
/* Cuts `size` bytes from an open slab of such memory. Where one is needed, ag_slab_begin() or
 * ag_slab_failed() must follow with the same *ret. */
enum ag_slab_cut ag_slab_cut(struct ag_slabs *slabs, size_t size, struct ag_mem_desc desc,
                             struct ag_slab_piece *ret);
/* Makes a slab of `whole`, a KEPT block of AG_SLAB_BYTES or more that nobody else has, and cuts
 * `size` bytes from it. False, and nothing done, when memory for metadata runs out. */
bool ag_slab_begin(struct ag_slabs *slabs, struct ag_block *whole, size_t size,
                   struct ag_slab_piece *piece);
/* There is no memory for a slab. */
void ag_slab_failed(struct ag_slab_piece *piece);
/* The descriptor of what is cut from it. */
struct ag_mem_desc ag_slab_desc(const struct ag_slab *slab);
/* The block that the slab is. */
const struct ag_block *ag_slab_whole(const struct ag_slab *slab);
/* A number that no other slab of the process has or had. */
uint64_t ag_slab_number(const struct ag_slab *slab);

/* `size` bytes at `address`, which has left the ledger, are the slab's again. The slab's own block
 * when that was the last piece: the caller's, and the slab is none any more. Else NULL. */
struct ag_block *ag_slab_return(struct ag_slab *slab, CUdeviceptr address, size_t size);
/* A piece of it is counted as being in the cache from now on, or no more. */
void ag_slab_count_piece(struct ag_slab *slab, bool in);
/* How many pieces of the slab are counted in the cache. */
uint32_t ag_slab_counted(struct ag_slab *slab);

/* Where the piece begins that `address` may lie in, 0 if there is none. Any thread, at any time. */
CUdeviceptr ag_slab_find(struct ag_slab *slab, CUdeviceptr address);

/* Nothing is cut from it any more, and what comes back stays uncut until the slab is whole: the
 * driver has let others at the memory, or changed what it is. */
void ag_slab_close(struct ag_slab *slab);
/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the slab as the driver had it before a piece's was set: enum
 * ag_sync_memops (ledger.h). */
void ag_slab_note_sync(struct ag_slab *slab, int was);
int ag_slab_sync(const struct ag_slab *slab);
bool ag_slab_is_closed(const struct ag_slab *slab);

#endif
