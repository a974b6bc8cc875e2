/* Writes log lines: see log.h. */
#include "interpose/core/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/text.h"

static enum ag_log_level highest = AG_LOG_WARN;
static bool is_bound, was_open;
static int borrowed = -1;
static struct stat bound;
static _Atomic bool is_stuck; /* nobody reads what goes to stderr: no line waits any more */

void ag_log_bind(void)
{
    int saved_errno = errno;

    was_open = !fstat(STDERR_FILENO, &bound);
    is_bound = true;
    errno = saved_errno;
}

static bool is_of_bound(int fd)
{
    struct stat now;

    return !fstat(fd, &now) && now.st_dev == bound.st_dev && now.st_ino == bound.st_ino;
}

const char *ag_log_stderr_trouble(void)
{
    if (!is_bound)
        return NULL;
    if (!was_open)
        return "standard error was closed when the process began";
    if (!is_of_bound(STDERR_FILENO))
        return "standard error is not what it was when the process began";
    return NULL;
}

void ag_log_borrow(int fd)
{
    borrowed = was_open && fd >= 0 && is_of_bound(fd) ? fd : -1;
}

void ag_log_set_level(enum ag_log_level level)
{
    highest = level;
}

bool ag_log_shows(enum ag_log_level level)
{
    return level <= highest;
}

void ag_log(enum ag_log_level level, const char *format, ...)
{
    static const char prefix[] = "allograft: ";
    int saved_errno = errno;
    char line[1024];
    size_t length = sizeof(prefix) - 1;
    va_list args;
    int fd, added;

    if (level > highest)
        return;
    fd = ag_log_stderr_trouble() ? borrowed : STDERR_FILENO;
    if (fd < 0) {
        errno = saved_errno;
        return;
    }
    memcpy(line, prefix, length);
    va_start(args, format);
    added = vsnprintf(line + length, sizeof(line) - length - 1, format, args);
    va_end(args);
    if (added > 0)
        length +=
            (size_t)added < sizeof(line) - length - 1 ? (size_t)added : sizeof(line) - length - 2;
    line[length++] = '\n';
    if (ag_text_write_within(fd, line, length, atomic_load(&is_stuck) ? 0 : AG_LOG_TIMEOUT_MS) ==
        -ETIMEDOUT)
        atomic_store(&is_stuck, true);
    errno = saved_errno;
}
