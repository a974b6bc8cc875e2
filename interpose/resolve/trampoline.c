/* The table behind the trampolines: see trampoline.h.
 *
 * Delicate, because a trampoline may be called in any state of the process: before anything of ours
 * has started, in the middle of a hook, in a process without a driver. Rules:
 * - A thunk jumps to the driver by itself (trampoline_<arch>.S) when nothing is withheld and its
 *   row of ag_trampoline_ways is filled. The row stays empty where every call concerns us.
 * - The first thread that needs a row fills it; every thread would fill in the same.
 * - Inside our own hooks a trampoline does nothing: those calls are ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/resolve/trampoline.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>

#include "graph/record/memory.h"
#include "graph/replayer.h"
#include "interpose/base/addresses.h"
#include "interpose/base/log.h"
#include "interpose/driver/driver.h"
#include "interpose/driver/real_dlsym.h"
#include "interpose/driver/symbols.h"
#include "interpose/hooks/entry.h"
#include "interpose/report/stats.h"
#include "interpose/resolve/bypass.h"
#include "policy/order/drain.h"

#define THUNK_BYTES 64u

enum {
#define AG_TRAMPOLINE(symbol, kind) NUMBER_##symbol,
#include "interpose/resolve/trampolines.def"
    N_LISTED,
    N_TRAMPOLINES = N_LISTED + AG_TRAMPOLINE_RESERVE
};

/* What is to be done beside flushing. Work, or what may be, is watched. */
enum kind { KIND_PLAIN, KIND_REFERENCE, KIND_CODE, KIND_WORK, KIND_MEMORY };

static const struct listed {
    const char *name;
    enum kind kind;
} listed[N_LISTED] = {
#define AG_TRAMPOLINE(symbol, kind) {#symbol, KIND_##kind},
#include "interpose/resolve/trampolines.def"
};

/* Functions that need none: they neither see nor order withheld work. */
static const char *const no_trampoline[] = {
#define AG_NO_TRAMPOLINE(symbol) #symbol,
#include "interpose/resolve/trampolines.def"
};

#define N_WITHOUT (sizeof(no_trampoline) / sizeof(no_trampoline[0]))

/* For the assembly alone, hence no header. */
extern const char ag_trampolines[];
_Atomic(void *) ag_trampoline_ways[N_TRAMPOLINES]; /* where a thunk jumps by itself, or NULL */
void *ag_trampoline_enter(unsigned number);

static _Atomic(void *) reals[N_TRAMPOLINES]; /* the driver's functions, as far as they are known */
static _Atomic(void *) given[N_TRAMPOLINES]; /* those of `reals` whose look-ups got a trampoline */
static _Atomic bool any_given;
static _Atomic bool over;

/* --- by address --- */

#define NO_TRAMPOLINE INT_MAX /* behind the trampolines of the same address */

static struct ag_address by_address[N_LISTED + N_WITHOUT];
static size_t n_by_address;

static void *thunk(unsigned number)
{
    return (void *)(ag_trampolines + (size_t)number * THUNK_BYTES);
}

bool ag_trampoline_is_at(const void *address)
{
    return (uintptr_t)address - (uintptr_t)ag_trampolines < N_TRAMPOLINES * THUNK_BYTES;
}

static CUresult not_supported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Of functions that nobody knows, the worst is thought that can be borne. */
static enum kind kind_of(unsigned number)
{
    return number < N_LISTED ? listed[number].kind : KIND_MEMORY;
}

static bool may_be_work(unsigned number)
{
    return kind_of(number) >= KIND_WORK;
}

static bool changes_what_graphs_name(unsigned number)
{
    return kind_of(number) == KIND_MEMORY || kind_of(number) == KIND_CODE;
}

static bool ends_replay(unsigned number)
{
    return kind_of(number) == KIND_REFERENCE;
}

/* Does every call concern us, withheld work or not? */
static bool always_enters(unsigned number)
{
    return (may_be_work(number) && ag_watch_is_on()) ||
           ((changes_what_graphs_name(number) || ends_replay(number)) && ag_entry_replays());
}

/* Does the program need the trampoline, as things are set, or has it got it already? */
static bool is_needed(unsigned number)
{
    return ag_entry_replays() || may_be_work(number) ||
           atomic_load_explicit(&given[number], memory_order_relaxed);
}

static void *fill(unsigned number, void *real)
{
    atomic_store_explicit(&reals[number], real, memory_order_relaxed);
    if (!always_enters(number))
        atomic_store_explicit(&ag_trampoline_ways[number], real, memory_order_release);
    return real;
}

/* The driver's function. Where nothing has started, since no driver is there to start with, what
 * other libraries have under that name. */
static void *real_of(unsigned number)
{
    void *real = atomic_load_explicit(&reals[number], memory_order_acquire);
    bool started = atomic_load_explicit(&ag_entry_state, memory_order_acquire) != AG_ENTRY_NEW;

    if (real)
        return started ? fill(number, real) : real;
    real = started ? ag_driver_symbol(listed[number].name)
                   : ag_real_dlsym(RTLD_NEXT, listed[number].name);
    if (!real)
        real = (void *)not_supported;
    return started ? fill(number, real) : real;
}

