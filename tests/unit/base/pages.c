/* base/pages.c: pages are cleared, are there when they were made ready, and keep what was written;
 * freelist go to one caller each, and are a few at most; also from threads. */
#include "interpose/core/base/pages.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/common/check.h"

#define N_PAGES 64u

static size_t page;

/* How many of the pages are there. */
static unsigned n_there(char *pages)
{
    unsigned char there[N_PAGES];
    unsigned n = 0;

    CHECK(!mincore(pages, N_PAGES * page, there));
    for (unsigned i = 0; i < N_PAGES; i++)
        n += there[i] & 1;
    return n;
}

static void ready_pages_are_there(void)
{
    char *pages = ag_pages_get(N_PAGES * page);

    CHECK(pages);
    CHECK_SAID(n_there(pages) == 0, "%u", n_there(pages));
    pages[3 * page + page / 2] = 7;
    ag_pages_ready(pages + 3 * page + 100, 9 * page); /* ten pages, since it begins within one */
    CHECK_SAID(n_there(pages) == 10, "%u", n_there(pages));
    for (size_t i = 0; i < N_PAGES * page; i++)
        CHECK(pages[i] == (i == 3 * page + page / 2 ? 7 : 0));
    ag_pages_free(pages, N_PAGES * page);
    ag_pages_free(NULL, page);
    CHECK(!ag_pages_get(SIZE_MAX / 2));
}

/* Small parts at first, then huge pages, which begin where the kernel can have them. */
static void more_at_a_time(void)
{
    size_t so_far = 0, bytes;
    unsigned n_small = 0;
    char *part;

    for (; so_far < 4 * AG_PAGES_HUGE; so_far += bytes) {
        part = ag_pages_get_more(so_far, 64 * 1024, &bytes);
        CHECK(part && bytes == (so_far < AG_PAGES_HUGE / 2 ? 64 * 1024 : AG_PAGES_HUGE));
        CHECK(bytes != AG_PAGES_HUGE || (uintptr_t)part % AG_PAGES_HUGE == 0);
        for (size_t i = 0; i < bytes; i++)
            CHECK(!part[i]);
        memset(part, 1, bytes);
        n_small += bytes != AG_PAGES_HUGE;
        ag_pages_free(part, bytes);
    }
    CHECK(n_small == 16);
    part = ag_pages_get_more(so_far, 3 * AG_PAGES_HUGE, &bytes);
    CHECK(part && bytes == 3 * AG_PAGES_HUGE);
    ag_pages_free(part, bytes);
    CHECK(!ag_pages_get_more(0, SIZE_MAX / 2, &bytes));
}

static void freelist_is_small(void)
{
    static struct ag_freelist freelist;
    char blocks[AG_FREELIST_BLOCKS + 1];
    unsigned seen = 0;

    CHECK(!ag_freelist_take(&freelist));
    for (unsigned i = 0; i < AG_FREELIST_BLOCKS; i++) {
        CHECK(!ag_freelist_is_full(&freelist));
        CHECK(ag_freelist_put(&freelist, &blocks[i]));
    }
    CHECK(ag_freelist_is_full(&freelist));
    CHECK(!ag_freelist_put(&freelist, &blocks[AG_FREELIST_BLOCKS]));
    for (unsigned i = 0; i < AG_FREELIST_BLOCKS; i++) {
        const char *block = ag_freelist_take(&freelist);

        CHECK(block && !(seen & 1u << (block - blocks)));
        seen |= 1u << (block - blocks);
    }
    CHECK(!ag_freelist_take(&freelist));
}

/* --- threads --- */

static struct ag_freelist shared;

/* Whoever has a block is the only one. */
static void *take_and_put(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < 100000; i++) {
        unsigned *block = ag_freelist_take(&shared);

        if (!block)
            continue;
        CHECK(++*block == 1);
        --*block;
        CHECK(ag_freelist_put(&shared, block));
    }
    return NULL;
}

static void threads(void)
{
    static unsigned blocks[3];
    pthread_t thread[4];

    for (unsigned i = 0; i < N_OF(blocks); i++)
        CHECK(ag_freelist_put(&shared, &blocks[i]));
    for (unsigned i = 0; i < N_OF(thread); i++)
        CHECK(!pthread_create(&thread[i], NULL, take_and_put, NULL));
    for (unsigned i = 0; i < N_OF(thread); i++)
        CHECK(!pthread_join(thread[i], NULL));
    for (unsigned i = 0; i < N_OF(blocks); i++)
        CHECK(ag_freelist_take(&shared));
    CHECK(!ag_freelist_take(&shared));
}

int main(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    ready_pages_are_there();
    more_at_a_time();
    freelist_is_small();
    threads();
    return 0;
}
