/* A library that asks dlsym for others: linked with the driver, if it is compiled with LINKED. */
#define _GNU_SOURCE
#include <dlfcn.h>

#ifdef LINKED
#include <cuda.h>

CUresult scope_use(void);

CUresult scope_use(void)
{
    return cuInit(0);
}
#endif

void *scope_ask(void *handle, const char *name);

void *scope_ask(void *handle, const char *name)
{
    void *found = dlsym(handle, name);

    __asm__ volatile("" : "+r"(found)); /* no tail call: who asks is this library */
    return found;
}
