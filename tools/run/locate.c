/* locate.c: finds liballograft.so, starting from the folder of the command itself. */
#include "tools/base/complain.h"
#include "tools/run/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_NAME "liballograft.so"

/* Where it may be, relative to the command's folder: in a build folder, or under an installed
 * prefix, with and without the distribution's folder per architecture. */
static const char *const beside_command[] = {
    "/" LIBRARY_NAME,
    "/../lib/" LIBRARY_NAME,
#ifdef __x86_64__
    "/../lib/x86_64-linux-gnu/" LIBRARY_NAME,
#elif defined(__aarch64__)
    "/../lib/aarch64-linux-gnu/" LIBRARY_NAME,
#endif
    "/../lib64/" LIBRARY_NAME,
};

#define N_BESIDE (sizeof(beside_command) / sizeof(beside_command[0]))

/* The candidate's own name as an absolute path, links in it unresolved. */
static int absolute_as_named(const char *candidate, char *path, size_t path_size)
{
    char folder[PATH_MAX] = "";
    int length;

    if (*candidate != '/' && !getcwd(folder, sizeof(folder)))
        return -errno;
    length = snprintf(path, path_size, "%s%s%s", folder, *folder ? "/" : "", candidate);
    return (size_t)length < path_size ? 0 : -ENAMETOOLONG;
}

static int absolute_if_readable(const char *candidate, char *path, size_t path_size)
{
    char *real;

    if (access(candidate, R_OK))
        return -errno;
    real = realpath(candidate, NULL);
    if (!real)
        return -errno;
    if (strlen(real) >= path_size) {
        free(real);
        return -ENAMETOOLONG;
    }
    memcpy(path, real, strlen(real) + 1);
    free(real);
    return 0;
}

/* The folder of the running command, without a slash at the end; "" when it is not known. */
static void own_folder(char *folder, size_t folder_size)
{
    ssize_t length = readlink("/proc/self/exe", folder, folder_size - 1);
    char *slash;

    folder[length > 0 ? length : 0] = '\0';
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

static int locate_named(const char *named, char *path, size_t path_size)
{
    int error = absolute_if_readable(named, path, path_size);

    /* A link may be there because LD_PRELOAD cannot name what it leads to. */
    if (!error && !preload_can_name(path) && preload_can_name(named))
        error = absolute_as_named(named, path, path_size);
    if (!error)
        return STATUS_OK;
    command_complain("ALLOGRAFT_LIBRARY=%s: %s", named, strerror(-error));
    return STATUS_FAILED;
}

int locate_library(char *path, size_t path_size)
{
    const char *named = getenv("ALLOGRAFT_LIBRARY");
    char folder[PATH_MAX], candidates[N_BESIDE + 1][PATH_MAX + 64];

    if (named && *named)
        return locate_named(named, path, path_size);

    own_folder(folder, sizeof(folder));
    for (size_t i = 0; i < N_BESIDE; i++)
        snprintf(candidates[i], sizeof(candidates[i]), "%s%s", folder, beside_command[i]);
    snprintf(candidates[N_BESIDE], sizeof(candidates[N_BESIDE]), "%s",
             ALLOGRAFT_LIBDIR "/" LIBRARY_NAME);

    for (size_t i = 0; i <= N_BESIDE; i++) {
        if (!absolute_if_readable(candidates[i], path, path_size))
            return STATUS_OK;
    }
    command_complain(LIBRARY_NAME " was not found; ALLOGRAFT_LIBRARY may name it. Searched:");
    for (size_t i = 0; i <= N_BESIDE; i++)
        fprintf(stderr, "  %s\n", candidates[i]);
    return STATUS_FAILED;
}
