/* shell.h: words of commands that a user is told to type. */
#ifndef TOOLS_SHELL_H
#define TOOLS_SHELL_H

#include "interpose/core/base/text.h"

/* Adds the word such that a shell reads it as it is: within quotes where it has to be. */
void shell_add_word(struct ag_text *text, const char *word);

#endif
