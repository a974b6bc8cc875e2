/* File names with placeholders, by which each process of a job gets a file of its own. */
#ifndef AG_PATTERN_H
#define AG_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* `pattern` with %p %h %n %r filled in: this process's id, host, program and rank (0 without one),
 * as the head of ag_stats has them. in_child: a pattern without %p gets the process id appended.
 * What does not fit is cut. */
void ag_pattern_expand(const char *pattern, bool in_child, char *path, size_t capacity);

#endif
