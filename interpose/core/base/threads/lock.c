/* The checks of lock.h: which ranks does this thread hold? Empty without AG_LOCK_CHECKS. */
#include "interpose/core/base/threads/lock.h"

#ifdef AG_LOCK_CHECKS

#include <stdio.h>
#include <stdlib.h>

static _Thread_local unsigned long long held_ranks; /* one bit a rank */

void ag_lock_note_taken(enum ag_lock_rank rank)
{
    if (held_ranks >> rank) {
        fprintf(stderr, "allograft: lock of rank %d taken under ranks %#llx\n", (int)rank,
                held_ranks);
        abort();
    }
    held_ranks |= 1ull << rank;
}

void ag_lock_note_released(enum ag_lock_rank rank)
{
    held_ranks &= ~(1ull << rank);
}

void ag_lock_held_none(const char *where)
{
    if (held_ranks) {
        fprintf(stderr, "allograft: %s entered under locks of ranks %#llx\n", where, held_ranks);
        abort();
    }
}

#else

typedef int ag_lock_checks_are_off; /* a translation unit must not be empty */

#endif
