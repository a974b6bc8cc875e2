/* policy/waiting/places.c: which places of a program wait long. */
#include "policy/waiting/places.h"

#include "tests/common/check.h"

static uint64_t place(unsigned n)
{
    return ag_place_of(1, (const void *)(uintptr_t)(0x401000u + n * 24u),
                       (const void *)(uintptr_t)(0x7ffffff0u - n * 4096u));
}

static void wait_there(uint64_t at, unsigned times, uint64_t ns)
{
    for (unsigned i = 0; i < times; i++)
        ag_place_waited(at, ns);
}

static void is_learnt_and_forgotten(void)
{
    uint64_t at = place(0);

    for (unsigned turn = 0; turn < 3; turn++) {
        CHECK(!ag_place_is_long(at));
        wait_there(at, AG_PLACE_SEEN - 1, AG_PLACE_LONG_NS);
        CHECK(!ag_place_is_long(at));
        wait_there(at, turn ? 1000 : 1, AG_PLACE_LONG_NS);
        CHECK(ag_place_is_long(at));
        wait_there(at, 1, AG_PLACE_LONG_NS - 1);
    }
}

/* One short wait in four, and no place is long. */
static void mixed_is_short(void)
{
    uint64_t at = place(1);

    for (unsigned i = 0; i < 100; i++) {
        wait_there(at, 1, i % AG_PLACE_SEEN ? 5 * AG_PLACE_LONG_NS : 1000);
        CHECK(!ag_place_is_long(at));
    }
}

/* Each part of a place tells it from others; those that share a row do not learn from each other.
 */
static void places_differ(void)
{
    const void *caller = (const void *)0x401000, *frame = (const void *)0x7ffffff0;
    uint64_t at = ag_place_of(1, caller, frame);

    wait_there(at, AG_PLACE_SEEN, AG_PLACE_LONG_NS);
    CHECK(ag_place_is_long(at));
    CHECK(!ag_place_is_long(ag_place_of(2, caller, frame)));
    CHECK(!ag_place_is_long(ag_place_of(1, (const char *)caller + 8, frame)));
    CHECK(!ag_place_is_long(ag_place_of(1, caller, (const char *)frame - 16)));
    for (unsigned n = 2; n < 5000; n++) {
        CHECK_SAID(!ag_place_is_long(place(n)), "place %u", n);
        wait_there(place(n), AG_PLACE_SEEN, AG_PLACE_LONG_NS);
        CHECK_SAID(ag_place_is_long(place(n)), "place %u", n);
    }
}

int main(void)
{
    is_learnt_and_forgotten();
    mixed_is_short();
    places_differ();
    return 0;
}
