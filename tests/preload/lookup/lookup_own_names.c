/* A program that exports symbols of the driver's names, which are its own: with OWN_STUBS functions
 * that open the driver when they are called first, as those of frameworks that must start without
 * one; else variables for what it looks up, as those of loaders made of the driver's header. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "tests/common/say.h"

typedef int result;
typedef unsigned long long address;

static void *found(const char *name)
{
    static void *driver;

    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    return dlsym(driver, name);
}

#ifdef OWN_STUBS
#define OWN(name, parameters, ...)                     \
    result name parameters;                            \
    result name parameters                             \
    {                                                  \
        static result(*real) parameters;               \
                                                       \
        if (!real)                                     \
            real = (result(*) parameters)found(#name); \
        return real ? real(__VA_ARGS__) : 999;         \
    }
#define LOOK_UP(name) (void)0
#else
#define OWN(name, parameters, ...)   \
    extern result(*name) parameters; \
    result(*name) parameters;
#define LOOK_UP(name) *(void **)&name = found(#name)
#endif

OWN(cuInit, (unsigned int flags), flags)
OWN(cuDevicePrimaryCtxRetain, (void **context, int device), context, device)
OWN(cuCtxSetCurrent, (void *context), context)
OWN(cuMemAlloc_v2, (address * p, size_t bytes), p, bytes)
OWN(cuMemFree_v2, (address p), p)

int main(void)
{
    void *context = NULL;
    address p = 0;

    LOOK_UP(cuInit);
    LOOK_UP(cuDevicePrimaryCtxRetain);
    LOOK_UP(cuCtxSetCurrent);
    LOOK_UP(cuMemAlloc_v2);
    LOOK_UP(cuMemFree_v2);
    say("init: %d", cuInit(0));
    say("retain: %d", cuDevicePrimaryCtxRetain(&context, 0));
    say("current: %d", cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 3; i++) {
        say("alloc: %d", cuMemAlloc_v2(&p, 1000));
        say("free: %d", cuMemFree_v2(p));
    }
    return 0;
}
