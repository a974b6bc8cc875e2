/* find_program.c: finds the file of a program as execvp() does. */
#include "tools/run/environment.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_file(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISREG(st.st_mode);
}

bool run_find_program(const char *program, char *path, size_t path_size)
{
    const char *folders = getenv("PATH");
    bool found = false;

    if (strchr(program, '/')) {
        snprintf(path, path_size, "%s", program);
        return is_file(path);
    }
    if (!folders)
        folders = "/bin:/usr/bin";
    for (;;) {
        size_t length = strcspn(folders, ":");
        char candidate[PATH_MAX];

        snprintf(candidate, sizeof(candidate), "%.*s%s%s", (int)length, folders,
                 length ? "/" : "./", program);
        if (is_file(candidate) && (!found || !access(candidate, X_OK))) {
            snprintf(path, path_size, "%s", candidate);
            found = true;
            if (!access(candidate, X_OK))
                return true;
        }
        if (!folders[length])
            return found;
        folders += length + 1;
    }
}
