/* tools/doctor/bus.c: what the doctor says that faster copies could gain. */
#include <string.h>

#include "tests/common/check.h"
#include "tools/doctor/bus.h"

/* A bus of 55 GB/s, and a driver that copies pageable memory at a fifth and a third of that. */
static struct bus usual(void)
{
    return (struct bus){.pageable = {64 << 20, 10000, 15300},
                        .pinned = {64 << 20, 55000, 55200},
                        .processors = 16,
                        .has_pages_by_call = true};
}

static bool says(const struct bus *bus, const char *words)
{
    char text[400];

    bus_say_gain(bus, text, sizeof(text));
    return strstr(text, words) != NULL;
}

static void test_gain(void)
{
    struct bus bus = usual();

    CHECK(says(&bus, "with 16 processors, could make"));
    CHECK(says(&bus, "at most 5.5x as fast to the device and 3.6x from it"));
    bus.pageable.from_device = 60000; /* chance */
    CHECK(says(&bus, "5.5x as fast to the device and 1.0x from it"));
    bus.pageable.to_device = 52000;
    CHECK(says(&bus, "gains nothing here: pageable memory is copied as fast as pinned"));
    bus.pageable.from_device = 0; /* it took longer than can be told */
    CHECK(says(&bus, "gains nothing here"));
}

static void test_no_crew(void)
{
    struct bus bus = usual();

    bus.processors = 4;
    CHECK(says(&bus, "with 4 processors, could make"));
    bus.processors = 3;
    CHECK(says(&bus, "changes nothing here: it takes 4 processors, and 3 can be used"));
    bus = usual();
    bus.has_pages_by_call = false;
    CHECK(says(&bus, "changes nothing here: it takes Linux 5.14"));
    bus = usual();
    bus.finds_host_memory = true;
    CHECK(says(&bus, "changes nothing here: the device finds the host's memory by itself"));
}

int main(void)
{
    test_gain();
    test_no_crew();
    return 0;
}