static void end_replay(const char *why)
{
    ag_log_warn("%s: graph replay is off", why);
    ag_stats_replay(why);
    ag_replay_stop();
}

static void before(unsigned number)
{
    if (ends_replay(number) && ag_replay_on())
        end_replay("graphs cannot have kernels that read textures or surfaces by reference");
    if (may_be_work(number))
        ag_watch_work(CU_STREAM_PER_THREAD, true); /* of whatever stream */
    if (kind_of(number) == KIND_CODE && ag_entry_replays())
        ag_replay_forget_code(AG_FLUSH_CODE);
    else if (ag_replay_holds())
        ag_replay_flush_all(AG_FLUSH_CALL);
    if (changes_what_graphs_name(number) && ag_entry_replays())
        ag_memory_forget();
}

/* The long way of a trampoline: returns where it is to jump. */
void *ag_trampoline_enter(unsigned number)
{
    int saved_errno = errno;
    void *real;

    if (!ag_entry_inside() &&
        atomic_load_explicit(&ag_entry_state, memory_order_acquire) == AG_ENTRY_NEW &&
        ag_driver_is_loaded())
        (void)ag_entry_start();
    real = real_of(number);
    if (!ag_entry_inside()) {
        ag_entry_depth = 1;
        before(number);
        ag_entry_depth = 0;
    }
    errno = saved_errno;
    return real;
}

/* --- what look-ups get --- */

static void note_address(const void *address, int number)
{
    if (address)
        by_address[n_by_address++] = (struct ag_address){address, number};
}

void ag_trampoline_index(void)
{
    n_by_address = 0;
    for (unsigned i = 0; i < N_LISTED; i++) {
        void *real = ag_driver_symbol(listed[i].name);

        fill(i, real ? real : (void *)not_supported);
        note_address(real, (int)i);
    }
    for (size_t i = 0; i < N_WITHOUT; i++)
        note_address(ag_driver_symbol(no_trampoline[i]), NO_TRAMPOLINE);
    ag_addresses_sort(by_address, n_by_address);
    ag_trampoline_look_around();
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
        end_replay(why);
    else if (ag_replay_on())
        ag_replay_stop();
    ag_watch_end(why);
    ag_entry_depth = depth;
    ends = false;
    errno = saved_errno;
}

static void *give(unsigned number, void *real)
{
    atomic_store_explicit(&given[number], real, memory_order_relaxed);
    atomic_store_explicit(&any_given, true, memory_order_release);
    return thunk(number);
}

void *ag_trampoline_given(void *real)
{
    unsigned n = atomic_load_explicit(&any_given, memory_order_acquire) ? N_TRAMPOLINES : 0;

    for (unsigned i = 0; i < n; i++) {
        if (atomic_load_explicit(&given[i], memory_order_relaxed) == real)
            return thunk(i);
    }
    return real;
}

/* The spare trampoline of an address, the same one each time. */
static void *spare_of(void *real)
{
    for (unsigned i = N_LISTED; i < N_TRAMPOLINES; i++) {
        void *there = NULL;

        if (atomic_compare_exchange_strong(&reals[i], &there, real) || there == real)
            return give(i, real);
    }
    ag_trampoline_end("the driver has more unknown functions than there are trampolines");
    return real;
}

void *ag_trampoline_of_address(void *real)
{
    size_t row = ag_addresses_find(by_address, n_by_address, real);

    if (row == n_by_address)
        return spare_of(real);
    if (by_address[row].number == NO_TRAMPOLINE || !is_needed((unsigned)by_address[row].number))
        return real;
    return give((unsigned)by_address[row].number, real);
}

void *ag_trampoline_of_name(const char *name, void *real)
{
    for (unsigned i = 0; i < N_LISTED; i++) {
        if (ag_symbol_is(name, listed[i].name))
            return is_needed(i) ? give(i, real) : real;
    }
    for (size_t i = 0; i < N_WITHOUT; i++) {
        if (ag_symbol_is(name, no_trampoline[i]))
            return real;
    }
    return spare_of(real);
}

bool ag_trampoline_over(void)
{
    return atomic_load_explicit(&over, memory_order_relaxed);
}

/* --- what has no trampoline --- */

static enum ag_bypass_verdict judge(const char *symbol)
{
    for (size_t i = 0; i < N_WITHOUT; i++) {
        if (ag_symbol_is(symbol, no_trampoline[i]))
            return AG_BYPASS_HARMLESS;
    }
    for (unsigned i = 0; i < N_LISTED; i++) {
        if (ag_symbol_is(symbol, listed[i].name))
            return AG_BYPASS_BOUND;
    }
    return ag_hook_by_name(symbol) == AG_N_HOOKS ? AG_BYPASS_NAMED : AG_BYPASS_BOUND;
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
