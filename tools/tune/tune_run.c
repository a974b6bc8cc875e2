/* tune_run.c: runs a program that is tuned once, and measures its time, output and peak memory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/report/verdict/sums.h"
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/report/process.h"
#include "tools/run/environment.h"
#include "tools/tune/tune.h"

/* ---- its temporary folder ---- */

/* What the devices gave at the most, which is what a setting costs: what the program had, what was
 * kept for later, and the most that its own pools held. */
static uint64_t peak_memory_of(const struct process *process)
{
    uint64_t peak = ag_sum_all_given(process->stats);

    for (unsigned row = 0; row < AG_APP_POOLS; row++) {
        const struct ag_app_pool_stats *pool = &process->stats->app_pools[row];

        if (pool->has_levels && pool->device >= 0)
            peak += pool->reserved_high;
    }
    return peak;
}

/* Did an allocation find no memory, be it that another came to its help? */
static bool has_run_short(const struct process *process)
{
    static const enum ag_stat signs[] = {AG_STAT_BUDGET_HIT, AG_STAT_LADDER_ERROR,
                                         AG_STAT_LADDER_SPILL, AG_STAT_PAGE_ON_HOST};

    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        if (process_counter(process, signs[i]))
            return true;
    }
    return false;
}

/* Reads the reports of the run's processes: counts them, adds up their peaks, and notes whether
 * they ran short of memory, and on the simulated driver. */
static void read_reports(const char *path, struct tune_run *ret)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    struct process process;

    while (folder && (entry = readdir(folder))) {
        size_t length = strlen(entry->d_name);

        if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        ret->n_reports++;
        if (process_read(dirfd(folder), entry->d_name, &process))
            continue;
        ret->peak_bytes += peak_memory_of(&process);
        ret->simulated |= process.stats->head.simulated != 0;
        ret->ran_short |= has_run_short(&process);
        process_finish(&process);
    }
    if (folder)
        closedir(folder);
}

/* ---- its output ---- */

static void last_line(int fd, char *line, size_t capacity)
{
    char text[1024];
    off_t end = lseek(fd, 0, SEEK_END),
          from = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
    ssize_t n = pread(fd, text, sizeof(text) - 1, from);
    char *start;

    line[0] = '\0';
    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n <= 0)
        return;
    text[n] = '\0';
    start = strrchr(text, '\n');
    snprintf(line, capacity, "%.*s", (int)capacity - 1, start ? start + 1 : text);
    process_make_printable(line, capacity);
}

static int open_unnamed(const char *folder, const char *name)
{
    char path[PATH_MAX + 8];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    (void)unlink(path);
    return fd;
}

/* ---- the file that is compared ---- */

static bool name_aside(const char *path, char *aside, size_t capacity)
{
    return snprintf(aside, capacity, "%s.allograft-old", path) < (int)capacity;
}

bool tune_set_aside(const char *path)
{
    char aside[PATH_MAX];
    struct stat st;

    if (lstat(path, &st))
        return true; /* other errors are for the program to report */
    if (!S_ISREG(st.st_mode)) {
        command_complain("tune: --compare file:%s: this is not a regular file", path);
        return false;
    }
    if (!name_aside(path, aside, sizeof(aside))) {
        command_complain("tune: --compare file:%s: %s", path, strerror(ENAMETOOLONG));
        return false;
    }
    if (!lstat(aside, &st)) {
        command_complain(
            "tune: --compare file:%s: an earlier `tune` renamed this file to %s; move it back, or "
            "remove it",
            path, aside);
        return false;
    }
    if (rename(path, aside)) {
        command_complain("tune: --compare file:%s: it cannot be renamed: %s", path,
                         strerror(errno));
        return false;
    }
    return true;
}

void tune_set_back(const char *path, bool written)
{
    char aside[PATH_MAX];

    if (!name_aside(path, aside, sizeof(aside)) || access(aside, F_OK))
        return;
    if (written ? unlink(aside) : rename(aside, path))
        command_complain("tune: %s: %s", aside, strerror(errno));
}

/* ---- the run ---- */

static void exec_program(char **argv, const char *library, const char *const *settings,
                         const char *stats, int out, int err)
{
    int nothing = open("/dev/null", O_RDONLY);

    for (unsigned i = 0; settings[i]; i++) {
        char name[64];
        const char *equals = strchr(settings[i], '=');

        snprintf(name, sizeof(name), "%.*s", (int)(equals - settings[i]), settings[i]);
        (void)setenv(name, equals + 1, 1);
    }
    (void)setenv("ALLOGRAFT_STATS", stats, 1);
    if (library && preload_library(library) != STATUS_OK)
        _exit(STATUS_FAILED);
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0)
        execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

