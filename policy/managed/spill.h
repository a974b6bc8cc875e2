/* Memory that did not fit on its device: it lives on the host, and moves to the device when
 * there is room (ALLOGRAFT_OOM=spill, ALLOGRAFT_UNSPILL). */
#ifndef AG_POLICY_SPILL_H
#define AG_POLICY_SPILL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/settings/options.h"
#include "policy/ledger.h"

struct ag_device;

void ag_spill_configure(enum ag_oom oom, bool unspill);
/* Is what does not fit to be spilled? */
bool ag_spill_wanted(void);

/* A spilled block is about to become the program's. */
void ag_spill_add(const struct ag_block *block);
/* The program has freed it, moved or not; before it can become anybody else's. */
void ag_spill_remove(CUdeviceptr address);

/* Only for the functions here and in spill.c: how many blocks there are that may come back.
 * Relaxed: whether to look, under the lock. */
extern _Atomic unsigned ag_spill_n;

/* Moves the block that was spilled first, and fits by now, to `device`; called after a free. At
 * most one block, for the driver moves it while the caller waits. Not in a capture. */
void ag_spill_move_first(struct ag_device *device);
static inline void ag_spill_move_back(struct ag_device *device)
{
    if (__builtin_expect(atomic_load_explicit(&ag_spill_n, memory_order_relaxed) != 0, 0))
        ag_spill_move_first(device);
}

/* A forked child has no memory. */
void ag_spill_begin_child(void);

#endif
