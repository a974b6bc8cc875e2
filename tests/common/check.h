/* check.h: the checks of every test program, in C and CUDA C++. The first one that fails names its
 * place on standard error, and ends the program with CHECK_FAILED:
 *
 *     CHECK(n == 3);                                  the condition holds
 *     CHECK_SAID(n == 3, "in turn %u", i);            the same, and more is said when it does not
 *     OK(cuInit(0));                                  the call returns 0, as every success is
 *     EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));    the call returns exactly that
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* An exit status that no test takes for a result. Who includes this file may define another. */
#ifndef CHECK_FAILED
#define CHECK_FAILED 98
#endif

/* At most one line. _exit: whoever checks may be a child that was forked, or a signal handler. */
__attribute__((format(printf, 4, 5), noreturn)) static inline void check_failed(
    const char *file, int line, const char *what, const char *format, ...)
{
    const char *seed = getenv("SIM_SEED");
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s%s%s%s\n", file, line, what, text, seed != NULL ? "; SIM_SEED=" : "",
            seed != NULL ? seed : "");
    fflush(stderr);
    _exit(CHECK_FAILED);
}

#define CHECK_FORMAT(condition, format, ...)                                                \
    do {                                                                                    \
        if (!(condition))                                                                   \
            check_failed(__FILE__, __LINE__, "not so: " #condition, format, ##__VA_ARGS__); \
    } while (0)

#define CHECK(condition) CHECK_FORMAT(condition, "%s", "")

/* What made it fail: the input, or the step of a random run. */
#define CHECK_SAID(condition, format, ...) CHECK_FORMAT(condition, "; " format, ##__VA_ARGS__)

#define EXPECT(code, call)                                                             \
    do {                                                                               \
        int check_got = (int)(call), check_expected = (int)(code);                     \
        if (check_got != check_expected)                                               \
            check_failed(__FILE__, __LINE__, #call, " returned %d, not %d", check_got, \
                         check_expected);                                              \
    } while (0)

#define OK(call) EXPECT(0, call)

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* How often a thread alone does something: ThreadSanitizer, which makes it slow, has nothing to say
 * of it. */
#ifdef __SANITIZE_THREAD__
#define ALONE(n) ((n) / 10)
#else
#define ALONE(n) (n)
#endif

#endif
