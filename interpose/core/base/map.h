/* An open-addressing table from a 64-bit key to a pointer, one lock's worth: the caller locks. */
#ifndef AG_BASE_MAP_H
#define AG_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/base/hash.h"

struct ag_map {
    struct ag_map_entry *entries; /* power of two of them; key 0 is an empty place */
    size_t capacity, count;
    bool is_lent; /* `entries`, by ag_map_begin() */
};

struct ag_map_entry {
    uint64_t key;
    void *value;
};

/* An empty table that has its first entries, all zero and a power of two of them, in memory of the
 * caller's: small tables need no page of their own. */
void ag_map_begin(struct ag_map *map, struct ag_map_entry *entries, size_t capacity);
/* The place of `key`, or of the hole where it belongs. Only with capacity > 0. */
static inline size_t ag_map_find(const struct ag_map *map, uint64_t key)
{
    const struct ag_map_entry *entries = map->entries;
    size_t last = map->capacity - 1, place = ag_hash_entry(key, map->capacity);

    while (entries[place].key && entries[place].key != key)
        place = (place + 1) & last;
    return place;
}

/* The value of `key`, or NULL. */
static inline void *ag_map_get(const struct ag_map *map, uint64_t key)
{
    return map->capacity ? map->entries[ag_map_find(map, key)].value : NULL;
}

/* Adds or replaces; key != 0, value != NULL. False when memory for the table runs out. */
bool ag_map_put(struct ag_map *map, uint64_t key, void *value);
/* Takes `key` out; its value, or NULL if it was not in. */
void *ag_map_take(struct ag_map *map, uint64_t key);
void ag_map_finish(struct ag_map *map);
/* A forked child, before it touches any map. */
void ag_map_begin_child(void);

#endif
