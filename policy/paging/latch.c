/* Closing and opening the latch: see latch.h. */
#include "policy/paging/latch.h"

#include "interpose/core/base/log.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/report/stats.h"

struct ag_latch_state ag_latch_state;

static _Atomic bool has_ended;

void ag_latch_configure(bool on)
{
    ag_latch_state.on = on;
}

void ag_latch_wait(_Atomic unsigned *inside)
{
    struct ag_wait wait = {0};

    do {
        atomic_fetch_sub_explicit(inside, 1, memory_order_release);
        while (atomic_load_explicit(&ag_latch_state.closed, memory_order_acquire))
            ag_wait_pause(&wait);
        atomic_fetch_add_explicit(inside, 1, memory_order_seq_cst);
    } while (atomic_load_explicit(&ag_latch_state.closed, memory_order_seq_cst));
}

/* Sequentially consistent: who closes the latch looks here afterwards, so one sees the other. */
void ag_latch_end(void)
{
    struct ag_wait wait = {0};

    if (!ag_latch_is_on())
        return;
    if (!atomic_exchange_explicit(&has_ended, true, memory_order_seq_cst)) {
        ag_stats_add(AG_STAT_PAGE_ENDED, 1);
        ag_log_info("memory does not move any more: the program submits work by a call that "
                    "cannot be held back");
    }
    while (atomic_load_explicit(&ag_latch_state.closed, memory_order_seq_cst))
        ag_wait_pause(&wait);
}

static bool wait_until_empty(uint64_t until_ns)
{
    struct ag_wait wait = {0};

    for (unsigned i = 0; i < AG_SLOTS; i++)
        while (atomic_load_explicit(&ag_latch_state.slots[i].inside, memory_order_seq_cst))
            if (!ag_wait_pause_until(&wait, until_ns))
                return false;
    return true;
}

bool ag_latch_close(uint64_t until_ns)
{
    if (atomic_exchange_explicit(&ag_latch_state.closed, true, memory_order_seq_cst))
        return false;
    if (!atomic_load_explicit(&has_ended, memory_order_seq_cst) && wait_until_empty(until_ns))
        return true;
    ag_latch_open();
    return false;
}

void ag_latch_open(void)
{
    atomic_store_explicit(&ag_latch_state.closed, false, memory_order_seq_cst);
}

void ag_latch_begin_child(void)
{
    ag_latch_open();
    for (unsigned i = 0; i < AG_SLOTS; i++)
        atomic_store(&ag_latch_state.slots[i].inside, 0);
}
