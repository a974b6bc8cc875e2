/* The library's beginning and end in a process: see lifecycle.h.
 *
 * Before the first hooked call almost nothing happens: fork handlers are registered, the mark of
 * `allograft run` is read (unused.c), one fstat(2) finds out what standard error is, and NVTX is
 * told of us where the settings ask for it (nvtx_offer.c). The first hooked call, in whichever
 * thread, reads the settings and finds the driver, once. That thread cannot be cancelled meanwhile,
 * and a fork waits for it. exit/leaving.c has what the end means. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/lifecycle.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose/copies/copying.h"
#include "interpose/copies/crew.h"
#include "interpose/copies/processors.h"
#include "interpose/copies/touch.h"
#include "interpose/core/base/loaded.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/map.h"
#include "interpose/core/base/slot.h"
#include "interpose/core/base/threads/helper.h"

#include "graph/learn/marks.h"
#include "graph/record/func_attrs.h"
#include "graph/replayer.h"
#include "interpose/api/api.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/audit/audit_memory.h"
#include "interpose/core/report/counters_file.h"
#include "interpose/core/report/errors/errors_file.h"
#include "interpose/core/report/holders/holders.h"
#include "interpose/core/report/report.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/report/trace/trace_writer.h"
#include "interpose/core/report/unused.h"
#include "interpose/core/report/waits/waits.h"
#include "interpose/core/settings/caller.h"
#include "interpose/core/settings/pattern.h"
#include "interpose/exit/exit_hooks.h"
#include "interpose/exit/leaving.h"
#include "interpose/exit/own_stack.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/nvtx/nvtx_offer.h"
#include "interpose/resolve/preloaded.h"
#include "interpose/resolve/trampoline.h"
#include "interpose/resolve/unseen.h"
#include "policy/alloc/alloc.h"
#include "policy/alloc/later.h"
#include "policy/app/app_async.h"
#include "policy/app/app_graphs.h"
#include "policy/app/app_pools.h"
#include "policy/backends/backend.h"
#include "policy/backends/given.h"
#include "policy/backends/managed_pool.h"
#include "policy/backends/private_pool.h"
#include "policy/budget.h"
#include "policy/cache.h"
#include "policy/churn.h"
#include "policy/contexts/context.h"
#include "policy/contexts/green_context.h"
#include "policy/guard/guard.h"
#include "policy/guard/paged.h"
#include "policy/inject.h"
#include "policy/ipc/ipc.h"
#include "policy/ledger.h"
#include "policy/managed/kernel_params.h"
#include "policy/managed/residency.h"
#include "policy/managed/spill.h"
#include "policy/order/drain.h"
#include "policy/order/fence.h"
#include "policy/order/free.h"
#include "policy/order/watch.h"
#include "policy/paging/ahead.h"
#include "policy/paging/handles.h"
#include "policy/paging/latch.h"
#include "policy/paging/named.h"
#include "policy/paging/ranges.h"
#include "policy/paging/use.h"
#include "policy/pinned/made.h"
#include "policy/pinned/pinned.h"
#include "policy/pressure.h"
#include "policy/slab.h"
#include "policy/waiting/events.h"
#include "policy/waiting/sleep.h"

#define FORK_TIMEOUT_S 1

static struct {
    pthread_mutex_t mutex; /* guards what choose_state() does, once */
    int cancel_state;      /* what the thread that has it is to get back */
} beginning = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local bool is_beginning;       /* this thread has the mutex */
static _Thread_local bool fork_has_beginning; /* so that nobody begins while it forks */

static struct ag_options options;
static bool is_forked;
static atomic_flag recorded = ATOMIC_FLAG_INIT; /* the counters have had their chance of a file */

/* Who begins asks the loader, whose lock another thread has while it opens a library: for as long
 * as the constructors there run, and these may call us. So that lock is waited for first, as
 * dladdr(3) does; else the constructor would wait for the thread that waits for it. */
static void wait_for_loader(void)
{
    Dl_info info;

    (void)dladdr((void *)wait_for_loader, &info);
}