static volatile sig_atomic_t ended_by; /* a signal that the program gets, too; 0 */

void tune_run_end(int signal)
{
    ended_by = signal;
}

/* Waits for the child, passes on the signal that ends all, and kills it when it takes too long. */
static int wait_or_kill(pid_t child, uint64_t timeout_ns, bool *ret_timed_out)
{
    uint64_t deadline = ag_clock_ns() + timeout_ns;
    int status = 0, passed_on = 0;
    pid_t got;

    *ret_timed_out = false;
    while ((got = waitpid(child, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (ended_by != passed_on) {
            passed_on = ended_by;
            (void)kill(child, passed_on);
        }
        if (!*ret_timed_out && ag_clock_ns() > deadline) {
            *ret_timed_out = true;
            (void)kill(child, SIGKILL);
        }
        (void)poll(NULL, 0, 1); /* far less than runs differ by */
    }
    return status;
}

#define MOST_ORPHAN_MS 5000u /* until those that got a signal are waited for no more */

/* The first of our children in the kernel's list of them, or 0. */
static pid_t first_child(char *list, size_t capacity)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    ag_text_read_file(path, list, capacity);
    return (pid_t)strtol(list, NULL, 10);
}

/* Sends the signal to what the program has started and not waited for: it would go
 * on beside the next run. Each becomes a child of ours once its parent is gone. */
static void end_orphans(int signal)
{
    char list[4096];
    pid_t told = 0, child;

    for (unsigned ms = 0; ms < MOST_ORPHAN_MS; ms++) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        child = first_child(list, sizeof(list));
        if (!child)
            break;
        if (child != told)
            (void)kill(child, signal);
        told = child;
        (void)poll(NULL, 0, 1);
    }
}

/* Forks while no signal comes: our handler would take in the child what is meant for the program,
 * which an exec ends. */
static pid_t fork_for_program(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    sigset_t held, mask;
    pid_t pid;

    sigemptyset(&held);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(&held, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &held, &mask);
    pid = fork();
    for (size_t i = 0; !pid && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!sigaction(numbers[i], NULL, &action) && action.sa_handler != SIG_IGN)
            (void)signal(numbers[i], SIG_DFL);
    }
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    return pid;
}

static bool run_in(const char *folder, char **argv, const char *library,
                   const char *const *settings, bool counts, uint64_t timeout_ns,
                   struct tune_run *ret)
{
    int out = open_unnamed(folder, "out"), err = open_unnamed(folder, "err");
    char stats[PATH_MAX];
    uint64_t began;
    pid_t child;

    snprintf(stats, sizeof(stats), counts ? "%s/%%p.json" : "off", folder);
    fflush(stdout);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    began = ag_clock_ns();
    child = out < 0 || err < 0 ? -1 : fork_for_program();
    if (!child)
        exec_program(argv, library, settings, stats, out, err);
    if (child > 0) {
        ret->status = wait_or_kill(child, timeout_ns, &ret->timed_out);
        ret->ns = ag_clock_ns() - began;
        if (ret->timed_out || ended_by)
            end_orphans(ret->timed_out ? SIGKILL : ended_by);
        ret->has_output = tune_text_read(out, false, &ret->text);
        last_line(err, ret->complaint, sizeof(ret->complaint));
    }
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    return child > 0;
}

bool tune_run(char **argv, const char *library, const char *const *settings, bool counts,
              const char *output_file, uint64_t timeout_ns, struct tune_run *ret)
{
    char folder[PATH_MAX];
    bool ran;

    memset(ret, 0, sizeof(*ret));
    if (!folder_make_temporary("tune", folder, sizeof(folder))) {
        snprintf(ret->complaint, sizeof(ret->complaint), "no temporary folder could be made: %s",
                 strerror(errno));
        return false;
    }
    if (output_file)
        (void)unlink(output_file); /* an old one would pass the comparison */
    ran = run_in(folder, argv, library, settings, counts, timeout_ns, ret);
    if (output_file) {
        int fd = open(output_file, O_RDONLY | O_CLOEXEC);

        tune_text_free(&ret->text);
        ret->has_output = tune_text_read(fd, true, &ret->text);
        if (fd >= 0)
            close(fd);
    }
    if (counts)
        read_reports(folder, ret);
    folder_remove(folder);
    return ran;
}
