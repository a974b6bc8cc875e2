/* Balances, allowances and the peak: see live.h.
 *
 * Why the peak is right. A thread adds to its slot's balance, and then reads the allowance; whoever
 * adds up withdraws the allowances, and then reads the balances. All four are sequentially
 * consistent. So an addition that is not in the sum sees that the allowance is gone, and its call
 * does not return before the sum is made. What was allocated is read of all slots before what was
 * freed of any. So a free that was over before some allocation of the sum began is in it too: no
 * bytes are counted twice because they went from one thread to another meanwhile.
 *
 * A thread whose slot is the only one that was ever given has all balances in its own, and raises
 * the peaks itself: a program that allocates more and more in one thread would add up each time. It
 * adds to its balance, and then reads which slots were given; a slot without an allowance always
 * adds up, so a thread that is given another does at its first allocation. So if the first did not
 * see the second, the second's sum has what the first added. What the slot has more of that
 * placement than its allowance was granted to nobody; so its other placements lose theirs. */
#include "interpose/core/report/live/live.h"

#include <stddef.h>
#include <string.h>

#include "interpose/core/base/raise.h"
#include "interpose/core/base/threads/lock.h"

static struct {
    /* Guards every change of allowances, and of peaks: relaxed loads are of who has it, or is
     * alone. */
    struct ag_lock lock;
    uint64_t granted[AG_STATS_DEVICES][AG_N_PLACEMENTS]; /* their sum; may be below 0 */
    uint64_t granted_all[AG_STATS_DEVICES];              /* of all placements */
} live = {.lock = AG_LOCK_INIT(AG_RANK_LIVE)};

static struct ag_place_stats *place_counts(unsigned slot, unsigned row, enum ag_placement place)
{
    return &ag_stats.slots[slot].places[row][place];
}

static uint64_t allocated_of(struct ag_place_stats *counts)
{
    return atomic_load_explicit(&counts->alloc_bytes, memory_order_seq_cst);
}

static uint64_t freed_of(struct ag_place_stats *counts)
{
    return atomic_load_explicit(&counts->freed_bytes, memory_order_seq_cst);
}

static void set_allowance(unsigned slot, unsigned row, enum ag_placement place, uint64_t biased)
{
    atomic_store_explicit(&place_counts(slot, row, place)->allowance, biased, memory_order_seq_cst);
}

static unsigned first_of(uint32_t slots)
{
    return (unsigned)__builtin_ctz(slots);
}

static void withdraw(unsigned row, uint32_t slots)
{
    for (uint32_t left = slots; left; left &= left - 1) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            unsigned i = first_of(left);

            if (atomic_load_explicit(&place_counts(i, row, place)->allowance, memory_order_relaxed))
                set_allowance(i, row, place, 0);
        }
    }
}

/* The balances of `slots`, whose allowances are withdrawn, and their sums. */
static void add_up(unsigned row, uint32_t slots, uint64_t balances[AG_SLOTS][AG_N_PLACEMENTS],
                   uint64_t sums[AG_N_PLACEMENTS])
{
    for (uint32_t left = slots; left; left &= left - 1) {
        unsigned i = first_of(left);

        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            balances[i][place] = allocated_of(place_counts(i, row, place));
    }
    for (uint32_t left = slots; left; left &= left - 1) {
        unsigned i = first_of(left);

        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            sums[place] += balances[i][place] -= freed_of(place_counts(i, row, place));
    }
}

/* Sets the peaks right, and allows each slot what it has. With the lock. A slot that is given
 * meanwhile has no allowance: its thread comes here next. */
static void recount_peaks(unsigned row)
{
    uint64_t balances[AG_SLOTS][AG_N_PLACEMENTS], sums[AG_N_PLACEMENTS] = {0}, all = 0;
    uint32_t slots = ag_slots_used();

    withdraw(row, slots);
    add_up(row, slots, balances, sums);
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        if ((int64_t)sums[place] > 0)
            ag_raise_to(&ag_stats.peak_bytes[row][place], sums[place]);
        live.granted[row][place] = sums[place];
        all += sums[place];
    }
    if ((int64_t)all > 0)
        ag_raise_to(&ag_stats.peak_all[row], all);
    live.granted_all[row] = all;
    for (uint32_t left = slots; left; left &= left - 1) {
        unsigned i = first_of(left);

        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            if (allocated_of(place_counts(i, row, place)))
                set_allowance(i, row, place, balances[i][place] + AG_LIVE_BIAS);
        }
    }
}

