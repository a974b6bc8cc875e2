/* A library that hands programs other bytes than the device has: the doctor must notice. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

void *dlsym(void *handle, const char *name);

static void *(*next(void))(void *, const char *)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *found = NULL;
    void *(*function)(void *, const char *);

    for (size_t i = 0; i < 3 && !found; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&function, &found, sizeof(function));
    return function;
}

static int (*copy)(void *, unsigned long long, size_t);

static int copy_wrongly(void *to, unsigned long long from, size_t bytes)
{
    int result = copy(to, from, bytes);

    ((char *)to)[bytes - 1] ^= 1;
    return result;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    void *found = next()(handle, name);
    int (*mine)(void *, unsigned long long, size_t) = copy_wrongly;

    if (!found || strcmp(name, "cuMemcpyDtoH_v2") != 0)
        return found;
    memcpy(&copy, &found, sizeof(found));
    memcpy(&found, &mine, sizeof(found));
    return found;
}
