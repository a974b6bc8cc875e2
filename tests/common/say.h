/* say.h: prints results so that two runs can be compared: no addresses, no times, no stdio. */
#ifndef SAY_H
#define SAY_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/check.h"

/* One line on standard output, written at once: what a run printed is then known even if it is
 * killed, and a child of fork or exec inherits nothing buffered. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    if (n < 0)
        _exit(99);
    if ((size_t)n > sizeof(line) - 2)
        n = sizeof(line) - 2;
    line[n++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(99);
}

/* "what: code", for a call whose code is the result. */
#define SAY_CODE(what, call) say("%s: %d", what, (int)(call))

/* Waits for the child, and says how it ended. */
static inline void say_child(pid_t child)
{
    int status = 0;

    if (waitpid(child, &status, 0) != child)
        _exit(98);
    say("child: exited %d with %d, signal %d", WIFEXITED(status), WEXITSTATUS(status),
        WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

#endif
