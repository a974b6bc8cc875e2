/* Which item was used longest ago? A heap whose keys may be out of date. Pure. */
#ifndef AG_POLICY_LRU_H
#define AG_POLICY_LRU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An item, in memory of the caller's; all fields but `used` are the list's. */
struct ag_lru_item {
    _Atomic uint64_t used; /* time of the last use: may be raised by any thread at any time */
    uint64_t known_used;   /* as it was when its place was chosen, never later than `used` */
    size_t place;
};

/* Zeroed, it is empty. One lock's worth: the caller locks. */
struct ag_lru {
    struct ag_lru_item **items; /* from mmap */
    size_t n, capacity;
};

/* False when memory runs out. */
bool ag_lru_add(struct ag_lru *lru, struct ag_lru_item *item);
void ag_lru_remove(struct ag_lru *lru, struct ag_lru_item *item);
/* The item used longest ago, which stays in; NULL when there is none. */
struct ag_lru_item *ag_lru_oldest(struct ag_lru *lru);
/* Empty again, without memory. */
void ag_lru_finish(struct ag_lru *lru);

#endif
