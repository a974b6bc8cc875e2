/* check.h: what the unit tests share: a check that says where it failed, and reproducible
 * chance. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* `format`, ... says what made it fail: the input, or the step of a random run. */
#define CHECK_SAID(condition, ...)                                                  \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s; ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                           \
            fputc('\n', stderr);                                                    \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#define CHECK(condition) CHECK_SAID(condition, "no more to say")

/* Chance that is the same in every run: a counter, well mixed. */
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
