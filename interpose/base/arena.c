/* Slabs of fixed-size objects: see arena.h. */
#include "interpose/base/arena.h"

#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES (256u * 1024u)

void *ag_arena_get(struct ag_arena *arena)
{
    void *object = NULL;
    bool used = false;

    ag_lock_take(&arena->lock);
    if (arena->free_list) {
        used = true;
        object = arena->free_list;
        memcpy(&arena->free_list, object, sizeof(void *));
    } else {
        if (arena->fresh == arena->fresh_end) {
            char *slab =
                mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

            if (slab != MAP_FAILED) {
                arena->fresh = slab;
                arena->fresh_end = slab + SLAB_BYTES / arena->object_size * arena->object_size;
            }
        }
        if (arena->fresh != arena->fresh_end) {
            object = arena->fresh;
            arena->fresh += arena->object_size;
        }
    }
    ag_lock_release(&arena->lock);
    if (used) /* pages of the kernel are clear, and better not touched before they are needed */
        memset(object, 0, arena->object_size);
    return object;
}

void ag_arena_put(struct ag_arena *arena, void *object)
{
    ag_lock_take(&arena->lock);
    memcpy(object, &arena->free_list, sizeof(void *));
    arena->free_list = object;
    ag_lock_release(&arena->lock);
}
