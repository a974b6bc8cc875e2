/* What is loaded where: see loaded.h.
 *
 * What is read here was mapped by the loader: the first page of a file, its notes, its dynamic
 * section. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/loaded.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOKING_TIMEOUT_S 1

/* The beginning of glibc's struct dl_find_object, which older headers do not have, with room for
 * the rest. */
struct object {
    unsigned long long flags;
    void *begins, *ends;
    struct link_map *map;
    void *rest[16];
};

typedef int find_function(const void *address, struct object *ret_object);

#define NOT_ASKED 0u
#define HAS_NONE  1u
static _Atomic uintptr_t finder = NOT_ASKED; /* else it is the function */

/* Relaxed: every thread finds the same function, which is libc's. */
static find_function *find_object(void)
{
    uintptr_t found = atomic_load_explicit(&finder, memory_order_relaxed);

    if (found == NOT_ASKED) {
        found = (uintptr_t)dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35");
        found = found ? found : HAS_NONE;
        atomic_store_explicit(&finder, found, memory_order_relaxed);
    }
    return found == HAS_NONE ? NULL : (find_function *)found;
}

void ag_loaded_without_find_object(void)
{
    atomic_store_explicit(&finder, HAS_NONE, memory_order_relaxed);
}

bool ag_loaded_is_lock_free(void)
{
    return find_object() != NULL;
}

bool ag_loaded_find(const void *address, struct ag_loaded *ret)
{
    find_function *object_at = find_object();
    struct link_map *map = NULL;
    struct object object;
    Dl_info info;

    if (object_at) {
        if (object_at(address, &object))
            return false;
        *ret = (struct ag_loaded){object.map, object.begins};
        return true;
    }
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    *ret = (struct ag_loaded){map, info.dli_fbase};
    return true;
}

const struct link_map *ag_loaded_map(const void *address)
{
    struct ag_loaded loaded;

    return ag_loaded_find(address, &loaded) ? loaded.map : NULL;
}

/* A signal handler may look while its thread does. */
static pthread_mutex_t looking = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static _Thread_local bool fork_has_it;

/* Locks `looking`, but does not wait for ever: who has it may wait for the loader's lock, which
 * this thread has while it looks around by itself and calls the driver. */
static bool lock_looking(void)
{
    struct timespec until;

    if (!pthread_mutex_trylock(&looking))
        return true;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOOKING_TIMEOUT_S;
    return !pthread_mutex_timedlock(&looking, &until);
}

int ag_loaded_each(ag_loaded_look *look, void *data)
{
    bool has_it = lock_looking();
    int result = dl_iterate_phdr(look, data);

    if (has_it)
        pthread_mutex_unlock(&looking);
    return result;
}

void ag_loaded_before_fork(const struct timespec *until)
{
    fork_has_it = !pthread_mutex_timedlock(&looking, until);
}

void ag_loaded_forked(void)
{
    if (fork_has_it)
        pthread_mutex_unlock(&looking);
    fork_has_it = false;
}

_Atomic uint32_t ag_loaded_asked, ag_loaded_answered;

/* A thread that does not exist here may have it. What was noted of libraries was the parent's. */
void ag_loaded_begin_child(void)
{
    ag_loaded_ask();
    looking = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    fork_has_it = false;
}

static int read_changes(struct dl_phdr_info *info, size_t size, void *changes)
{
    (void)size;
    *(uint64_t *)changes = info->dlpi_adds + info->dlpi_subs;
    return 1; /* the count is the same for all */
}

uint64_t ag_loaded_changes(void)
{
    uint64_t now = 0;

    (void)ag_loaded_each(read_changes, &now);
    return now;
}

/* The relaxed stores come before the count that tells of them. */
static bool forget_if_changed(struct ag_loaded_notes *notes)
{
    uint64_t now = ag_loaded_changes();

    if (now == atomic_load_explicit(&notes->changes, memory_order_acquire))
        return false;
    for (size_t i = 0; i < notes->n; i++)
        atomic_store_explicit(&notes->words[i], 0, memory_order_relaxed);
    atomic_store_explicit(&notes->changes, now, memory_order_release);
    return true;
}

