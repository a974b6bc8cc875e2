/* Pages, and blocks of them that were made ahead of time: see pages.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interpose/core/base/advice.h"

#define HUGE_AFTER (AG_PAGES_HUGE / 2)

/* Tables are used from their beginning: of a huge page nearly all would be cleared for nothing, as
 * it is touched for the first time. */
void *ag_pages_get(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (pages == MAP_FAILED)
        return NULL;
    if (bytes >= AG_PAGES_HUGE)
        (void)madvise(pages, bytes, MADV_NOHUGEPAGE);
    return pages;
}

void ag_pages_free(void *pages, size_t bytes)
{
    if (pages)
        (void)munmap(pages, bytes);
}

/* One huge page, where the kernel has one, at an address that it can have. */
static void *get_huge(void)
{
    char *around = mmap(NULL, 2 * AG_PAGES_HUGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (around == MAP_FAILED)
        return NULL;
    before = -(uintptr_t)around % AG_PAGES_HUGE;
    if (before)
        (void)munmap(around, before);
    (void)munmap(around + before + AG_PAGES_HUGE, AG_PAGES_HUGE - before);
    (void)madvise(around + before, AG_PAGES_HUGE, MADV_HUGEPAGE);
    return around + before;
}

void *ag_pages_get_more(size_t so_far, size_t bytes, size_t *ret_bytes)
{
    void *huge = so_far >= HUGE_AFTER && bytes < AG_PAGES_HUGE ? get_huge() : NULL;

    *ret_bytes = huge ? AG_PAGES_HUGE : bytes;
    return huge ? huge : ag_pages_get(bytes);
}

void ag_pages_ready(void *first, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), within = (uintptr_t)first % page;
    char *begins = (char *)first - within;

    if (!madvise(begins, within + bytes, MADV_POPULATE_WRITE))
        return;
    for (size_t at = 0; at < within + bytes; at += page)
        (void)__atomic_fetch_or(begins + at, 0, __ATOMIC_RELAXED); /* written to, and unchanged */
}

/* Relaxed: only a look, since the exchange is what takes a block and acquires what is in it. */
void *ag_freelist_take(struct ag_freelist *freelist)
{
    void *block = NULL;

    for (unsigned i = 0; i < AG_FREELIST_BLOCKS && !block; i++) {
        if (atomic_load_explicit(&freelist->block[i], memory_order_relaxed))
            block = atomic_exchange_explicit(&freelist->block[i], NULL, memory_order_acquire);
    }
    return block;
}

bool ag_freelist_put(struct ag_freelist *freelist, void *block)
{
    for (unsigned i = 0; i < AG_FREELIST_BLOCKS; i++) {
        void *none = NULL;

        if (atomic_compare_exchange_strong_explicit(&freelist->block[i], &none, block,
                                                    memory_order_release, memory_order_relaxed))
            return true;
    }
    return false;
}

bool ag_freelist_is_full(struct ag_freelist *freelist)
{
    unsigned n = 0;

    for (unsigned i = 0; i < AG_FREELIST_BLOCKS; i++)
        n += atomic_load_explicit(&freelist->block[i], memory_order_relaxed) != NULL;
    return n == AG_FREELIST_BLOCKS;
}

void *ag_freelist_take_or_get(struct ag_freelist *freelist, size_t bytes)
{
    void *block = ag_freelist_take(freelist);

    return block ? block : ag_pages_get(bytes);
}

void ag_freelist_put_or_free(struct ag_freelist *freelist, void *block, size_t bytes)
{
    if (!ag_freelist_put(freelist, block))
        ag_pages_free(block, bytes);
}

void ag_freelist_prepare(struct ag_freelist *freelist, size_t bytes, size_t ready)
{
    void *pages = ag_freelist_is_full(freelist) ? NULL : ag_pages_get(bytes);

    if (!pages)
        return;
    ag_pages_ready(pages, ready);
    ag_freelist_put_or_free(freelist, pages, bytes);
}
