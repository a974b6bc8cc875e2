/* Private pools: memory allocated while the program captures a graph of the control API.
 *
 * The graph's nodes name that memory, so it must stay at its address, also after the program has
 * freed it, until no graph uses its pool any more. A pool is only a number and this rule about
 * frees; each block is an allocation of the driver of its own. */
#ifndef AG_POLICY_PRIVATE_POOL_H
#define AG_POLICY_PRIVATE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "policy/ledger.h"

/* The pool that the calling thread captures into; 0: none. */
extern _Thread_local uint64_t ag_private_of_thread;

/* Another graph uses the pool, made if there is none of that number; false when there is no
 * memory for it. The last one that lets go ends it, and gets what the program has freed for
 * ag_alloc_pool_ended(); what it has not becomes like any other memory. Not inside a hook. */
bool ag_private_hold(uint64_t number);
struct ag_block *ag_private_let_go(uint64_t number);

/* The calling thread allocates from the pool, which is held, from now on: false when another
 * capture does. */
bool ag_private_begin(uint64_t number);
void ag_private_end(void);

/* A KEPT block of `context`, of at least `bytes` and not much larger, freed before the capture that
 * the calling thread has open; or NULL. */
struct ag_block *ag_private_take(const struct ag_context *context, size_t bytes);
/* The block in the program's hands belongs to the calling thread's pool. False without memory. */
bool ag_private_adopt(struct ag_block *block);
/* The program frees a KEPT block of a pool: true when the pool keeps it. */
bool ag_private_keep(struct ag_block *block);

/* The context's memory is about to go: no pool has any of it. */
void ag_private_context_dying(const struct ag_context *context);
/* A forked child has no graphs. */
void ag_private_begin_child(void);

#endif
