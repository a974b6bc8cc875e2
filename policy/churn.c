/* The phases of a device, and what the driver's own calls cost: see churn.h. */
#include "policy/churn.h"

#define MIB ((uint64_t)1 << 20)

/* What a pool saves, measured on an idle H200 (driver 580.159): cuMemAlloc takes 2.1 us for 4 KiB,
 * 3.6 us for 64 KiB and 45 us for 2 MiB (it maps 2 MiB at a time, which small blocks share); a pool
 * 1.3 us as long as it need not grow, which it does by 32 MiB at a time. Above that it has to grow
 * for each block, and takes longer than cuMemAlloc (1.1 ms against 0.36 ms for 1 GiB): it saves
 * nothing. */
#define SAVED_BY_ANY     800u   /* ns */
#define SAVED_BY_MAPPING 43000u /* ns: the whole of MAPPED_BYTES */
#define MAPPED_BYTES     (2 * MIB)
#define GROWN_BYTES      (32 * MIB)
/* cuMemFree waits for the device even if that is idle, and unmaps; a pool does neither. */
#define SAVED_BY_FREE         50000u /* ns */
#define SAVED_BY_FREE_PER_MIB 300u   /* ns */

static uint64_t pool_after_ns;
static _Atomic bool shares, is_reached; /* relaxed: of what is allocated after they were noted */

void ag_churn_configure(uint64_t pool_after_us)
{
    pool_after_ns = pool_after_us * 1000;
}

/* Another thread may have gone further. */
void ag_churn_frees(struct ag_churn *churn)
{
    int phase = AG_CHURN_NOT;

    (void)atomic_compare_exchange_strong_explicit(&churn->phase, &phase, AG_CHURN_FREED,
                                                  memory_order_relaxed, memory_order_relaxed);
}

void ag_churn_missed(struct ag_churn *churn, size_t bytes)
{
    uint64_t mapped = bytes < MAPPED_BYTES ? bytes : MAPPED_BYTES;

    if (!ag_churn_is_on(churn))
        return;
    atomic_fetch_add_explicit(&churn->misses, 1, memory_order_relaxed);
    if (bytes <= GROWN_BYTES)
        atomic_fetch_add_explicit(&churn->saved_ns,
                                  SAVED_BY_ANY + SAVED_BY_MAPPING * mapped / MAPPED_BYTES,
                                  memory_order_relaxed);
}

void ag_churn_returned(struct ag_churn *churn, size_t bytes)
{
    if (ag_churn_is_on(churn))
        atomic_fetch_add_explicit(&churn->saved_ns,
                                  SAVED_BY_FREE + SAVED_BY_FREE_PER_MIB * (bytes / MIB),
                                  memory_order_relaxed);
}

void ag_churn_note_shared(void)
{
    atomic_store_explicit(&shares, true, memory_order_relaxed);
}

bool ag_churn_is_shared(void)
{
    return atomic_load_explicit(&shares, memory_order_relaxed);
}

void ag_churn_note_reached(void)
{
    atomic_store_explicit(&is_reached, true, memory_order_relaxed);
}

bool ag_churn_is_reached(void)
{
    return atomic_load_explicit(&is_reached, memory_order_relaxed);
}

bool ag_churn_wants_pool(const struct ag_churn *churn)
{
    return atomic_load_explicit(&churn->saved_ns, memory_order_relaxed) >= pool_after_ns &&
           !ag_churn_is_shared() && !ag_churn_is_reached();
}

void ag_churn_begin_child(struct ag_churn *churn)
{
    *churn = (struct ag_churn){0};
    atomic_store_explicit(&shares, false, memory_order_relaxed);
    atomic_store_explicit(&is_reached, false, memory_order_relaxed);
}
