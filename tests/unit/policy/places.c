/* policy/waiting/places.c: when waits at the places of a program are about to end. */
#include "policy/waiting/places.h"

#include <stdbool.h>

#include "tests/common/check.h"

#define MS 1000000u
#define US 1000u

static uint64_t place(unsigned n)
{
    return ag_place_of(1, (const void *)(uintptr_t)(0x401000u + n * 24u),
                       (const void *)(uintptr_t)(0x7ffffff0u - n * 4096u));
}

static void last(uint64_t at, unsigned times, uint64_t ns)
{
    for (unsigned i = 0; i < times; i++)
        ag_place_lasted(at, ns);
}

static bool is_about(uint64_t ns, uint64_t wanted_ns)
{
    return ns <= wanted_ns && ns + 200 * US >= wanted_ns;
}

/* The shortest of four in a row; again once four more last longer. */
static void is_learnt(void)
{
    uint64_t at = place(0);

    for (unsigned ms = 1; ms < 5; ms++) {
        last(at, AG_PLACE_SEEN - 2, (2 * ms + 1) * MS);
        CHECK(is_about(ag_place_foreseen(at), 2 * (ms - 1) * MS));
        last(at, 1, 2 * ms * MS);
        CHECK(is_about(ag_place_foreseen(at), 2 * (ms - 1) * MS));
        last(at, 1, (2 * ms + 1) * MS);
        CHECK(is_about(ag_place_foreseen(at), 2 * ms * MS));
    }
    ag_place_forget(at);
    CHECK(!ag_place_foreseen(at));
    last(at, AG_PLACE_SEEN, 2 * AG_PLACE_LEAST_NS - 1);
    CHECK(!ag_place_foreseen(at));
    last(at, AG_PLACE_SEEN, 100 * (uint64_t)AG_PLACE_MOST_NS);
    CHECK(is_about(ag_place_foreseen(at), AG_PLACE_MOST_NS));
}

/* Long and short waits in turns: what is foreseen is never later than the short ones. */
static void mixed(void)
{
    uint64_t at = place(1);

    for (unsigned i = 0; i < 100; i++) {
        last(at, 1, i % AG_PLACE_SEEN ? 5 * MS : MS);
        CHECK(ag_place_foreseen(at) <= MS);
    }
}

/* The thread comes to look for about AG_PLACE_LOOK_NS, whatever a timer's lateness is. */
static void follows_the_timer(void)
{
    for (uint64_t late = 0; late <= 400 * US; late += 100 * US) {
        uint64_t at = place(2), ends = 5 * MS, looks = 0;
        unsigned missed = 0;

        ag_place_forget(at);
        last(at, AG_PLACE_SEEN, ends);
        for (unsigned i = 0; i < 100; i++) {
            looks = ag_place_foreseen(at) + late;
            if (looks < ends)
                ag_place_met(at, ends - looks);
            else
                ag_place_missed(at);
            missed += looks >= ends;
        }
        CHECK_SAID(missed <= 12, "missed %u", missed);
        CHECK(looks < ends && ends - looks < 2 * AG_PLACE_LOOK_NS);
    }
}

/* After an early end nothing later is foreseen for long, and a place is forgotten for as long. */
static void is_wary(void)
{
    uint64_t at = place(3);

    last(at, AG_PLACE_SEEN, 5 * MS);
    ag_place_early(at, 2 * MS);
    CHECK(ag_place_foreseen(at) == 2 * MS);
    last(at, AG_PLACE_SEEN_AGAIN - 1, 5 * MS);
    CHECK(ag_place_foreseen(at) == 2 * MS);
    last(at, 1, 5 * MS);
    CHECK(is_about(ag_place_foreseen(at), 5 * MS));
    ag_place_early(at, 0);
    CHECK(!ag_place_foreseen(at));
    ag_place_forget(at);
    last(at, AG_PLACE_SEEN, 5 * MS);
    CHECK(!ag_place_foreseen(at));
    last(at, AG_PLACE_SEEN_AGAIN - AG_PLACE_SEEN, 5 * MS);
    CHECK(is_about(ag_place_foreseen(at), 5 * MS));
}

static void idle(uint64_t at, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        ag_place_idle(at);
}

/* Where there is nothing to wait for, time after time, nothing is foreseen; now and then is
 * nothing. */
static void is_idle(void)
{
    uint64_t at = place(5);

    idle(at, 2 * AG_PLACE_IDLE);
    CHECK(!ag_place_foreseen(at));
    last(at, AG_PLACE_SEEN, 5 * MS);
    for (unsigned i = 0; i < 20; i++) {
        idle(at, AG_PLACE_IDLE - 1);
        CHECK(is_about(ag_place_foreseen(at), 5 * MS));
        if (i % 2)
            ag_place_met(at, AG_PLACE_LOOK_NS);
        else
            last(at, 1, 5 * MS);
    }
    idle(at, AG_PLACE_IDLE);
    CHECK(!ag_place_foreseen(at));
    last(at, AG_PLACE_SEEN, 5 * MS);
    CHECK(is_about(ag_place_foreseen(at), 5 * MS));
}

/* What was never met learns nothing from waits that were foreseen elsewhere. */
static void places_that_are_not_there(void)
{
    uint64_t at = place(4);

    ag_place_met(at, 500 * US);
    ag_place_missed(at);
    ag_place_forget(at);
    CHECK(!ag_place_foreseen(at));
}

/* Each part of a place tells it from others; those that share a row do not learn from each other.
 */
static void places_differ(void)
{
    const void *caller = (const void *)0x401000, *frame = (const void *)0x7ffffff0;
    uint64_t at = ag_place_of(1, caller, frame);

    last(at, AG_PLACE_SEEN, 5 * MS);
    CHECK(ag_place_foreseen(at));
    CHECK(!ag_place_foreseen(ag_place_of(2, caller, frame)));
    CHECK(!ag_place_foreseen(ag_place_of(1, (const char *)caller + 8, frame)));
    CHECK(!ag_place_foreseen(ag_place_of(1, caller, (const char *)frame - 16)));
    for (unsigned n = 6; n < 5000; n++) {
        CHECK_SAID(!ag_place_foreseen(place(n)), "place %u", n);
        last(place(n), AG_PLACE_SEEN, 5 * MS);
        CHECK_SAID(ag_place_foreseen(place(n)), "place %u", n);
    }
}

int main(void)
{
    is_learnt();
    mixed();
    follows_the_timer();
    is_wary();
    is_idle();
    places_that_are_not_there();
    places_differ();
    return 0;
}
