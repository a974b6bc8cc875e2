/* Finds libcuda's own functions: see driver.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/driver/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/loaded.h"
#include "interpose/core/driver/real_dlsym.h"

struct ag_driver ag_cu;

static char path[PATH_MAX];
static _Atomic(const void *) noted; /* relaxed: an address of the driver's, compared and no more */
static bool simulated;
static void *found_in = RTLD_NEXT; /* where symbols are looked up; once the driver was found */

enum need { NEED_REQUIRED, NEED_OPTIONAL };

struct driver_row {
    const char *symbol;
    void **place;
    enum need need;
};

static const struct driver_row rows[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    {#symbol, (void **)&ag_cu.symbol, NEED_##need},
#define AG_CALL AG_HOOK
#include "interpose/core/driver/hooks.def"
};

static bool is_libcuda(const char *file)
{
    const char *slash = strrchr(file, '/');

    return !strncmp(slash ? slash + 1 : file, "libcuda.so", strlen("libcuda.so"));
}

static int note_if_libcuda(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (!info->dlpi_name || !is_libcuda(info->dlpi_name))
        return 0;
    if (found)
        snprintf(found, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

bool ag_driver_is_loaded(void)
{
    return ag_loaded_each(note_if_libcuda, NULL) != 0;
}

static int search_libcuda(struct dl_phdr_info *info, size_t size, void *name)
{
    return note_if_libcuda(info, size, NULL) &&
           ag_loaded_exports(ag_loaded_dynamic(info), info->dlpi_addr, name) != AG_NOT_EXPORTED;
}

bool ag_driver_may_export(const char *name)
{
    return ag_loaded_each(search_libcuda, (void *)name) != 0;
}

bool ag_driver_is_there(void)
{
    return ag_driver_is_loaded() || ag_real_dlsym(RTLD_NEXT, "cuMemAlloc_v2");
}

bool ag_driver_owns(const void *address)
{
    const struct link_map *map = ag_loaded_map(address);
    Lmid_t namespace;

    /* a link map is a handle */
    return map && is_libcuda(map->l_name) && !dlinfo((void *)map, RTLD_DI_LMID, &namespace) &&
           namespace == LM_ID_BASE;
}

void ag_driver_note_address(const void *address)
{
    atomic_store_explicit(&noted, address, memory_order_relaxed);
}

/* Fills every pointer as `handle` has it. RTLD_NEXT: as whoever comes after us defines the
 * symbol. */
static void fill_rows(void *handle)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        *rows[i].place = ag_real_dlsym(handle, rows[i].symbol);
}

int ag_driver_find(void)
{
    const void *hint = atomic_load_explicit(&noted, memory_order_relaxed);
    Dl_info info;
    void *handle;

    if (hint && dladdr(hint, &info) && info.dli_fname && is_libcuda(info.dli_fname))
        snprintf(path, sizeof(path), "%s", info.dli_fname);
    else
        (void)ag_loaded_each(note_if_libcuda, path);
    /* RTLD_NOLOAD: the library is there already; this only gets us a handle to ask. */
    handle = *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    found_in = handle ? handle : RTLD_NEXT;
    fill_rows(found_in);
    simulated = handle && ag_real_dlsym(handle, AG_DRIVER_MARK);
    return handle ? 0 : -ENOENT;
}

void *ag_driver_symbol(const char *name)
{
    return ag_real_dlsym(found_in, name);
}

bool ag_driver_complete(const char **ret_missing)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].need == NEED_REQUIRED && !*rows[i].place) {
            *ret_missing = rows[i].symbol;
            return false;
        }
    }
    return true;
}

bool ag_driver_is_simulated(void)
{
    return simulated;
}

const char *ag_driver_path(void)
{
    return path;
}

void *ag_driver_pointer(enum ag_hook hook)
{
    static void **const places[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) (void **)&ag_cu.symbol,
#include "interpose/core/driver/hooks.def"
    };

    return *places[hook];
}

const char *ag_driver_error_name(CUresult result)
{
    const char *name = NULL;

    if (ag_cu.cuGetErrorName && ag_cu.cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
        return name;
    return "unknown CUDA error";
}