static bool exceeds_peak(uint64_t bytes, const _Atomic uint64_t *peak)
{
    return (int64_t)bytes > (int64_t)atomic_load_explicit(peak, memory_order_relaxed);
}

/* False: it is no new peak, or not the caller's to tell, for another slot is given, or this one is
 * of several threads. Without the lock. */
static bool raise_alone(unsigned slot, unsigned row, enum ag_placement place)
{
    struct ag_place_stats *counts = ag_stats.slots[slot].places[row];
    uint64_t balance = allocated_of(&counts[place]) - freed_of(&counts[place]), all = 0;

    for (unsigned i = 0; i < AG_N_PLACEMENTS; i++)
        all += allocated_of(&counts[i]) - freed_of(&counts[i]);
    if ((!exceeds_peak(balance, &ag_stats.peak_bytes[row][place]) &&
         !exceeds_peak(all, &ag_stats.peak_all[row])) ||
        slot >= AG_OWN_SLOTS || ag_slots_used() != (uint32_t)1 << slot)
        return false;
    for (unsigned i = 0; i < AG_N_PLACEMENTS; i++) {
        if (i != place && atomic_load_explicit(&counts[i].allowance, memory_order_relaxed))
            set_allowance(slot, row, i, 0);
    }
    if ((int64_t)balance > 0)
        ag_raise_to(&ag_stats.peak_bytes[row][place], balance);
    if ((int64_t)all > 0)
        ag_raise_to(&ag_stats.peak_all[row], all);
    return true;
}

__attribute__((noinline)) static void ask_allowance(unsigned slot, unsigned row,
                                                    enum ag_placement place)
{
    struct ag_place_stats *counts = place_counts(slot, row, place);
    uint64_t had, balance, wanted;

    ag_lock_take(&live.lock);
    had = atomic_load_explicit(&counts->allowance, memory_order_relaxed);
    balance = allocated_of(counts) - freed_of(counts);
    wanted = balance + AG_LIVE_BIAS - had;
    if (had && (int64_t)wanted <= 0) {
        /* another thread of the slot has asked, or has freed meanwhile */
    } else if (had &&
               !exceeds_peak(live.granted[row][place] + wanted, &ag_stats.peak_bytes[row][place]) &&
               !exceeds_peak(live.granted_all[row] + wanted, &ag_stats.peak_all[row])) {
        set_allowance(slot, row, place, balance + AG_LIVE_BIAS);
        live.granted[row][place] += wanted;
        live.granted_all[row] += wanted;
    } else {
        recount_peaks(row);
    }
    ag_lock_release(&live.lock);
}

void ag_live_ask(unsigned slot, unsigned row, enum ag_placement place)
{
    if (!raise_alone(slot, row, place))
        ask_allowance(slot, row, place);
}

/* What was freed is read first: the answer may be too high by what comes and goes meanwhile, and is
 * not too low. */
uint64_t ag_live_of(const struct ag_stats *stats, unsigned row, enum ag_placement place)
{
    uint64_t freed =
        ag_stats_sum_of(stats, offsetof(struct ag_stats_slot, places[row][place].freed_bytes));
    uint64_t allocated =
        ag_stats_sum_of(stats, offsetof(struct ag_stats_slot, places[row][place].alloc_bytes));

    return allocated > freed ? allocated - freed : 0;
}

static void forget_granted(void)
{
    memset(live.granted, 0, sizeof(live.granted));
    memset(live.granted_all, 0, sizeof(live.granted_all));
}

void ag_live_reset(void)
{
    memset(&ag_stats, 0, sizeof(ag_stats));
    forget_granted();
}

void ag_live_begin_child(void)
{
    ag_lock_init(&live.lock, AG_RANK_LIVE); /* the thread that held it is the parent's */
    forget_granted();
}
