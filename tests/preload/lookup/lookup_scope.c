/* Who finds which function of the driver by which handle, and is it one address? LINKED: the
 * program is linked with the driver; else it opens it, "local" or "global", or not at all. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

#include "tests/common/say.h"

typedef void *asks(void *handle, const char *name);

static const char *const names[] = {
    "cuMemAlloc_v2",           /* hooked, and in every driver */
    "cuMemcpyDtoH_v2",         /* hooked where work is watched */
    "cuStreamSynchronize",     /* hooked for replay alone */
    "cuMemcpyAtoH_v2",         /* a trampoline, in every driver */
    "cuMemGetMemPool",         /* hooked; old drivers do not have it */
    "cuMemPrefetchBatchAsync", /* a trampoline; likewise */
    "cuNoSuchFunction",
};

static void ask_all(const char *who, asks *ask, void *handle)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        say("%s: %s %s", who, names[i], ask(handle, names[i]) ? "found" : "NULL");
}

static void *ask_here(void *handle, const char *name)
{
    void *found = dlsym(handle, name);

    __asm__ volatile("" : "+r"(found)); /* no tail call: who asks is this program */
    return found;
}

/* A function of the driver has one address, whichever way leads to it and whenever. */
static void compare(void *driver, const char *base, int version, const char *symbol, void *linked)
{
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    CUresult (*init)(unsigned int);
    void *early = ask_here(driver, symbol), *by_get = NULL, *by_default;

    *(void **)&get = ask_here(driver, "cuGetProcAddress_v2");
    *(void **)&init = ask_here(driver, "cuInit");
    if (!get || !init)
        return;
    (void)init(0);
    SAY_CODE(base, get(base, &by_get, version, 0, NULL));
    by_default = ask_here(RTLD_DEFAULT, symbol);
    say("%s: by handle as before: %d", symbol, early == ask_here(driver, symbol));
    say("%s: by handle and cuGetProcAddress: %d", symbol, early == by_get);
    say("%s: by default and linked: %d", symbol, !linked || by_default == linked);
    say("%s: all of one address: %d", symbol, !by_default || by_default == early);
}

int main(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "none";
    int mode = strcmp(how, "global") ? RTLD_LOCAL : RTLD_GLOBAL;
    void *driver = NULL, *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    asks *other = library ? (asks *)dlsym(library, "scope_ask") : NULL;
    void *alloc = NULL, *sync = NULL;

    if (!other)
        return 97;
#ifdef LINKED
    alloc = (void *)cuMemAlloc_v2;
    sync = (void *)cuStreamSynchronize;
#endif
    if (strcmp(how, "none"))
        driver = dlopen("libcuda.so.1", RTLD_NOW | mode);
    ask_all("program by default", ask_here, RTLD_DEFAULT);
    ask_all("program next", ask_here, RTLD_NEXT);
    ask_all("program by itself", ask_here, dlopen(NULL, RTLD_NOW));
    ask_all("library by default", other, RTLD_DEFAULT);
    ask_all("library next", other, RTLD_NEXT);
    ask_all("library by itself", other, library);
    say("what is said: %s",
        ask_here(RTLD_DEFAULT, "cuMemGetMemPool") || dlerror() ? "told" : "nothing");
    if (!driver)
        return 0;
    ask_all("by handle", ask_here, driver);
    compare(driver, "cuMemAlloc", 3020, "cuMemAlloc_v2", alloc);
    compare(driver, "cuStreamSynchronize", 2000, "cuStreamSynchronize", sync);
    compare(driver, "cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2", NULL);
    compare(driver, "cuMemcpyAtoH", 3020, "cuMemcpyAtoH_v2", NULL);
    compare(driver, "cuGetProcAddress", 12000, "cuGetProcAddress_v2", NULL);
    return 0;
}
