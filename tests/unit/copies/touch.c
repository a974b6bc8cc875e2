/* interpose/copies/touch.c: the pages of all pieces are there and clear, or it says that they are
 * not. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/touch.h"

#include <stdint.h>
#include <sys/mman.h>

#include "interpose/copies/crew.h"
#include "tests/common/check.h"

#define UNIT  AG_TOUCH_UNIT
#define PAGE  ((size_t)4096)
#define BYTES (9 * UNIT)

/* Shared memory where huge pages may be. */
static char *map(void)
{
    char *around = mmap(NULL, BYTES + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *memory = around + -(uintptr_t)around % UNIT;

    CHECK(around != MAP_FAILED);
    CHECK(mmap(memory, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
               0) == memory);
    return memory;
}

static size_t n_there(char *memory)
{
    static unsigned char there[BYTES / PAGE];
    size_t n = 0;

    OK(mincore(memory, BYTES, there));
    for (size_t i = 0; i < BYTES / PAGE; i++)
        n += there[i] & 1;
    return n;
}

static void all_pages_are_there(void)
{
    static const size_t pieces[] = {UNIT, 2 * UNIT, 5 * UNIT, BYTES};

    for (size_t i = 0; i < N_OF(pieces); i++) {
        char *memory = map();

        CHECK(n_there(memory) == 0);
        CHECK(ag_touch_pieces(memory, BYTES, pieces[i]));
        CHECK(n_there(memory) == BYTES / PAGE);
        for (size_t at = 0; at < BYTES; at += sizeof(uint64_t))
            CHECK(*(uint64_t *)(void *)(memory + at) == 0);
        OK(munmap(memory, BYTES));
    }
}

static void what_cannot_be_got_is_told(void)
{
    char *memory = map();

    OK(mprotect(memory + 4 * UNIT, UNIT, PROT_READ));
    CHECK(!ag_touch_pieces(memory, BYTES, 2 * UNIT));
    OK(mprotect(memory + 4 * UNIT, UNIT, PROT_READ | PROT_WRITE));
    CHECK(ag_crew_claim()); /* by another thread, for all it knows */
    CHECK(!ag_touch_pieces(memory, BYTES, 2 * UNIT));
    ag_crew_release();
    CHECK(ag_touch_pieces(memory, BYTES, 2 * UNIT));
    OK(munmap(memory, BYTES));
}

int main(void)
{
    char *memory = map();

    CHECK(!ag_touch_pieces(memory, BYTES, UNIT)); /* there is no crew */
    OK(munmap(memory, BYTES));
    ag_crew_configure(3);
    all_pages_are_there();
    what_cannot_be_got_is_told();
    all_pages_are_there();
    return 0;
}
