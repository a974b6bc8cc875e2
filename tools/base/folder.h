/* folder.h: the files in which processes keep their counters, and temporary folders. */
#ifndef TOOLS_FOLDER_H
#define TOOLS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/report/counters_file.h"

/* Files of counters, those of the newest processes first. */
struct folder_files {
    int folder;
    char (*names)[AG_RECORD_NAME_MAX]; /* the caller frees it */
    size_t n, capacity;
};

/* Opens the folder that ALLOGRAFT_COUNTERS names and writes its path (PATH_MAX bytes). *ret is -1
 * where it does not exist. Returns an exit status, after a line on stderr if it is not
 * STATUS_OK. */
int folder_open_own(int *ret, char *path, size_t capacity);
/* Opens it likewise, and prints nothing: NULL, or the fault, for the caller to say after the
 * path. */
const char *folder_try_own(int *ret, char *path, size_t capacity);
/* Folders of counters that are open. */
struct folders {
    int *list;
    size_t n, capacity;
};

/* Adds an open folder; closes it, and returns false, when memory runs out. */
bool folders_add(struct folders *folders, int folder);
/* Adds the folders in shared memory of all users, as far as they can be opened. False when memory
 * runs out. */
bool folders_add_all_users(struct folders *folders);
void folders_close(struct folders *folders);

/* Fills in the names: those of process `pid`; with 0, those of dead processes or, with `all`, of
 * all. Returns an exit status; errno says what failed. */
int folder_list(struct folder_files *files, int pid, bool all);
/* Removes the file if its process is dead; prints a line on stderr if that fails. */
void folder_remove_if_dead(int folder, const char *name);

/* Makes a new folder for the command's temporary files, of this user alone, and writes its absolute
 * path. False, with errno, if that fails. */
bool folder_make_temporary(const char *command, char *path, size_t capacity);
/* Removes the files in a folder and, when nothing is left, the folder. */
void folder_remove(const char *path);

#endif
