/* child.h: a program that runs in a child, beside a command that goes on when it has ended. */
#ifndef TOOLS_CHILD_H
#define TOOLS_CHILD_H

#include <stdbool.h>

/* Runs `become(argument)` in a child, which becomes the program there; where it returns, with an
 * exit status, the program was not started. Signals that end a program are the program's: those of
 * a terminal reach it by themselves, others are passed on. Returns the exit status as shells have
 * it. *ret_started: the program began; if not, a line on stderr has said why, which for what the
 * parent itself cannot do begins with `command`. */
int child_run(int (*become)(void *argument), void *argument, const char *command,
              bool *ret_started);

#endif
