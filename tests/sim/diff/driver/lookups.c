/* lookups.c: finds the driver as programs do: linked, by dlsym, or by cuGetProcAddress. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "diff.h"

/* cuda.h declares the per-thread twins for per-thread builds only. */
#define PLAIN(symbol, base, version)
#define TWIN(symbol, base, version, twin, twin_version) extern __typeof__(symbol) twin;
#include "lookups.def"
#undef PLAIN
#undef TWIN

struct diff_driver cu;

struct way {
    const char *symbol, *base, *twin;
    int version, twin_version;
    void **to;
    void *linked, *linked_twin;
};

#define PLAIN(symbol, base, version) \
    {#symbol, #base, NULL, version, 0, (void **)&cu.symbol, (void *)symbol, NULL},
#define TWIN(symbol, base, version, twin, twin_version)                              \
    {#symbol,        #base,       #twin, version, twin_version, (void **)&cu.symbol, \
     (void *)symbol, (void *)twin},
static const struct way ways[] = {
#include "lookups.def"
};
#undef PLAIN
#undef TWIN

#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

typedef CUresult (*get_proc_fn)(const char *, void **, int, cuuint64_t,
                                CUdriverProcAddressQueryResult *);

static void *by_get_proc(void *driver, const struct way *way, bool twin)
{
    static get_proc_fn get_proc;
    void *found = NULL;

    if (!get_proc) { /* as the runtime does: asks for the function that it asks with */
        get_proc_fn first = (get_proc_fn)dlsym(driver, "cuGetProcAddress_v2");
        if (!first || first("cuGetProcAddress", (void **)&get_proc, 12000, 0, NULL) != CUDA_SUCCESS)
            return NULL;
    }
    if (get_proc(way->base, &found, twin ? way->twin_version : way->version,
                 twin ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                      : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                 NULL) != CUDA_SUCCESS)
        return NULL;
    return found;
}

void lookups_open(enum lookup lookup, bool per_thread)
{
    void *driver = lookup == LOOKUP_LINKED ? NULL : dlopen("libcuda.so.1", RTLD_NOW);

    for (size_t i = 0; i < N_WAYS; i++) {
        bool twin = per_thread && ways[i].twin;
        void *found = NULL;

        if (lookup == LOOKUP_LINKED)
            found = twin ? ways[i].linked_twin : ways[i].linked;
        else if (driver && lookup == LOOKUP_DLSYM)
            found = dlsym(driver, twin ? ways[i].twin : ways[i].symbol);
        else if (driver)
            found = by_get_proc(driver, &ways[i], twin);
        if (!found) {
            fprintf(stderr, "no %s through this lookup\n", ways[i].symbol);
            _exit(98);
        }
        *ways[i].to = found;
    }
}
