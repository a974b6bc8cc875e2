/* File names with placeholders, by which each process of a job gets a file of its own. */
#ifndef AG_PATTERN_H
#define AG_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

struct ag_stats_head;

/* `pattern` with %p %h %n %r filled in: the id, host, program and rank (0 without one) that
 * `head` has of the process. in_child: a pattern without %p gets the process id before its
 * ending. What does not fit is cut. */
void ag_pattern_expand(const char *pattern, const struct ag_stats_head *head, bool in_child,
                       char *path, size_t capacity);
/* Puts `words` before the ending of the name, which says of what kind the file is: "a.json" becomes
 * "a.words.json". False where there is no room, and nothing is changed. */
bool ag_pattern_distinguish(char *path, size_t capacity, const char *words);
/* The first '%' before a letter that stands for nothing, or NULL. Before anything else it is part
 * of the name. */
const char *ag_pattern_unknown(const char *pattern);

#endif
