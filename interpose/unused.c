/* Says that a program never used CUDA: see unused.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "unused.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "record.h"

/* File systems may stamp files by a clock that goes in steps of a timer's tick. */
#define STEP_NS 10000000

struct mark {
    int pid;
    uint64_t began_ns;               /* of CLOCK_REALTIME */
    unsigned long long device, file; /* standard error was this one */
    const char *counters;
};

static uint64_t in_ns(struct timespec t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int ag_unused_mark(const char *counters, char *mark, size_t size)
{
    struct timespec now;
    struct stat out;
    int length;

    if (clock_gettime(CLOCK_REALTIME, &now) || fstat(STDERR_FILENO, &out))
        return -errno;
    length = snprintf(mark, size, "%d:%llu:%llu:%llu:%s", getpid(), (unsigned long long)in_ns(now),
                      (unsigned long long)out.st_dev, (unsigned long long)out.st_ino, counters);
    return length > 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

/* The number at *text, which moves behind the colon that follows; NULL where there is none. */
static unsigned long long take_number(const char **text)
{
    char *end = NULL;
    unsigned long long number = *text ? strtoull(*text, &end, 10) : 0;

    *text = end && *end == ':' ? end + 1 : NULL;
    return number;
}

static bool read_mark(char **environment, struct mark *ret)
{
    static const char name[] = AG_UNUSED_VARIABLE "=";

    for (; environment && *environment; environment++) {
        const char *value = *environment + sizeof(name) - 1;

        if (strncmp(*environment, name, sizeof(name) - 1) != 0)
            continue;
        ret->pid = (int)take_number(&value);
        ret->began_ns = take_number(&value);
        ret->device = take_number(&value);
        ret->file = take_number(&value);
        ret->counters = value;
        return value != NULL;
    }
    return false;
}

bool ag_unused_is_marked(char **environment)
{
    struct mark mark;

    return read_mark(environment, &mark) && mark.pid == getpid();
}

void ag_unused_note(char **environment)
{
    struct mark mark;
    int folder;

    if (!read_mark(environment, &mark) || mark.pid == getpid())
        return;
    folder = ag_record_open_folder(mark.counters, true);
    if (folder < 0)
        return;
    (void)futimens(folder, NULL);
    close(folder);
}

/* Has a process begun with CUDA since the program began, or cannot that be told? */
static bool others_used_it(const struct mark *mark)
{
    int folder = ag_record_open_folder(mark->counters, false);
    struct stat st;
    bool used;

    if (folder < 0) /* the usual one is made when it is needed, others are never */
        return folder != -ENOENT || strcmp(mark->counters, "auto") != 0;
    used = fstat(folder, &st) || in_ns(st.st_mtim) + STEP_NS >= mark->began_ns;
    close(folder);
    return used;
}

void ag_unused_tell(char **environment)
{
    struct mark mark;
    struct stat out;

    if (!read_mark(environment, &mark) || mark.pid != getpid() || others_used_it(&mark))
        return;
    /* A program may have given the number to a file of its own. */
    if (fstat(STDERR_FILENO, &out) || out.st_dev != mark.device || out.st_ino != mark.file)
        return;
    ag_log_warn(
        "neither %s (process %d) nor what it started made a CUDA call that came through, so there is no "
        "report. Usual reasons: none of it needs a GPU; a program is statically linked, setuid, or "
        "was started without LD_PRELOAD (sudo, env -i, a container, another host)",
        program_invocation_short_name, mark.pid);
}
