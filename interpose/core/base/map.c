/* Linear probing with backward-shift deletion, so that no tombstones build up: see map.h.
 *
 * Tables come in powers of two. The ledger has hundreds of maps that grow at about the same time,
 * which must cost neither a page nor a system call each: small tables are cut from pieces of memory
 * whose pages the kernel gives at once, and one that was outgrown is the next map's. The small ones
 * that a map has outgrown are together smaller than its table. */
#include "interpose/core/base/map.h"

#include <string.h>

#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/lock.h"

#define FIRST_CAPACITY 32u
#define SMALLEST       (FIRST_CAPACITY * sizeof(struct ag_map_entry))
#define SIZES          10u /* SMALLEST and its doubles, to 256 KiB: larger ones are the kernel's */
#define PIECE_BYTES    ((size_t)64 * 1024)

static struct {
    struct ag_lock lock;              /* guards all below */
    struct ag_map_entry *free[SIZES]; /* all zero but for the first one's `value`, the next one */
    size_t bytes;                     /* from the kernel */
    char *fresh, *fresh_end, *ready_end; /* a piece, and up to where its pages are there */
} small = {.lock = AG_LOCK_INIT(AG_RANK_TABLES)};

/* SIZES: none of the small ones. */
static unsigned table_size(size_t capacity)
{
    unsigned size = 0;

    while (size < SIZES && SMALLEST << size < capacity * sizeof(struct ag_map_entry))
        size++;
    return size;
}

/* Frees what is left of the piece before, in the largest tables it has room for. With the lock. */
static void give_up_fresh(void)
{
    for (unsigned size = SIZES; size-- > 0;) {
        while ((size_t)(small.fresh_end - small.fresh) >= SMALLEST << size) {
            struct ag_map_entry *table = (void *)small.fresh;

            table->value = small.free[size];
            small.free[size] = table;
            small.fresh += SMALLEST << size;
        }
    }
}

/* Is there memory for so many bytes more? False: the kernel has none. Called with the lock. */
static bool has_fresh_bytes(size_t bytes)
{
    size_t piece_bytes;
    char *piece;

    if ((size_t)(small.fresh_end - small.fresh) >= bytes)
        return true;
    piece = ag_pages_get_more(small.bytes, bytes < PIECE_BYTES ? PIECE_BYTES : bytes, &piece_bytes);
    if (!piece)
        return false;
    give_up_fresh();
    small.bytes += piece_bytes;
    small.fresh = small.ready_end = piece;
    small.fresh_end = piece + piece_bytes;
    return true;
}

/* Cuts a table off the piece; NULL without memory. Called with the lock. */
static void *cut_table(size_t bytes)
{
    char *table;

    if (!has_fresh_bytes(bytes))
        return NULL;
    table = small.fresh;
    small.fresh += bytes;
    while (small.fresh > small.ready_end) {
        ag_pages_ready(small.ready_end, PIECE_BYTES); /* a piece has a whole number of these */
        small.ready_end += PIECE_BYTES;
    }
    return table;
}

/* A table that is all zero. */
static struct ag_map_entry *obtain_table(size_t capacity)
{
    unsigned size = table_size(capacity);
    struct ag_map_entry *table;

    if (size == SIZES)
        return ag_pages_get(capacity * sizeof(*table));
    ag_lock_take(&small.lock);
    table = small.free[size];
    if (table) {
        small.free[size] = table->value;
        table->value = NULL;
    } else {
        table = cut_table(SMALLEST << size);
    }
    ag_lock_release(&small.lock);
    return table;
}

static void put_table(struct ag_map_entry *table, size_t capacity)
{
    unsigned size = table_size(capacity);

    if (size == SIZES) {
        ag_pages_free(table, capacity * sizeof(*table));
        return;
    }
    memset(table, 0, capacity * sizeof(*table));
    ag_lock_take(&small.lock);
    table->value = small.free[size];
    small.free[size] = table;
    ag_lock_release(&small.lock);
}

static void drop_table(struct ag_map *map)
{
    if (map->entries && !map->is_lent)
        put_table(map->entries, map->capacity);
}

static bool grow_map(struct ag_map *map)
{
    size_t capacity = map->capacity * 2 < FIRST_CAPACITY ? FIRST_CAPACITY : map->capacity * 2;
    struct ag_map_entry *entries = obtain_table(capacity);

    if (!entries)
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
    drop_table(map);
    map->entries = entries;
    map->capacity = capacity;
    map->is_lent = false;
    return true;
}

void ag_map_begin(struct ag_map *map, struct ag_map_entry *entries, size_t capacity)
{
    *map = (struct ag_map){.entries = entries, .capacity = capacity, .is_lent = true};
}

bool ag_map_put(struct ag_map *map, uint64_t key, void *value)
{
    size_t place;

    if ((map->count + 1) * 2 > map->capacity && !grow_map(map))
        return false;
    place = ag_map_find(map, key);
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
    hole = ag_map_find(map, key);
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
    drop_table(map);
    *map = (struct ag_map){0};
}

void ag_map_begin_child(void)
{
    ag_lock_init(&small.lock, AG_RANK_TABLES); /* its holder is the parent's, in the middle of it */
    memset(small.free, 0, sizeof(small.free));
    small.fresh = small.fresh_end = small.ready_end = NULL;
}