bool ag_loaded_note_holds(struct ag_loaded_notes *notes, const _Atomic uint64_t *word,
                          uint64_t found)
{
    /* Read again, relaxed: another thread may have seen the change first, and forgotten. */
    return !forget_if_changed(notes) && atomic_load_explicit(word, memory_order_relaxed) == found;
}

/* Its program headers; 0 where they are not in the first page. */
static unsigned headers_of(const struct ag_loaded *loaded, const ElfW(Phdr) * *ret)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)(const void *)loaded->base;

    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff + (uint64_t)header->e_phnum * sizeof(**ret) > 4096)
        return 0;
    *ret = (const ElfW(Phdr) *)(const void *)(loaded->base + header->e_phoff);
    return header->e_phnum;
}

const ElfW(Phdr) * ag_loaded_header(const struct ag_loaded *loaded, uint32_t type)
{
    const ElfW(Phdr) *headers = NULL;
    unsigned n = headers_of(loaded, &headers);

    for (unsigned i = 0; i < n; i++) {
        if (headers[i].p_type == type)
            return &headers[i];
    }
    return NULL;
}

size_t ag_loaded_path(const struct ag_loaded *loaded, char *path, size_t capacity)
{
    const char *name = loaded->map->l_name;
    size_t length;

    if (!*name) { /* the program itself */
        ssize_t n = readlink("/proc/self/exe", path, capacity - 1);

        if (n > 0) {
            path[n] = '\0';
            return (size_t)n;
        }
        name = program_invocation_name;
    }
    length = strnlen(name, capacity - 1);
    memcpy(path, name, length);
    path[length] = '\0';
    return length;
}

/* The build-id among the notes from `at` to `end`. */
static size_t build_id_in_notes(const char *at, const char *end, char *digits, size_t capacity)
{
    while (end - at > (ptrdiff_t)sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
        const unsigned char *id = (const unsigned char *)at + sizeof(*note) + 4;
        size_t n = note->n_descsz;

        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && 2 * n < capacity) {
            for (size_t i = 0; i < n; i++)
                snprintf(digits + 2 * i, 3, "%02x", id[i]);
            return 2 * n;
        }
        at += sizeof(*note) + ((note->n_namesz + 3) & ~3u) + ((n + 3) & ~(size_t)3);
    }
    return 0;
}

size_t ag_loaded_build_id(const struct ag_loaded *loaded, char *digits, size_t capacity)
{
    const ElfW(Phdr) *headers = NULL;
    unsigned n = headers_of(loaded, &headers);
    size_t length = 0;

    *digits = '\0';
    for (unsigned i = 0; i < n && !length; i++) {
        const char *notes = (const char *)(uintptr_t)(loaded->map->l_addr + headers[i].p_vaddr);

        if (headers[i].p_type == PT_NOTE)
            length = build_id_in_notes(notes, notes + headers[i].p_memsz, digits, capacity);
    }
    return length;
}

/* How many dynamic symbols there are, by the table of hashes that every library has: the end of the
 * last chain. */
