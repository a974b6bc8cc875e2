/* Describes the process and writes its report: see report.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/report.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/text.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/counters_file.h"
#include "interpose/core/report/deliver.h"
#include "interpose/core/report/holders/holders.h"
#include "interpose/core/report/holders/own_names.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/report/render.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/pattern.h"
#include "interpose/version.h"

static bool in_child;
static const char *setting; /* ALLOGRAFT_STATS */

bool ag_report_is_in_child(void)
{
    return in_child;
}

bool ag_report_gpu_is_open(void)
{
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    char target[64];
    bool found = false;

    while (directory && !found && (entry = readdir(directory))) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        found = !strncmp(target, "/dev/nvidia-uvm", 15); /* NVML, which is no CUDA, opens others */
    }
    if (directory)
        closedir(directory);
    return found;
}

/* --- whose report --- */

static const char *rank_text(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        size_t digits = text ? strspn(text, "0123456789") : 0;

        if (digits && digits < 10 && !text[digits])
            return text;
    }
    return NULL;
}

/* The first line of a small file, without its end; "" when there is none. */
static void read_first_line(const char *path, char *line, size_t capacity)
{
    ag_text_read_file(path, line, capacity);
    line[strcspn(line, "\n")] = '\0';
}

static void describe_process(struct ag_stats_head *head)
{
    const char *rank = rank_text();
    struct ag_record_owner self;

    ag_record_describe_self(&self);
    head->pid = self.pid;
    head->process_start = self.process_start;
    head->pid_namespace = self.pid_namespace;
    head->started_ns = self.started_ns;
    head->started_ticks = ag_clock_ticks();
    head->rank = rank ? atoi(rank) : -1;
    snprintf(head->program, sizeof(head->program), "%s", program_invocation_short_name);
    if (gethostname(head->host, sizeof(head->host) - 1))
        snprintf(head->host, sizeof(head->host), "unknown");
    *head->ended_by = '\0';
}

/* Appends `value` and its NUL, cut to what room there is. */
static size_t append_text(char *text, size_t at, size_t capacity, const char *value)
{
    size_t length = strlen(value);

    if (at + length + 1 > capacity)
        length = at < capacity ? capacity - at - 1 : 0;
    if (at < capacity) {
        memcpy(text + at, value, length);
        text[at + length] = '\0';
    }
    return at + length + 1;
}

/* Describes every setting in the order of the list, and the rules. */
static void describe_settings(struct ag_stats_head *head, const struct ag_options *options)
{
    char origin[AG_TEXT_MAX + 16];
    size_t at = 0;

    for (size_t i = 0; i < ag_options_count(); i++) {
        at = append_text(head->settings, at, sizeof(head->settings),
                         ag_option_origin(options, i, origin, sizeof(origin)));
        at = append_text(head->settings, at, sizeof(head->settings), ag_option_value(options, i));
    }
    for (unsigned i = 0; i < options->rules.n; i++)
        snprintf(head->rules[i], sizeof(head->rules[i]), "%s", options->rules.rule[i].text);
    head->n_rules = options->rules.n;
}

static bool goes_to_stderr(const char *where)
{
    return !strcmp(where, "stderr") || !strcmp(where, "full");
}

bool ag_report_has_counts(const struct ag_options *options)
{
    return strcmp(options->stats.text, "off") != 0 && strcmp(options->stats.text, "stderr") != 0;
}

/* The name that the setting means for this process. */
static void expect_report(void)
{
    char path[PATH_MAX];

    if (!strcmp(setting, "off") || goes_to_stderr(setting))
        return;
    ag_pattern_expand(setting, &ag_stats.head, in_child, path, sizeof(path));
    ag_deliver_expect(path);
}

void ag_report_describe(const struct ag_options *options)
{
    struct ag_stats_head *head = &ag_stats.head;

    setting = options->stats.text;
    describe_process(head);
    describe_settings(head, options);
    head->layout = AG_STATS_LAYOUT;
    head->bytes = sizeof(ag_stats);
    head->fingerprint = ag_stats_fingerprint();
    snprintf(head->version, sizeof(head->version), "%s", AG_VERSION);
    read_first_line("/proc/sys/kernel/random/boot_id", head->boot, sizeof(head->boot));
    memcpy(head->magic, AG_STATS_MAGIC, sizeof(AG_STATS_MAGIC));
    expect_report();
}

