/* diff_words.h: what a run gained or lost against another, in words. */
#ifndef TOOLS_DIFF_WORDS_H
#define TOOLS_DIFF_WORDS_H

#include "interpose/base/text.h"
#include "tools/report/process.h"

/* Some lines on plain processes, the first of them being what the second is measured by. Without
 * `times`, nothing of how long either took. */
void diff_words(struct ag_text *text, const struct process sides[2], bool times);

#endif