static uint32_t count_symbols(const uint32_t *table)
{
    uint32_t n_buckets = table[0], first = table[1], bloom_words = table[2], last = 0;
    const uint32_t *buckets = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chains = buckets + n_buckets;

    for (uint32_t i = 0; i < n_buckets; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (last < first)
        return 0;
    while (!(chains[last - first] & 1))
        last++;
    return last + 1;
}

static struct ag_exports exports_in(const ElfW(Dyn) * row, uintptr_t load)
{
    struct ag_exports exports = {load, NULL, NULL, NULL};

    for (; row && row->d_tag != DT_NULL; row++) {
        const void *at = (const void *)row->d_un.d_ptr;

        if (row->d_un.d_ptr < load) /* the kernel's library: nobody has relocated it */
            continue;
        if (row->d_tag == DT_SYMTAB)
            exports.symbols = at;
        else if (row->d_tag == DT_STRTAB)
            exports.names = at;
        else if (row->d_tag == DT_GNU_HASH)
            exports.hashes = at;
    }
    if (!exports.symbols || !exports.names)
        exports.hashes = NULL;
    return exports;
}

const char *ag_loaded_function(const struct ag_loaded *loaded, const void *address)
{
    struct ag_exports exports = exports_in(loaded->map->l_ld, loaded->map->l_addr);
    uintptr_t offset = (uintptr_t)address - loaded->map->l_addr;
    uint32_t n = exports.hashes ? count_symbols(exports.hashes) : 0;

    for (uint32_t i = 0; i < n; i++) {
        const ElfW(Sym) *symbol = &exports.symbols[i];

        if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
            offset >= symbol->st_value && offset - symbol->st_value < symbol->st_size)
            return exports.names + symbol->st_name;
    }
    return NULL;
}

/* The hash of a name, as the linker computes it. */
static uint32_t hash_symbol(const char *name)
{
    uint32_t hash = 5381;

    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

void *ag_exports_find(const struct ag_exports *exports, const char *name, size_t *ret_bytes)
{
    const uint32_t *table = exports->hashes, *buckets, *chains;
    uint32_t hash = hash_symbol(name), at;

    if (!table || !table[0])
        return NULL;
    buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    chains = buckets + table[0];
    at = buckets[hash % table[0]];
    for (; at >= table[1]; at++) {
        const ElfW(Sym) *symbol = &exports->symbols[at];

        if ((chains[at - table[1]] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            !strcmp(exports->names + symbol->st_name, name)) {
            *ret_bytes = symbol->st_size;
            return (void *)(exports->load + symbol->st_value);
        }
        if (chains[at - table[1]] & 1)
            break;
    }
    return NULL;
}

enum ag_exported ag_loaded_exports(const ElfW(Dyn) * dynamic, uintptr_t load, const char *name)
{
    struct ag_exports exports = exports_in(dynamic, load);
    size_t bytes;

    if (!exports.hashes)
        return AG_EXPORTS_UNKNOWN;
    return ag_exports_find(&exports, name, &bytes) ? AG_EXPORTED : AG_NOT_EXPORTED;
}

const char *ag_loaded_file_name(const struct dl_phdr_info *info)
{
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    return slash ? slash + 1 : info->dlpi_name ? info->dlpi_name : "";
}

const ElfW(Dyn) * ag_loaded_dynamic(const struct dl_phdr_info *info)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    return NULL;
}

void ag_needed_begin(struct ag_needed *needed, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = ag_loaded_dynamic(info);

    *needed = (struct ag_needed){0};
    for (const ElfW(Dyn) *row = dynamic; row && row->d_tag != DT_NULL; row++) {
        if (row->d_tag == DT_STRTAB && row->d_un.d_ptr >= info->dlpi_addr)
            needed->names = (const char *)row->d_un.d_ptr;
    }
    needed->next = needed->names ? dynamic : NULL;
}

const char *ag_needed_next(struct ag_needed *needed)
{
    while (needed->next && needed->next->d_tag != DT_NULL) {
        const ElfW(Dyn) *row = needed->next++;

        if (row->d_tag == DT_NEEDED)
            return needed->names + row->d_un.d_val;
    }
    return NULL;
}

struct search {
    const char *name;
    struct ag_exports found;
};

static int search_exports(struct dl_phdr_info *info, size_t size, void *search_)
{
    struct search *search = search_;
    size_t bytes;

    (void)size;
    search->found = exports_in(ag_loaded_dynamic(info), info->dlpi_addr);
    return ag_exports_find(&search->found, search->name, &bytes) != NULL;
}

bool ag_exports_of(const char *name, struct ag_exports *ret)
{
    struct search search = {.name = name};

    if (!ag_loaded_each(search_exports, &search))
        return false;
    *ret = search.found;
    return true;
}
