/* Reads the relocations of loaded libraries to find those that bypass us: see bypass.h.
 *
 * A library's relocation table names each symbol that it is bound to, and the place where the
 * loader has put the address. If the place of a hooked symbol holds an address inside libcuda, the
 * library calls the driver itself. If that of `dlsym` holds libc's, we do not see the library's
 * look-ups, which matters for CUDA only if the library also names the driver, as every CUDA runtime
 * does.
 *
 * Delicate, because it reads other people's tables. The rules of this file:
 * - nothing outside a loaded, readable segment of the object is read, whatever its tables say;
 * - within ag_loaded_each(), which holds a lock of the loader, no other function of the loader is
 *   called;
 * - the number of relocations looked at is bounded, and libraries that import nothing of interest
 *   are left out: reading all of a large library's relocations takes milliseconds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/resolve/bypass.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/loaded.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/symbols.h"
#include "interpose/core/report/stats.h"

#define MOST_RELOCATIONS 4000000u
#define MOST_BYTES       (256u << 20) /* searched for the driver's name */
#define N_RANGES         16u
#define N_SEEN           4096u
#define N_UNKNOWN        16u

#ifdef __x86_64__
#define IS_FUNCTION_ADDRESS(type) \
    ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#else
#define IS_FUNCTION_ADDRESS(type) \
    ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#endif

struct range {
    uintptr_t first, end;
};

/* Where the driver, libc, and we are. */
struct places {
    struct range driver[N_RANGES], libc[N_RANGES];
    unsigned n_driver, n_libc;
};

struct search {
    struct places places;
    unsigned n_left; /* relocations */
};

/* One loaded object's tables. */
struct object {
    const struct dl_phdr_info *info;
    const ElfW(Sym) * symbols;
    const char *strings;
    size_t strings_bytes;
    const ElfW(Rela) * tables[2]; /* of functions, of the rest */
    size_t n[2];
    size_t n_relative;    /* of the rest, those that name no symbol: they come first */
    const uint32_t *hash; /* DT_GNU_HASH: four words, and what we do not read */
};

static bool is_in(const struct range *ranges, unsigned n, uintptr_t address)
{
    for (unsigned i = 0; i < n; i++) {
        if (address >= ranges[i].first && address < ranges[i].end)
            return true;
    }
    return false;
}

/* --- where things are --- */

static void note_range(const struct dl_phdr_info *info, struct range *ranges, unsigned *n)
{
    for (unsigned i = 0; i < info->dlpi_phnum && *n < N_RANGES; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X))
            ranges[(*n)++] = (struct range){info->dlpi_addr + segment->p_vaddr,
                                            info->dlpi_addr + segment->p_vaddr + segment->p_memsz};
    }
}

static int note_places(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    const char *name = ag_loaded_file_name(info);

    (void)size;
    if (!strncmp(name, "libcuda.so", strlen("libcuda.so")))
        note_range(info, search->places.driver, &search->places.n_driver);
    else if (!strncmp(name, "libc.so", strlen("libc.so")) ||
             !strncmp(name, "libdl.so", strlen("libdl.so")))
        note_range(info, search->places.libc, &search->places.n_libc);
    return 0;
}

/* --- one object --- */

/* Do `bytes` at `address` lie in a loaded segment that may be read? */
static bool is_loaded(const struct dl_phdr_info *info, uintptr_t address, size_t bytes)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + segment->p_vaddr;

        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_R) && address >= first &&
            address - first <= segment->p_memsz && bytes <= segment->p_memsz - (address - first))
            return true;
    }
    return false;
}

/* The loader writes absolute addresses over those of most dynamic sections, but not of all. */
static uintptr_t absolute(const struct dl_phdr_info *info, uintptr_t address)
{
    return address < info->dlpi_addr ? address + info->dlpi_addr : address;
}

static const ElfW(Dyn) * dynamic_section(const struct dl_phdr_info *info, size_t *ret_n)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t address = info->dlpi_addr + segment->p_vaddr;

        if (segment->p_type != PT_DYNAMIC)
            continue;
        *ret_n = segment->p_memsz / sizeof(ElfW(Dyn));
        return address % sizeof(void *) || !is_loaded(info, address, segment->p_memsz)
                   ? NULL
                   : (const ElfW(Dyn) *)address;
    }
    return NULL;
}

