/* The long way of a trampoline, which the thunks take when something is withheld or when every call
 * of the function concerns us: see trampoline.h.
 *
 * Delicate, because a trampoline may be called in any state of the process: before anything of ours
 * has started, in the middle of a hook, in a process without a driver. Inside our own hooks it does
 * nothing: those calls are ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

#include "graph/record/memory.h"
#include "graph/replayer.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/real_dlsym.h"
#include "interpose/hooks/entry.h"
#include "interpose/resolve/trampoline_table.h"

/* Called by the assembly alone, hence no header. */
void *ag_trampoline_enter(unsigned number);

/* The driver's function. Where nothing has started, since no driver is there to start with, what
 * other libraries have under that name. */
static void *real_of(unsigned number)
{
    void *real = ag_trampoline_real(number);
    bool started = atomic_load_explicit(&ag_entry_state, memory_order_acquire) != AG_ENTRY_NEW;

    if (!real)
        real = started ? ag_driver_symbol(ag_trampoline_name(number))
                       : ag_real_dlsym(RTLD_NEXT, ag_trampoline_name(number));
    if (!real)
        real = (void *)ag_trampoline_not_supported;
    return started ? ag_trampoline_fill(number, real) : real;
}

static void act_before_call(unsigned number)
{
    enum ag_trampoline_kind kind = ag_trampoline_kind(number);

    if (kind == AG_KIND_REFERENCE && ag_replay_on())
        ag_trampoline_end_replay(
            "graphs cannot have kernels that read textures or surfaces by reference");
    if (ag_kind_may_be_work(kind)) {
        ag_watch_work(CU_STREAM_PER_THREAD, true); /* of whatever stream */
        ag_latch_end();
    }
    if (kind == AG_KIND_CODE && ag_entry_replays_now())
        ag_replay_forget_code(AG_FLUSH_CODE, false);
    else if (ag_kind_may_be_work(kind))
        ag_replay_flush_before_work();
    else if (ag_replay_holds())
        ag_replay_flush_all(AG_FLUSH_CALL);
    if (ag_kind_changes_what_graphs_name(kind) && ag_entry_replays_now())
        ag_memory_forget();
}

/* Returns where the thunk is to jump. */
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
        act_before_call(number);
        ag_entry_depth = 0;
    }
    errno = saved_errno;
    return real;
}
