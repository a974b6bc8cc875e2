/* interpose/copies/move.c: bytes arrive whatever their alignment and number, and what lies beside
 * them stays. */
#include "interpose/copies/move.h"

#include <string.h>

#include "tests/common/check.h"

typedef void (*mover)(void *to, const void *from, size_t bytes);

static void every_alignment(mover move)
{
    static unsigned char from[1024], to[1024];

    for (unsigned i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 5 + i / 256);
    for (size_t shift = 0; shift < 17; shift++) {
        for (size_t bytes = 0; bytes < 300; bytes++) {
            memset(to, 0xaa, sizeof(to));
            move(to + shift, from + 16 - shift, bytes);
            CHECK(!memcmp(to + shift, from + 16 - shift, bytes));
            CHECK(to[shift + bytes] == 0xaa && (!shift || to[shift - 1] == 0xaa));
        }
    }
}

/* Four pages and more, from any line. */
static void pages(mover move)
{
    static unsigned char from[9 * 4096], to[9 * 4096];

    for (unsigned i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 5 + i / 251);
    for (size_t shift = 0; shift < 200; shift += 33) {
        for (size_t bytes = 4 * 4096 - 70; bytes < 8 * 4096 + 200; bytes += 61) {
            memset(to, 0xaa, sizeof(to));
            move(to + shift, from + 16, bytes);
            CHECK(!memcmp(to + shift, from + 16, bytes));
            CHECK(to[shift + bytes] == 0xaa && (!shift || to[shift - 1] == 0xaa));
        }
    }
}

int main(void)
{
    static const mover movers[] = {ag_move_past_cache, ag_move_to_shared_cache};

    for (size_t i = 0; i < N_OF(movers); i++) {
        every_alignment(movers[i]);
        pages(movers[i]);
    }
    return 0;
}
