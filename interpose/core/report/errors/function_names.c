/* The table of functions' names: see function_names.h. Its pages are touched as functions come. */
#include "interpose/core/report/errors/function_names.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "interpose/core/base/hash.h"

#define N_ROWS_LOG2 10u
#define MOST_TRIES  1000u

static struct {
    const void *function;
    char name[120];
} rows[1u << N_ROWS_LOG2];

static atomic_flag busy = ATOMIC_FLAG_INIT;

/* Locks the table, but does not try for ever: a thread that does not exist in a forked child may
 * have had the lock. */
static bool try_lock_names(void)
{
    for (unsigned i = 0; i < MOST_TRIES; i++) {
        if (!atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
            return true;
    }
    return false;
}

static void unlock_names(void)
{
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

static size_t row_of_function(const void *function)
{
    return (size_t)(ag_hash_spread((uintptr_t)function) >> (64 - N_ROWS_LOG2));
}

void ag_function_note(const void *function, const char *name)
{
    size_t i = row_of_function(function);

    if (!try_lock_names())
        return;
    rows[i].function = function;
    snprintf(rows[i].name, sizeof(rows[i].name), "%s", name);
    unlock_names();
}

const char *ag_function_name(const void *function, char *buffer, size_t size)
{
    size_t i = row_of_function(function);

    *buffer = '\0';
    if (!try_lock_names())
        return buffer;
    if (rows[i].function == function)
        snprintf(buffer, size, "%s", rows[i].name);
    unlock_names();
    return buffer;
}