/* The thread that has it cannot be cancelled: nobody else could ever begin. */
static void claim_beginning(void)
{
    int cancel_state;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    wait_for_loader();
    pthread_mutex_lock(&beginning.mutex);
    beginning.cancel_state = cancel_state;
    is_beginning = true;
}

static void release_beginning(void)
{
    int cancel_state = beginning.cancel_state;

    is_beginning = false;
    pthread_mutex_unlock(&beginning.mutex);
    (void)pthread_setcancelstate(cancel_state, NULL);
}

/* A fork waits while another thread begins, since the child would be in the middle of that. Not for
 * ever: the other thread may be waiting for something that the forking one holds, such as the
 * loader's lock. */
static void before_fork(void)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FORK_TIMEOUT_S;
    fork_has_beginning =
        !is_beginning &&
        atomic_load_explicit(&ag_entry_state, memory_order_acquire) == AG_ENTRY_NEW &&
        !pthread_mutex_timedlock(&beginning.mutex, &until);
    ag_loaded_before_fork(&until); /* last: who begins looks around, too */
}

static void after_fork(void)
{
    ag_loaded_forked();
    if (fork_has_beginning)
        pthread_mutex_unlock(&beginning.mutex);
    fork_has_beginning = false;
}

static void devices_begin_child(void)
{
    for (unsigned i = 0; ag_device_met(i); i++) {
        struct ag_device *device = ag_device_met(i);

        atomic_store(&device->n_returning, 0);
        ag_pool_begin_child(device);
        ag_churn_begin_child(&device->churn);
        atomic_store(&device->small_native, 0);
        atomic_store(&device->taken, 0);
        atomic_store(&device->pooled, 0);
        atomic_store(&device->pool_reserved, 0);
        atomic_store(&device->pool_high, 0);
        device->bound = (struct ag_bound){0};
        ag_managed_pool_begin_child(device);
        ag_stats_device_met(device->ordinal, device->name, device->total_bytes);
    }
}

/* What each module resets in a forked child, in this order: whoever counts needs a slot; then the
 * report, since it replaces the counters that the others write to. A module that has something to
 * reset has a row here, or is called by one that has (tests/contract/children.py). */
static void (*const children[])(void) = {
    ag_leaving_begin_child,    ag_loaded_begin_child,        ag_slots_begin_child,
    ag_report_begin_child,     ag_map_begin_child,           ag_holders_begin_child,
    ag_trace_begin_child,      ag_context_begin_child,       ag_green_begin_child,
    ag_ledger_begin_child,     ag_private_begin_child,       ag_api_begin_child,
    ag_api_owned_begin_child,  ag_free_begin_child,          ag_helper_begin_child,
    ag_app_pools_begin_child,  ag_spill_begin_child,         ag_inject_begin_child,
    ag_guard_begin_child,      ag_paged_begin_child,         ag_residency_begin_child,
    ag_params_begin_child,     ag_func_attrs_begin_child,    ag_replay_begin_child,
    ag_ipc_export_begin_child, ag_ipc_import_begin_child,    ag_app_graphs_begin_child,
    ag_budget_begin_child,     ag_slab_begin_child,          ag_caller_begin_child,
    ag_unseen_begin_child,     ag_sleep_begin_child,         ag_copying_begin_child,
    devices_begin_child,       ag_pinned_blocks_begin_child, ag_pinned_made_begin_child,
    ag_ranges_begin_child,     ag_handles_begin_child,       ag_latch_begin_child,
    ag_use_begin_child,        ag_names_begin_child,         ag_ahead_begin_child,
    ag_later_begin_child,
};

/* The driver does not work in a forked child if the parent had it in use, and all metadata is the
 * parent's. The child starts afresh; where the parent had a context, every call is passed to the
 * driver. */
static void begin_child(void)
{
    bool had_contexts = ag_context_count() > 0;

    atomic_flag_clear(&recorded);
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++)
        children[i]();
    ag_entry_depth = 0;
    if (had_contexts && atomic_load(&ag_entry_state) == AG_ENTRY_ACTIVE) {
        ag_report_describe_driver("forked from a process that had a CUDA context");
        atomic_store(&ag_entry_launches, AG_LAUNCHES_PASSED);
        atomic_store(&ag_entry_replay, AG_REPLAY_PASSED);
        atomic_store(&ag_entry_state, AG_ENTRY_PASSING);
        ag_watch_never();
        ag_replay_stop();
    }
}

