/* Rules that decide calls and fail some of them: see inject.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/inject.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "interpose/core/base/log.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/caller.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/order/capture.h"

static const struct ag_rules *rules;
static unsigned failing; /* 1 << enum ag_call: kinds of calls that some rule fails */
static unsigned placing; /* likewise, that ag_inject_deciding() answers for: pinned memory */
static _Atomic uint64_t n_asked[AG_N_CALLS]; /* calls so far, while a rule counts them */

/* What each rule that fails calls has counted: calls that it held for, and the bytes of those that
 * passed. Relaxed: numbers, each for one call. */
static struct {
    _Atomic uint64_t calls, passed_bytes;
} counts[AG_MAX_RULES];

void ag_inject_configure(const struct ag_rules *new_rules)
{
    rules = new_rules && new_rules->n ? new_rules : NULL;
    failing = placing = 0;
    for (unsigned i = 0; rules && i < rules->n; i++) {
        if (ag_rule_fails(&rules->rule[i]))
            failing |= rules->rule[i].calls;
        if (rules->rule[i].says & 1u << AG_SAYS_HOST)
            placing |= 1u << AG_CALL_HOST;
    }
}

void ag_inject_begin_child(void)
{
    for (unsigned i = 0; i < AG_N_CALLS; i++)
        atomic_store(&n_asked[i], 0);
    for (unsigned i = 0; i < AG_MAX_RULES; i++) {
        atomic_store(&counts[i].calls, 0);
        atomic_store(&counts[i].passed_bytes, 0);
    }
}

bool ag_inject_any(enum ag_call call)
{
    return failing & 1u << call;
}

/* Adds `bytes` to what has passed. False, and not added: more than `most` would have. */
static bool pass_below(_Atomic uint64_t *passed, uint64_t most, uint64_t bytes)
{
    uint64_t before = atomic_load_explicit(passed, memory_order_relaxed);

    do {
        if (before > most || bytes > most - before)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(passed, &before, before + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Does rule `i`, which holds for a call of `bytes`, fail it? */
static bool fails(unsigned i, size_t bytes)
{
    const struct ag_fail *which = &rules->rule[i].fail;
    uint64_t n = atomic_fetch_add_explicit(&counts[i].calls, 1, memory_order_relaxed) + 1;
    bool due = ag_fail_is_due(which, n);

    if (which->over != UINT64_MAX &&
        pass_below(&counts[i].passed_bytes, due ? which->over : UINT64_MAX, bytes))
        due = false;
    ag_stats_rule_held(i, due);
    return due;
}

/* The first rule that applies; what one that only fails calls lets pass, as all do that may not
 * fail, is for those after it. */
static struct ag_choice first_deciding(const struct ag_asked *asked, bool may_fail)
{
    struct ag_choice choice = {ag_rules_match(rules, 0, asked), false};

    while (choice.rule >= 0 && ag_rule_fails(&rules->rule[choice.rule])) {
        choice.fails = may_fail && fails((unsigned)choice.rule, asked->bytes);
        if (choice.fails || !ag_rule_only_fails(&rules->rule[choice.rule]))
            break;
        choice.rule = ag_rules_match(rules, (unsigned)choice.rule + 1, asked);
    }
    return choice;
}

static void tell_injected(const struct ag_asked *asked, int rule)
{
    static const enum ag_stat counters[AG_N_CALLS] = {
        [AG_CALL_DEVICE] = AG_STAT_INJECTED_DEVICE,   [AG_CALL_ASYNC] = AG_STAT_INJECTED_ASYNC,
        [AG_CALL_MANAGED] = AG_STAT_INJECTED_MANAGED, [AG_CALL_VIRTUAL] = AG_STAT_INJECTED_VIRTUAL,
        [AG_CALL_HOST] = AG_STAT_INJECTED_HOST,       [AG_CALL_POOL] = AG_STAT_INJECTED_POOL,
        [AG_CALL_GRAPH] = AG_STAT_INJECTED_GRAPH,
    };

    ag_stats_add(counters[asked->call], 1);
    ag_log_info("rule %d (%s) fails a call for %zu bytes", rule + 1, rules->rule[rule].text,
                asked->bytes);
}

/* Fills in what the rules ask for. */
static struct ag_choice choose(struct ag_asked *asked, bool may_fail, const void *caller)
{
    struct ag_choice choice;
    char thread[16];

    if (rules->needs & AG_NEED_MODULE)
        asked->module = ag_caller_module(caller);
    if (rules->needs & AG_NEED_NTH)
        asked->nth = atomic_fetch_add_explicit(&n_asked[asked->call], 1, memory_order_relaxed) + 1;
    if (rules->needs & AG_NEED_THREAD && !prctl(PR_GET_NAME, thread))
        asked->thread = thread;
    choice = first_deciding(asked, may_fail);
    if (choice.fails)
        tell_injected(asked, choice.rule);
    return choice;
}

struct ag_choice ag_inject_choose(enum ag_call call, size_t bytes, int device, bool exporter,
                                  const void *caller)
{
    struct ag_asked asked = {.call = call, .bytes = bytes, .device = device, .exporter = exporter};

    return choose(&asked, true, caller);
}

CUresult ag_inject_error(struct ag_context *context)
{
    CUresult result = context ? ag_context_sticky_error(context) : CUDA_SUCCESS;

    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult ag_inject_deciding(enum ag_call call, size_t bytes, int device, const void *caller,
                            int *ret_rule)
{
    struct ag_asked asked = {.call = call, .bytes = bytes, .device = device};
    struct ag_context *context;
    struct ag_choice choice;
    bool captures;

    *ret_rule = -1;
    if (!((failing | placing) & 1u << call))
        return CUDA_SUCCESS;
    context = ag_context_current();
    if (!context && device < 0) /* the driver has its own error for that */
        return CUDA_SUCCESS;
    captures = ag_capture_is_open();
    if (captures && ag_inject_any(call))
        ag_stats_add(AG_STAT_INJECTED_CAPTURE, 1);
    if (captures && !(placing & 1u << call))
        return CUDA_SUCCESS;
    asked.device = device < 0 ? context->device->ordinal : device;
    asked.exporter = ag_caller_of(caller) == AG_CALLER_EXPORTER;
    choice = choose(&asked, !captures, caller);
    if (choice.fails)
        return ag_inject_error(context);
    *ret_rule = choice.rule;
    return CUDA_SUCCESS;
}

CUresult ag_inject(enum ag_call call, size_t bytes, int device, const void *caller)
{
    int rule;

    return ag_inject_deciding(call, bytes, device, caller, &rule);
}
