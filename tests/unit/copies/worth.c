/* interpose/copies/worth.c: who makes a copy, by what copies have taken. */
#include "interpose/copies/worth.h"

#include "tests/common/check.h"

#define MIB   ((size_t)1 << 20)
#define PRICE 3000000u

static struct ag_worth_table table;

static void begin(void)
{
    table = (struct ag_worth_table){0};
}

/* Copies of that size, n times: how many of them were the crew's, where a MiB takes the crew and
 * the driver so long. */
static unsigned crewed(unsigned n, bool to_host, size_t bytes, uint64_t crew_ns, uint64_t driver_ns,
                       unsigned *ret_timed)
{
    unsigned of_crew = 0, timed = 0;

    while (n--) {
        enum ag_worth worth = ag_worth_of(&table, to_host, bytes);

        of_crew += worth == AG_WORTH_CREW;
        timed += worth == AG_WORTH_TIMED;
        if (worth == AG_WORTH_CREW)
            ag_worth_took(&table, to_host, bytes, true, crew_ns * (bytes / MIB));
        else if (worth == AG_WORTH_TIMED)
            ag_worth_took(&table, to_host, bytes, false, driver_ns * (bytes / MIB));
    }
    *ret_timed = timed;
    return of_crew;
}

/* Slots are made once what was lost without them is twice what they cost. */
static void slots_once_they_gain(void)
{
    unsigned n = 1;

    begin();
    CHECK(ag_worth_slots(&table, 1024 * MIB, PRICE));
    begin();
    CHECK(!ag_worth_slots(&table, 16 * MIB, PRICE));
    while (!ag_worth_slots(&table, 16 * MIB, PRICE))
        n++;
    CHECK_SAID(n >= 4 && n <= 10, "%u copies", n);
}

/* A crew that is far faster is never held against slow copies of the driver's, but for one in 257.
 */
static void fast_crew(void)
{
    unsigned timed;

    begin();
    CHECK(crewed(256, false, 16 * MIB, 20000, 100000, &timed) == 256 && !timed);
    CHECK(crewed(257, false, 16 * MIB, 20000, 100000, &timed) == 256 && timed == 1);
}

/* One that is not so fast is, and has the copies where it is faster. */
static void near_ones(void)
{
    unsigned timed;

    begin();
    CHECK(crewed(200, true, MIB, 80000, 100000, &timed) == 199 && timed == 1);
    begin();
    CHECK(crewed(200, true, MIB, 99000, 100000, &timed) < 10 && timed == 2);
}

/* A slow one rests, each time longer: of 10,000 copies it has a few. */
static void slow_crew(void)
{
    unsigned timed, n;

    begin();
    n = crewed(10000, false, 4 * MIB, 300000, 100000, &timed);
    CHECK_SAID(n >= 5 && n <= 12 && timed == 2, "%u of the crew, %u timed", n, timed);
    /* When processors are free again, it has them. */
    n = crewed(10000, false, 4 * MIB, 20000, 100000, &timed);
    CHECK_SAID(n > 5000, "%u of the crew", n);
}

/* Sizes and directions are learnt by themselves. */
static void apart(void)
{
    unsigned timed;

    begin();
    (void)crewed(100, false, 2 * MIB, 300000, 100000, &timed);
    CHECK(crewed(10, true, 2 * MIB, 20000, 100000, &timed) == 10);
    CHECK(crewed(10, false, 4 * MIB, 20000, 100000, &timed) == 10);
    CHECK(crewed(10, false, 2 * MIB, 20000, 100000, &timed) == 0);
    CHECK(crewed(10, false, (size_t)1 << 40, 20000, 100000, &timed) == 10);
}

int main(void)
{
    slots_once_they_gain();
    fast_crew();
    near_ones();
    slow_crew();
    apart();
    return 0;
}
