/* The wait for the device at the end of a process: see ending.h.
 *
 * A native cudaFree waits for the device before it returns, so the program ends after that. An
 * ordered one has not waited, so the wait is made now. For how long? As long as natively, where we
 * can tell that the thread would have waited; otherwise within a bound, since nothing may keep a
 * process alive that would natively have ended:
 * - The thread that ends the process has made the last ordered free itself. Natively it would still
 *   be in that call, so it waits for as long as the device takes.
 * - Another thread has made it. The thread that ends the process may be here because that free
 *   returned (the thread was joined), or it may watch over a program that hangs. It waits for some
 *   seconds.
 * - The thread may be in a signal handler, which would natively have interrupted the free and ended
 *   the process at once. It waits for a short time, and for a very short one if the driver does not
 *   even respond: the handler may have interrupted this thread within the driver, which then waits
 *   for this thread.
 *
 * The thread that ends the process never calls the driver itself. A helper thread does
 * (base/threads/helper.h), started with the first ordered free. Where no thread can be started,
 * frees wait for all work of the context, and no wait is pending. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/exit/ending.h"

#include <signal.h>
#include <stdatomic.h>

#include "graph/replayer.h"
#include "interpose/core/base/threads/helper.h"
#include "interpose/exit/own_stack.h"
#include "interpose/hooks/entry.h"
#include "policy/app/app_graphs.h"
#include "policy/app/app_pools.h"
#include "policy/guard/guard.h"
#include "policy/order/drain.h"
#include "policy/order/host_wait.h"

#define SECOND_NS 1000000000u

/* A driver that does not answer the thread that made the free for so long is waiting for that
 * thread: its handler was of a kind that ag_ending_in_handler() does not see. */
static const struct ag_timeout as_natively = {UINT64_MAX, 5ull * SECOND_NS};
static const struct ag_timeout for_another = {5ull * SECOND_NS, 5ull * SECOND_NS};
static const struct ag_timeout in_a_handler = {2ull * SECOND_NS, SECOND_NS / 5};

static _Atomic bool is_for_good;

/* May the calling thread be in a signal handler? A handler's signal is blocked meanwhile, unless it
 * was installed with SA_NODEFER: such a one is seen only on a stack of its own or inside a hook. */
bool ag_ending_in_handler(void)
{
    sigset_t blocked;

    if (ag_entry_inside() || ag_own_stack_is_alternate())
        return true;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked))
        return false;
    for (int i = 1; i < NSIG; i++) {
        struct sigaction action;

        if (sigismember(&blocked, i) == 1 && !sigaction(i, NULL, &action) &&
            action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
            return true;
    }
    return false;
}

static const struct ag_timeout *timeout_of(enum ag_host_wait_owner owner, bool in_handler)
{
    if (in_handler)
        return &in_a_handler;
    return owner == AG_HOST_WAIT_OF_CALLER ? &as_natively : &for_another;
}

/* Asks the driver what is left at the end, in the helper's thread. */
static void ask_driver(void)
{
    ag_entry_depth = 1;
    ag_replay_exit(atomic_load(&is_for_good));
    ag_host_wait_complete_at_exit();
    ag_app_pools_exit();
    ag_app_graphs_exit();
    ag_guard_check_all();
}

bool ag_ending_is_due(bool for_good)
{
    if (for_good)
        ag_drain_exiting();
    return ag_host_wait_owner() != AG_HOST_WAIT_OF_NOBODY || ag_replay_on() || ag_app_pools_met() ||
           ag_app_graphs_met() || ag_guard_met();
}

void ag_ending_complete(bool for_good, bool in_handler)
{
    enum ag_host_wait_owner owner = ag_host_wait_owner();
    const struct ag_timeout *timeout = timeout_of(owner, in_handler);

    atomic_store(&is_for_good, for_good);
    ag_entry_depth++; /* a handler that ends the process meanwhile finds us inside */
    if (!ag_helper_do(ask_driver, timeout) && owner != AG_HOST_WAIT_OF_NOBODY)
        ag_stats_add(AG_STAT_NOT_WAITED_EXIT, 1);
    ag_entry_depth--;
}
