/* The phases of a device: see churn.h. */
#include "policy/churn.h"

static _Atomic bool shares, is_reached; /* relaxed: of what is allocated after they were noted */

/* Another thread may have gone further. */
void ag_churn_frees(struct ag_churn *churn)
{
    int phase = AG_CHURN_NOT;

    (void)atomic_compare_exchange_strong_explicit(&churn->phase, &phase, AG_CHURN_FREED,
                                                  memory_order_relaxed, memory_order_relaxed);
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

void ag_churn_begin_child(struct ag_churn *churn)
{
    *churn = (struct ag_churn){0};
    atomic_store_explicit(&shares, false, memory_order_relaxed);
    atomic_store_explicit(&is_reached, false, memory_order_relaxed);
}
