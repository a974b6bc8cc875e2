/* Slabs of fixed-size objects: see arena.h. */
#include "interpose/core/base/arena.h"

#include <stdbool.h>
#include <string.h>

#include "interpose/core/base/pages.h"

#define SLAB_BYTES ((size_t)256 * 1024)
/* Pages of small objects are made ahead, as many as are in use of the slab, but no more than: */
#define SMALL 4096u
#define AHEAD ((size_t)64 * 1024)
#define PAGE  4096u

/* Is there an object that was never used? False: the kernel has no memory. Called with the lock
 * held. */
static bool has_fresh_object(struct ag_arena *arena)
{
    size_t bytes;
    char *slab;

    if (arena->fresh != arena->fresh_end)
        return true;
    slab = ag_pages_get_more(arena->bytes, SLAB_BYTES, &bytes);
    if (!slab)
        return false;
    arena->bytes += bytes;
    arena->first = arena->fresh = arena->ready_end = slab;
    arena->fresh_end = slab + bytes / arena->object_size * arena->object_size;
    return true;
}

/* Makes the pages of the slab's first `bytes`. With the lock held. */
static void make_pages_ready(struct ag_arena *arena, size_t bytes)
{
    size_t most = (size_t)(arena->fresh_end - arena->first);
    char *until;

    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    until = arena->first + (bytes < most ? bytes : most);
    if (until <= arena->ready_end)
        return;
    ag_pages_ready(arena->ready_end, (size_t)(until - arena->ready_end));
    arena->ready_end = until;
}

/* `fresh` is after what is ready. With the lock held. */
static void look_ahead(struct ag_arena *arena)
{
    size_t used = (size_t)(arena->fresh - arena->first);

    if (arena->object_size <= SMALL)
        make_pages_ready(arena, used + (used < AHEAD ? used : AHEAD));
    else
        arena->ready_end = arena->fresh; /* not all of it may be needed */
}

void *ag_arena_get(struct ag_arena *arena)
{
    void *object = NULL;
    bool used = false;

    ag_spin_take(&arena->lock);
    if (arena->free_list) {
        used = true;
        object = arena->free_list;
        memcpy(&arena->free_list, object, sizeof(void *));
    } else if (arena->fresh != arena->fresh_end || has_fresh_object(arena)) {
        object = arena->fresh;
        arena->fresh += arena->object_size;
        if (arena->fresh > arena->ready_end)
            look_ahead(arena);
    }
    ag_spin_release(&arena->lock);
    if (used) /* pages of the kernel are clear, and better not touched before they are needed */
        memset(object, 0, arena->object_size);
    return object;
}

void ag_arena_prepare(struct ag_arena *arena, size_t n)
{
    ag_spin_take(&arena->lock);
    if (has_fresh_object(arena))
        make_pages_ready(arena, (size_t)(arena->fresh - arena->first) + n * arena->object_size);
    ag_spin_release(&arena->lock);
}

void ag_arena_put(struct ag_arena *arena, void *object)
{
    ag_spin_take(&arena->lock);
    memcpy(object, &arena->free_list, sizeof(void *));
    arena->free_list = object;
    ag_spin_release(&arena->lock);
}
