/* Tells NVTX of us, by the variable that names its injection library: see nvtx_offer.h.
 *
 * `allograft run` sets it, and where the library is preloaded without that command, its one
 * constructor (lifecycle.c) does, where a variable of replay is set and the settings ask for NVTX.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/hooks/nvtx/nvtx_offer.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/log.h"
#include "interpose/core/settings/options.h"
#include "interpose/resolve/preloaded.h"

#define VARIABLE "NVTX_INJECTION64_PATH"

/* Where this library lies, as an absolute path; false when nobody knows. */
static bool own_path(char *path)
{
    Dl_info info;

    return dladdr((void *)own_path, &info) && info.dli_fname && realpath(info.dli_fname, path);
}

static bool names_us(const char *path)
{
    struct stat theirs, own;
    char here[PATH_MAX];

    return own_path(here) && !stat(here, &own) && !stat(path, &theirs) &&
           own.st_ino == theirs.st_ino && own.st_dev == theirs.st_dev;
}

void ag_nvtx_tell(const struct ag_options *options)
{
    const char *value = getenv(VARIABLE);
    char here[PATH_MAX];

    if (!ag_options_ask_for_nvtx(options) || (value && names_us(value)))
        return;
    if (value)
        ag_log_warn(VARIABLE
                    "=%s: another library is told of NVTX's ranges and names, so "
                    "ALLOGRAFT_GRAPH_ITERATION=nvtx:... and ALLOGRAFT_GRAPH=name:... see none",
                    value);
    else
        ag_log_warn("NVTX's ranges and names are asked for, but not seen: set " VARIABLE "=%s",
                    own_path(here) ? here : "liballograft.so");
}

bool ag_nvtx_may_be_needed(void)
{
    return (ag_option_text(environ, AG_OPTION_GRAPH) ||
            ag_option_text(environ, AG_OPTION_GRAPH_ITERATION)) &&
           !getenv(VARIABLE) && ag_is_preloaded();
}

/* Before the program has threads, so it may set a variable. */
void ag_nvtx_offer(const struct ag_options *options)
{
    char path[PATH_MAX];

    if (ag_options_ask_for_nvtx(options) && own_path(path))
        (void)setenv(VARIABLE, path, 0);
}
