/* Which ones fail of the calls that a rule with the action `fail` holds for. Pure. */
#ifndef AG_FAIL_H
#define AG_FAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AG_CHANCE_ALWAYS 1000000u
#define AG_CHANCE_TEXT   16u /* bytes that hold any chance as text */

/* All of it must hold for a call to fail. */
struct ag_fail {
    uint64_t after;      /* the first so many calls pass */
    uint64_t every;      /* of those after them, each one with such a number fails; 1: all */
    uint64_t over;       /* bytes that may pass before any call fails; UINT64_MAX: not asked */
    uint64_t chance_ppm; /* of a million calls so many fail; AG_CHANCE_ALWAYS: all */
    uint64_t seed;       /* which ones */
};

#define AG_FAIL_ALL \
    ((struct ag_fail){.every = 1, .over = UINT64_MAX, .chance_ppm = AG_CHANCE_ALWAYS})

/* Does call number `n`, from 1, fail as far as its number decides that? The same numbers fail in
 * each run, and whatever order threads come in. */
bool ag_fail_is_due(const struct ag_fail *fail, uint64_t n);

/* Does every call fail that it is asked about? */
bool ag_fail_is_all(const struct ag_fail *fail);

/* "0.05" or "5%", above 0 and at most 1, to the millionth. False: it is something else. */
bool ag_chance_parse(const char *text, uint64_t *ret_ppm);
/* Prints the chance as "0.05" into `text`, which it returns. */
const char *ag_chance_print(char text[AG_CHANCE_TEXT], uint64_t ppm);

#endif
