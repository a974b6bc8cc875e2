/* interpose/copies/processors.c: how many processors there are for threads of ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/processors.h"

#include <sched.h>

#include "tests/common/check.h"

static void quotas(void)
{
    CHECK(ag_processors_of_quota("max 100000\n") == UINT32_MAX);
    CHECK(ag_processors_of_quota("200000 100000\n") == 2);
    CHECK(ag_processors_of_quota("250000 100000\n") == 3);
    CHECK(ag_processors_of_quota("1000 100000\n") == 1);
    CHECK(ag_processors_of_quota("") == UINT32_MAX);
    CHECK(ag_processors_running("0.50 0.40 0.30 17/431 9023\n") == 17);
    CHECK(ag_processors_running("0.50 0.40 0.30 1/1 2\n") == 1);
    CHECK(ag_processors_running("17/431\n") == 17);
    CHECK(!ag_processors_running("") && !ag_processors_running("0.50 0.40 0.30 ?/431 9023\n"));
    CHECK(!ag_processors_running("/") && !ag_processors_running("0.50 17"));
    CHECK(ag_processors_idle() == UINT32_MAX || ag_processors_idle() < 1u << 20);
    CHECK(ag_processors_of_quota("200000\n") == UINT32_MAX);
    CHECK(ag_processors_of_quota("200000 0\n") == UINT32_MAX);
}

static void affinity(void)
{
    uint32_t before = ag_processors_usable();
    cpu_set_t all, one;

    CHECK(before >= 1);
    OK(sched_getaffinity(0, sizeof(all), &all));
    CHECK(before <= (uint32_t)CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++) {
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    }
    OK(sched_setaffinity(0, sizeof(one), &one));
    CHECK(ag_processors_usable() == 1);
}

int main(void)
{
    quotas();
    affinity();
    return 0;
}
