/* The driver calls of the driver-API programs: linked with -lcuda, or looked up one by one. */
#ifndef ALLOGRAFT_TESTS_GPU_DRIVER_H
#define ALLOGRAFT_TESTS_GPU_DRIVER_H

#include <cuda.h>

/*
 * With VIA_DLSYM every call goes through a pointer that dlsym gave for the symbol's own name, the
 * way libraries do it that do not want to depend on libcuda. cuda.h's macros turn cuMemAlloc into
 * cuMemAlloc_v2, so STRING expands its argument first and asks for the name the linker would see.
 */
#ifdef VIA_DLSYM
#include "tests/gpu/check.h"
#include <dlfcn.h>

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

static inline void *driver_symbol(const char *name)
{
    static void *libcuda;
    if (!libcuda)
        libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = libcuda ? dlsym(libcuda, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "%s: not found\n", name);
        exit(EXIT_UNUSABLE);
    }
    return symbol;
}

#define DRV(name) ((__typeof__(&name))driver_symbol(STRING(name)))
#else
#define DRV(name) name
#endif

#endif
