/* simulate.c: makes programs find the simulated driver, which lies beside the library. */
#include "tools/base/complain.h"
#include "tools/run/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_NAME "libcuda.so.1"

/* Relative to the library's folder: installed, and in a build folder. */
static const char *const beside_library[] = {
    "/allograft/simulated/" DRIVER_NAME,
    "/tests/sim/" DRIVER_NAME,
};

#define N_BESIDE (sizeof(beside_library) / sizeof(beside_library[0]))

static void candidate(const char *library, size_t i, char *path, size_t path_size)
{
    snprintf(path, path_size, "%.*s%s", (int)(strrchr(library, '/') - library), library,
             beside_library[i]); /* the library's path is absolute */
}

/* False when no driver lies beside the library. */
static bool find_simulated_driver(const char *library, char *path, size_t path_size)
{
    for (size_t i = 0; i < N_BESIDE; i++) {
        candidate(library, i, path, path_size);
        if (!access(path, R_OK))
            return true;
    }
    return false;
}

static int complain_of_missing(const char *library)
{
    char path[PATH_MAX + 64];

    command_complain("the simulated driver was not found beside the library. Searched:");
    for (size_t i = 0; i < N_BESIDE; i++) {
        candidate(library, i, path, sizeof(path));
        fprintf(stderr, "  %s\n", path);
    }
    return STATUS_FAILED;
}

int simulate_driver(const char *library, char *path, size_t path_size)
{
    const char *old = getenv("LD_LIBRARY_PATH");
    size_t length;
    char *joined;
    int failed;

    if (!find_simulated_driver(library, path, path_size))
        return complain_of_missing(library);
    length = (size_t)(strrchr(path, '/') - path);
    if (strcspn(path, ":;") < length) {
        command_complain(
            "%s: LD_LIBRARY_PATH cannot name a path with a colon or a semicolon in it; "
            "move the library",
            path);
        return STATUS_FAILED;
    }
    if (old && !strncmp(old, path, length) && (!old[length] || strchr(":;", old[length])))
        return STATUS_OK;
    if (asprintf(&joined, "%.*s%s%s", (int)length, path, old && *old ? ":" : "", old ? old : "") <
        0)
        return STATUS_FAILED;
    failed = setenv("LD_LIBRARY_PATH", joined, 1);
    free(joined);
    return failed ? STATUS_FAILED : STATUS_OK;
}
