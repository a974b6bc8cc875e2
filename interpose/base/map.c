/* Linear probing with backward-shift deletion, so that no tombstones build up: see map.h. */
#include "interpose/base/map.h"

#include <sys/mman.h>

#include "interpose/base/hash.h"

#define FIRST_CAPACITY 256u

static void unmap(struct ag_map *map)
{
    if (map->entries && !map->is_lent)
        munmap(map->entries, map->capacity * sizeof(*map->entries));
}

static bool grow(struct ag_map *map)
{
    size_t capacity = map->capacity * 2 < FIRST_CAPACITY ? FIRST_CAPACITY : map->capacity * 2;
    struct ag_map_entry *entries = mmap(NULL, capacity * sizeof(*entries), PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (entries == MAP_FAILED)
        return false;
    for (size_t i = 0; i < map->capacity; i++) {
        size_t place;

        if (!map->entries[i].key)
            continue;
        place = ag_hash_entry(map->entries[i].key, capacity);
        while (entries[place].key)
            place = (place + 1) & (capacity - 1);
        entries[place] = map->entries[i];
    }
    unmap(map);
    map->entries = entries;
    map->capacity = capacity;
    map->is_lent = false;
    return true;
}

void ag_map_begin(struct ag_map *map, struct ag_map_entry *entries, size_t capacity)
{
    *map = (struct ag_map){.entries = entries, .capacity = capacity, .is_lent = true};
}

/* The place of `key`, or of the hole where it belongs. Only with capacity > 0. */
static size_t find(const struct ag_map *map, uint64_t key)
{
    size_t place = ag_hash_entry(key, map->capacity);

    while (map->entries[place].key && map->entries[place].key != key)
        place = (place + 1) & (map->capacity - 1);
    return place;
}

void *ag_map_get(const struct ag_map *map, uint64_t key)
{
    return map->capacity ? map->entries[find(map, key)].value : NULL;
}

bool ag_map_put(struct ag_map *map, uint64_t key, void *value)
{
    size_t place;

    if ((map->count + 1) * 2 > map->capacity && !grow(map))
        return false;
    place = find(map, key);
    if (!map->entries[place].key)
        map->count++;
    map->entries[place] = (struct ag_map_entry){key, value};
    return true;
}

void *ag_map_take(struct ag_map *map, uint64_t key)
{
    size_t hole, next;
    void *value;

    if (!map->capacity)
        return NULL;
    hole = find(map, key);
    value = map->entries[hole].value;
    if (!map->entries[hole].key)
        return NULL;
    for (next = (hole + 1) & (map->capacity - 1); map->entries[next].key;
         next = (next + 1) & (map->capacity - 1)) {
        size_t ideal = ag_hash_entry(map->entries[next].key, map->capacity);

        if (((next - ideal) & (map->capacity - 1)) >= ((next - hole) & (map->capacity - 1))) {
            map->entries[hole] = map->entries[next];
            hole = next;
        }
    }
    map->entries[hole] = (struct ag_map_entry){0, NULL};
    map->count--;
    return value;
}

void ag_map_finish(struct ag_map *map)
{
    unmap(map);
    *map = (struct ag_map){0};
}
