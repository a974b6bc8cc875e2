/* Names of calling libraries: see caller.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "caller.h"

#include <dlfcn.h>
#include <string.h>

bool ag_caller_is_cuda_library(const void *address)
{
    static const char *const prefixes[] = {"libcublas",   "libcudnn",  "libcufft", "libcurand",
                                           "libcusolver", "libcusparse", "libnvjitlink"};
    const char *name;
    Dl_info info;

    if (!dladdr(address, &info) || !info.dli_fname)
        return false;
    name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    }
    return false;
}
