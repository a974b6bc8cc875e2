/* The ledger: device address -> block, that is owner, size, memory descriptor and state.
 *
 * A block is in the ledger from the driver's allocation until it goes back to the driver, also
 * while it waits in a cache; its state says which. The program may only free what is LIVE. An
 * address that is not in the ledger is always the driver's. */
#ifndef AG_POLICY_LEDGER_H
#define AG_POLICY_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/report/stats.h"
#include "policy/mem_desc.h"

struct ag_context;
struct ag_slab;

enum ag_block_state {
    AG_BLOCK_KEPT,    /* ours: in a cache, set aside, or on its way */
    AG_BLOCK_LIVE,    /* the program's */
    AG_BLOCK_MOVING,  /* the program's, while we move it: a free waits for the end of that */
    AG_BLOCK_FOREIGN, /* another process', opened by the program, which cannot free it (ipc.h) */
};

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as the program set it. It stays with the memory: what has it set
 * is never anybody else's. Of pieces the driver has one for their whole slab. */
enum ag_sync_memops { AG_SYNC_NOT_SET, AG_SYNC_OFF, AG_SYNC_ON };

/* The driver has let others at the memory, by a handle of its own: it is freed natively. */
#define AG_EXPORTED_BY_DRIVER UINT64_MAX

/* What few blocks have. */
struct ag_block_rare {
    /* The number of its IPC handle (ipc_export.c), or AG_EXPORTED_BY_DRIVER; 0: it has none. */
    _Atomic uint64_t export_number;
    uint64_t private_pool; /* of the capture it was allocated in (private_pool.h); 0 for none */
    /* While it is (guard.h), else NULL. Relaxed: who has its address got that afterwards. */
    _Atomic(struct ag_guarded *) guarded;
    _Atomic uint64_t buffer_id; /* another for each allocation, as natively; 0: not asked yet */
};

/* A line of its own, and no more: threads at neighbouring blocks do not wait for each other, and of
 * a million blocks each line that a call looks at is far away. */
struct ag_block {
    _Alignas(64) struct ag_block *next; /* list of whoever holds it while KEPT */
    CUdeviceptr address;
    size_t size;                /* bytes the driver gave */
    _Atomic size_t requested;   /* bytes the program asked for; relaxed: `state` tells of it */
    struct ag_context *context; /* whose memory it is */
    struct ag_mem_desc desc;
    _Atomic uint8_t placement; /* enum ag_placement: where it is counted */
    uint8_t lies_on; /* 1 + the device that prefetches before launches left it on; 0 for none */
    _Atomic uint8_t state;
    _Atomic uint8_t sync_memops;          /* enum ag_sync_memops */
    _Atomic uintptr_t slab;               /* see ag_block_slab(); and AG_BLOCK_COUNTED */
    _Atomic(struct ag_block_rare *) rare; /* NULL: it has none of that */
};

_Static_assert(sizeof(struct ag_block) == 64, "one line");

/* Bits of ag_block.slab. The second: ag_cache_count_pieces() has seen the piece where it is. */
#define AG_BLOCK_IS_SLAB ((uintptr_t)1)
#define AG_BLOCK_COUNTED ((uintptr_t)2)

/* The slab (slab.h) that the block is a piece of, or NULL. */
static inline struct ag_slab *ag_block_slab(const struct ag_block *block)
{
    uintptr_t slab = atomic_load_explicit(&block->slab, memory_order_acquire);

    return (slab & AG_BLOCK_IS_SLAB) ? NULL : (struct ag_slab *)(slab & ~AG_BLOCK_COUNTED);
}

/* The slab that the block is: pieces are cut from it. Or NULL. */
static inline struct ag_slab *ag_block_cut_up(const struct ag_block *block)
{
    uintptr_t slab = atomic_load_explicit(&block->slab, memory_order_acquire);

    return (slab & AG_BLOCK_IS_SLAB) ? (struct ag_slab *)(slab & ~AG_BLOCK_IS_SLAB) : NULL;
}

static inline void ag_block_set_slab(struct ag_block *piece, const struct ag_slab *slab)
{
    atomic_store_explicit(&piece->slab, (uintptr_t)slab, memory_order_release);
}

static inline void ag_block_set_cut_up(struct ag_block *whole, const struct ag_slab *slab)
{
    atomic_store_explicit(&whole->slab, slab ? (uintptr_t)slab | AG_BLOCK_IS_SLAB : 0,
                          memory_order_release);
}

static inline bool ag_block_is_counted(const struct ag_block *block)
{
    return (atomic_load_explicit(&block->slab, memory_order_relaxed) & AG_BLOCK_COUNTED) != 0;
}

/* Called with the lock of the cache's shard that the block is in, under which alone that bit is
 * looked at: its loads are relaxed. */
static inline void ag_block_set_counted(struct ag_block *block, bool counted)
{
    uintptr_t slab = atomic_load_explicit(&block->slab, memory_order_relaxed) & ~AG_BLOCK_COUNTED;

    atomic_store_explicit(&block->slab, counted ? slab | AG_BLOCK_COUNTED : slab,
                          memory_order_release);
}

/* NULL: it has none. Of a block in the caller's hands; others may be given some meanwhile. */
static inline struct ag_block_rare *ag_block_rare(const struct ag_block *block)
{
    return atomic_load_explicit(&block->rare, memory_order_acquire);
}

/* Relaxed: the number is looked up under a lock. */
static inline uint64_t ag_block_export_number(const struct ag_block *block)
{
    struct ag_block_rare *rare = ag_block_rare(block);

    return rare ? atomic_load_explicit(&rare->export_number, memory_order_relaxed) : 0;
}

