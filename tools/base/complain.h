/* complain.h: how a command says what went wrong: one line on stderr, and an exit status. */
#ifndef TOOLS_COMPLAIN_H
#define TOOLS_COMPLAIN_H

/* Exit statuses of our own; any other is the status of the program that was run. The last two are
 * what shells use, so that scripts need not know that the command stands in between. */
enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1, /* the command could not do its work */
    STATUS_USAGE = 2,  /* a bad option or setting; nothing was started */
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
};

/* Prints one line on stderr, "allograft: " in front and a newline after. */
void command_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