static void read_dynamic_entry(struct object *object, const ElfW(Dyn) * entry)
{
    uintptr_t address = absolute(object->info, entry->d_un.d_ptr);

    switch (entry->d_tag) {
    case DT_SYMTAB:
        object->symbols = (const ElfW(Sym) *)address;
        break;
    case DT_STRTAB:
        object->strings = (const char *)address;
        break;
    case DT_STRSZ:
        object->strings_bytes = entry->d_un.d_val;
        break;
    case DT_JMPREL:
        object->tables[0] = (const ElfW(Rela) *)address;
        break;
    case DT_PLTRELSZ:
        object->n[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
    case DT_RELA:
        object->tables[1] = (const ElfW(Rela) *)address;
        break;
    case DT_RELASZ:
        object->n[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
    case DT_RELACOUNT:
        object->n_relative = entry->d_un.d_val;
        break;
    case DT_GNU_HASH:
        object->hash = (const uint32_t *)address;
        break;
    default:
        break;
    }
}

/* False when the object has no tables that can be read. */
static bool read_object(const struct dl_phdr_info *info, struct object *object)
{
    size_t n;
    const ElfW(Dyn) *dynamic = dynamic_section(info, &n);

    *object = (struct object){.info = info};
    for (size_t i = 0; dynamic && i < n && dynamic[i].d_tag != DT_NULL; i++)
        read_dynamic_entry(object, &dynamic[i]);
    for (unsigned i = 0; i < 2; i++) {
        uintptr_t address = (uintptr_t)object->tables[i];

        if (!address || address % sizeof(void *) ||
            !is_loaded(info, address, object->n[i] * sizeof(ElfW(Rela))))
            object->n[i] = 0;
    }
    if (object->n_relative <= object->n[1]) {
        object->tables[1] += object->n_relative;
        object->n[1] -= object->n_relative;
    }
    return (object->n[0] || object->n[1]) && object->symbols && object->strings_bytes &&
           !((uintptr_t)object->symbols % sizeof(void *)) &&
           is_loaded(info, (uintptr_t)object->strings, object->strings_bytes) &&
           !object->strings[object->strings_bytes - 1];
}

/* The name of the n-th symbol, or "". */
static const char *nth_symbol_name(const struct object *object, size_t n)
{
    const ElfW(Sym) *symbol = object->symbols + n;

    if (!n || !is_loaded(object->info, (uintptr_t)symbol, sizeof(*symbol)) ||
        symbol->st_name >= object->strings_bytes)
        return "";
    return object->strings + symbol->st_name;
}

/* The symbol that a relocation names, or "". */
static const char *symbol_name(const struct object *object, const ElfW(Rela) * relocation)
{
    return nth_symbol_name(object, ELF64_R_SYM(relocation->r_info));
}

/* Symbols up to that number are imported; 0 when nobody says. Those that the object exports itself
 * are hashed, and come after the others. */
static size_t n_imported(const struct object *object)
{
    enum { N_BUCKETS, FIRST_HASHED, BLOOM_WORDS, BLOOM_SHIFT, N_WORDS };

    if (!object->hash || (uintptr_t)object->hash % sizeof(uint32_t) ||
        !is_loaded(object->info, (uintptr_t)object->hash, N_WORDS * sizeof(uint32_t)) ||
        object->hash[FIRST_HASHED] <=
            1) /* as where nothing is exported, which some linkers say so */
        return 0;
    return object->hash[FIRST_HASHED];
}

/* Does the object name the driver's functions, or dlsym? */
static bool may_concern(const struct object *object)
{
    size_t n = n_imported(object);

    for (size_t i = 1; i < n; i++) {
        const char *name = nth_symbol_name(object, i);

        if ((name[0] == 'c' && name[1] == 'u') || !strcmp(name, "dlsym"))
            return true;
    }
    return !n;
}

/* The address that the loader put into the relocation's place; 0 when the place is none of the
 * object's. */
static uintptr_t bound_to(const struct object *object, const ElfW(Rela) * relocation)
{
    uintptr_t place = object->info->dlpi_addr + relocation->r_offset;

    if (place % sizeof(void *) || !is_loaded(object->info, place, sizeof(void *)))
        return 0;
    return *(const uintptr_t *)place;
}

/* Reads other people's constant data whole, the guard bytes between variables that a sanitizer has
 * put there too. */
__attribute__((no_sanitize("address", "thread"))) static bool bytes_contain(const char *bytes,
                                                                            size_t n,
                                                                            const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i + length <= n; i++) {
        size_t same = 0;

        while (same < length && bytes[i + same] == text[same])
            same++;
        if (same == length)
            return true;
    }
    return false;
}

/* Does the object's constant data name the driver? */
static bool names_driver(const struct dl_phdr_info *info)
{
    size_t left = MOST_BYTES;

    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        size_t n = segment->p_filesz < left ? segment->p_filesz : left;

        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_R) || (segment->p_flags & PF_W))
            continue;
        if (bytes_contain((const char *)(info->dlpi_addr + segment->p_vaddr), n, "libcuda.so"))
            return true;
        left -= n;
    }
    return false;
}

