/* A binary heap by time of last use, the oldest on top: see lru.h.
 *
 * Items are used far more often than the oldest is asked for, so a use only notes the time. Times
 * only grow: an item whose key is up to date, and no larger than any other key, is the oldest. A
 * use is relaxed: one that is seen late makes an item older than it is. */
#include "policy/managed/lru.h"

#include <sys/mman.h>

#define FIRST_CAPACITY 512u

static bool grow_heap(struct ag_lru *lru)
{
    size_t capacity = lru->capacity ? lru->capacity * 2 : FIRST_CAPACITY;
    struct ag_lru_item **items = mmap(NULL, capacity * sizeof(struct ag_lru_item *),
                                      PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (items == MAP_FAILED)
        return false;
    for (size_t i = 0; i < lru->n; i++)
        items[i] = lru->items[i];
    if (lru->items)
        munmap(lru->items, lru->capacity * sizeof(struct ag_lru_item *));
    lru->items = items;
    lru->capacity = capacity;
    return true;
}

static void put_item(struct ag_lru *lru, size_t place, struct ag_lru_item *item)
{
    lru->items[place] = item;
    item->place = place;
}

static void sift_up(struct ag_lru *lru, struct ag_lru_item *item)
{
    size_t place = item->place;

    for (; place && lru->items[(place - 1) / 2]->known_used > item->known_used;
         place = (place - 1) / 2)
        put_item(lru, place, lru->items[(place - 1) / 2]);
    put_item(lru, place, item);
}

static void sift_down(struct ag_lru *lru, struct ag_lru_item *item)
{
    size_t place = item->place, child;

    for (; (child = 2 * place + 1) < lru->n; place = child) {
        if (child + 1 < lru->n && lru->items[child + 1]->known_used < lru->items[child]->known_used)
            child++;
        if (lru->items[child]->known_used >= item->known_used)
            break;
        put_item(lru, place, lru->items[child]);
    }
    put_item(lru, place, item);
}

bool ag_lru_add(struct ag_lru *lru, struct ag_lru_item *item)
{
    if (lru->n == lru->capacity && !grow_heap(lru))
        return false;
    item->known_used = atomic_load_explicit(&item->used, memory_order_relaxed);
    put_item(lru, lru->n++, item);
    sift_up(lru, item);
    return true;
}

void ag_lru_remove(struct ag_lru *lru, struct ag_lru_item *item)
{
    struct ag_lru_item *last = lru->items[--lru->n];

    if (last == item)
        return;
    put_item(lru, item->place, last);
    sift_up(lru, last);
    sift_down(lru, last);
}

struct ag_lru_item *ag_lru_oldest(struct ag_lru *lru)
{
    while (lru->n) {
        struct ag_lru_item *top = lru->items[0];
        uint64_t used = atomic_load_explicit(&top->used, memory_order_relaxed);

        if (used == top->known_used)
            return top;
        top->known_used = used;
        sift_down(lru, top);
    }
    return NULL;
}

void ag_lru_finish(struct ag_lru *lru)
{
    if (lru->items)
        munmap(lru->items, lru->capacity * sizeof(struct ag_lru_item *));
    *lru = (struct ag_lru){0};
}
