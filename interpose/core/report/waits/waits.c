/* Sums waits up by their stack: see waits.h. Takes no lock, but for a stack that is new. */
#include "interpose/core/report/waits/waits.h"

#include "interpose/core/base/raise.h"
#include "interpose/core/report/holders/stacks.h"

static _Atomic(struct ag_holders *) tables;

void ag_waits_begin(void)
{
    struct ag_holders *holders = ag_holders_for_waits();

    if (!holders)
        return;
    holders->wait_bound_ns = AG_WAIT_BOUND_NS;
    atomic_store_explicit(&tables, holders, memory_order_release);
    atomic_fetch_or_explicit(&ag_holders_active, AG_HOLDERS_OF_WAITS, memory_order_release);
}

/* Relaxed, as all counters; the row was found under a lock or by an acquire. */
static void count_wait(struct ag_waited *waited, uint64_t ns)
{
    atomic_fetch_add_explicit(&waited->times, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&waited->ns, ns, memory_order_relaxed);
    ag_raise_to(&waited->longest_ns, ns);
}

static void count_short(struct ag_holders *holders, uint64_t ns)
{
    struct ag_waited_slot *slot = &holders->short_waits[ag_slot()];

    atomic_fetch_add_explicit(&slot->times, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->ns, ns, memory_order_relaxed);
}

void ag_waiting_add(const struct ag_waiting *wait, enum ag_wait_kind kind, const char *call)
{
    struct ag_holders *holders = atomic_load_explicit(&tables, memory_order_acquire);
    uint64_t ns = ag_clock_ns() - wait->began_ns;
    uint32_t row;

    if (!ag_waits_on()) /* it began in the parent of this process */
        return;
    if (ns < AG_WAIT_BOUND_NS) {
        count_short(holders, ns);
        return;
    }
    if (ag_trace_on())
        ag_trace_add_wait(wait->began_ticks, call);
    row = ag_stacks_take_wait(kind, call);
    count_wait(row < AG_HOLDERS_STACKS ? &holders->stacks[row].waited : &holders->waits_lost, ns);
}
