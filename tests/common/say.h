/* say.h: prints results so that two runs can be compared: no addresses, no times, no stdio. */
#ifndef SAY_H
#define SAY_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* A step that must work for the program to make sense: says so and ends the run when it fails. */
#define NEED(call)                                                      \
    do {                                                                \
        int need_code = (int)(call);                                    \
        if (need_code != 0) {                                           \
            say("%s:%d: %s: %d", __FILE__, __LINE__, #call, need_code); \
            _exit(98);                                                  \
        }                                                               \
    } while (0)

#endif
