/* profile_run.c: runs the program that is profiled, under the settings of a profile. */
#include "tools/profile/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/report/unused.h"
#include "tools/base/complain.h"
#include "tools/run/environment.h"

/* What a profile asks for, unless the user has set it otherwise. */
static const struct {
    const char *name, *value;
} asked[] = {
    {"ALLOGRAFT_STACKS", "16"},
    {"ALLOGRAFT_WAITS", "1"},
};

/* ---- in the child: becoming the program ---------------------------------------------------- */

static int set_in_folder(const char *name, const char *folder, const char *file)
{
    char *value;
    int failed;

    if (asprintf(&value, "%s%s", folder, file) < 0)
        return STATUS_FAILED;
    failed = setenv(name, value, 1);
    free(value);
    return failed ? STATUS_FAILED : STATUS_OK;
}

/* Where the processes write is for the profile to say. */
static int refuse_places(const char *pair)
{
    static const char *const places[] = {"STATS", "TRACE", "COUNTERS"};
    char name[128];

    if (settings_full_name(pair, strcspn(pair, "="), name, sizeof(name)))
        return STATUS_OK; /* which is told with the other mistakes */
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strcmp(name + strlen("ALLOGRAFT_"), places[i]) != 0)
            continue;
        command_complain("profile: --set %s: a profile makes its page of its own reports and "
                         "traces; `allograft run` writes them where you say",
                         pair);
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int apply_settings(const struct command_line *line, const struct profile_folder *folder,
                          struct run_extras *ret_extras)
{
    int status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < line->n_given; i++) {
        ret_extras->audit |= line->given[i].option == OPTION_profile_audit;
        ret_extras->simulate |= line->given[i].option == OPTION_profile_simulate;
        if (line->given[i].option != OPTION_profile_set)
            continue;
        status = refuse_places(line->given[i].value);
        if (status == STATUS_OK)
            status = run_set_pair(line->given[i].value);
    }
    for (size_t i = 0; status == STATUS_OK && i < sizeof(asked) / sizeof(asked[0]); i++)
        status = setenv(asked[i].name, asked[i].value, 0) ? STATUS_FAILED : STATUS_OK;
    if (status == STATUS_OK)
        status = set_in_folder("ALLOGRAFT_STATS", folder->path, "/%p.json");
    if (status == STATUS_OK)
        status = set_in_folder("ALLOGRAFT_TRACE", folder->path, "/%p.trace");
    if (status == STATUS_OK)
        status = set_in_folder("ALLOGRAFT_COUNTERS", folder->counters, "");
    return status;
}

/* Does not return. What is written to `told`, which an exec closes, says that there was none. */
static void become(const struct command_line *line, const struct profile_folder *folder, int told)
{
    struct run_extras extras = {false, false};
    int status = apply_settings(line, folder, &extras);

    (void)unsetenv(AG_UNUSED_VARIABLE); /* the parent says itself that nothing used CUDA */
    if (status == STATUS_OK)
        status = run_prepare(line->words, extras);
    if (status == STATUS_OK)
        status = run_execute(line->words);
    (void)!write(told, "", 1);
    _exit(status);
}

/* ---- in the parent ------------------------------------------------------------------------- */

static volatile sig_atomic_t child;

static void pass_on(int signal)
{
    if (child > 0)
        (void)kill((pid_t)child, signal);
}

/* The signals of a terminal reach the program as well: it decides. */
static const struct {
    int number;
    bool is_passed_on;
} signals[] = {{SIGINT, false}, {SIGQUIT, false}, {SIGTERM, true}, {SIGHUP, true}};

#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

/* A signal that is ignored, as nohup has it, stays so. They wait until there is a
 * child to pass them on to. */
static void take_signals(struct sigaction old[N_SIGNALS], sigset_t *ret_mask)
{
    sigset_t held;

    sigemptyset(&held);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaddset(&held, signals[i].number);
    (void)sigprocmask(SIG_BLOCK, &held, ret_mask);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        struct sigaction action = {.sa_flags = SA_RESTART};

        action.sa_handler = signals[i].is_passed_on ? pass_on : SIG_IGN;
        if (!sigaction(signals[i].number, NULL, &old[i]) && old[i].sa_handler != SIG_IGN)
            (void)sigaction(signals[i].number, &action, NULL);
    }
}

static void give_signals_back(const struct sigaction old[N_SIGNALS])
{
    for (size_t i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i].number, &old[i], NULL);
}

static int wait_for(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    child = 0; /* its number may be another's soon */
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool has_begun(int told)
{
    char byte;
    ssize_t n;

    do
        n = read(told, &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 0;
}

int profile_run(const struct command_line *line, const struct profile_folder *folder,
                bool *ret_started)
{
    struct sigaction old[N_SIGNALS];
    int told[2], status;
    sigset_t mask;
    pid_t pid;

    *ret_started = false;
    if (pipe2(told, O_CLOEXEC)) {
        command_complain("profile: %s", strerror(errno));
        return STATUS_FAILED;
    }
    fflush(stdout);
    take_signals(old, &mask);
    pid = fork();
    if (!pid) {
        give_signals_back(old);
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        become(line, folder, told[1]);
    }
    child = pid;
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    close(told[1]);
    if (pid < 0) {
        command_complain("profile: %s", strerror(errno));
        status = STATUS_FAILED;
    } else {
        *ret_started = has_begun(told[0]);
        status = wait_for(pid);
    }
    close(told[0]);
    return status;
}