static void begin_child_on_stack(void *ret_begun)
{
    begin_child();
    *(bool *)ret_begun = true;
}

/* The handler of a signal may fork to become another program, such as a debugger. It may have less
 * stack than names of files take. */
static void begin_child_with_room(void)
{
    bool begun = false;

    if (ag_own_stack_is_alternate())
        ag_own_stack_run(begin_child_on_stack, &begun);
    if (!begun)
        begin_child();
}

static void after_fork_in_child(void)
{
    /* A thread that does not exist here may have held it: then the child begins once more. */
    beginning.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    is_beginning = fork_has_beginning = false;
    is_forked = true;
    if (atomic_load(&ag_entry_state) != AG_ENTRY_NEW) {
        begin_child_with_room();
        return;
    }
    ag_entry_depth = 0;
    ag_loaded_begin_child();
}

/* How much a pool keeps is a question only where there is one; and only a pool takes memory back
 * without a wait. */
static enum ag_policy policy_of(const struct ag_options *settings)
{
    bool needs_pool = settings->origins[AG_OPTION_POOL_KEEP].kind != AG_ORIGIN_DEFAULT ||
                      settings->free_mode == AG_FREE_ORDERED;

    return settings->policy == AG_POLICY_AUTO && needs_pool ? AG_POLICY_POOL : settings->policy;
}

static void configure(void)
{
    const struct ag_request_params params = {
        .policy = policy_of(&options),
        .backend = options.managed_backend,
        .prefer = options.prefer,
        .access = options.access,
        .prefetch = options.prefetch,
        .read_mostly = options.read_mostly,
    };

    ag_entry_error_configure(options.on_error);
    ag_holders_configure(options.stacks, options.stacks_sample, options.waits);
    ag_inject_configure(&options.rules);
    ag_budget_configure(options.limit, options.cache);
    ag_spill_configure(options.oom, options.unspill);
    ag_ranges_configure(options.oom, options.page_piece);
    ag_managed_configure(options.oversubscribe);
    ag_managed_pool_configure(options.pool_keep);
    ag_guard_configure(options.guard);
    ag_alloc_configure(&params, &options.rules);
    ag_drain_configure(options.free_mode, options.guard != AG_GUARD_OFF);
    ag_pool_configure(options.pool_keep);
    ag_app_pools_configure(options.app_pool_keep);
    ag_app_graphs_configure(ag_report_has_counts(&options));
    ag_given_configure(ag_report_has_counts(&options));
    ag_app_async_configure(&options.rules, options.oversubscribe);
    ag_pressure_configure(options.pending);
    /* Guards have blocks of their own. */
    ag_slab_configure(options.guard == AG_GUARD_OFF ? options.slab : 0);
    atomic_store(&ag_entry_copies, ag_copying_configure(&options));
    ag_sleep_configure(options.wait);
    ag_pinned_configure(options.host, options.host_cache,
                        options.origins[AG_OPTION_HOST_CACHE].kind == AG_ORIGIN_DEFAULT,
                        &options.rules);
    if (ag_pinned_on) {
        ag_fence_configure(ag_processors_usable());
        ag_crew_configure(options.copy_threads);
        ag_pinned_made_configure(ag_touch_pieces);
    }
    ag_entry_configure(&options);
}

/* Why nothing can be redirected, or NULL. */
static const char *find_trouble(bool settings_bad)
{
    const char *missing = NULL;

    if (ag_driver_find())
        return "no libcuda was found in the process";
    if (!ag_is_preloaded())
        return "the library was opened, not preloaded";
    ag_symbols_index();
    if (settings_bad)
        return "a setting was bad";
    if (options.disable)
        return "switched off by ALLOGRAFT_DISABLE";
    if (ag_driver_complete(&missing))
        return NULL;
    ag_log_warn("the driver has no %s: nothing is redirected", missing);
    return "the driver is too old";
}

