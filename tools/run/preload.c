/* preload.c: puts the library in front of what LD_PRELOAD names already. */
#include "tools/base/complain.h"
#include "tools/run/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool preload_can_name(const char *library)
{
    return !strpbrk(library, ": ");
}

int preload_check(const char *library)
{
    if (preload_can_name(library))
        return STATUS_OK;
    command_complain("%s: " PRELOAD_CANNOT_NAME, library);
    return STATUS_FAILED;
}

int preload_library(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    size_t length = strlen(library);
    char *joined;
    int failed;

    if (preload_check(library) != STATUS_OK)
        return STATUS_FAILED;
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
