/* liballograft-audit.so, for `allograft run --audit`: redirects bindings that bypass us to our
 * functions.
 *
 * A library opened with RTLD_DEEPBIND is bound to its own dependencies before anything that was
 * preloaded. The loader asks a library named in LD_AUDIT about every binding, these too, and uses
 * the address that it answers. For libc's `dlsym`, and for driver symbols that liballograft.so
 * exports, the answer is the address in liballograft.so; so it is for look-ups by libc's dlsym.
 *
 * Delicate, because such a library lives in a namespace of its own, with a libc of its own, and is
 * called in the middle of the loader's work, under its lock. The rules of this file:
 * - it allocates nothing, keeps nothing in thread-local storage, and calls no libc function but
 *   string comparisons;
 * - it does not open liballograft.so, which would be a second one: it finds the symbols of the
 *   preloaded one in that file's hash table;
 * - it declines to work before glibc 2.35, whose loader did not report bindings made at load
 *   time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* liballograft.so of the program's namespace, once it is there. */
static struct {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH */
} ours;

static bool name_begins_with(const struct link_map *map, const char *beginning)
{
    const char *slash = strrchr(map->l_name, '/');

    return !strncmp(slash ? slash + 1 : map->l_name, beginning, strlen(beginning));
}

static void read_tables(const struct link_map *map)
{
    ours.base = map->l_addr;
    for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        uintptr_t address = entry->d_un.d_ptr;

        if (address < ours.base) /* the loader makes them absolute, on most machines */
            address += ours.base;
        if (entry->d_tag == DT_SYMTAB)
            ours.symbols = (const ElfW(Sym) *)address;
        else if (entry->d_tag == DT_STRTAB)
            ours.strings = (const char *)address;
        else if (entry->d_tag == DT_GNU_HASH)
            ours.hash = (const uint32_t *)address;
    }
}

/* The address of what liballograft.so exports as `name`, or 0. */
static uintptr_t find_our_export(const char *name)
{
    uint32_t hash = 5381, n_buckets, first, n_bloom, i;
    const uint32_t *buckets, *chain;

    if (!ours.symbols || !ours.strings || !ours.hash)
        return 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = hash * 33 + *c;
    n_buckets = ours.hash[0];
    first = ours.hash[1];
    n_bloom = ours.hash[2];
    buckets = ours.hash + 4 + n_bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    chain = buckets + n_buckets;
    i = n_buckets ? buckets[hash % n_buckets] : 0;
    if (i < first)
        return 0;
    for (;; i++) {
        if ((chain[i - first] | 1) == (hash | 1) &&
            !strcmp(ours.strings + ours.symbols[i].st_name, name))
            return ours.base + ours.symbols[i].st_value;
        if (chain[i - first] & 1)
            return 0;
    }
}

/* "2.35" or later? */
static bool tells_all_bindings(void)
{
    const char *version = gnu_get_libc_version(), *dot = strchr(version, '.');
    unsigned minor = 0;

    for (const char *c = dot ? dot + 1 : ""; *c >= '0' && *c <= '9'; c++)
        minor = 10 * minor + (unsigned)(*c - '0');
    return version[0] != '2' || version[1] != '.' || minor >= 35;
}

/* What a loaded object is to us: its cookie. */
enum kind { ANY_OTHER, OURS, BOUND_TO };

EXPORT unsigned la_version(unsigned version)
{
    if (!tells_all_bindings())
        return 0; /* not wanted: the loader forgets this library */
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

EXPORT unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
    *cookie = ANY_OTHER;
    if (namespace != LM_ID_BASE)
        return 0;
    if (name_begins_with(map, "liballograft.so")) {
        *cookie = OURS;
        if (!ours.base)
            read_tables(map);
        return 0;
    }
    if (!name_begins_with(map, "libcuda.so") && !name_begins_with(map, "libc.so") &&
        !name_begins_with(map, "libdl.so"))
        return LA_FLG_BINDFROM;
    *cookie = BOUND_TO;
    return LA_FLG_BINDTO;
}

/* The flags of la_objopen say who is asked for bindings at load time; of a look-up by dlsym the
 * loader tells if either side has one of them. The parameters are as link.h has them. */
/* cppcheck-suppress constParameter */
EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, /* NOLINT */
                              /* cppcheck-suppress constParameter */
                              uintptr_t *to, unsigned *flags, const char *name) /* NOLINT */
{
    uintptr_t address = 0;

    (void)index;
    (void)flags;
    if (*from != ANY_OTHER || *to != BOUND_TO)
        return symbol->st_value;
    if (!strcmp(name, "dlsym") ||
        (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z'))
        address = find_our_export(name);
    return address ? address : symbol->st_value;
}
