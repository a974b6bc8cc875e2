/* Locks with ranks: a thread may only take a lock of a higher rank than those it holds.
 *
 * No lock of ours is held across a driver call (the driver may call the program back, and the
 * program us). With AG_LOCK_CHECKS both rules are asserted: see ag_lock_held_none(). */
#ifndef AG_BASE_LOCK_H
#define AG_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

enum ag_lock_rank {
    AG_RANK_GREEN = 1,  /* table of green contexts */
    AG_RANK_CONTEXTS,   /* table of contexts and of devices */
    AG_RANK_CAPTURES,   /* list of open captures */
    AG_RANK_API,        /* what programs made through the control API */
    AG_RANK_PRIVATE,    /* pools of captures */
    AG_RANK_APP_POOLS,  /* table of the program's pools */
    AG_RANK_APP_GRAPHS, /* what the program's graphs take */
    AG_RANK_WATCH,      /* which streams got work since the last fence */
    AG_RANK_USERS,      /* threads that use CUDA */
    AG_RANK_CACHE,      /* what the shards of a cache may hold */
    AG_RANK_GUARD,      /* lists of guarded blocks */
    AG_RANK_PAGED,      /* their pages */
    AG_RANK_RANGES,     /* ranges of pieces that can move */
    AG_RANK_HANDLES,    /* physical memory that is kept for them */
    AG_RANK_SHARD,      /* one shard of a cache of freed blocks */
    AG_RANK_SLAB,       /* one shard of the slabs */
    AG_RANK_IPC,        /* what is given to, or taken from, other processes */
    AG_RANK_LEDGER,     /* one shard of the ledger */
    AG_RANK_PINNED,     /* blocks of pinned memory */
    AG_RANK_BUDGET,     /* memory without an address, on the budget */
    AG_RANK_SPILLED,    /* list of spilled blocks */
    AG_RANK_RESIDENCY,  /* the estimate of where managed blocks lie */
    AG_RANK_FUNC_ATTRS, /* attributes of functions as last set */
    AG_RANK_PARAMS,     /* layouts of kernels' parameters */
    AG_RANK_LIVE,       /* the most bytes that the program had */
    AG_RANK_STREAMS,    /* table of streams that may be replayed */
    AG_RANK_MARKS,      /* streams with a name that NVTX gave */
    AG_RANK_INTERN,     /* bytes of signatures */
    AG_RANK_STAGING,    /* slots of a ring */
    AG_RANK_HELD,       /* one shard of who holds which block */
    AG_RANK_STACKS,     /* stacks, texts and modules that are new */
    AG_RANK_PYTHON,     /* what was found of the interpreter */
    AG_RANK_ARENA,      /* free list of fixed-size objects */
    AG_RANK_TABLES,     /* free lists of the tables of maps */
};

struct ag_lock {
    pthread_mutex_t mutex;
    enum ag_lock_rank rank;
};

#define AG_LOCK_INIT(lock_rank) {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (lock_rank)}

#ifdef AG_LOCK_CHECKS
void ag_lock_note_taken(enum ag_lock_rank rank);
void ag_lock_note_released(enum ag_lock_rank rank);
/* Aborts with a line on stderr when the calling thread holds any lock of ours. */
void ag_lock_held_none(const char *where);
#else
#define ag_lock_note_taken(rank)    ((void)(rank))
#define ag_lock_note_released(rank) ((void)(rank))
static inline void ag_lock_held_none(const char *where)
{
    (void)where;
}
#endif

/* Takes a lock of the caller's memory into use; needs no finish. */
static inline void ag_lock_init(struct ag_lock *lock, enum ag_lock_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
}

static inline void ag_lock_take(struct ag_lock *lock)
{
    ag_lock_note_taken(lock->rank);
    pthread_mutex_lock(&lock->mutex);
}

/* Takes the lock if nobody has it. A lock that is only tried cannot deadlock, so any rank will do;
 * the checks still want the order, which keeps the code honest. */
static inline bool ag_lock_try(struct ag_lock *lock)
{
    if (pthread_mutex_trylock(&lock->mutex))
        return false;
    ag_lock_note_taken(lock->rank);
    return true;
}

static inline void ag_lock_release(struct ag_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
    ag_lock_note_released(lock->rank);
}

#endif
