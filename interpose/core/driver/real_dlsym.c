/* Finds libc's dlsym without calling dlsym: see real_dlsym.h. The assembly of our own dlsym uses
 * it, too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/driver/real_dlsym.h"

#include <dlfcn.h>
#include <stddef.h>

typedef void *(*dlsym_function)(void *, const char *);

/* Called by the assembly alone, hence no header. The pointer is filled on first use; racing threads
 * store the same value. */
dlsym_function ag_real_dlsym_find(void);
dlsym_function ag_real_dlsym_pointer;

/* A sanitizer's runtime calls dlsym before its own memory is set up: nothing here may be
 * watched. */
__attribute__((no_sanitize("address", "undefined", "thread"))) dlsym_function
ag_real_dlsym_find(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]) && !ag_real_dlsym_pointer; i++)
        ag_real_dlsym_pointer = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return ag_real_dlsym_pointer;
}

void *ag_real_dlsym(void *handle, const char *name)
{
    dlsym_function next = ag_real_dlsym_pointer;

    return (next ? next : ag_real_dlsym_find())(handle, name);
}
