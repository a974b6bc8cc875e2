/* report_list.h: the processes of a folder in a table, before one of them is shown. */
#ifndef TOOLS_REPORT_LIST_H
#define TOOLS_REPORT_LIST_H

#include "interpose/base/text.h"
#include "tools/base/folder.h"

/* A line for each file, the newest last, below a heading: when its process began, what it was and
 * how it ended. *ret_newest is the newest that can be read, or files->n. */
void report_list(struct ag_text *text, const struct folder_files *files, const char *path,
                 size_t *ret_newest);
/* Leaves the files whose process ran `program`. */
void report_list_keep(struct folder_files *files, const char *program);

#endif