static inline uint64_t ag_block_private_pool(const struct ag_block *block)
{
    struct ag_block_rare *rare = ag_block_rare(block);

    return rare ? rare->private_pool : 0;
}

static inline struct ag_guarded *ag_block_guarded(const struct ag_block *block)
{
    struct ag_block_rare *rare = ag_block_rare(block);

    return rare ? atomic_load_explicit(&rare->guarded, memory_order_relaxed) : NULL;
}

/* Relaxed: of a block in the caller's hands. 0: nobody has asked for it. */
static inline uint64_t ag_block_buffer_id(const struct ag_block *block)
{
    struct ag_block_rare *rare = ag_block_rare(block);

    return rare ? atomic_load_explicit(&rare->buffer_id, memory_order_relaxed) : 0;
}

/* What the ledger said of a block. */
struct ag_block_seen {
    CUdeviceptr address;
    size_t size, requested;
    struct ag_context *context;
    struct ag_mem_desc desc;
    enum ag_placement placement;
    enum ag_block_state state;
    enum ag_sync_memops sync_memops;
    uint64_t export_number, private_pool;
    struct ag_guarded *guarded;
    struct ag_slab *slab, *cut_up;
};

/* Touches the memory that the first blocks take, before the program waits for it. */
void ag_ledger_prepare(void);

/* A block in state KEPT, entered under its address. NULL when memory for the ledger runs out. */
struct ag_block *ag_ledger_enter(CUdeviceptr address, size_t size, struct ag_context *context,
                                 struct ag_mem_desc desc);
/* Makes the block the program's, with `requested` bytes. */
static inline void ag_ledger_give(struct ag_block *block, size_t requested)
{
    struct ag_block_rare *rare = atomic_load_explicit(&block->rare, memory_order_acquire);

    atomic_store_explicit(&block->requested, requested, memory_order_relaxed);
    if (rare)
        atomic_store_explicit(&rare->buffer_id, 0, memory_order_relaxed);
    atomic_store_explicit(&block->state, AG_BLOCK_LIVE, memory_order_release);
}

/* The same once more, of a block whose free was refused: it is the allocation that it was. */
static inline void ag_ledger_give_again(struct ag_block *block)
{
    atomic_store_explicit(&block->state, AG_BLOCK_LIVE, memory_order_release);
}

/* Makes the block memory of another process that the program has open, `requested` bytes. */
void ag_ledger_lend(struct ag_block *block, size_t requested);
/* Such memory counts as that context's from now on, another one that has it open. */
void ag_ledger_hand_over(struct ag_block *block, struct ag_context *context);
/* The LIVE block at `base` has that SYNC_MEMOPS now. False: there is none. */
bool ag_ledger_note_sync(CUdeviceptr base, enum ag_sync_memops set);
/* The LIVE block at `base` has the IPC handle of that number now, unless it has one: the number it
 * has, or 0 when the block is gone. */
uint64_t ag_ledger_note_export(CUdeviceptr base, uint64_t number);

/* False: no block of the ledger begins at `address`. True: one may. Takes no lock: for calls that
 * mostly concern memory of others. */
bool ag_ledger_may_have(CUdeviceptr address);

/* False: no block that the program could tell from native memory lies there, or ever did, nor what
 * ag_ledger_note_memory() says. Takes no lock. */
bool ag_ledger_may_hold(CUdeviceptr address);
void ag_ledger_note_memory(CUdeviceptr address, size_t size);

enum ag_claim {
    AG_CLAIM_OURS,     /* *ret_block is KEPT now and the caller's */
    AG_CLAIM_NOT_LIVE, /* known, but the program does not own it: freed already */
    AG_CLAIM_UNKNOWN,
};
/* The program frees `address`: at most one caller gets AG_CLAIM_OURS. */
enum ag_claim ag_ledger_claim(CUdeviceptr address, struct ag_block **ret_block);

/* The block that begins at `address`, kept from being freed until ag_ledger_moved() gives it its
 * new memory descriptor, if it is LIVE; else NULL. */
struct ag_block *ag_ledger_move(CUdeviceptr address);
void ag_ledger_moved(struct ag_block *block, struct ag_mem_desc desc);

/* Takes a KEPT block out of the ledger and forgets it. Before the driver frees the memory: another
 * thread may be given the same address at once. */
void ag_ledger_remove(struct ag_block *block);

/* A block in the caller's hands (KEPT, or of a context that dies) lies under another address from
 * now on. False when memory for the ledger runs out: nothing is changed then, or, with `always`,
 * nobody finds the block by its new address. */
bool ag_ledger_rename(struct ag_block *block, CUdeviceptr address, bool always);

/* The entry of the block that begins at `base`. False when there is none. */
bool ag_ledger_look(CUdeviceptr base, struct ag_block_seen *ret_seen);
/* One that no allocation had before: neither ours nor, since it counts from low numbers, the
 * driver's. */
uint64_t ag_ledger_new_buffer_id(void);
/* CU_POINTER_ATTRIBUTE_BUFFER_ID of that block; 0 when there is none, or no memory for it. */
uint64_t ag_ledger_buffer_id(CUdeviceptr base);

/* What few blocks have, of this one; NULL when memory for the ledger runs out. */
struct ag_block_rare *ag_ledger_rare(struct ag_block *block);

/* All blocks of `context`, linked by ->next, in the state they are in: for a context that dies,
 * whose memory the program does not touch any more. */
struct ag_block *ag_ledger_claim_all(const struct ag_context *context);

/* A forked child has no device memory. */
void ag_ledger_begin_child(void);

#endif
