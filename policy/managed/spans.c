/* A hash table of granules, for ranges of all sizes: see spans.h.
 *
 * A range of n bytes is entered under each granule that it touches, in the largest granule size
 * that does not exceed n. That makes at most 17 entries for any range, and an address is found by
 * one look-up for each granule size in use.
 *
 * Readers take no lock: they note the version, look, and look again if the version has changed (a
 * sequence lock). All they read is atomic. The writer's stores are releases, so that none comes
 * before the odd version; the readers' loads are acquires, so that none comes after the second look
 * at the version, which is relaxed, as are the writer's own loads. Tables that were grown out of
 * stay mapped, for readers that are still in them. */
#include "policy/managed/spans.h"

#include <sys/mman.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/threads/wait.h"

#define SMALLEST_SHIFT 9u
#define SHIFT_STEP     4u
#define FIRST_CAPACITY 1024u

struct entry {
    _Atomic uint64_t key; /* granule number and level; 0 for an empty place */
    _Atomic(struct ag_span *) span;
};

struct ag_spans_table {
    size_t capacity; /* a power of two */
    struct entry entries[];
};

static unsigned shift_of(unsigned level)
{
    return SMALLEST_SHIFT + SHIFT_STEP * level;
}

static unsigned level_of(uint64_t bytes)
{
    unsigned level = 0;

    while (level + 1 < AG_SPAN_LEVELS && bytes >> shift_of(level + 1))
        level++;
    return level;
}

static uint64_t granule_key(uint64_t address, unsigned level)
{
    return (address >> shift_of(level)) << 4 | (level + 1);
}

/* --- readers --- */

static bool span_holds(struct ag_span *span, uint64_t address)
{
    return address >= atomic_load_explicit(&span->first, memory_order_acquire) &&
           address <= atomic_load_explicit(&span->last, memory_order_acquire);
}

static struct ag_span *find_span(struct ag_spans_table *table, uint64_t key, uint64_t address)
{
    size_t place = ag_hash_entry(key, table->capacity);

    /* Half of the places are empty, but a change under way may hide that. */
    for (size_t n = 0; n < table->capacity; n++, place = (place + 1) & (table->capacity - 1)) {
        uint64_t found = atomic_load_explicit(&table->entries[place].key, memory_order_acquire);
        struct ag_span *span;

        if (!found)
            return NULL;
        if (found != key)
            continue;
        span = atomic_load_explicit(&table->entries[place].span, memory_order_acquire);
        if (span && span_holds(span, address))
            return span;
    }
    return NULL;
}

static struct ag_span *look_everywhere(struct ag_spans *spans, uint64_t address)
{
    struct ag_spans_table *table = atomic_load_explicit(&spans->table, memory_order_acquire);
    unsigned levels = atomic_load_explicit(&spans->used_levels, memory_order_acquire);
    struct ag_span *found = NULL;

    for (; table && levels && !found; levels &= levels - 1)
        found = find_span(table, granule_key(address, (unsigned)__builtin_ctz(levels)), address);
    return found;
}

struct ag_span *ag_spans_find(struct ag_spans *spans, uint64_t address)
{
    struct ag_wait wait = {0};

    for (;;) {
        uint64_t version = atomic_load_explicit(&spans->version, memory_order_acquire);
        struct ag_span *found = look_everywhere(spans, address);

        if (!(version & 1) &&
            version == atomic_load_explicit(&spans->version, memory_order_relaxed))
            return found;
        if (version & 1)
            ag_wait_pause(&wait); /* whoever changes it may wait for this processor */
    }
}

/* --- the writer --- */

static void begin_change(struct ag_spans *spans)
{
    uint64_t version = atomic_load_explicit(&spans->version, memory_order_relaxed);

    atomic_store_explicit(&spans->version, version + 1, memory_order_relaxed);
}

static void end_change(struct ag_spans *spans)
{
    uint64_t version = atomic_load_explicit(&spans->version, memory_order_relaxed);

    atomic_store_explicit(&spans->version, version + 1, memory_order_release);
}

static uint64_t key_at(const struct ag_spans_table *table, size_t place)
{
    return atomic_load_explicit(&table->entries[place].key, memory_order_relaxed);
}

