/* Programs of several parts, one of which their first argument names. */
#ifndef TESTS_COMMON_PARTS_H
#define TESTS_COMMON_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct part {
    const char *name;
    void (*run)(void);
};

/* Runs the part of that name. False: there is none. */
static inline bool run_part_of(const struct part *parts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(name, parts[i].name)) {
            parts[i].run();
            return true;
        }
    }
    return false;
}

#define RUN_PART(parts, name) run_part_of(parts, sizeof(parts) / sizeof((parts)[0]), name)

#endif
