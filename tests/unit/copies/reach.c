/* interpose/copies/reach.c: what cannot be touched is told instead of a fault, and memory is called
 * plain and present only where it is. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/reach.h"

#include <sys/mman.h>

#include "tests/common/check.h"

#define PAGE ((size_t)4096)

static unsigned char *map(size_t pages, int flags)
{
    unsigned char *memory =
        mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static void what_cannot_be_touched(void)
{
    unsigned char *memory = map(4, MAP_PRIVATE);

    CHECK(ag_reach_get(memory, 4 * PAGE, true) && ag_reach_get(memory + 5, 1, false));
    OK(mprotect(memory + PAGE, PAGE, PROT_READ));
    CHECK(ag_reach_get(memory, 2 * PAGE, false) && !ag_reach_get(memory, 2 * PAGE, true));
    OK(mprotect(memory + 2 * PAGE, PAGE, PROT_NONE));
    CHECK(!ag_reach_get(memory + PAGE, PAGE + 1, false));
    CHECK(ag_reach_get(memory + PAGE, PAGE, false));
    OK(munmap(memory + 3 * PAGE, PAGE));
    CHECK(!ag_reach_get(memory + 3 * PAGE, 1, false));
}

/* All pages are there. */
static bool is_plain(const unsigned char *memory, size_t bytes, bool for_writing)
{
    struct ag_reach reach;

    ag_reach_look(&reach, memory, bytes, for_writing);
    return ag_reach_is_present(&reach, memory, bytes);
}

/* Can the kernel say what is plain (Linux 6.11)? */
static bool can_look(void)
{
    unsigned char *memory = map(1, MAP_PRIVATE | MAP_POPULATE);

    return is_plain(memory, PAGE, true);
}

/* Anonymous memory with the right to it is, be it of several mappings. */
static void what_is_plain(void)
{
    unsigned char *memory = map(5, MAP_PRIVATE | MAP_POPULATE);
    unsigned char *shared = map(2, MAP_SHARED | MAP_POPULATE);

    CHECK(is_plain(memory, 5 * PAGE, true) && is_plain(memory + 1, 5 * PAGE - 1, false));
    CHECK(!is_plain(shared, PAGE, false)); /* of a file, which may be cut */
    OK(mprotect(memory + 2 * PAGE, PAGE, PROT_READ));
    CHECK(is_plain(memory + 2 * PAGE, PAGE, false) && !is_plain(memory + 2 * PAGE, PAGE, true));
    CHECK(is_plain(memory + 5, 5 * PAGE - 9, false)); /* of three mappings */
    CHECK(!is_plain(memory, 3 * PAGE, true) && !is_plain(memory + PAGE, 3 * PAGE, true));
    OK(mprotect(memory + 2 * PAGE, PAGE, PROT_NONE));
    CHECK(!is_plain(memory, 5 * PAGE, false));
    OK(munmap(memory + 4 * PAGE, PAGE));
    CHECK(!is_plain(memory + 4 * PAGE, 1, false) && !is_plain(memory + 3 * PAGE, 2 * PAGE, false));
}

/* Parts are plain beside what is not, and the first of many. */
static void parts(void)
{
    unsigned char *memory = map(40, MAP_PRIVATE | MAP_POPULATE);
    struct ag_reach reach;

    OK(mprotect(memory + 10 * PAGE, PAGE, PROT_NONE));
    ag_reach_look(&reach, memory, 40 * PAGE, true);
    CHECK(ag_reach_is_present(&reach, memory, 10 * PAGE));
    CHECK(ag_reach_is_present(&reach, memory + 11 * PAGE, 29 * PAGE));
    CHECK(!ag_reach_is_present(&reach, memory + 9 * PAGE, 2 * PAGE));
    CHECK(!ag_reach_is_present(&reach, memory + 10 * PAGE, PAGE));
    CHECK(!ag_reach_is_present(&reach, memory + 10 * PAGE, 2 * PAGE));
    for (size_t i = 0; i < 40; i += 2)
        OK(mprotect(memory + i * PAGE, PAGE, PROT_READ));
    ag_reach_look(&reach, memory, 40 * PAGE, false);
    CHECK(reach.n == AG_REACH_PARTS && ag_reach_is_present(&reach, memory, reach.n * PAGE));
    CHECK(!ag_reach_is_present(&reach, memory, 12 * PAGE));
}

static void what_is_present(void)
{
    unsigned char *memory = map(8, MAP_PRIVATE), *large = map(2048, MAP_PRIVATE);
    struct ag_reach reach;

    memory[0] = memory[PAGE] = memory[3 * PAGE] = 1;
    ag_reach_look(&reach, memory, 8 * PAGE, true);
    CHECK(ag_reach_is_present(&reach, memory + 5, 2 * PAGE - 5));
    CHECK(!ag_reach_is_present(&reach, memory, 4 * PAGE));
    CHECK(ag_reach_get(memory, 8 * PAGE, true) && ag_reach_is_present(&reach, memory, 8 * PAGE));
    CHECK(ag_reach_may_touch(&reach));
    OK(mprotect(memory, PAGE, PROT_NONE));
    CHECK(!ag_reach_is_present(&reach, memory, PAGE) && !ag_reach_may_touch(&reach));
    ag_reach_look(&reach, large, 2048 * PAGE, true);
    CHECK(ag_reach_get(large, 2048 * PAGE, true));
    CHECK(!ag_reach_is_present(&reach, large, 2048 * PAGE)); /* more than is asked at a time */
}

/* A few of many pages are asked about, and nothing comes of it. */
static void what_seems_present(void)
{
    unsigned char *memory = map(1024, MAP_PRIVATE);

    CHECK(!ag_reach_seems_present(memory, 1024 * PAGE));
    CHECK(!ag_reach_seems_present(memory, 1024 * PAGE));
    CHECK(ag_reach_get(memory, 512 * PAGE, true));
    CHECK(ag_reach_seems_present(memory + 5, 512 * PAGE - 5));
    CHECK(!ag_reach_seems_present(memory, 1024 * PAGE));
    CHECK(ag_reach_seems_present(memory + 3, 1));
    OK(munmap(memory + 256 * PAGE, PAGE));
    CHECK(!ag_reach_seems_present(memory, 512 * PAGE));
}

int main(void)
{
    if (!ag_reach_can())
        return 77; /* an older kernel, or an emulator */
    what_cannot_be_touched();
    what_seems_present();
    if (can_look()) {
        what_is_plain();
        parts();
        what_is_present();
    }
    return 0;
}