enum finding { NOTHING, ASKS_LIBC, CALLS_DRIVER };

static enum finding judge_relocation(const struct search *search, const struct object *object,
                                     const ElfW(Rela) * relocation)
{
    const char *name = symbol_name(object, relocation);
    bool is_dlsym = !strcmp(name, "dlsym");
    uintptr_t address;

    if (!is_dlsym && (name[0] != 'c' || name[1] != 'u' || ag_hook_by_name(name) == AG_N_HOOKS))
        return NOTHING;
    address = bound_to(object, relocation);
    if (is_dlsym)
        return is_in(search->places.libc, search->places.n_libc, address) ? ASKS_LIBC : NOTHING;
    return is_in(search->places.driver, search->places.n_driver, address) ? CALLS_DRIVER : NOTHING;
}

static enum finding judge_object(struct search *search, const struct object *object)
{
    enum finding found = NOTHING;

    for (unsigned table = 0; table < 2; table++) {
        for (size_t i = 0; i < object->n[table] && search->n_left; i++) {
            const ElfW(Rela) *relocation = &object->tables[table][i];
            enum finding here;

            if (!IS_FUNCTION_ADDRESS(ELF64_R_TYPE(relocation->r_info)))
                continue;
            search->n_left--;
            here = judge_relocation(search, object, relocation);
            if (here == CALLS_DRIVER)
                return here;
            found = here == NOTHING ? found : here;
        }
    }
    return found;
}

/* The load is relaxed: one thread looks at a time, as the report is made. */
static void keep_name(const char *name)
{
    uint32_t n = atomic_load_explicit(&ag_stats.n_bypassing, memory_order_relaxed);

    for (uint32_t i = 0; i < n && i < AG_STATS_BYPASSING; i++) {
        if (!strncmp(ag_stats.bypassing[i], name, sizeof(ag_stats.bypassing[i]) - 1))
            return;
    }
    if (n < AG_STATS_BYPASSING)
        snprintf(ag_stats.bypassing[n], sizeof(ag_stats.bypassing[n]), "%s", name);
    atomic_store_explicit(&ag_stats.n_bypassing, n + 1, memory_order_release);
}

/* The driver and libc are bound to themselves, and the driver opens parts of itself. */
static bool is_no_concern(const char *name)
{
    static const char *const beginnings[] = {"libcuda.so", "libcudadebugger.so", "libnvidia-",
                                             "libc.so"};

    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
            return true;
    }
    return false;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    const char *name = ag_loaded_file_name(info);
    struct object object;
    enum finding found;

    (void)size;
    if (is_no_concern(name) || is_loaded(info, (uintptr_t)&ag_stats, 1) ||
        !read_object(info, &object) || !may_concern(&object))
        return 0;
    found = judge_object(search, &object);
    if (found == CALLS_DRIVER || (found == ASKS_LIBC && names_driver(info)))
        keep_name(*name ? name : "the program");
    return 0;
}

void ag_bypass_look(void)
{
    struct search search = {.n_left = MOST_RELOCATIONS};

    (void)ag_loaded_each(note_places, &search);
    if (search.places.n_driver)
        (void)ag_loaded_each(look_into, &search);
}

/* --- while the program runs, for replay --- */

/* What earlier looks found. One thread at a time has it. */
static struct {
    atomic_flag busy;
    unsigned long long adds, subs; /* libraries that came and went so far */
    uintptr_t seen[N_SEEN];        /* where those lie that need no other look */
    unsigned n_seen;
    bool incomplete; /* in one of them something is only bound when it is first called */
} known = {.busy = ATOMIC_FLAG_INIT};

/* One look. */
struct look {
    struct search search;
    enum ag_bypass_verdict (*judge)(const char *symbol);
    bool any;
    bool pending; /* of this library, something is only bound when it is first called */
    struct ag_bypass_found found;
    struct ag_bypass_found unknown[N_UNKNOWN]; /* if the driver exports them */
    unsigned n_unknown;
};

