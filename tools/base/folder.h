/* folder.h: folders of counters' files. */
#ifndef TOOLS_FOLDER_H
#define TOOLS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/report/counters_file.h"

/* Files of counters, those of the newest processes first. */
struct folder_files {
    int folder;
    char (*names)[AG_RECORD_NAME_MAX]; /* to be freed */
    size_t n, capacity;
};

/* Opens the folder that ALLOGRAFT_COUNTERS names, whose path goes to `path` (PATH_MAX bytes). *ret
 * is -1 where there is none. An exit status, after a line on stderr. */
int folder_open_own(int *ret, char *path, size_t capacity);
/* Fills in the names: of the process `pid`; with 0, of all dead processes, or, with `all`, of any.
 * An exit status, with errno. */
int folder_list(struct folder_files *files, int pid, bool all);
/* Removes the file of a dead process; complains where that cannot be done. */
void folder_remove_if_dead(int folder, const char *name);

#endif
