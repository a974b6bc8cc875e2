/* The end of a process as the driver sees it: see ending.h.
 *
 * Natively a cudaFree has waited before the program goes on to its end. An ordered one has not, so
 * the wait is made now. How long? For as long as natively, where that can be told; else within a
 * bound, since nothing may keep a process from ending that would natively have ended:
 * - The thread that ends the process has itself made the last ordered free: natively it would not
 *   be here before the device had finished. It waits as long as that takes.
 * - Another thread has. Perhaps the one that leaves is here because that free returned (its thread
 *   was joined); perhaps it watches over a program that hangs. It waits for some seconds.
 * - The thread may be in the handler of a signal. Natively that would have interrupted the free,
 *   and ended the process at once. It waits shortly; and if the driver does not even answer, very
 *   shortly: the handler may have interrupted this thread within the driver, which then waits for
 *   the thread that is leaving.
 *
 * The thread that leaves never calls the driver: the helper does (base/helper.h), which exists
 * since the first free was ordered. Where no thread could be started, frees drain, and nothing is
 * owed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/exit/ending.h"

#include <signal.h>
#include <stdatomic.h>

#include "interpose/base/helper.h"

#include "graph/replayer.h"
#include "interpose/exit/own_stack.h"
#include "interpose/hooks/entry.h"
#include "policy/app/app_pools.h"
#include "policy/order.h"

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

static const struct ag_timeout *timeout_of(enum ag_order_debtor debtor, bool in_handler)
{
    if (in_handler)
        return &in_a_handler;
    return debtor == AG_OWED_BY_CALLER ? &as_natively : &for_another;
}

/* By the helper. */
static void ask_driver(void)
{
    ag_entry_depth = 1;
    ag_replay_exit(atomic_load(&is_for_good));
    ag_order_pay_at_end();
    ag_app_pools_exit();
}

bool ag_ending_is_due(bool for_good)
{
    if (for_good)
        ag_order_exit();
    return ag_order_debtor() != AG_OWED_BY_NOBODY || ag_replay_on() || ag_app_pools_met();
}

void ag_ending_pay(bool for_good, bool in_handler)
{
    enum ag_order_debtor debtor = ag_order_debtor();
    const struct ag_timeout *timeout = timeout_of(debtor, in_handler);

    atomic_store(&is_for_good, for_good);
    ag_entry_depth++; /* a handler that ends the process meanwhile finds us inside */
    if (!ag_helper_do(ask_driver, timeout) && debtor != AG_OWED_BY_NOBODY)
        ag_stats_add(AG_STAT_UNPAID_EXIT, 1);
    ag_entry_depth--;
}
