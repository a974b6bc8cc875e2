/* The lookup paths by which a program gets the driver's functions: dlsym and cuGetProcAddress.
 *
 * Delicate, because dlsym is called everywhere: under the loader's lock, in constructors, in malloc
 * replacements, before main. The rules of this file:
 * - dlsym initialises nothing, takes no lock, opens nothing. It calls the real one and compares.
 * - Everything but cu[A-Z]* with an explicit handle leaves by a tail jump in dlsym_<arch>.S, so
 *   that RTLD_NEXT and RTLD_DEFAULT see the program's return address and keep their meaning. Those
 *   two need little help from us: they find our exported symbols in the right order.
 * - What we export is there always. Where natively nothing would be found, since the driver is not
 *   loaded, has no such function or lies in nobody's scope, the answer is NULL.
 * - One function has one address, whichever look-up is asked and when: what dlsym answered before
 *   the settings were read stays the answer.
 * - A result is replaced only if it lies in libcuda: other libraries have cu[A-Z] names, too. The
 *   libcuda of another namespace (dlmopen) is left alone: it has a state of its own.
 * - For cuGetProcAddress, the driver answers first, and its answer decides, not the name: one base
 *   name stands for several ABIs, and only the driver knows which one a version and flags mean. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/driver/real_dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "interpose/core/base/loaded.h"
#include "interpose/core/base/log.h"
#include "interpose/core/driver/abi.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/symbols.h"
#include "interpose/core/report/stats.h"
#include "interpose/hooks/entry.h"
#include "interpose/resolve/trampoline.h"

/* Called by the assembly alone, hence no header. */
void *ag_resolve_dlsym_cuda(void *handle, const char *name);
bool ag_resolve_dlsym_is_missing(const void *handle, const char *name, const void *caller);

/* Our function of each hook. */
static void *const entries[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) (void *)symbol,
#include "interpose/core/driver/hooks.def"
};

/* The hooks that dlsym has answered with. Their look-ups go on to, whatever the settings turn out
 * to say: else one function had two addresses. Relaxed: two look-ups at once may each be the
 * first. */
static _Atomic bool given[AG_N_HOOKS];

/* Where it is not wanted, its symbol is the driver's own, for all that programs can see. */
static bool is_hook_wanted(enum ag_hook hook)
{
    return atomic_load_explicit(&given[hook], memory_order_relaxed) ||
           ag_entry_needs(ag_hook_info(hook)->when);
}

static void *hand_out_hook(enum ag_hook hook)
{
    atomic_store_explicit(&given[hook], true, memory_order_relaxed);
    ag_stats_add(AG_STAT_SUBSTITUTED, 1);
    return entries[hook];
}

/* Is what is not hooked stood in for? */
static bool stands_in(void)
{
    return ag_entry_needs(AG_WHEN_WORK);
}

static void *by_trampoline(const char *name, void *real)
{
    void *trampoline;

    if (!ag_driver_owns(real))
        return real;
    trampoline = stands_in() ? ag_trampoline_of_name(name, real) : ag_trampoline_given(real);
    if (trampoline != real) {
        ag_driver_note_address(real);
        ag_stats_add(AG_STAT_LOOKUP_DLSYM, 1);
    }
    return trampoline;
}

/* Is it the symbol that we export by that name? */
static bool is_ours(enum ag_hook hook, const void *found)
{
    return hook == AG_N_HOOKS ? ag_trampoline_is_at(found) : found == entries[hook];
}

/* Would nothing be found natively, where what we export is found? If so, dlerror says it. Who sees
 * no more than the program finds what the loader finds after us; others may see any libcuda. */
static bool is_missing(const char *name, bool sees_no_more)
{
    return !ag_real_dlsym(RTLD_NEXT, name) && (sees_no_more || !ag_driver_may_export(name));
}

/* Does it lie in the program, or in what was preloaded before us? Such sees no more than the
 * program. */
static bool is_before_us(const struct link_map *map)
{
    const struct link_map *at = ag_loaded_map((void *)is_before_us);

    do
        at = at->l_prev;
    while (at && at != map);
    return at != NULL;
}

