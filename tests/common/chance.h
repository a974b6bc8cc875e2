/* chance.h: chance that is the same in every run: a counter, well mixed. */
#ifndef CHANCE_H
#define CHANCE_H

#include <stdint.h>

static inline uint64_t chance(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* A number from 0 to n - 1. */
static inline uint64_t chance_below(uint64_t *state, uint64_t n)
{
    return chance(state) % n;
}

#endif