void ag_report_describe_driver(const char *trouble)
{
    snprintf(ag_stats.head.driver, sizeof(ag_stats.head.driver), "%s", ag_driver_path());
    snprintf(ag_stats.head.trouble, sizeof(ag_stats.head.trouble), "%s", trouble ? trouble : "");
    ag_stats.head.simulated = ag_driver_is_simulated() ? AG_SIMULATED : AG_NOT_SIMULATED;
}

void ag_report_begin_child(void)
{
    static struct ag_stats_head parent;

    in_child = true;
    parent = ag_stats.head;
    ag_live_begin_child();
    if (!ag_record_begin_child())
        return;
    ag_stats.head = parent;
    describe_process(&ag_stats.head);
    expect_report();
}

static bool nothing_came(void)
{
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        if (ag_stats_hits((enum ag_hook)i))
            return false;
    }
    return true;
}

bool ag_report_is_empty(void)
{
    return in_child && nothing_came();
}

/* --- where it goes --- */

/* Brings the report to `path`, NULL for stderr, in the form that `where` asks for. */
static int render_and_deliver(const char *where, const char *path, bool exclusive, char *why,
                              size_t capacity)
{
    const struct ag_moment moment = {ag_clock_ns(), ag_clock_ticks(), true};
    const struct ag_holders_view view = {.holders = ag_holders_complete_now(),
                                         .names = ag_own_names,
                                         .is_running = !*ag_stats.head.ended_by,
                                         .is_own = true};
    struct ag_text text = {0};
    size_t length = strlen(where);
    int result;

    if (length > 5 && !strcmp(where + length - 5, ".json"))
        ag_render_json(&text, &ag_stats, &moment, &view);
    else if (!strcmp(where, "stderr"))
        ag_render_short(&text, &ag_stats, &moment, &view);
    else
        ag_render_text(&text, &ag_stats, &moment, &view);
    if (text.truncated) {
        result = -ENOMEM;
        snprintf(why, capacity, "no memory for the whole report");
    } else if (path) {
        result = ag_deliver_to_file(&text, path, exclusive, why, capacity);
    } else {
        result = ag_deliver_to_stderr(&text, why, capacity);
    }
    ag_text_finish(&text);
    return result;
}

int ag_report_write_to(const char *where)
{
    char path[PATH_MAX], why[128];
    int result;

    if (goes_to_stderr(where))
        return render_and_deliver(where, NULL, false, why, sizeof(why));
    ag_pattern_expand(where, &ag_stats.head, in_child, path, sizeof(path));
    result = render_and_deliver(where, path, false, why, sizeof(why));
    if (result)
        ag_log_error("the report could not be written to %s: %s", path, why);
    return result;
}

/* The counters stay where a report could not be written. */
static void say_where_it_is(const char *path, const char *why)
{
    if (ag_record_exists())
        ag_log_error("the report could not be written to %s: %s; `allograft report %d` shows it",
                     path, why, ag_stats.head.pid);
    else
        ag_log_error("the report could not be written to %s: %s", path, why);
}

int ag_report_write(const struct ag_options *options, const char *ended_by)
{
    struct ag_stats_head *head = &ag_stats.head;
    const char *where = options->stats.text;
    const char *path = goes_to_stderr(where) ? NULL : ag_deliver_expected();
    char why[128];
    int result;

    snprintf(head->ended_by, sizeof(head->ended_by), "%s", ended_by);
    *head->kept_because = '\0';
    if (!strcmp(where, "off") || ag_report_is_empty())
        return 0;
    result = render_and_deliver(where, path, true, why, sizeof(why));
    if (!result)
        return 0;
    if (path)
        snprintf(head->kept_because, sizeof(head->kept_because), "%.200s: %s", path, why);
    else
        snprintf(head->kept_because, sizeof(head->kept_because), "%s", why);
    if (path || result == -ENOMEM)
        say_where_it_is(path ? path : "stderr", why);
    return result;
}