static bool was_seen(const struct dl_phdr_info *info)
{
    for (unsigned i = 0; i < known.n_seen; i++) {
        if (known.seen[i] == info->dlpi_addr)
            return true;
    }
    return false;
}

static void note_seen(const struct dl_phdr_info *info)
{
    if (known.n_seen < N_SEEN)
        known.seen[known.n_seen++] = info->dlpi_addr;
}

static void fill_found(struct ag_bypass_found *found, const char *file, const char *symbol)
{
    snprintf(found->file, sizeof(found->file), "%s", *file ? file : "the program");
    snprintf(found->symbol, sizeof(found->symbol), "%s", symbol);
}

/* True when no more need be looked at. */
static bool judge_address(struct look *look, const struct object *object, const char *name,
                          uintptr_t address)
{
    const char *file = ag_loaded_file_name(object->info);
    enum ag_bypass_verdict verdict;

    if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z')
        return false;
    verdict = look->judge(name);
    if (verdict == AG_BYPASS_HARMLESS)
        return false;
    look->any = is_in(look->search.places.driver, look->search.places.n_driver, address);
    if (look->any)
        fill_found(&look->found, file, name);
    else if (is_loaded(object->info, address, 1)) {
        look->pending = true; /* until it is first called */
        if (verdict == AG_BYPASS_NAMED && look->n_unknown < N_UNKNOWN)
            fill_found(&look->unknown[look->n_unknown++], file, name);
    }
    return look->any;
}

static int find_new(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    struct object object;
    bool asks_libc = false;

    (void)size;
    if (is_no_concern(ag_loaded_file_name(info)) || is_loaded(info, (uintptr_t)&ag_stats, 1) ||
        was_seen(info) || !read_object(info, &object))
        return 0;
    if (!may_concern(&object)) {
        note_seen(info);
        return 0;
    }
    look->pending = false;
    for (unsigned table = 0; table < 2; table++) {
        for (size_t i = 0; i < object.n[table]; i++) {
            const ElfW(Rela) *relocation = &object.tables[table][i];
            const char *name;

            if (!IS_FUNCTION_ADDRESS(ELF64_R_TYPE(relocation->r_info)))
                continue;
            name = symbol_name(&object, relocation);
            if (judge_address(look, &object, name, bound_to(&object, relocation)))
                return 1;
            asks_libc =
                asks_libc || (!strcmp(name, "dlsym") &&
                              judge_relocation(&look->search, &object, relocation) == ASKS_LIBC);
        }
    }
    look->any = asks_libc && names_driver(info);
    if (look->any)
        fill_found(&look->found, ag_loaded_file_name(info), "dlsym");
    if (!look->pending)
        note_seen(info);
    known.incomplete = known.incomplete || look->pending;
    return look->any;
}

/* Has any library come or gone? */
static int note_if_changed(struct dl_phdr_info *info, size_t size, void *data)
{
    bool *changed = data;

    (void)size;
    *changed = known.incomplete || info->dlpi_adds != known.adds || info->dlpi_subs != known.subs;
    if (info->dlpi_subs != known.subs)
        known.n_seen = 0; /* others may lie where those did */
    known.adds = info->dlpi_adds;
    known.subs = info->dlpi_subs;
    return 1;
}

/* Looks at the libraries that are new, and at those that were not completely bound. */
static void look_at_new(struct look *look)
{
    known.incomplete = false;
    (void)ag_loaded_each(note_places, &look->search);
    (void)ag_loaded_each(find_new, look);
    for (unsigned i = 0; i < look->n_unknown && !look->any; i++) {
        look->any = ag_driver_symbol(look->unknown[i].symbol) != NULL;
        look->found = look->unknown[i];
    }
}

bool ag_bypass_find(enum ag_bypass_verdict (*judge)(const char *symbol),
                    struct ag_bypass_found *ret_found)
{
    struct look look;
    bool changed = false;

    if (atomic_flag_test_and_set_explicit(&known.busy, memory_order_acquire))
        return false; /* the thread that looks now tells */
    (void)ag_loaded_each(note_if_changed, &changed);
    if (changed) {
        look = (struct look){.judge = judge};
        look_at_new(&look);
    }
    atomic_flag_clear_explicit(&known.busy, memory_order_release);
    if (!changed || !look.any)
        return false;
    *ret_found = look.found;
    return true;
}
