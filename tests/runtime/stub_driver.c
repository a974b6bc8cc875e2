/* A stand-in for libcuda.so.1 on which NVIDIA's own CUDA runtime asks all its questions and then
 * gives up: with error 35 when STUB_DRIVER_VERSION is too old for it, else because it gets none of
 * the export tables by which it knows NVIDIA's driver. That is where these tests end: the stub has
 * no such table, and none is to be made for it.
 *
 * Every name, version and flag gets a function of its own from cuGetProcAddress. With STUB_LOG=PATH
 * each answer is written there: name, version, flags, symbol ("-" without one), offset of the
 * function in this library. */
#define _GNU_SOURCE
#include "stub_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWERS = 2048, DEFAULT_VERSION = 13000 };

struct answer {
    char name[80];
    int version;
    cuuint64_t flags;
    const char *symbol;
    void *address;
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct answer answers[MAX_ANSWERS];
    unsigned n;
    FILE *log;
} stub = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The newest symbol of that name that is not newer than asked for, in the flavour asked for. */
static const struct stub_symbol *find_symbol(const char *name, int version, bool per_thread)
{
    const struct stub_symbol *best = NULL;
    for (const struct stub_symbol *s = stub_symbols; s->base != NULL; s++) {
        if (strcmp(s->base, name) != 0 || s->since > version)
            continue;
        if (s->flavour != STUB_NONE && (s->flavour >= STUB_PTSZ) != per_thread)
            continue;
        if (best == NULL || s->since > best->since)
            best = s;
    }
    return best;
}

/* Is `symbol` the name with a version, and with the suffix of the flavour, if any, behind it? */
static bool is_form_of(const char *symbol, const char *name, bool per_thread)
{
    size_t length = strlen(name);
    if (strncmp(symbol, name, length) != 0)
        return false;
    symbol += length;
    if (symbol[0] == '_' && symbol[1] == 'v' && symbol[2] != '\0')
        symbol += 3;
    if (per_thread && (strcmp(symbol, "_ptsz") == 0 || strcmp(symbol, "_ptds") == 0))
        return true;
    return symbol[0] == '\0';
}

/* Some exported symbol of that name; which version of it does not matter here. */
static const struct stub_symbol *find_unhooked(const char *name, bool per_thread)
{
    const struct stub_symbol *best = NULL;
    for (unsigned i = 0; i < stub_n_unhooked; i++) {
        const struct stub_symbol *s = &stub_unhooked[i];
        if (is_form_of(s->symbol, name, per_thread) &&
            (best == NULL || strlen(s->symbol) > strlen(best->symbol)))
            best = s;
    }
    return best;
}

static struct answer *answer_of(const char *name, int version, cuuint64_t flags)
{
    for (unsigned i = 0; i < stub.n; i++) {
        struct answer *a = &stub.answers[i];
        if (strcmp(a->name, name) == 0 && a->version == version && a->flags == flags)
            return a;
    }
    if (stub.n == MAX_ANSWERS || strlen(name) >= sizeof(stub.answers[0].name))
        return NULL;
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct stub_symbol *known = find_symbol(name, version, per_thread);
    if (known == NULL)
        known = find_unhooked(name, per_thread);
    struct answer *a = &stub.answers[stub.n++];
    memcpy(a->name, name, strlen(name) + 1);
    a->version = version;
    a->flags = flags;
    a->symbol = known != NULL ? known->symbol : "-";
    a->address = known != NULL ? known->address : stub_take_anonymous();
    return a;
}

static void write_log(const struct answer *a)
{
    const char *path = getenv("STUB_LOG");
    if (path == NULL)
        return;
    if (stub.log == NULL)
        stub.log = fopen(path, "w");
    /* Answers must be functions of ours: a preloaded library with symbols of the same names must
     * not have got between (that is what -Bsymbolic is for). */
    Dl_info info, own;
    if (stub.log == NULL || dladdr(a->address, &info) == 0)
        abort();
    if (dladdr((void *)write_log, &own) == 0 || own.dli_fbase != info.dli_fbase)
        abort();
    fprintf(stub.log, "\"%s\" %d %llu %s %zx\n", a->name, a->version, (unsigned long long)a->flags,
            a->symbol, (size_t)((char *)a->address - (char *)info.dli_fbase));
    (void)fflush(stub.log);
}

STUB_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    struct answer *a = NULL;
    pthread_mutex_lock(&stub.lock);
    /* NVIDIA's runtime starts by asking for the empty name. */
    if (symbol[0] != '\0')
        a = answer_of(symbol, cudaVersion, flags);
    if (a != NULL)
        write_log(a);
    pthread_mutex_unlock(&stub.lock);
    *pfn = a != NULL ? a->address : NULL;
    if (status != NULL) {
        *status = a != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return a != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

STUB_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
                                      cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}

STUB_EXPORT CUresult cuDriverGetVersion(int *version)
{
    const char *chosen = getenv("STUB_DRIVER_VERSION");
    *version = chosen != NULL ? atoi(chosen) : DEFAULT_VERSION;
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuInit(unsigned flags)
{
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

STUB_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

STUB_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (ordinal != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)len, "stub");
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    (void)attribute;
    *value = 1;
    return CUDA_SUCCESS;
}

STUB_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    (void)device;
    memset(uuid, 1, sizeof(*uuid));
    return CUDA_SUCCESS;
}
