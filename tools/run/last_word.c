/* last_word.c: a small process beside the program that says what the program cannot say itself: how
 * to see what it counted, where a signal ended it.
 *
 * The program takes the command's place, so nobody is left who could wait for it. This process is
 * no child of the program, which may wait for all of its children; it takes no part in anything:
 * it reads nothing, has standard error alone of the command's descriptors, and ends when the
 * program does. The library borrows that descriptor where the program has closed its own
 * (interpose/core/report/unused.h). */
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/base/shell.h"
#include "tools/report/process.h"
#include "tools/run/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* What is said, prepared before the wait. */
struct last_word {
    char program[NAME_MAX + 1];
    const char *counters; /* a value of ALLOGRAFT_COUNTERS */
    uint64_t began_ns;
    pid_t pid;
    int ends; /* readable once the program has ended */
};

/* ---- what is left -------------------------------------------------------------------------- */

/* Do these counters say that their process did not end by itself? */
static bool was_cut_off(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct ag_stats *stats = process_new_stats();
    bool was = fd >= 0 && stats && !counters_read(fd, stats) && !*stats->head.ended_by;

    if (fd >= 0)
        close(fd);
    return was;
}

static void say_last_word(const struct last_word *word)
{
    struct folder_files files = {.folder = ag_record_open_folder(word->counters, false)};
    struct ag_record_owner owner;
    struct ag_text where = {0};

    if (files.folder < 0 || folder_list(&files, word->pid, true) || !files.n ||
        !ag_record_parse_name(files.names[0], &owner) || owner.started_ns < word->began_ns ||
        !was_cut_off(files.folder, files.names[0]))
        return;
    if (strcmp(word->counters, "auto") != 0) {
        ag_text_add(&where, "ALLOGRAFT_COUNTERS=");
        shell_add_word(&where, word->counters);
        ag_text_add(&where, " ");
    }
    command_complain("%s (process %d) was ended before it could write its report: "
                     "`%sallograft report %d` shows what it had counted",
                     word->program, word->pid, where.data ? where.data : "", word->pid);
    ag_text_finish(&where);
}

/* ---- the process --------------------------------------------------------------------------- */

/* A pipe that it held open would never end for its reader. */
static bool keep_only(int *fd)
{
    *fd = dup2(*fd, STDERR_FILENO + 1);
    (void)close(STDIN_FILENO);
    (void)close(STDOUT_FILENO);
    return !syscall(SYS_close_range, STDERR_FILENO + 2, UINT_MAX, 0);
}

/* Signals for the whole group, as of a terminal, are the program's to answer. The arguments go,
 * since they would be found in the list of processes a second time. */
static void step_aside(char **argv)
{
    static const int left[] = {SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTOU, SIGPIPE};

    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++)
        (void)signal(left[i], SIG_IGN);
    for (; *argv; argv++)
        memset(*argv, 0, strlen(*argv));
    (void)prctl(PR_SET_NAME, "allograft-last");
    (void)chdir("/");
}

__attribute__((noreturn)) static void wait_and_say(struct last_word *word, char **argv)
{
    struct pollfd wait;

    step_aside(argv);
    if (!keep_only(&word->ends)) /* Linux before 5.9 */
        _exit(0);
    wait = (struct pollfd){.fd = word->ends, .events = POLLIN};
    while (poll(&wait, 1, -1) < 0 && errno == EINTR) {
    }
    if (wait.revents & POLLIN)
        say_last_word(word);
    _exit(0);
}

/* Would the process become a child of the program, once its own parent has ended? */
static bool would_be_its_child(void)
{
    int adopts = 0;

    return getpid() == 1 || prctl(PR_GET_CHILD_SUBREAPER, &adopts) || adopts;
}

/* Starts the program from a child that ends at once: so its own child is nobody's. */
__attribute__((noreturn)) static void start_from_child(struct last_word *word, char **argv,
                                                       int told)
{
    pid_t pid = fork();

    if (!pid)
        wait_and_say(word, argv);
    (void)!write(told, &pid, sizeof(pid));
    _exit(0);
}

static pid_t start_program(struct last_word *word, char **argv)
{
    pid_t child, pid = -1;
    int told[2];

    if (pipe2(told, O_CLOEXEC))
        return 0;
    child = fork();
    if (!child)
        start_from_child(word, argv, told[1]);
    close(told[1]);
    if (child < 0 || read(told[0], &pid, sizeof(pid)) != sizeof(pid))
        pid = -1;
    close(told[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 ? pid : 0;
}

pid_t last_word_start(char **argv, const char *counters)
{
    const char *name = strrchr(argv[0], '/');
    struct last_word word = {.counters = counters, .began_ns = ag_clock_ns(), .pid = getpid()};
    pid_t pid = 0;

    snprintf(word.program, sizeof(word.program), "%s", name ? name + 1 : argv[0]);
    if (would_be_its_child() || fcntl(STDERR_FILENO, F_GETFD) < 0)
        return 0;
    word.ends = (int)syscall(SYS_pidfd_open, word.pid, 0);
    if (word.ends < 0) /* Linux before 5.3 */
        return 0;
    pid = start_program(&word, argv);
    close(word.ends);
    return pid;
}
