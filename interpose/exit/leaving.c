/* What leaving the process means: see leaving.h.
 *
 * - An atexit handler completes the wait that ordered frees left pending, and has the thread that
 *   makes memory ahead leave the driver. It is registered after the first context exists, and so
 *   runs before the driver's own.
 * - The ELF destructor writes the report; the driver may be gone by then, so it makes no call.
 * - _exit and exec, which run neither, do both (exit_hooks.c).
 *
 * The thread that ends the process may be in a crash handler with little stack, so all of that runs
 * on a stack of our own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/exit/leaving.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/log.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/audit/audit_memory.h"
#include "interpose/core/report/counters_file.h"
#include "interpose/core/report/errors/errors_file.h"
#include "interpose/core/report/report.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/report/trace/trace_writer.h"
#include "interpose/core/report/unused.h"
#include "interpose/exit/ending.h"
#include "interpose/exit/own_stack.h"
#include "interpose/hooks/entry.h"
#include "interpose/resolve/bypass.h"
#include "interpose/resolve/preloaded.h"
#include "policy/contexts/context.h"
#include "policy/paging/ahead.h"

static const struct ag_options *settings; /* set before the process is seen to have begun */
static pid_t own_pid;                     /* a child by vfork shares our memory, and is not us */
static _Atomic bool reported;

void ag_leaving_begin(const struct ag_options *options)
{
    own_pid = getpid();
    settings = options;
}

void ag_leaving_begin_child(void)
{
    own_pid = getpid();
    atomic_store(&reported, false);
}

static bool is_this_process(void)
{
    return own_pid == getpid();
}

static void complete_if_due(void)
{
    if (!is_this_process() || atomic_load(&ag_entry_state) != AG_ENTRY_ACTIVE)
        return;
    ag_ahead_stop();
    if (ag_ending_is_due(true))
        ag_ending_complete(true, ag_ending_in_handler());
}

static void leave_quickly(void)
{
    ag_leaving_go("quick_exit");
}

void ag_leaving_register(void)
{
    static atomic_flag registered = ATOMIC_FLAG_INIT;

    if (atomic_flag_test_and_set(&registered))
        return;
    (void)atexit(complete_if_due);
    (void)at_quick_exit(leave_quickly);
}

/* Does the loader tell our audit library of every binding? */
static bool is_audited(void)
{
    const char *libraries = getenv("LD_AUDIT");

    return libraries && strstr(libraries, "liballograft-audit.so");
}

/* Calls went past us: does the next `allograft run` know? */
static bool is_remembered(void)
{
    return !is_audited() && ag_audit_memory_add();
}

static void report_once(const char *ended_by)
{
    if (settings->disable || !*ag_driver_path() || atomic_exchange(&reported, true))
        return;
    /* A child that has nothing to tell does not ask the loader, whose lock may stay taken. */
    if (strcmp(settings->stats.text, "off") && !ag_report_is_empty())
        ag_bypass_look();
    if (atomic_load(&ag_stats.n_bypassing) && is_remembered())
        ag_log_warn("%s reaches the driver past Allograft (RTLD_DEEPBIND): the next `allograft "
                    "run` of this program catches its calls (--audit)",
                    ag_stats.bypassing[0]);
    ag_trace_finish(ended_by);
    if (ag_errors_are_wanted() && strcmp(ended_by, "exec") != 0)
        ag_errors_tell();
    if (!ag_report_write(settings, ended_by)) /* else the counters are what is left of it */
        ag_record_end();
}

/* What to do about calls that went past us, for the end of a line. */
static const char *remedy(void)
{
    if (is_audited())
        return "";
    return is_remembered() ? "; the next `allograft run` of it catches them (--audit)"
                           : "; `allograft run --audit` catches them";
}

