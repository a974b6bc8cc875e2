/* complain.c: the line on stderr with which a command says what went wrong: see complain.h. */
#include "tools/base/complain.h"

#include <stdarg.h>
#include <stdio.h>

void command_complain(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("allograft: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}