static void set(struct ag_spans_table *table, size_t place, uint64_t key, struct ag_span *span)
{
    atomic_store_explicit(&table->entries[place].span, span, memory_order_release);
    atomic_store_explicit(&table->entries[place].key, key, memory_order_release);
}

static void enter_span(struct ag_spans_table *table, uint64_t key, struct ag_span *span)
{
    size_t place = ag_hash_entry(key, table->capacity);

    while (key_at(table, place))
        place = (place + 1) & (table->capacity - 1);
    set(table, place, key, span);
}

/* Empties a place and moves what stood after it only because it was taken. */
static void vacate(struct ag_spans_table *table, size_t hole)
{
    size_t mask = table->capacity - 1;

    for (size_t next = (hole + 1) & mask; key_at(table, next); next = (next + 1) & mask) {
        size_t ideal = ag_hash_entry(key_at(table, next), table->capacity);

        if (((next - ideal) & mask) < ((next - hole) & mask))
            continue;
        set(table, hole, key_at(table, next),
            atomic_load_explicit(&table->entries[next].span, memory_order_relaxed));
        hole = next;
    }
    set(table, hole, 0, NULL);
}

static void remove_span(struct ag_spans_table *table, uint64_t key, const struct ag_span *span)
{
    size_t place = ag_hash_entry(key, table->capacity);

    while (key_at(table, place) != key ||
           atomic_load_explicit(&table->entries[place].span, memory_order_relaxed) != span)
        place = (place + 1) & (table->capacity - 1);
    vacate(table, place);
}

/* A table with room for n_more entries at half load; NULL without memory. */
static struct ag_spans_table *table_with_room(struct ag_spans *spans, size_t n_more)
{
    struct ag_spans_table *old = atomic_load_explicit(&spans->table, memory_order_relaxed), *fresh;
    size_t capacity = old ? old->capacity : FIRST_CAPACITY;

    while ((spans->n_entries + n_more) * 2 > capacity)
        capacity *= 2;
    if (old && capacity == old->capacity)
        return old;
    fresh = mmap(NULL, sizeof(*fresh) + capacity * sizeof(struct entry), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return NULL;
    fresh->capacity = capacity;
    for (size_t i = 0; old && i < old->capacity; i++) {
        if (key_at(old, i))
            enter_span(fresh, key_at(old, i),
                       atomic_load_explicit(&old->entries[i].span, memory_order_relaxed));
    }
    atomic_store_explicit(&spans->table, fresh, memory_order_release);
    return fresh;
}

static void count_level(struct ag_spans *spans, unsigned level, int change)
{
    unsigned levels = atomic_load_explicit(&spans->used_levels, memory_order_relaxed);

    spans->n_ranges[level] += (unsigned)change;
    levels = spans->n_ranges[level] ? levels | 1u << level : levels & ~(1u << level);
    atomic_store_explicit(&spans->used_levels, levels, memory_order_release);
}

bool ag_spans_add(struct ag_spans *spans, struct ag_span *span, uint64_t address, uint64_t bytes)
{
    unsigned level = level_of(bytes);
    uint64_t key = granule_key(address, level), last_key = granule_key(address + bytes - 1, level);
    size_t n = (size_t)((last_key - key) >> 4) + 1;
    struct ag_spans_table *table = table_with_room(spans, n);

    if (!table)
        return false;
    begin_change(spans);
    atomic_store_explicit(&span->first, address, memory_order_release);
    atomic_store_explicit(&span->last, address + bytes - 1, memory_order_release);
    for (; key <= last_key; key += 16)
        enter_span(table, key, span);
    spans->n_entries += n;
    count_level(spans, level, 1);
    end_change(spans);
    return true;
}

void ag_spans_remove(struct ag_spans *spans, struct ag_span *span)
{
    struct ag_spans_table *table = atomic_load_explicit(&spans->table, memory_order_relaxed);
    uint64_t first = atomic_load_explicit(&span->first, memory_order_relaxed);
    uint64_t last = atomic_load_explicit(&span->last, memory_order_relaxed);
    unsigned level = level_of(last - first + 1);
    uint64_t key = granule_key(first, level), last_key = granule_key(last, level);

    begin_change(spans);
    spans->n_entries -= (size_t)((last_key - key) >> 4) + 1;
    for (; key <= last_key; key += 16)
        remove_span(table, key, span);
    count_level(spans, level, -1);
    end_change(spans);
}
