/* random.c: the one source of chance, seeded by SIM_SEED. Callers hold the lock. */
#include "tests/sim/sim_internal.h"

static uint64_t state;

static uint64_t step(void)
{
    if (!state)
        state = sim_settings()->seed * 0x9e3779b97f4a7c15u + 0x1234567u;
    /* splitmix64: every seed is a good one */
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t sim_random(uint32_t below)
{
    return below ? (uint32_t)((step() >> 32) * below >> 32) : 0;
}

bool sim_chance(unsigned of_256)
{
    return sim_random(256) < of_256;
}
