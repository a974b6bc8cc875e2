/* Predicts whether an exec will fail: see leave_exec.h.
 *
 * A process that becomes another program must write its report first. Programs search for others by
 * trying one path after the other, so the common failures are predicted. What cannot be predicted
 * (arguments that are too long, an unknown format, too little memory) is tried, and costs a report
 * that is written again at the real end. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/exit/leave_exec.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPT_DEPTH 5 /* an interpreter may be a script; the kernel allows as many */
#define DEFAULT_PATH "/bin:/usr/bin"

#ifndef AT_EXECVE_CHECK
#define AT_EXECVE_CHECK 0x10000 /* Linux 6.14: only asks */
#endif

/* Paths are relative to a folder, as those of openat; `flags`: of fstatat. */
static bool is_executable(int folder, const char *path, int flags)
{
    struct stat status;

    return !fstatat(folder, path, &status, flags) && S_ISREG(status.st_mode) &&
           !faccessat(folder, path, X_OK, AT_EACCESS);
}

/* The first line, or nothing where the file may be executed and not read. */
static void read_head(int folder, const char *path, char *head, size_t capacity)
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, head, capacity - 1);

    head[n < 0 ? 0 : n] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

/* "#! /bin/sh -e" becomes "/bin/sh"; NULL when it is no script. */
static const char *interpreter_of(char *head)
{
    char *name;

    if (strncmp(head, "#!", 2) != 0)
        return NULL;
    name = head + 2 + strspn(head + 2, " \t");
    name[strcspn(name, " \t\n")] = '\0';
    return name;
}

static bool may_start(int folder, const char *path, int flags, unsigned depth)
{
    char head[256]; /* as much as the kernel looks at */
    const char *interpreter;

    if (!is_executable(folder, path, flags))
        return false;
    read_head(folder, path, head, sizeof(head));
    interpreter = interpreter_of(head);
    return !interpreter || depth >= SCRIPT_DEPTH || may_start(AT_FDCWD, interpreter, 0, depth + 1);
}

bool ag_leave_may_start(const char *path)
{
    return path && may_start(AT_FDCWD, path, 0, 0);
}

bool ag_leave_may_find(const char *file)
{
    const char *folders = getenv("PATH");
    char path[PATH_MAX];

    if (!file || strchr(file, '/'))
        return ag_leave_may_start(file);
    for (folders = folders ? folders : DEFAULT_PATH;; folders++) {
        int length = (int)strcspn(folders, ":"); /* none: the current folder */

        if (length < PATH_MAX && (size_t)length + strlen(file) + 3 < sizeof(path)) {
            (void)snprintf(path, sizeof(path), "%.*s/%s", length ? length : 1,
                           length ? folders : ".", file);
            if (ag_leave_may_start(path))
                return true;
        }
        folders += length;
        if (!*folders)
            return false;
    }
}

bool ag_leave_may_start_open(int fd)
{
    struct stat status;

    return !fstat(fd, &status) && S_ISREG(status.st_mode) &&
           status.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH);
}

bool ag_leave_may_start_at(int folder, const char *path, int flags)
{
    if (flags & AT_EXECVE_CHECK || !path)
        return false;
    if (flags & AT_EMPTY_PATH && !*path)
        return ag_leave_may_start_open(folder);
    return may_start(folder, path, flags & AT_SYMLINK_NOFOLLOW, 0);
}
