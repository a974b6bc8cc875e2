/* The table of interned bytes: see intern.h.
 *
 * Open addressing, of pointers that are only ever set, after the object that they lead to is
 * complete. So a thread that finds one needs no lock. The table is never more than half full: a
 * look-up that fails ends soon, even when there are too many objects. */
#include "graph/record/intern.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/lock.h"

#define N_PLACES   65536u
#define MAX_COUNT  (N_PLACES / 2)
#define SLAB_BYTES (256u * 1024u)

struct table {
    _Atomic(const struct ag_interned *) places[N_PLACES];
};

static struct {
    struct ag_lock lock; /* guards all changes: who has it loads relaxed */
    _Atomic(struct table *) table;
    uint32_t count;
    unsigned char *fresh, *fresh_end; /* of the slab that objects are cut from */
} state = {.lock = AG_LOCK_INIT(AG_RANK_INTERN)};

static uint64_t hash_content(const unsigned char *content, uint32_t bytes)
{
    uint64_t hash = bytes, word;

    for (uint32_t at = 0; at < bytes; at += sizeof(word)) {
        uint32_t n = bytes - at < sizeof(word) ? bytes - at : sizeof(word);

        word = 0;
        memcpy(&word, content + at, n);
        hash = ag_hash_word(hash, word);
        hash ^= hash >> 29;
    }
    return hash;
}

/* The object, or NULL and the place where it belongs. */
static const struct ag_interned *find_content(struct table *table, const void *content,
                                              uint32_t bytes, uint64_t hash, uint32_t *ret_place)
{
    const struct ag_interned *interned;
    uint32_t place = (uint32_t)(hash >> 32) % N_PLACES;

    while ((interned = atomic_load_explicit(&table->places[place], memory_order_acquire))) {
        if (interned->hash == hash && interned->bytes == bytes &&
            !memcmp(interned->content, content, bytes))
            return interned;
        place = (place + 1) % N_PLACES;
    }
    *ret_place = place;
    return NULL;
}

/* Called with the lock held. */
static struct table *interned_table(void)
{
    struct table *table = atomic_load_explicit(&state.table, memory_order_relaxed);

    if (!table && (table = ag_pages_get(sizeof(*table))))
        atomic_store_explicit(&state.table, table, memory_order_release);
    return table;
}

/* Called with the lock held. */
static struct ag_interned *cut_object(uint32_t bytes)
{
    size_t size = (sizeof(struct ag_interned) + bytes + 7) & ~(size_t)7;
    struct ag_interned *interned;

    if ((size_t)(state.fresh_end - state.fresh) < size) {
        unsigned char *slab = ag_pages_get(SLAB_BYTES);

        if (!slab)
            return NULL;
        state.fresh = slab;
        state.fresh_end = slab + SLAB_BYTES;
    }
    interned = (struct ag_interned *)(void *)state.fresh;
    state.fresh += size;
    return interned;
}

static const struct ag_interned *enter_content(const void *content, uint32_t bytes, uint64_t hash)
{
    struct table *table = interned_table();
    const struct ag_interned *known;
    struct ag_interned *fresh;
    uint32_t place = 0;

    if (!table)
        return NULL;
    known = find_content(table, content, bytes, hash, &place);
    if (known || state.count >= MAX_COUNT || !(fresh = cut_object(bytes)))
        return known;
    fresh->hash = hash;
    fresh->bytes = bytes;
    memcpy(fresh->content, content, bytes);
    state.count++;
    atomic_store_explicit(&table->places[place], fresh, memory_order_release);
    return fresh;
}

const struct ag_interned *ag_intern(const void *content, uint32_t bytes)
{
    struct table *table = atomic_load_explicit(&state.table, memory_order_acquire);
    uint64_t hash = hash_content(content, bytes);
    const struct ag_interned *interned = NULL;
    uint32_t place;

    if (bytes > AG_MAX_INTERNED)
        return NULL;
    if (table)
        interned = find_content(table, content, bytes, hash, &place);
    if (interned)
        return interned;
    ag_lock_take(&state.lock);
    interned = enter_content(content, bytes, hash);
    ag_lock_release(&state.lock);
    return interned;
}

void ag_intern_begin_child(void)
{
    ag_lock_init(&state.lock, AG_RANK_INTERN);
}
