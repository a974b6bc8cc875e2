/* Names of calling modules: see caller.h. No lock: hooks of every thread come by here. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "caller.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "rules.h"

static const char *const mathematics[] = {
    "libcublas*",   "libcudnn*",    "libcufft*",     "libcurand*",
    "libcusolver*", "libcusparse*", "libnvjitlink*",
};

/* Names are kept for good: a library may be closed while a rule's counter or a thread has its name.
 */
#define MOST_MODULES 1000u
struct module {
    char name[NAME_MAX + 1];
    enum ag_caller caller;
};
static struct ag_arena arena = AG_ARENA_INIT(struct module);
static _Atomic(struct module *) modules[MOST_MODULES]; /* from the front, without holes */

/* What is known of an address is one word: the address, the module's place plus 1 (0: unknown), and
 * the kind. No library lies above 48 bits; an address that does is looked up each time. */
#define ADDRESS_BITS 48
#define KIND_BITS    4
#define PLACE_BITS   (64 - ADDRESS_BITS - KIND_BITS)
_Static_assert(MOST_MODULES < 1u << PLACE_BITS, "a place fits");
#define KNOWN 512u
static _Atomic uint64_t known[KNOWN];

static enum ag_caller classify(const char *name)
{
    const char *glob;

    for (size_t i = 0; i < sizeof(mathematics) / sizeof(mathematics[0]); i++) {
        if (ag_glob_match(mathematics[i], name))
            return AG_CALLER_CUDA_LIBRARY;
    }
    for (size_t i = 0; (glob = ag_rules_exporter(i)); i++) {
        if (ag_glob_match(glob, name))
            return AG_CALLER_EXPORTER;
    }
    return AG_CALLER_PROGRAM;
}

/* The file name of the module; false when the address is in none. */
static bool name_of(const void *address, char name[NAME_MAX + 1])
{
    struct link_map *map = NULL;
    const char *path, *slash;
    Dl_info info;

    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    path = *map->l_name ? map->l_name : program_invocation_short_name;
    slash = strrchr(path, '/');
    snprintf(name, NAME_MAX + 1, "%s", slash ? slash + 1 : path);
    return *name != '\0';
}

/* The place of the module of that name plus 1, entered where it is new; 0 when there is no room. */
static uint64_t place_of(const char *name)
{
    struct module *own = NULL;

    for (uint64_t i = 0; i < MOST_MODULES; i++) {
        struct module *there = atomic_load_explicit(&modules[i], memory_order_acquire);

        if (!there && !own) {
            own = ag_arena_get(&arena);
            if (!own)
                return 0;
            memcpy(own->name, name, strlen(name) + 1);
            own->caller = classify(name);
        }
        if (!there && atomic_compare_exchange_strong(&modules[i], &there, own))
            return i + 1;
        if (!strcmp(there->name, name)) {
            if (own)
                ag_arena_put(&arena, own);
            return i + 1;
        }
    }
    if (own)
        ag_arena_put(&arena, own);
    return 0;
}

static uint64_t look_up(const void *address)
{
    char name[NAME_MAX + 1];
    uint64_t place = 0;
    enum ag_caller caller = AG_CALLER_PROGRAM;

    if (name_of(address, name)) {
        place = place_of(name);
        caller = place ? atomic_load(&modules[place - 1])->caller : classify(name);
    }
    return place << KIND_BITS | caller;
}

/* Place and kind for the address, from the table where it stands there. */
static uint64_t find(const void *address)
{
    uint64_t value = (uint64_t)(uintptr_t)address;
    _Atomic uint64_t *entry = &known[value * 0x9e3779b97f4a7c15u >> 55];
    uint64_t found = atomic_load_explicit(entry, memory_order_relaxed);

    if (value >> ADDRESS_BITS)
        return look_up(address);
    if (found >> (KIND_BITS + PLACE_BITS) != value || !found) {
        found = value << (KIND_BITS + PLACE_BITS) | look_up(address);
        atomic_store_explicit(entry, found, memory_order_relaxed);
    }
    return found & ((1u << (KIND_BITS + PLACE_BITS)) - 1);
}

enum ag_caller ag_caller_of(const void *address)
{
    return (enum ag_caller)(find(address) & ((1u << KIND_BITS) - 1));
}

const char *ag_caller_module(const void *address)
{
    uint64_t place = find(address) >> KIND_BITS;

    return place ? atomic_load_explicit(&modules[place - 1], memory_order_acquire)->name : NULL;
}
