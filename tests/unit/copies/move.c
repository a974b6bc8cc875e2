/* interpose/copies/move.c: bytes arrive whatever their alignment, and what cannot be touched is
 * told instead of a fault. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/move.h"

#include <string.h>
#include <sys/mman.h>

#include "tests/common/check.h"

#define PAGE ((size_t)4096)

static void every_alignment(void)
{
    static unsigned char from[1024], to[1024];

    for (unsigned i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 5 + i / 256);
    for (size_t shift = 0; shift < 17; shift++) {
        for (size_t bytes = 0; bytes < 300; bytes++) {
            memset(to, 0xaa, sizeof(to));
            ag_move_bytes(to + shift, from + 16 - shift, bytes);
            CHECK(!memcmp(to + shift, from + 16 - shift, bytes));
            CHECK(to[shift + bytes] == 0xaa && (!shift || to[shift - 1] == 0xaa));
        }
    }
}

static void what_cannot_be_touched(void)
{
    unsigned char *memory =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    CHECK(ag_move_reach(memory, 4 * PAGE, true) && ag_move_reach(memory + 5, 1, false));
    OK(mprotect(memory + PAGE, PAGE, PROT_READ));
    CHECK(ag_move_reach(memory, 2 * PAGE, false) && !ag_move_reach(memory, 2 * PAGE, true));
    OK(mprotect(memory + 2 * PAGE, PAGE, PROT_NONE));
    CHECK(!ag_move_reach(memory + PAGE, PAGE + 1, false));
    CHECK(ag_move_reach(memory + PAGE, PAGE, false));
    OK(munmap(memory + 3 * PAGE, PAGE));
    CHECK(!ag_move_reach(memory + 3 * PAGE, 1, false));
}

int main(void)
{
    every_alignment();
    if (!ag_move_can_reach())
        return 77; /* an older kernel, or an emulator */
    what_cannot_be_touched();
    return 0;
}
