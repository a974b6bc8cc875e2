/* Another preloaded library that wraps dlsym, as profilers and sharing layers do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};

    for (int i = 0; real == NULL && i < 3; i++)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    void *found = real(handle, name);
    /* Something after the call, so that the compiler makes no tail call of it. */
    __asm__ volatile("" : "+r"(found));
    return found;
}
