/* Fixed-size objects for our metadata, from mmap: malloc may be the program's own, or may be
 * waiting for a lock. */
#ifndef AG_BASE_ARENA_H
#define AG_BASE_ARENA_H

#include <stddef.h>

#include "interpose/core/base/threads/spin.h"

struct ag_arena {
    struct ag_spin lock; /* guards all below */
    size_t object_size;  /* at least a pointer's */
    void *free_list;
    size_t bytes; /* from the kernel */
    char *fresh, *fresh_end;
    char *first,
        *ready_end; /* of what `fresh` lies in: its beginning, up to where pages are there */
};

#define AG_ARENA_INIT(type) {.lock = AG_SPIN_INIT(AG_RANK_ARENA), .object_size = sizeof(type)}

/* A zeroed object, or NULL when the kernel gives no memory. Any thread. */
void *ag_arena_get(struct ag_arena *arena);
/* Makes `n` objects ahead, so that no page of theirs is touched for the first time later. */
void ag_arena_prepare(struct ag_arena *arena, size_t n);
/* Takes an object back; its memory is never unmapped, so a stale reader sees an object, not a
 * hole. */
void ag_arena_put(struct ag_arena *arena, void *object);
/* In a forked child: a thread of the parent may have held the lock, in the middle of a change. What
 * there was stays taken. */
static inline void ag_arena_begin_child(struct ag_arena *arena)
{
    *arena = (struct ag_arena){.object_size = arena->object_size};
    ag_spin_init(&arena->lock, AG_RANK_ARENA);
}

#endif