/* What every call is to do from now on. With the beginning taken. */
static enum ag_entry_state choose_state(void)
{
    const char *trouble;
    bool settings_bad;

    ag_leaving_begin(&options);
    settings_bad = ag_options_read_own(environ, &options) != 0;
    configure();
    if (!settings_bad)
        ag_nvtx_tell(&options);
    if (settings_bad && !strcmp(options.stats.text, "stderr"))
        memcpy(options.stats.text, "off", sizeof("off")); /* all has been told */
    ag_report_describe(&options);
    ag_unused_note();
    trouble = find_trouble(settings_bad);
    if (!trouble)
        ag_replay_configure(&options);
    ag_report_describe_driver(trouble);
    return trouble ? AG_ENTRY_PASSING : AG_ENTRY_ACTIVE;
}

static enum ag_entry_launches launches_under(enum ag_entry_state state)
{
    if (ag_latch_is_on())
        return AG_LAUNCHES_PAGED;
    if (state == AG_ENTRY_ACTIVE && ag_options_watch_launches(&options))
        return AG_LAUNCHES_WATCHED;
    if (state == AG_ENTRY_ACTIVE && ag_replay_on())
        return AG_LAUNCHES_RECORDED;
    if (state == AG_ENTRY_ACTIVE && options.on_error != AG_ON_ERROR_NOTE)
        return AG_LAUNCHES_CHECKED;
    return AG_LAUNCHES_PASSED;
}

static bool replays_under(enum ag_entry_state state)
{
    return state == AG_ENTRY_ACTIVE && ag_replay_on() && !ag_trampoline_over();
}

/* The value of enum ag_entry_replay that the settings ask for in that state. */
static int replay_under(enum ag_entry_state state)
{
    int timed = state == AG_ENTRY_ACTIVE && (options.waits || options.on_error != AG_ON_ERROR_NOTE)
                    ? AG_REPLAY_TIMED
                    : 0;
    int sleeping =
        state == AG_ENTRY_ACTIVE && options.wait != AG_WAIT_MODE_NATIVE && ag_cu.cuCtxGetFlags
            ? AG_REPLAY_SLEEPS
            : 0;

    return (replays_under(state)                             ? AG_REPLAY_ON
            : state == AG_ENTRY_ACTIVE && ag_ranges_wanted() ? AG_REPLAY_PAGED
                                                             : AG_REPLAY_PASSED) |
           timed | sleeping;
}

/* Frees may leave their fence to the next work where nothing else watches work, and the driver can
 * place barriers of a context. Where frees wait, memory that moves wants to know of all work. */
static bool watches_streams_under(enum ag_entry_state state)
{
    return state == AG_ENTRY_ACTIVE &&
           (options.free_mode == AG_FREE_AUTO ||
            (options.free_mode == AG_FREE_SYNC && options.oom == AG_OOM_PAGE)) &&
           options.guard == AG_GUARD_OFF && !ag_replay_on() &&
           (options.policy != AG_POLICY_NATIVE || options.rules.n || options.oom == AG_OOM_PAGE) &&
           (!ag_options_watch_launches(&options) || ag_ranges_wanted()) && ag_cu.cuCtxRecordEvent &&
           ag_cu.cuCtxWaitEvent;
}

/* What keeps memory that could move where it is, in this process; NULL: nothing. */
static const char *why_nothing_moves(void)
{
    if (ag_latch_is_on())
        return NULL;
    if (ag_replay_on())
        return "ALLOGRAFT_GRAPH replays streams";
    if (options.free_mode == AG_FREE_ORDERED)
        return "ALLOGRAFT_FREE=ordered has the device order frees";
    return "the driver is too old to tell when the device is idle";
}

enum ag_entry_state ag_entry_start(void)
{
    int saved_errno = errno;
    int state;

