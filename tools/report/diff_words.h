/* diff_words.h: says in words what one run gained or lost against another. */
#ifndef TOOLS_DIFF_WORDS_H
#define TOOLS_DIFF_WORDS_H

#include "interpose/core/base/text.h"
#include "tools/report/process.h"

/* Adds some lines about plain processes: what the second gained or lost against the first. Times
 * are left out unless `times`. */
void diff_words(struct ag_text *text, const struct process sides[2], bool times);

#endif
