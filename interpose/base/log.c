/* Writes log lines: see log.h. */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

static enum ag_log_level highest = AG_LOG_WARN;
static bool is_bound, was_open;
static struct stat bound;

void ag_log_bind(void)
{
    was_open = !fstat(STDERR_FILENO, &bound);
    is_bound = true;
}

bool ag_log_stderr_is_ours(void)
{
    struct stat now;

    if (!is_bound)
        return true;
    return was_open && !fstat(STDERR_FILENO, &now) && now.st_dev == bound.st_dev &&
           now.st_ino == bound.st_ino;
}

void ag_log_set_level(enum ag_log_level level)
{
    highest = level;
}

void ag_log(enum ag_log_level level, const char *format, ...)
{
    static const char prefix[] = "allograft: ";
    int saved_errno = errno;
    char line[1024];
    size_t length = sizeof(prefix) - 1;
    va_list args;
    int added;

    if (level > highest || !ag_log_stderr_is_ours())
        return;
    memcpy(line, prefix, length);
    va_start(args, format);
    added = vsnprintf(line + length, sizeof(line) - length - 1, format, args);
    va_end(args);
    if (added > 0)
        length += (size_t)added < sizeof(line) - length - 1 ? (size_t)added : sizeof(line) - length - 2;
    line[length++] = '\n';
    (void)ag_text_write_bytes(STDERR_FILENO, line, length);
    errno = saved_errno;
}
