/* What is loaded where: the program and its libraries, as the loader has them. */
#ifndef AG_BASE_LOADED_H
#define AG_BASE_LOADED_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* dl_iterate_phdr. No fork comes meanwhile: what it holds of the loader's locks would stay taken in
 * the child for ever, as fork does not see to them all. */
struct dl_phdr_info;
typedef int ag_loaded_look(struct dl_phdr_info *info, size_t size, void *data);
int ag_loaded_each(ag_loaded_look *look, void *data);
/* The name of the file that such a look is given, without folders, "" for the program's. */
const char *ag_loaded_file_name(const struct dl_phdr_info *info);
/* Its dynamic section, or NULL. */
const ElfW(Dyn) * ag_loaded_dynamic(const struct dl_phdr_info *info);
/* Called around a fork. `until`, of CLOCK_REALTIME: who looks may wait for a lock of the loader's
 * that the forking thread has. */
void ag_loaded_before_fork(const struct timespec *until);
void ag_loaded_forked(void);
void ag_loaded_begin_child(void);

/* How often somebody has looked a symbol up, in dlsym or through the driver. Who opens a library to
 * use it does. dlsym counts in its assembly. */
extern _Atomic uint32_t ag_loaded_asked;
/* How many of these look-ups had been made when the loader's list was last looked at. */
extern _Atomic uint32_t ag_loaded_answered;

/* May a library have come since the last look? If not, what that look noted is visible, whichever
 * thread looked. What was asked is relaxed: a thread sees its own calls, and those that were over
 * before. */
static inline bool ag_loaded_has_news(void)
{
    return atomic_load_explicit(&ag_loaded_answered, memory_order_acquire) !=
           atomic_load_explicit(&ag_loaded_asked, memory_order_relaxed);
}
/* One may have, though nobody called dlsym. */
static inline void ag_loaded_ask(void)
{
    atomic_fetch_add_explicit(&ag_loaded_asked, 1, memory_order_seq_cst);
}
/* Begins a look at the loader's list; what it returns is given to the function that ends it. */
static inline uint32_t ag_loaded_look_begin(void)
{
    return atomic_load_explicit(&ag_loaded_asked, memory_order_seq_cst);
}
static inline void ag_loaded_look_end(uint32_t asked)
{
    atomic_store_explicit(&ag_loaded_answered, asked, memory_order_release);
}

struct ag_loaded {
    const struct link_map *map;
    const char *base; /* where its first segment is mapped */
};

/* What lies at `address`; false for nothing. Since glibc 2.35 without a lock, in some 10 ns. */
bool ag_loaded_find(const void *address, struct ag_loaded *ret);
/* The loader's own entry for what lies at `address`; NULL for nothing. */
const struct link_map *ag_loaded_map(const void *address);
/* Does it take no lock? */
bool ag_loaded_is_lock_free(void);
/* A number that differs whenever a library was loaded or unloaded meanwhile. Under a lock of the
 * loader's that is held briefly. */
uint64_t ag_loaded_changes(void);

/* What is known of addresses, a word each (0: nothing), while no library comes or goes. */
struct ag_loaded_notes {
    _Atomic uint64_t *words;
    size_t n;
    _Atomic uint64_t changes; /* ag_loaded_changes() of when they were asked about last */
};
/* Does `word`, one of them, still hold what was `found` there? All are forgotten where a library
 * has come or gone since somebody asked last. Any thread. */
bool ag_loaded_note_holds(struct ag_loaded_notes *notes, const _Atomic uint64_t *word,
                          uint64_t found);

/* Its first program header of that type (PT_...), or NULL. */
const ElfW(Phdr) * ag_loaded_header(const struct ag_loaded *loaded, uint32_t type);
/* Its file, with a NUL, cut to capacity; how long it is. */
size_t ag_loaded_path(const struct ag_loaded *loaded, char *path, size_t capacity);
/* Its build-id as hexadecimal digits, with a NUL; how many, 0 without one that fits. */
size_t ag_loaded_build_id(const struct ag_loaded *loaded, char *digits, size_t capacity);
/* The function of its dynamic symbols that contains `address`, or NULL: memory of the library's. A
 * slow search. */
const char *ag_loaded_function(const struct ag_loaded *loaded, const void *address);

/* The names that a library is linked with, as its file has them. */
struct ag_needed {
    const ElfW(Dyn) * next;
    const char *names;
};
void ag_needed_begin(struct ag_needed *needed, const struct dl_phdr_info *info);
const char *ag_needed_next(struct ag_needed *needed); /* NULL: no more */

/* Does a library export `name`, by its dynamic section, at the addresses it was loaded to? It may
 * have no table of hashes that we can read. */
enum ag_exported { AG_NOT_EXPORTED, AG_EXPORTED, AG_EXPORTS_UNKNOWN };
enum ag_exported ag_loaded_exports(const ElfW(Dyn) * dynamic, uintptr_t load, const char *name);

/* The symbols that a library exports. */
struct ag_exports {
    uintptr_t load; /* what their values are relative to */
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hashes;
};

/* The exports of the first library, in the loader's order, that exports `name`. Unlike dlsym it
 * waits for no library that is being loaded. */
bool ag_exports_of(const char *name, struct ag_exports *ret);
/* Where `name` lies, and how many bytes it has; NULL where it is not exported. */
void *ag_exports_find(const struct ag_exports *exports, const char *name, size_t *ret_bytes);

/* Goes about it as under a glibc before 2.35 from now on: for tests. */
void ag_loaded_without_find_object(void);

#endif
