/* proc_address.c: cuGetProcAddress: which exported symbol serves a base name at a CUDA version. */
#include "tests/sim/sim_internal.h"

#include <string.h>

enum flavour { LEGACY, PER_THREAD };

struct row {
    const char *base;
    size_t length;
    int version;
    const char *symbol;
    enum flavour flavour;
    void (*function)(void);
};

static const struct row rows[] = {
#define SYMBOL(base, version, symbol, flavour) \
    {#base, sizeof(#base) - 1, version, #symbol, flavour, (void (*)(void))symbol},
#include "tests/sim/symbols.def"
#undef SYMBOL
};

/* The newest form of the flavour that the version knows; *ret_named: the name exists at all. */
static const struct row *find(const char *base, int version, enum flavour flavour, bool *ret_named)
{
    const struct row *best = NULL;
    int newest = sim_settings()->driver_version;
    size_t length = strlen(base);

    for (size_t i = 0; i < SIM_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        if (row->length != length || memcmp(row->base, base, length) != 0 || row->version > newest)
            continue;
        *ret_named = true;
        if (row->flavour != flavour || row->version > version)
            continue;
        if (!best || best->version < row->version)
            best = row;
    }
    return best;
}

static CUresult get(const char *base, void **ret_function, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *ret_status)
{
    const struct row *row = NULL;
    bool named = false;

    if (!base || !ret_function)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    if (version > sim_settings()->driver_version)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        row = find(base, version, PER_THREAD, &named);
    if (!row)
        row = find(base, version, LEGACY, &named);
    *ret_function = row ? *(void *const *)&row->function : NULL;
    if (ret_status)
        *ret_status = row     ? CU_GET_PROC_ADDRESS_SUCCESS
                      : named ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *base, void **function, int version, cuuint64_t flags)
{
    SIM_ENTER(SIM_NEEDS_NOTHING);
    CUresult result = get(base, function, version, flags, NULL);
    /* Without a status to put it in, the older form says it by its code. */
    return result == CUDA_SUCCESS && !*function ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuGetProcAddress_v2(const char *base, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    SIM_ENTER(SIM_NEEDS_NOTHING);
    return get(base, function, version, flags, status);
}
