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

/* A kernel that can say so says it of anonymous memory of one mapping, with the right to it. */
static void what_is_plain(void)
{
    unsigned char *memory = map(5, MAP_PRIVATE), *shared = map(2, MAP_SHARED);

    if (!ag_reach_is_plain(memory, 5 * PAGE, true))
        return; /* before Linux 6.11 */
    CHECK(ag_reach_is_plain(memory + 1, 5 * PAGE - 1, false));
    CHECK(!ag_reach_is_plain(shared, PAGE, false)); /* of a file, which may be cut */
    OK(mprotect(memory + 2 * PAGE, PAGE, PROT_READ));
    CHECK(ag_reach_is_plain(memory + 2 * PAGE, PAGE, false));
    CHECK(!ag_reach_is_plain(memory + 2 * PAGE, PAGE, true));
    CHECK(!ag_reach_is_plain(memory, 3 * PAGE, false)); /* of two mappings */
    OK(munmap(memory + 4 * PAGE, PAGE));
    CHECK(!ag_reach_is_plain(memory + 4 * PAGE, 1, false));
    CHECK(!ag_reach_is_plain(memory + 3 * PAGE, 2 * PAGE, false));
}

static void what_is_present(void)
{
    unsigned char *memory = map(8, MAP_PRIVATE);

    memory[0] = memory[PAGE] = memory[3 * PAGE] = 1;
    CHECK(ag_reach_present(memory + 5, 2 * PAGE - 5, true));
    CHECK(!ag_reach_present(memory, 4 * PAGE, false));
    CHECK(ag_reach_get(memory, 8 * PAGE, true) && ag_reach_present(memory, 8 * PAGE, true));
    OK(mprotect(memory, PAGE, PROT_NONE));
    CHECK(!ag_reach_present(memory, PAGE, false));
    CHECK(!ag_reach_present(memory, (size_t)8 << 20, false)); /* more than is asked at a time */
}

int main(void)
{
    if (!ag_reach_can())
        return 77; /* an older kernel, or an emulator */
    what_cannot_be_touched();
    what_is_plain();
    what_is_present();
    return 0;
}
