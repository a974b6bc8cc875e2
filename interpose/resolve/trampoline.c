/* What look-ups get for functions that are not hooked: see trampoline.h.
 *
 * A thunk jumps to the driver by itself (trampoline_<arch>.S) when nothing is withheld and the
 * table says where (trampoline_table.c); else it goes the long way (trampoline_enter.c). */
#include "interpose/resolve/trampoline.h"

#include <stdatomic.h>
#include <stdint.h>

#include "interpose/hooks/entry.h"
#include "interpose/resolve/trampoline_table.h"

#define THUNK_BYTES 64u

/* Assembly. */
extern const char ag_trampolines[];

/* The driver's functions whose look-ups got a trampoline. Relaxed: who names such a function has
 * had its address from whom it was given to; `any_given` only saves the search. */
static _Atomic(void *) given[AG_N_TRAMPOLINES];
static _Atomic bool any_given;

static void *thunk(unsigned number)
{
    return (void *)(ag_trampolines + (size_t)number * THUNK_BYTES);
}

bool ag_trampoline_is_at(const void *address)
{
    return (uintptr_t)address - (uintptr_t)ag_trampolines < AG_N_TRAMPOLINES * THUNK_BYTES;
}

/* Does the program need the trampoline, as things are set, or has it got it already? */
static bool is_trampoline_needed(unsigned number)
{
    return ag_entry_needs(AG_WHEN_GRAPH) || ag_kind_may_be_work(ag_trampoline_kind(number)) ||
           atomic_load_explicit(&given[number], memory_order_relaxed);
}

static void *hand_out_thunk(unsigned number, void *real)
{
    atomic_store_explicit(&given[number], real, memory_order_relaxed);
    atomic_store_explicit(&any_given, true, memory_order_release);
    return thunk(number);
}

void *ag_trampoline_given(void *real)
{
    unsigned n = atomic_load_explicit(&any_given, memory_order_acquire) ? AG_N_TRAMPOLINES : 0;

    for (unsigned i = 0; i < n; i++) {
        if (atomic_load_explicit(&given[i], memory_order_relaxed) == real)
            return thunk(i);
    }
    return real;
}

static void *spare_of(void *real)
{
    unsigned number = ag_trampoline_spare(real);

    if (number != AG_TRAMPOLINE_UNKNOWN)
        return hand_out_thunk(number, real);
    ag_trampoline_end("the driver has more unknown functions than there are trampolines");
    return real;
}

static void *pointer_for(unsigned number, void *real)
{
    if (number == AG_TRAMPOLINE_UNKNOWN)
        return spare_of(real);
    return number != AG_TRAMPOLINE_NEEDLESS && is_trampoline_needed(number)
               ? hand_out_thunk(number, real)
               : real;
}

void *ag_trampoline_of_address(void *real)
{
    return pointer_for(ag_trampoline_by_address(real), real);
}

void *ag_trampoline_of_name(const char *name, void *real)
{
    return pointer_for(ag_trampoline_by_name(name), real);
}
