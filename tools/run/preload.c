/* preload.c: puts the library in front of what LD_PRELOAD names already. */
#include "tools/base/complain.h"
#include "tools/run/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int preload_library(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    size_t length = strlen(library);
    char *joined;
    int failed;

    if (strpbrk(library, ": ")) {
        command_complain("%s: LD_PRELOAD cannot name a path with a colon or a space in it; move "
                         "the library, or name it through a symbolic link to its folder",
                         library);
        return STATUS_FAILED;
    }
    if (!old || !*old)
        return setenv("LD_PRELOAD", library, 1) ? STATUS_FAILED : STATUS_OK;
    if (!strncmp(old, library, length) && (!old[length] || strchr(": ", old[length])))
        return STATUS_OK;
    if (asprintf(&joined, "%s:%s", library, old) < 0)
        return STATUS_FAILED;
    failed = setenv("LD_PRELOAD", joined, 1);
    free(joined);
    return failed ? STATUS_FAILED : STATUS_OK;
}
