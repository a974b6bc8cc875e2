/* The lookup paths by which a program gets the driver's functions: dlsym and cuGetProcAddress.
 *
 * Delicate, because dlsym is called everywhere: under the loader's lock, in constructors, in malloc
 * replacements, before main. The rules of this file:
 * - dlsym initialises nothing, takes no lock, opens nothing. It calls the real one and compares.
 * - Everything but cu[A-Z]* with an explicit handle leaves by a tail jump in dlsym_<arch>.S, so
 *   that RTLD_NEXT and RTLD_DEFAULT see the program's return address and keep their meaning. Those
 *   two need little help from us: they find our exported symbols in the right order.
 * - What we export is there always. Where it alone would be found and no driver is loaded, which
 *   the loader is asked for, the answer is NULL, as natively.
 * - A result is replaced only if it lies in libcuda: other libraries have cu[A-Z] names, too. The
 *   libcuda of another namespace (dlmopen) is left alone: it has a state of its own.
 * - For cuGetProcAddress, the driver answers first, and its answer decides, not the name: one base
 *   name stands for several ABIs, and only the driver knows which one a version and flags mean. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/driver/real_dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "interpose/base/loaded.h"
#include "interpose/base/log.h"
#include "interpose/driver/abi.h"
#include "interpose/driver/driver.h"
#include "interpose/driver/symbols.h"
#include "interpose/hooks/entry.h"
#include "interpose/report/stats.h"
#include "interpose/resolve/trampoline.h"

/* For the assembly alone, hence no header. */
void *ag_resolve_dlsym_cuda(void *handle, const char *name);
bool ag_resolve_dlsym_is_missing(const void *handle, const char *name, const void *caller);

/* Is the hook needed? Else its symbol is the driver's own, for all that programs can see. */
static bool is_wanted(enum ag_hook hook)
{
    switch (ag_hook_info(hook)->when) {
    case AG_WHEN_EARLY:
        if (ag_entry_orders_frees())
            return true;
        /* fall through */
    case AG_WHEN_LAUNCHES:
        return ag_entry_watches_launches() || ag_entry_watches_streams() || ag_entry_replays();
    case AG_WHEN_ORDERED:
        return ag_entry_orders_frees();
    case AG_WHEN_WORK:
        return ag_entry_watches_streams() || ag_entry_replays();
    case AG_WHEN_WORK_OR_WAITS:
        return ag_entry_watches_streams() || ag_entry_replays() || ag_entry_times_waits();
    case AG_WHEN_GRAPH:
        return ag_entry_replays();
    case AG_WHEN_GRAPH_OR_WAITS:
        return ag_entry_replays() || ag_entry_times_waits();
    default:
        return true;
    }
}

/* Is what is not hooked stood in for? */
static bool stands_in(void)
{
    return ag_entry_replays() || ag_entry_watches_streams();
}

static void *by_trampoline(const char *name, void *real)
{
    void *trampoline;

    if (!stands_in() || !ag_driver_owns(real))
        return real;
    trampoline = ag_trampoline_of_name(name, real);
    if (trampoline != real) {
        ag_driver_note_address(real);
        ag_stats_add(AG_STAT_LOOKUP_DLSYM, 1);
    }
    return trampoline;
}

/* Is it the symbol that we export by that name? */
static bool is_ours(enum ag_hook hook, const void *found)
{
    return hook == AG_N_HOOKS ? ag_trampoline_is_at(found) : found == ag_hook_info(hook)->entry;
}

/* Is there nothing by that name but what we export? If so, dlerror says it. */
static bool is_missing(const char *name)
{
    return !ag_driver_is_loaded() && !ag_real_dlsym(RTLD_NEXT, name);
}

/* Does it lie in the program, or in what was preloaded before us? */
static bool is_before_us(const void *address)
{
    const struct link_map *map = ag_loaded_map(address), *at = ag_loaded_map((void *)is_before_us);

    while (at && at != map)
        at = at->l_prev;
    return at != NULL;
}

/* dlsym for names that begin cu[A-Z] and a pseudo-handle; called by the assembly: is the answer
 * NULL? RTLD_NEXT only passes by us for those before us, and what comes first of all must be
 * ours. */
bool ag_resolve_dlsym_is_missing(const void *handle, const char *name, const void *caller)
{
    int saved_errno = errno;
    bool missing = !ag_entry_inside() && (handle == RTLD_DEFAULT || is_before_us(caller)) &&
                   is_ours(ag_hook_by_name(name), ag_real_dlsym(RTLD_DEFAULT, name)) &&
                   is_missing(name);

    errno = saved_errno;
    return missing;
}

/* dlsym for names that begin cu[A-Z] and an explicit handle; reached by a jump from the
 * assembly. */
void *ag_resolve_dlsym_cuda(void *handle, const char *name)
{
    void *real = ag_real_dlsym(handle, name);
    enum ag_hook hook;

    if (!real || ag_entry_inside())
        return real;
    hook = ag_hook_by_name(name);
    if (is_ours(hook, real))
        return is_missing(name) ? NULL : real;
    if (hook == AG_N_HOOKS)
        return by_trampoline(name, real);
    if (!is_wanted(hook) || !ag_driver_owns(real))
        return real;
    ag_driver_note_address(real);
    ag_stats_add(AG_STAT_LOOKUP_DLSYM, 1);
    ag_stats_add(AG_STAT_SUBSTITUTED, 1);
    return ag_hook_info(hook)->entry;
}

/* What the program gets for a pointer that the driver's look-up returned for `name`. */
static void *substitute(const char *name, void *real, cuuint64_t flags)
{
    enum ag_hook hook;

    ag_stats_add(AG_STAT_LOOKUP_GET_PROC_ADDRESS, 1);
    if (!real || !ag_entry_substitutes())
        return real;
    hook = ag_hook_by_address(real, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    if (hook != AG_N_HOOKS && !is_wanted(hook))
        return real;
    if (hook != AG_N_HOOKS) {
        ag_stats_add(AG_STAT_SUBSTITUTED, 1);
        return ag_hook_info(hook)->entry;
    }
    if (stands_in())
        return ag_trampoline_of_address(real);
    hook = name ? ag_hook_by_base(name) : AG_N_HOOKS;
    if (hook != AG_N_HOOKS && is_wanted(hook)) {
        ag_stats_add(AG_STAT_LOOKUP_UNMATCHED, 1);
        ag_log_debug("cuGetProcAddress gave %s at an address of no hooked symbol: left alone",
                     name);
    }
    return real;
}

AG_ENTRY CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUresult result;

    AG_ENTER(cuGetProcAddress, symbol, pfn, version, flags);
    result = ag_cu.cuGetProcAddress(symbol, pfn, version, flags);
    if (result == CUDA_SUCCESS && pfn)
        *pfn = substitute(symbol, *pfn, flags);
    return ag_entry_leave(result);
}

AG_ENTRY CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *status)
{
    CUresult result;

    AG_ENTER(cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    result = ag_cu.cuGetProcAddress_v2(symbol, pfn, version, flags, status);
    if (result == CUDA_SUCCESS && pfn)
        *pfn = substitute(symbol, *pfn, flags);
    return ag_entry_leave(result);
}
