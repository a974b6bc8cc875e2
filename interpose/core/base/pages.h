/* Our own memory by the page, and blocks of it that are made before they are needed.
 *
 * The first touch of a page takes 0.3 to 1 us, and 2 us in some virtual machines, most of it for
 * the page itself and not for the fault. That is as long as a kernel launch. So we touch few pages,
 * and what a call of the program would have to wait for is made ahead of it. */
#ifndef AG_BASE_PAGES_H
#define AG_BASE_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Cleared; NULL when the kernel gives none. */
void *ag_pages_get(size_t bytes);
void ag_pages_free(void *pages, size_t bytes);

/* The next part of something that has `so_far` bytes and only grows, of *ret_bytes: `bytes` at
 * first, and a huge page once that is a small part of the whole. Of a million blocks, which are
 * found at random, huge pages take a third of the time. Cleared; NULL when the kernel gives
 * none. */
#define AG_PAGES_HUGE ((size_t)2 << 20) /* the smallest of the huge ones */
void *ag_pages_get_more(size_t so_far, size_t bytes, size_t *ret_bytes);
/* The pages of these bytes, which only the caller uses, are needed soon: gets all of them now. */
void ag_pages_ready(void *first, size_t bytes);

/* Blocks of one size that were made ahead of time. Any thread; no lock is taken. */
#define AG_FREELIST_BLOCKS 8u
struct ag_freelist {
    _Atomic(void *) block[AG_FREELIST_BLOCKS];
};

/* One of them, the caller's from now on; NULL when there is none. */
void *ag_freelist_take(struct ag_freelist *freelist);
/* False: there are enough, and the block is still the caller's. */
bool ag_freelist_put(struct ag_freelist *freelist, void *block);
bool ag_freelist_is_full(struct ag_freelist *freelist);
/* One of them, as it was put, or new pages of that size; NULL without memory. */
void *ag_freelist_take_or_get(struct ag_freelist *freelist, size_t bytes);
/* Puts new pages of that size in, of which the first `ready` bytes are there; none where there are
 * enough. */
void ag_freelist_prepare(struct ag_freelist *freelist, size_t bytes, size_t ready);
/* Keeps the block of pages, or frees it where there are enough. */
void ag_freelist_put_or_free(struct ag_freelist *freelist, void *block, size_t bytes);

#endif
