/* Notices that a program never used CUDA: see unused.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/unused.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/base/log.h"
#include "interpose/core/report/counters_file.h"

/* File systems may stamp files by a clock that goes in steps of a timer's tick. */
#define STEP_NS 10000000

struct mark {
    int pid;
    uint64_t began_ns; /* of CLOCK_REALTIME */
    int witness;
    char counters[2048];
};

static struct mark mark; /* its pid is 0 where there is none */

static uint64_t in_ns(struct timespec t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int ag_unused_mark(int witness, const char *counters, char *text, size_t size)
{
    struct timespec now;
    int length;

    if (clock_gettime(CLOCK_REALTIME, &now))
        return -errno;
    length = snprintf(text, size, "%d:%llu:%d:%s", getpid(), (unsigned long long)in_ns(now),
                      witness, counters);
    return length > 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

/* The number at *text, which moves after the colon that follows; NULL where there is none. */
static unsigned long long read_number(const char **text)
{
    char *end = NULL;
    unsigned long long number = *text ? strtoull(*text, &end, 10) : 0;

    *text = end && *end == ':' ? end + 1 : NULL;
    return number;
}

void ag_unused_begin(void)
{
    const char *value = getenv(AG_UNUSED_VARIABLE);
    struct mark found = {0};

    if (!value)
        return;
    found.pid = (int)read_number(&value);
    found.began_ns = read_number(&value);
    found.witness = (int)read_number(&value);
    if (!value || strlen(value) >= sizeof(found.counters))
        return;
    memcpy(found.counters, value, strlen(value) + 1);
    mark = found;
}

bool ag_unused_is_marked(void)
{
    return mark.pid && mark.pid == getpid();
}

void ag_unused_note(void)
{
    int folder =
        mark.pid && !ag_unused_is_marked() ? ag_record_open_folder(mark.counters, true) : -1;

    if (folder < 0)
        return;
    (void)futimens(folder, NULL);
    close(folder);
}

/* Has a process begun with CUDA since the program began, or cannot that be told? */
static bool others_used_it(void)
{
    int folder = ag_record_open_folder(mark.counters, false);
    struct stat st;
    bool used;

    if (folder < 0) /* the usual one is made when it is needed, others are never */
        return folder != -ENOENT || strcmp(mark.counters, "auto") != 0;
    used = fstat(folder, &st) || in_ns(st.st_mtim) + STEP_NS >= mark.began_ns;
    close(folder);
    return used;
}

/* Programs that check whether all their output was written (GNU ls does) close standard error
 * before libraries end. */
static int borrow_stderr(void)
{
    char path[40];

    if (!mark.witness || !ag_log_stderr_trouble())
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/fd/2", mark.witness);
    return open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void ag_unused_tell(void)
{
    int borrowed;

    if (!ag_unused_is_marked() || others_used_it())
        return;
    borrowed = borrow_stderr();
    ag_log_borrow(borrowed);
    ag_log_warn(
        "neither %s (process %d) nor what it started made a CUDA call that came through, so "
        "there is no report. " AG_UNUSED_REASONS,
        program_invocation_short_name, mark.pid);
    ag_log_borrow(-1);
    if (borrowed >= 0)
        close(borrowed);
}