/* Is what RTLD_NEXT finds for `map`, which lies before us, ours? */
static bool is_next_ours(const struct link_map *map, const char *name)
{
    const struct link_map *us = ag_loaded_map((void *)is_next_ours);
    bool found = false;

    while (!found && map != us) {
        map = map->l_next;
        found = ag_loaded_exports(map->l_ld, map->l_addr, name) == AG_EXPORTED;
    }
    return found && map == us;
}

/* dlsym for names that begin cu[A-Z] and a pseudo-handle; called by the assembly: is the answer
 * NULL? RTLD_NEXT only passes by us for those before us. */
bool ag_resolve_dlsym_is_missing(const void *handle, const char *name, const void *caller)
{
    int saved_errno = errno;
    const struct link_map *map = ag_loaded_map(caller);
    bool before = map && is_before_us(map), ours = false;

    if (!ag_entry_inside() && handle == RTLD_DEFAULT)
        ours = is_ours(ag_hook_by_name(name), ag_real_dlsym(RTLD_DEFAULT, name));
    else if (!ag_entry_inside() && before)
        ours = is_next_ours(map, name);
    ours = ours && is_missing(name, before);
    errno = saved_errno;
    return ours;
}

/* dlsym for names that begin cu[A-Z] and an explicit handle; reached by a jump from the assembly.
 * The handle of dlopen(NULL) sees what the program sees. */
void *ag_resolve_dlsym_cuda(void *handle, const char *name)
{
    void *real = ag_real_dlsym(handle, name);
    enum ag_hook hook;

    if (!real || ag_entry_inside())
        return real;
    hook = ag_hook_by_name(name);
    if (is_ours(hook, real))
        return is_missing(name, handle == _r_debug.r_map) ? NULL : real;
    if (hook == AG_N_HOOKS)
        return by_trampoline(name, real);
    if (!is_hook_wanted(hook) || !ag_driver_owns(real))
        return real;
    ag_driver_note_address(real);
    ag_stats_add(AG_STAT_LOOKUP_DLSYM, 1);
    return hand_out_hook(hook);
}

/* What the program gets for a pointer that the driver's look-up returned for `name`. */
static void *substitute(const char *name, void *real, cuuint64_t flags)
{
    enum ag_hook hook;

    ag_stats_add(AG_STAT_LOOKUP_GET_PROC_ADDRESS, 1);
    if (!real)
        return real;
    hook = ag_hook_by_address(real, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    if (hook != AG_N_HOOKS)
        return is_hook_wanted(hook) ? hand_out_hook(hook) : real;
    if (stands_in())
        return ag_trampoline_of_address(real);
    hook = name && ag_entry_substitutes() ? ag_hook_by_base(name) : AG_N_HOOKS;
    if (hook != AG_N_HOOKS && is_hook_wanted(hook)) {
        ag_stats_add(AG_STAT_LOOKUP_UNMATCHED, 1);
        ag_log_debug("cuGetProcAddress gave %s at an address of no hooked symbol: left alone",
                     name);
    }
    return ag_trampoline_given(real);
}

/* Is the look-up one of our own? Those of others may be a new library's, which is to be looked at
 * before it has what it asks for. */
static bool is_nested(void)
{
    bool nested = ag_entry_inside();

    if (!nested)
        ag_loaded_ask();
    return nested;
}

/* Look-ups count as calls even while every call is the driver's: a pointer that was given stays.
 * Nested calls are our own. */
#define LOOK_UP(function, ...)                                                                 \
    bool nested = is_nested(),                                                                 \
         entered = ag_entry_enter(AG_HOOK_##function, (void *const *)&ag_cu.function);         \
    CUresult result = ag_cu.function ? ag_cu.function(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED; \
                                                                                               \
    if (!nested && result == CUDA_SUCCESS && pfn)                                              \
        *pfn = substitute(symbol, *pfn, flags);                                                \
    return entered ? ag_entry_leave(result) : result

AG_ENTRY CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    LOOK_UP(cuGetProcAddress, symbol, pfn, version, flags);
}

AG_ENTRY CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *status)
{
    LOOK_UP(cuGetProcAddress_v2, symbol, pfn, version, flags, status);
}
