/* report_list.h: lists the processes of a folder, before one of them is reported. */
#ifndef TOOLS_REPORT_LIST_H
#define TOOLS_REPORT_LIST_H

#include "interpose/core/base/text.h"
#include "tools/base/folder.h"

/* Adds a heading and a line for each file, the newest last: when the process began, its program and
 * how it ended. *ret_newest is the newest that can be read, or files->n. */
void report_list(struct ag_text *text, const struct folder_files *files, const char *path,
                 size_t *ret_newest);
/* Keeps only the files whose process ran `program`. */
void report_list_keep(struct folder_files *files, const char *program);

#endif