    claim_beginning();
    state = atomic_load_explicit(&ag_entry_state, memory_order_relaxed); /* relaxed: locked */
    if (state == AG_ENTRY_NEW && !ag_driver_is_there()) {
        state = AG_ENTRY_PASSING; /* until there is one to be found */
    } else if (state == AG_ENTRY_NEW) {
        ag_entry_depth++; /* our own look-ups */
        state = choose_state();
        ag_entry_depth--;
        if (!ag_stats_counter(AG_STAT_LOOKUP_DLSYM))
            ag_stats_add(AG_STAT_LOOKUP_EXPORTED, 1);
        if (watches_streams_under((enum ag_entry_state)state))
            ag_watch_begin();
        else
            ag_watch_never();
        ag_latch_configure(ag_watch_is_on() && ag_ranges_wanted());
        ag_ranges_stay(why_nothing_moves());
        /* Launches of other threads go by this alone from here on: after the watch has begun. */
        atomic_store_explicit(&ag_entry_launches, launches_under((enum ag_entry_state)state),
                              memory_order_release);
        if (replays_under((enum ag_entry_state)state) || ag_watch_is_on())
            ag_trampoline_index();
        if (state == AG_ENTRY_ACTIVE)
            ag_unseen_look();
        atomic_store_explicit(&ag_entry_replay, replay_under((enum ag_entry_state)state),
                              memory_order_release);
        atomic_store_explicit(&ag_entry_state, state, memory_order_release);
    }
    release_beginning();
    errno = saved_errno;
    return (enum ag_entry_state)state;
}

/* Errors in the settings are told when they are read again. */
static void tell_nobody(enum ag_log_level level, const char *line)
{
    (void)level;
    (void)line;
}

/* NVTX comes before the first hooked call, or may do so: the same reader reads ahead for it,
 * without a word. With the beginning taken. False: the settings have been read for good. */
static bool read_ahead(void)
{
    if (atomic_load_explicit(&ag_entry_state, memory_order_relaxed) != AG_ENTRY_NEW)
        return false;
    (void)ag_options_read(environ, &options, tell_nobody);
    return true;
}

void ag_lifecycle_know_marks(void)
{
    claim_beginning();
    if (read_ahead())
        ag_marks_configure(&options);
    release_beginning();
}

static void offer_to_nvtx(void)
{
    int saved_errno = errno;

    claim_beginning();
    (void)read_ahead();
    ag_nvtx_offer(&options);
    release_beginning();
    errno = saved_errno;
}

static void begin_trace(void)
{
    char path[PATH_MAX];

    if (!options.trace.text[0])
        return;
    ag_pattern_expand(options.trace.text, &ag_stats.head, ag_report_is_in_child(), path,
                      sizeof(path));
    ag_trace_begin(path, options.trace_buffer);
}

/* Without the helper, withheld work could not be submitted at the end. */
static void end_replay(void)
{
    ag_log_warn("graph replay is off: no thread could be started");
    ag_replay_stop();
}

void ag_lifecycle_context_exists(void)
{
    if (!atomic_flag_test_and_set(&recorded)) {
        int cancel_state;

        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
        ag_record_begin(options.counters.text);
        if (ag_holders_wanted())
            ag_holders_begin();
        ag_waits_begin();
        begin_trace();
        if (ag_replay_on() && !ag_helper_start())
            end_replay();
        ag_replay_prepare();
        (void)pthread_setcancelstate(cancel_state, NULL);
    }
    ag_leaving_register();
}

/* The one constructor: it looks at standard error and at a few variables of the environment. The
 * fork handlers are registered here and not at the first hooked call, since a fork that has begun
 * does not see handlers registered after that. */
__attribute__((constructor)) static void begin_library(void)
{
    ag_log_bind();
    (void)ag_is_preloaded(); /* later a child may not ask the loader */
    ag_exit_hooks_begin();
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
    ag_unused_begin();
    ag_errors_begin();
    ag_audit_memory_begin();
    if (ag_nvtx_may_be_needed())
        offer_to_nvtx();
}

__attribute__((destructor)) static void finish_library(void)
{
    if (!ag_is_preloaded())
        return;
    if (atomic_load(&ag_entry_state) != AG_ENTRY_NEW)
        ag_leaving_exit();
    else if (!is_forked)
        ag_leaving_exit_unused();
}
