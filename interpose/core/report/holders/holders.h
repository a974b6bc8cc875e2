/* Which stack holds which memory: what ALLOGRAFT_STACKS asks for.
 *
 * While it is off, each place that allocates or frees costs one load and a branch. While it is on,
 * an allocation takes its stack down (stacks.h), and a free finds the block by its address. A block
 * is entered when the driver has given it and before the program has it, and is taken out before
 * the driver's free, since another thread may get the same address at once. */
#ifndef AG_HOLDERS_H
#define AG_HOLDERS_H

#include "interpose/core/report/holders/format.h"

/* What stacks are taken for: bits. */
#define AG_HOLDERS_OF_MEMORY 1u
#define AG_HOLDERS_OF_WAITS  2u /* waits.h */
/* Relaxed: set before the state of the process says that it has begun, which hooks acquire. */
extern _Atomic unsigned ag_holders_active;

static inline bool ag_holders_any(unsigned what)
{
    unsigned active = atomic_load_explicit(&ag_holders_active, memory_order_relaxed);

    return __builtin_expect((active & what) != 0, 0);
}

static inline bool ag_holders_on(void)
{
    return ag_holders_any(AG_HOLDERS_OF_MEMORY);
}

/* A block, as far as it counts. */
struct ag_held_block {
    uint64_t bytes;
    const void *owner; /* the context that it goes with; NULL: none */
    uint32_t stack;
};

/* What ALLOGRAFT_STACKS and ALLOGRAFT_STACKS_SAMPLE say: most frames, 0 for off; and are stacks of
 * waits asked for? */
void ag_holders_configure(unsigned most, uint64_t sample_bytes, bool waits);
bool ag_holders_wanted(void);
/* Counting begins, in the process's file of counters if there is one. Once; a child again. */
void ag_holders_begin(void);
void ag_holders_begin_child(void);
/* The tables, where stacks of waits are asked for; else NULL. */
struct ag_holders *ag_holders_for_waits(void);

/* The program gets the block from here, by the stack of the calling thread. That stack's row;
 * AG_HOLDERS_STACKS where the block does not count. */
uint32_t ag_holders_add(enum ag_held_kind kind, uint64_t address, uint64_t bytes, const void *owner,
                        int device);
/* It frees the block: false when it does not count. Should the free fail, it is put back. */
bool ag_holders_take(uint64_t address, struct ag_held_block *ret);
void ag_holders_put_back(uint64_t address, const struct ag_held_block *block);

/* That became of so many bytes of a block of `block_bytes`, whose stack has that row. */
void ag_holders_moved(uint32_t row, uint64_t block_bytes, enum ag_held_move what, uint64_t bytes);

/* The context's memory goes; and what was allocated of pools on `device`, unless that is -1. */
void ag_holders_ended(const void *owner, int device);
/* An allocation failed for want of memory: tells of it on stderr, the 1st, 2nd, 4th, 8th ... time.
 * `failure`: what is known of the device. */
void ag_holders_failed(const struct ag_held_failure *failure);

/* The tables, ready for a report; NULL while off. */
const struct ag_holders *ag_holders_complete_now(void);

#endif