/* Warns where a process used CUDA although none of its calls came through us. */
static void warn_of_bypass(void)
{
    static struct ag_options read_now; /* too large for a stack */

    (void)ag_options_read_own(environ, &read_now);
    if (read_now.disable || !strcmp(read_now.stats.text, "off"))
        return;
    ag_bypass_look();
    if (atomic_load(&ag_stats.n_bypassing))
        ag_log_warn(
            "this process used CUDA, but none of its calls came through: %s reaches the driver "
            "past Allograft (RTLD_DEEPBIND)%s",
            ag_stats.bypassing[0], remedy());
    else
        ag_log_warn(
            "this process used CUDA, but none of its calls came through: it may load libcuda "
            "with RTLD_DEEPBIND, or be linked statically against the loader%s",
            remedy());
}

/* The end of a process of which we saw no call. On a stack of our own. */
static void end_unused(void *unused)
{
    (void)unused;
    if (ag_stats_counter(AG_STAT_LOOKUP_DLSYM)) /* it found the driver through us, and asked only */
        return;
    if (ag_driver_is_loaded() && ag_report_gpu_is_open())
        warn_of_bypass();
    else
        ag_unused_tell();
}

bool ag_leaving_would(void)
{
    return atomic_load(&ag_entry_state) != AG_ENTRY_NEW && is_this_process();
}

/* Is there anything to tell? If not, the end makes no system call, since the process may have a
 * filter against them. */
static bool has_something_to_tell(void)
{
    return !settings->disable && *ag_driver_path() && !atomic_load(&reported) &&
           (strcmp(settings->stats.text, "off") != 0 || ag_trace_on() || ag_record_exists() ||
            ag_errors_are_wanted());
}

struct leaving {
    const char *ended_by;
    bool for_good; /* exec may fail */
    bool is_due, in_handler;
};

/* Completes the pending wait if that is due, and reports. Runs on a stack of our own. */
static void leave_on_own_stack(void *leaving_)
{
    const struct leaving *leaving = leaving_;

    if (leaving->is_due)
        ag_ending_complete(leaving->for_good, leaving->in_handler);
    report_once(leaving->ended_by);
}

void ag_leaving_go(const char *ended_by)
{
    int saved_errno = errno;

    if (ag_leaving_would()) {
        struct leaving leaving = {.ended_by = ended_by, .for_good = strcmp(ended_by, "exec") != 0};

        leaving.is_due =
            atomic_load(&ag_entry_state) == AG_ENTRY_ACTIVE && ag_ending_is_due(leaving.for_good);
        leaving.in_handler = leaving.is_due && ag_ending_in_handler(); /* the stack tells */
        if (leaving.is_due || has_something_to_tell())
            ag_own_stack_run(leave_on_own_stack, &leaving);
    } else if (atomic_load(&ag_entry_state) == AG_ENTRY_NEW && !strcmp(ended_by, "_exit") &&
               ag_unused_is_marked() && ag_is_preloaded()) {
        ag_own_stack_run(end_unused, NULL);
    }
    errno = saved_errno;
}

/* The process stays: forgets the report that was written, and counts again. Runs on a stack of our
 * own. */
static void resume(void *unused)
{
    (void)unused;
    *ag_stats.head.ended_by = '\0';
    if (atomic_exchange(&reported, false) && ag_context_count())
        ag_record_begin(settings->counters.text);
}

void ag_leaving_stay(void)
{
    int saved_errno = errno;

    if (!ag_leaving_would())
        return;
    ag_own_stack_run(resume, NULL);
    errno = saved_errno;
}

/* Writes the report at exit. Runs on a stack of our own. */
static void report_at_exit(void *unused)
{
    (void)unused;
    report_once("exit");
}

void ag_leaving_exit(void)
{
    if (is_this_process() && has_something_to_tell())
        ag_own_stack_run(report_at_exit, NULL);
}

void ag_leaving_exit_unused(void)
{
    if (ag_unused_is_marked() || ag_driver_is_loaded())
        ag_own_stack_run(end_unused, NULL);
}
