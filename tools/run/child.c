/* child.c: starts a program in a child and waits for it: see child.h. */
#include "tools/run/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/complain.h"

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
static void catch_signals(struct sigaction old[N_SIGNALS], sigset_t *ret_mask)
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

static void restore_signals(const struct sigaction old[N_SIGNALS])
{
    for (size_t i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i].number, &old[i], NULL);
}

static int wait_for_exit(pid_t pid)
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

/* Becomes the program; in the child. What is written to `told`, which an exec closes, says that
 * there was none. */
__attribute__((noreturn)) static void become_child(int (*become)(void *argument), void *argument,
                                                   int told)
{
    int status = become(argument);

    (void)!write(told, "", 1);
    _exit(status);
}

int child_run(int (*become)(void *argument), void *argument, const char *command, bool *ret_started)
{
    struct sigaction old[N_SIGNALS];
    int told[2], status;
    sigset_t mask;
    pid_t pid;

    *ret_started = false;
    if (pipe2(told, O_CLOEXEC)) {
        command_complain("%s: %s", command, strerror(errno));
        return STATUS_FAILED;
    }
    fflush(stdout);
    catch_signals(old, &mask);
    pid = fork();
    if (!pid) {
        restore_signals(old);
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        become_child(become, argument, told[1]);
    }
    child = pid;
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    close(told[1]);
    if (pid < 0) {
        command_complain("%s: %s", command, strerror(errno));
        status = STATUS_FAILED;
    } else {
        *ret_started = has_begun(told[0]);
        status = wait_for_exit(pid);
    }
    close(told[0]);
    return status;
}
