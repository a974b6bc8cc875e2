/* The table of the trampolines: see trampoline_table.h.
 *
 * The first thread that needs a row fills it; every thread would fill in the same. The way of a
 * thunk stays empty where every call concerns us. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/resolve/trampoline_table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "graph/replayer.h"
#include "interpose/core/base/addresses.h"
#include "interpose/core/base/log.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/symbols.h"
#include "interpose/core/report/stats.h"
#include "interpose/hooks/entry.h"
#include "interpose/resolve/bypass.h"
#include "policy/order/drain.h"

static const struct listed {
    const char *name;
    enum ag_trampoline_kind kind;
} listed[AG_N_LISTED] = {
#define AG_TRAMPOLINE(symbol, kind) {#symbol, AG_KIND_##kind},
#include "interpose/resolve/trampolines.def"
};

/* Functions that need none: they neither see nor order withheld work. */
static const char *const no_trampoline[] = {
#define AG_NO_TRAMPOLINE(symbol) #symbol,
#include "interpose/resolve/trampolines.def"
#include "policy/paging/latch.h"
};

#define N_WITHOUT (sizeof(no_trampoline) / sizeof(no_trampoline[0]))

/* Read by the assembly alone, hence no header: where a thunk jumps by itself, or NULL. */
extern _Atomic(void *) ag_trampoline_ways[AG_N_TRAMPOLINES];
_Atomic(void *) ag_trampoline_ways[AG_N_TRAMPOLINES];

/* The driver's functions, as far as known. Relaxed: code, which was there before anybody looked. */
static _Atomic(void *) reals[AG_N_TRAMPOLINES];
static _Atomic bool
    over; /* relaxed: who sees it late has a trampoline that goes on to the driver */

/* The functions that the driver has, by address. Those that need no trampoline
 * (AG_TRAMPOLINE_NEEDLESS) come after the trampolines of an address. */
static struct ag_address by_address[AG_N_LISTED + N_WITHOUT];
static size_t n_by_address;

CUresult ag_trampoline_not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* What is to be done before a call. Of a function that nobody knows, the worst is assumed that can
 * be borne. */
enum ag_trampoline_kind ag_trampoline_kind(unsigned number)
{
    return number < AG_N_LISTED ? listed[number].kind : AG_KIND_MEMORY;
}

const char *ag_trampoline_name(unsigned number)
{
    return listed[number].name;
}

void *ag_trampoline_real(unsigned number)
{
    return atomic_load_explicit(&reals[number], memory_order_acquire);
}

/* Does every call concern us, withheld work or not? */
static bool always_enters(unsigned number)
{
    enum ag_trampoline_kind kind = ag_trampoline_kind(number);

    return (ag_kind_may_be_work(kind) && ag_watch_is_on()) ||
           ((ag_kind_changes_what_graphs_name(kind) || kind == AG_KIND_REFERENCE) &&
            ag_replay_on());
}

void *ag_trampoline_fill(unsigned number, void *real)
{
    atomic_store_explicit(&reals[number], real, memory_order_relaxed);
    if (!always_enters(number))
        atomic_store_explicit(&ag_trampoline_ways[number], real, memory_order_release);
    return real;
}

static void note_address(const void *address, int number)
{
    if (address)
        by_address[n_by_address++] = (struct ag_address){address, number};
}

void ag_trampoline_index(void)
{
    n_by_address = 0;
    for (unsigned i = 0; i < AG_N_LISTED; i++) {
        void *real = ag_driver_symbol(listed[i].name);

        (void)ag_trampoline_fill(i, real ? real : (void *)ag_trampoline_not_supported);
        note_address(real, (int)i);
    }
    for (size_t i = 0; i < N_WITHOUT; i++)
        note_address(ag_driver_symbol(no_trampoline[i]), AG_TRAMPOLINE_NEEDLESS);
    ag_addresses_sort(by_address, n_by_address);
    ag_trampoline_look_around();
}

unsigned ag_trampoline_by_name(const char *name)
{
    for (unsigned i = 0; i < AG_N_LISTED; i++) {
        if (ag_symbol_is(name, listed[i].name))
            return i;
    }
    for (size_t i = 0; i < N_WITHOUT; i++) {
        if (ag_symbol_is(name, no_trampoline[i]))
            return AG_TRAMPOLINE_NEEDLESS;
    }
    return AG_TRAMPOLINE_UNKNOWN;
}

unsigned ag_trampoline_by_address(const void *real)
{
    size_t row = ag_addresses_find(by_address, n_by_address, real);

    return row == n_by_address ? AG_TRAMPOLINE_UNKNOWN : (unsigned)by_address[row].number;
}

unsigned ag_trampoline_spare(void *real)
{
    for (unsigned i = AG_N_LISTED; i < AG_N_TRAMPOLINES; i++) {
        void *there = NULL;

        if (atomic_compare_exchange_strong(&reals[i], &there, real) || there == real)
            return i;
    }
    return AG_TRAMPOLINE_UNKNOWN;
}

void ag_trampoline_end_replay(const char *why)
{
    ag_log_warn("%s: graph replay is off", why);
    ag_stats_replay(why);
    ag_replay_stop();
}

/* Another thread may be at that already, and not have done it. */
void ag_trampoline_end(const char *why)
{
    static _Thread_local bool ends;
    int depth = ag_entry_depth, saved_errno = errno;
    bool first = !atomic_exchange(&over, true);

    if (ends) /* what it calls looks something up */
        return;
    ends = true;
    ag_entry_depth = 1;
    if (ag_replay_on() && first)
        ag_trampoline_end_replay(why);
    else if (ag_replay_on())
        ag_replay_stop();
    ag_watch_end(why);
    ag_latch_end();
    ag_entry_depth = depth;
    ends = false;
    errno = saved_errno;
}

bool ag_trampoline_over(void)
{
    return atomic_load_explicit(&over, memory_order_relaxed);
}

/* --- what has no trampoline --- */

static enum ag_bypass_verdict judge(const char *symbol)
{
    unsigned number = ag_trampoline_by_name(symbol);

    if (number == AG_TRAMPOLINE_NEEDLESS)
        return AG_BYPASS_HARMLESS;
    return number == AG_TRAMPOLINE_UNKNOWN && ag_hook_by_name(symbol) == AG_N_HOOKS
               ? AG_BYPASS_NAMED
               : AG_BYPASS_BOUND;
}

void ag_trampoline_look_around(void)
{
    struct ag_bypass_found found;
    char why[256];

    if (!(ag_replay_on() || ag_watch_is_on()) || !ag_bypass_find(judge, &found))
        return;
    snprintf(why, sizeof(why), "%s reaches the driver past Allograft (%s)", found.file,
             found.symbol);
    ag_drain_note_visible(AG_VISIBLE_UNSEEN); /* it may pin memory, too */
    ag_trampoline_end(why);
}
