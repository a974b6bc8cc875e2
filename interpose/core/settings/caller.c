/* The names of calling modules: see caller.h. Takes no lock, since hooks of every thread call it.
 *
 * What is known of an address holds while its library is loaded; later another library may lie
 * there. So an answer is only kept for what is never unloaded: the program, and what it is linked
 * with. For any other library the loader is asked each time which one lies there now, without a
 * lock (_dl_find_object, since glibc 2.35: 30 ns in all), and its name is compared. Before that
 * glibc, the loader's count of libraries that came and went is compared (45 ns, under a lock of the
 * loader). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/settings/caller.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/loaded.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/driver/real_dlsym.h"
#include "interpose/core/settings/rules.h"

/* Whole names: a program's own libcublas_helper.so is the program. */
static const char *const mathematics[] = {
    "libcublas.so*",    "libcublasLt.so*",   "libnvblas.so*",   "libcudnn.so*",
    "libcudnn_*.so.?*", "libcufft.so*",      "libcufftw.so*",   "libcurand.so*",
    "libcusolver.so*",  "libcusolverMg.so*", "libcusparse.so*", "libcusparseLt.so*",
    "libnvJitLink.so*",
};

/* Names are kept for good: a library may be closed while a rule's counter or a thread has its name.
 */
#define MOST_MODULES 1000u
struct module {
    char name[NAME_MAX + 1];
    size_t length; /* of the name */
    enum ag_caller caller;
};
static struct ag_arena arena = AG_ARENA_INIT(struct module);
static _Atomic(struct module *) modules[MOST_MODULES]; /* from the front, without holes */

/* What is known of an address is one word: the address, the module's place plus 1 (0: unknown), and
 * the kind. No library lies above 48 bits; an address that does is looked up each time. Whoever
 * reads a place finds the module there: words are stored by release, after their module. */
#define ADDRESS_BITS 48
#define KIND_BITS    4
#define STAYS        (1u << (KIND_BITS - 1)) /* beside the kind: it is never closed */
#define PLACE_BITS   (64 - ADDRESS_BITS - KIND_BITS)
_Static_assert(MOST_MODULES < 1u << PLACE_BITS, "a place fits");
#define KNOWN 512u
static _Atomic uint64_t known[KNOWN];
static struct ag_loaded_notes notes = {.words = known, .n = KNOWN};

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

/* --- the loader --- */

/* Is it loaded for good? What the program was started with is first in the list, which nothing is
 * taken out of up to there; the loader, which libc needs, comes after most of that and is found by
 * a function of its. */
static bool stays(const struct link_map *map)
{
    static _Atomic(const struct link_map *) known_loader; /* which is never closed */
    const struct link_map *loader = atomic_load_explicit(&known_loader, memory_order_acquire);
    const struct link_map *at = _r_debug.r_map;

    if (!loader) {
        loader = ag_loaded_map(ag_real_dlsym(RTLD_DEFAULT, "__tls_get_addr"));
        atomic_store_explicit(&known_loader, loader, memory_order_release);
    }
    while (at && at != loader && at != map)
        at = at->l_next;
    return loader && at == map;
}

static bool ends_with_name(const struct link_map *map, const struct module *module)
{
    size_t length = strlen(map->l_name);
    const char *end = map->l_name + length;

    return length >= module->length &&
           !memcmp(end - module->length, module->name, module->length) &&
           (length == module->length || *(end - module->length - 1) == '/');
}

/* Does what is known of the address still hold? */
static bool still_holds(const void *address, uint64_t found, const _Atomic uint64_t *entry)
{
    uint64_t place = found >> KIND_BITS & ((1u << PLACE_BITS) - 1);
    const struct link_map *map;

    if (found & STAYS)
        return true;
    if (!ag_loaded_is_lock_free())
        return ag_loaded_note_holds(&notes, entry, found);
    map = ag_loaded_map(address);
    if (!map)
        return !place;
    return place &&
           ends_with_name(map, atomic_load_explicit(&modules[place - 1], memory_order_acquire));
}

/* The file name of the module; false when the address is in none. */
static bool module_name(const struct link_map *map, char name[NAME_MAX + 1])
{
    const char *path, *slash;
    size_t length;

    if (!map)
        return false;
    path = *map->l_name ? map->l_name : program_invocation_short_name;
    slash = strrchr(path, '/');
    path = slash ? slash + 1 : path;
    length = strnlen(path, NAME_MAX);
    memcpy(name, path, length);
    name[length] = '\0';
    return length > 0;
}

void ag_caller_begin_child(void)
{
    ag_arena_begin_child(&arena);
}

/* The place of the module of that name plus 1, entered where it is new; 0 when there is no room. */
static uint64_t module_place(const char *name)
{
    struct module *own = NULL;

    for (uint64_t i = 0; i < MOST_MODULES; i++) {
        struct module *there = atomic_load_explicit(&modules[i], memory_order_acquire);

        if (!there && !own) {
            own = ag_arena_get(&arena);
            if (!own)
                return 0;
            own->length = strlen(name);
            memcpy(own->name, name, own->length + 1);
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

static uint64_t look_up_caller(const void *address)
{
    const struct link_map *map = ag_loaded_map(address);
    uint64_t place = 0, kind = AG_CALLER_PROGRAM;
    char name[NAME_MAX + 1];

    if (module_name(map, name)) {
        place = module_place(name);
        kind = place ? atomic_load(&modules[place - 1])->caller : classify(name);
        kind |= stays(map) ? STAYS : 0;
    }
    return place << KIND_BITS | kind;
}

/* Place and kind for the address, from the table where it stands there. */
static uint64_t find_caller(const void *address)
{
    uint64_t value = (uint64_t)(uintptr_t)address;
    _Atomic uint64_t *entry = &known[ag_hash_spread(value) >> 55];
    uint64_t found = atomic_load_explicit(entry, memory_order_acquire); /* and its module */

    if (value >> ADDRESS_BITS)
        return look_up_caller(address);
    if (found >> (KIND_BITS + PLACE_BITS) != value || !found ||
        !still_holds(address, found, entry)) {
        found = value << (KIND_BITS + PLACE_BITS) | look_up_caller(address);
        atomic_store_explicit(entry, found, memory_order_release);
    }
    return found & ((1u << (KIND_BITS + PLACE_BITS)) - 1);
}

enum ag_caller ag_caller_of(const void *address)
{
    return (enum ag_caller)(find_caller(address) & (STAYS - 1));
}

_Thread_local const void *ag_caller_harmless;

bool ag_caller_look_exporter(const void *address)
{
    uint64_t found = find_caller(address) & ((1u << KIND_BITS) - 1);

    if ((found & (STAYS - 1)) == AG_CALLER_EXPORTER)
        return true;
    if (found & STAYS)
        ag_caller_harmless = address;
    return false;
}

void ag_caller_prepare(const void *address)
{
    ag_pages_ready(known, sizeof(known));
    (void)ag_caller_of(address);
}

const char *ag_caller_module(const void *address)
{
    uint64_t place = find_caller(address) >> KIND_BITS;

    return place ? atomic_load_explicit(&modules[place - 1], memory_order_acquire)->name : NULL;
}

void ag_caller_text(const void *address, char *text, size_t size)
{
    const struct link_map *map = ag_loaded_map(address);
    char name[NAME_MAX + 1];

    if (module_name(map, name))
        snprintf(text, size, "%.80s+0x%lx", name, (unsigned long)address - map->l_addr);
    else
        snprintf(text, size, "%p", address);
}
