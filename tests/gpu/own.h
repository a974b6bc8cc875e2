/* A library's own functions, past whatever is preloaded: its symbol table, read in memory. */
#ifndef ALLOGRAFT_TESTS_GPU_OWN_H
#define ALLOGRAFT_TESTS_GPU_OWN_H

#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

/* The tables of a loaded library; those it lacks are NULL. */
struct tables {
    const ElfW(Sym) * symbols;
    const char *texts;
    const uint32_t *gnu_hash, *hash;
};

static inline struct tables tables_of(const struct link_map *map)
{
    struct tables t = {};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            t.symbols = (const ElfW(Sym) *)at;
        else if (entry->d_tag == DT_STRTAB)
            t.texts = (const char *)at;
        else if (entry->d_tag == DT_GNU_HASH)
            t.gnu_hash = (const uint32_t *)at;
        else if (entry->d_tag == DT_HASH)
            t.hash = (const uint32_t *)at;
    }
    return t;
}

/* How many symbols a library has: the GNU table tells of the last one, by the end of its chain. */
static inline uint32_t n_symbols(struct tables t)
{
    if (t.hash)
        return t.hash[1];
    if (!t.gnu_hash)
        return 0;
    const uint32_t n_buckets = t.gnu_hash[0], first = t.gnu_hash[1],
                   *buckets =
                       t.gnu_hash + 4 + t.gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t)),
                   *chains = buckets + n_buckets;
    uint32_t last = *std::max_element(buckets, chains);
    if (last < first)
        return 0;
    while (!(chains[last - first] & 1))
        last++;
    return last + 1;
}

/* Where a library has a function, whatever is preloaded and whatever look-ups answer. NULL if it
 * has none. */
static inline void *own_function(const char *library, const char *name)
{
    const struct link_map *map = (const struct link_map *)dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (!map)
        return NULL;
    struct tables t = tables_of(map);
    for (uint32_t i = 0, n = n_symbols(t); i < n; i++)
        if (t.symbols[i].st_value && !strcmp(name, t.texts + t.symbols[i].st_name))
            return (void *)(map->l_addr + t.symbols[i].st_value);
    return NULL;
}

#endif
