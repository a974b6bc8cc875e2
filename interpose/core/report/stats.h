/* The counters of everything that the report shows. Hot ones are spread over slots of threads, and
 * summed when somebody reads them. All accesses are relaxed, and none takes a lock.
 *
 * A report is made of struct ag_stats and nothing else: the process, its settings, the devices, the
 * counts. The struct fills whole pages, so that counters_file.c can put the pages of a file in
 * their place. Then the counts outlive the process, and still every thread counts at a constant
 * address. */
#ifndef AG_STATS_H
#define AG_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/raise.h"
#include "interpose/core/base/slot.h"
#include "interpose/core/driver/symbols.h"
#include "interpose/core/settings/rules.h"

enum ag_stat {
#define AG_STAT(id, group, key, label) AG_STAT_##id,
#include "interpose/core/report/stats.def"
    AG_N_STATS
};

/* A counter's row of stats.def. */
struct ag_stat_row {
    const char *group, *key, *label;
};
extern const struct ag_stat_row ag_stat_rows[AG_N_STATS];

enum ag_placement {
    AG_PLACE_NATIVE,
    AG_PLACE_POOL,
    AG_PLACE_MANAGED, /* preferring the device, or nothing */
    AG_PLACE_HOST,    /* managed, preferring the host by a setting */
    AG_PLACE_SPILLED, /* managed, on the host because it did not fit */
    AG_N_PLACEMENTS
};
extern const char *const ag_placement_names[AG_N_PLACEMENTS]; /* in JSON, tables and traces */

#define AG_STATS_DEVICES 16u /* devices of a higher ordinal share the last row */
#define AG_SIZE_CLASSES  36u /* class c counts sizes in (2^(c+8), 2^(c+9)]; the first all below */

#ifdef __x86_64__
#define AG_STATS_PAGE 4096u
#else
#define AG_STATS_PAGE 65536u /* the largest that kernels for aarch64 have */
#endif

struct ag_place_stats {
    _Atomic uint64_t allocs, frees, failed, alloc_bytes, freed_bytes, alloc_ticks, free_ticks;
    _Atomic uint64_t allowance; /* no count, but of live.h: beside what is compared with it */
    _Atomic uint64_t sizes[AG_SIZE_CLASSES];
};

struct ag_rule_stats {
    _Atomic uint64_t hits, bytes;
    _Atomic uint64_t held, failed; /* of a rule that fails calls: those it held for; that failed */
};

/* The program's own stream-ordered pools: one row each; the last one stands for all pools that have
 * none of their own. */
#define AG_APP_POOLS 64u

enum ag_app_pool_kind {
    AG_APP_POOL_UNUSED,
    AG_APP_POOL_DEFAULT,
    AG_APP_POOL_CREATED,
    AG_APP_POOL_IMPORTED,
    AG_APP_POOL_MANAGED,
    AG_APP_POOL_OTHERS,
};
enum ag_app_count { AG_APP_ALLOCS, AG_APP_BYTES, AG_APP_FAILED, AG_APP_CALLS, AG_N_APP_COUNTS };

struct ag_app_pool_stats {
    _Atomic int32_t kind;
    _Atomic int32_t device; /* ordinal; -1: on the host, or not known */
    _Atomic bool destroyed, raised, has_levels;
    _Atomic uint64_t reserved_high, used_high; /* where the driver was asked: has_levels */
    _Atomic uint64_t before[AG_N_APP_COUNTS];  /* counted in the row before it was this pool's */
};

/* What the program's own graphs take of a device: where that was measured, what the driver took
 * while they were instantiated and while they were launched for the first time; and the levels of
 * its pool for memory nodes when the process ended, where it could be asked: has_levels. */
enum ag_own_graph_bytes {
    AG_GRAPH_INSTANTIATED,
    AG_GRAPH_LAUNCHED,
    AG_GRAPH_USED,
    AG_GRAPH_USED_HIGH,
    AG_GRAPH_RESERVED,
    AG_GRAPH_RESERVED_HIGH,
    AG_N_GRAPH_BYTES
};
struct ag_own_graph_stats {
    _Atomic bool is_measured, has_levels;
    _Atomic uint64_t bytes[AG_N_GRAPH_BYTES];
};

/* Points with a name that the program passed (allograft_mark): a row each. */
#define AG_MARKS 64u
struct ag_mark_stats {
    char name[48];
    _Atomic uint64_t count, first_ns, last_ns; /* since the process began */
    _Atomic uint64_t bytes;                    /* allocated when it was last passed */
};

/* What guards found (policy/guard/): the first so many. */
#define AG_GUARD_FINDINGS 16u
enum ag_guard_where { AG_GUARD_BEFORE, AG_GUARD_BEHIND, AG_GUARD_INSIDE };
enum ag_guard_occasion {
    AG_GUARD_WHEN_FREED,
    AG_GUARD_WHEN_REUSED, /* a freed block was to be used again */
    AG_GUARD_WHEN_CONTEXT,
    AG_GUARD_WHEN_EXIT,
};
extern const char *const ag_guard_where_names[3]; /* in lines and the report */
extern const char *const ag_guard_occasion_names[4];
struct ag_guard_finding {
    uint32_t used;        /* the row is complete */
    uint32_t where, when; /* the enumerations above */
    int32_t device;
    uint64_t address, bytes;
    int64_t offset;                      /* of the first wrong byte, from the block's on */
    uint64_t wrong;                      /* how many bytes */
    char allocated_by[96], freed_by[96]; /* "module+0x1234"; "" not known, or not freed */
};

/* A slot's counters. It has whole pages, which are there once the slot is used: see
 * counters_file.c. */
struct ag_stats_slot {
    _Alignas(AG_STATS_PAGE) _Atomic uint64_t counters[AG_N_STATS];
    _Atomic uint64_t hits[AG_N_HOOKS];
    struct ag_place_stats places[AG_STATS_DEVICES][AG_N_PLACEMENTS];
    struct ag_rule_stats rules[AG_MAX_RULES + 1]; /* the last: allocations that no rule met */
    _Atomic uint64_t app_pools[AG_APP_POOLS][AG_N_APP_COUNTS];
};

/* A function or a graph that was launched before the first sticky error. */
struct ag_launched {
    uint64_t handle, stream;
    int32_t thread;
    uint32_t is_graph;
    char name[256]; /* "": not known */
};

#define AG_LAUNCHED 16u

/* The first sticky error that a call returned: first_error.h. */
struct ag_first_error {
    _Atomic uint32_t claimed, used; /* the row is somebody's; it is complete */
    int32_t code, thread;
    uint64_t after_ns; /* since the process began */
    char call[48];
    uint32_t launches_unseen, n_launched;
    struct ag_launched launched[AG_LAUNCHED]; /* of its thread, then of others; the latest first */
};

struct ag_level {
    _Alignas(64) _Atomic uint64_t current, peak;
};

#define AG_STATS_LAYOUT 4u
#define AG_STATS_MAGIC  "AGSTATS"

/* Was the driver the simulated one, whose times mean nothing? */
enum ag_simulated {
    AG_NOT_SIMULATED,
    AG_SIMULATED,
    AG_PARTLY_SIMULATED, /* of a job: that of some processes */
};

/* Whose counters these are. Filled once, before anybody else may read it; but for what
 * tells of the end. */
struct ag_stats_head {
    char magic[8];                         /* AG_STATS_MAGIC */
    uint32_t layout;                       /* AG_STATS_LAYOUT */
    uint32_t bytes;                        /* sizeof(struct ag_stats) */
    uint64_t fingerprint;                  /* ag_stats_fingerprint() of the build that counts */
    int32_t pid, rank;                     /* rank -1: none */
    uint64_t process_start, pid_namespace; /* see counters_file.h */
    uint64_t started_ns, started_ticks;
    char version[32];
    char program[256];
    char host[72];
    char boot[40];      /* the kernel's id of its own start: clocks of another one mean nothing */
    char driver[1024];  /* the file libcuda was loaded from */
    char trouble[128];  /* why nothing is redirected, or "" */
    char replay[128];   /* "" when graphs were not asked for, "on", or why they are unavailable */
    char ended_by[16];  /* "exit", "_exit", "quick_exit", "exec"; "" while it runs */
    uint32_t simulated; /* enum ag_simulated */
    char kept_because[352]; /* why the report is only here at the end, or "" */
    char settings[32768];   /* of each row: where it comes from, NUL, the value, NUL */
    uint32_t n_rules;
    char rules[AG_MAX_RULES][128]; /* as written */
};

struct ag_stats_device {
    int32_t ordinal;
    char name[128];
    uint64_t total_bytes;
};

#define AG_STATS_DEVICES_MET 64u
#define AG_STATS_BYPASSING   8u
#define AG_STATS_UNSEEN      12u

struct ag_stats {
    _Alignas(AG_STATS_PAGE) struct ag_stats_head head;
    struct ag_stats_device devices[AG_STATS_DEVICES_MET]; /* in the order they were met */
    _Atomic uint32_t n_devices;
    _Atomic uint32_t n_bypassing;            /* may be more than there are names */
    char bypassing[AG_STATS_BYPASSING][128]; /* libraries whose calls go past us: see bypass.h */
    char unseen[AG_STATS_UNSEEN][64]; /* libraries that use the device past us: see unseen.h */
    struct ag_app_pool_stats app_pools[AG_APP_POOLS];
    struct ag_first_error first_error;
    _Atomic uint32_t n_guard_findings; /* may be more than there are rows */
    struct ag_guard_finding guard_findings[AG_GUARD_FINDINGS];
    _Atomic uint64_t peak_bytes[AG_STATS_DEVICES][AG_N_PLACEMENTS]; /* most at a time: live.h */
    _Atomic uint64_t peak_all[AG_STATS_DEVICES];   /* likewise of all placements together */
    _Atomic uint64_t given_peak[AG_STATS_DEVICES]; /* most bytes that we had of the driver */
    struct ag_level pending_bytes, slab_bytes, own_graphs;
    struct ag_level pinned_bytes; /* freed, and kept */
    struct ag_own_graph_stats own_graph_devices[AG_STATS_DEVICES];
    _Atomic uint64_t cached_peak; /* most bytes in one context's cache */
    _Atomic uint64_t bus_gib_ns;  /* a GiB each way, in the fastest batch of moves; 0: none */
    _Atomic uint32_t n_marks;
    struct ag_mark_stats marks[AG_MARKS];
    _Atomic uint64_t eager_ns, replayed_ns; /* medians of the last comparison of the profit guard */
    _Atomic bool compared_unwaited;         /* it was of operations that nobody waited for */
    struct ag_stats_slot slots[AG_SLOTS];   /* see ag_slots_used() */
};

extern struct ag_stats ag_stats;

/* Touches the pages in which the calling thread counts what it does on the first device, before the
 * program waits for them. */
void ag_stats_prepare(void);
/* A number that differs between builds whose lists (counters, hooks, settings) or sizes differ. */
uint64_t ag_stats_fingerprint(void);
/* Replay was asked for; why it is unavailable, or NULL when it is on. Before anybody else
 * counts. */
void ag_stats_replay(const char *unavailable);
/* A device the report is to tell of; once for each, one thread at a time. */
void ag_stats_device_met(int ordinal, const char *name, uint64_t total_bytes);
/* The program passed the mark `ns` after the process began, with `bytes` allocated. False when
 * there are rows for no more names. A name longer than a row is cut. One thread at a time. */
bool ag_stats_mark(const char *name, uint64_t ns, uint64_t bytes);
uint64_t ag_stats_counter(enum ag_stat id);
uint64_t ag_stats_hits(enum ag_hook hook);
/* Sum over all slots of one uint64_t at `offset` bytes into a slot. */
uint64_t ag_stats_sum(size_t offset);
uint64_t ag_stats_sum_of(const struct ag_stats *stats, size_t offset);
uint64_t ag_stats_counter_of(const struct ag_stats *stats, enum ag_stat id);

/* Adds to a counter that only the calling thread adds to. Counters are relaxed: none is read to
 * learn of anything else, but for those of live.h. */
static inline void ag_stats_count_own(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Adds to a counter of the calling thread's slot. */
static inline void ag_stats_count(unsigned slot, _Atomic uint64_t *counter, uint64_t n)
{
    if (slot < AG_OWN_SLOTS)
        ag_stats_count_own(counter, n);
    else
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The calling thread's slot; if it is its own, the thread knows from now on where it counts. */
unsigned ag_stats_find_own(void);

/* Count what the functions below do, for any thread: also one that has not counted before. */
void ag_stats_add_first(enum ag_stat id, uint64_t n);
void ag_stats_hit_first(enum ag_hook hook);

static inline void ag_stats_add(enum ag_stat id, uint64_t n)
{
    struct ag_stats_slot *own = ag_slot_counters;

    if (__builtin_expect(own != NULL, 1))
        ag_stats_count_own(&own->counters[id], n);
    else
        ag_stats_add_first(id, n);
}

/* Adds to a counter of a thread that has counted before, without a call: see
 * ag_stats_hit_again(). */
static inline void ag_stats_add_again(enum ag_stat id, uint64_t n)
{
    unsigned slot = ag_slot_of_thread - 1;

    ag_stats_count(slot, &ag_stats.slots[slot].counters[id], n);
}

static inline void ag_stats_hit_again(enum ag_hook hook)
{
    unsigned slot = ag_slot_of_thread - 1;

    ag_stats_count(slot, &ag_stats.slots[slot].hits[hook], 1);
}

static inline void ag_stats_hit(enum ag_hook hook)
{
    struct ag_stats_slot *own = ag_slot_counters;

    if (__builtin_expect(own != NULL, 1))
        ag_stats_count_own(&own->hits[hook], 1);
    else
        ag_stats_hit_first(hook);
}

/* An allocation of `bytes` was decided by rule number `rule` (from 0), or by none (-1). */
static inline void ag_stats_rule_hit(int rule, uint64_t bytes)
{
    unsigned slot = ag_slot();
    unsigned row = rule >= 0 && rule < (int)AG_MAX_RULES ? (unsigned)rule : AG_MAX_RULES;
    struct ag_rule_stats *stats = &ag_stats.slots[slot].rules[row];

    ag_stats_count(slot, &stats->hits, 1);
    ag_stats_count(slot, &stats->bytes, bytes);
}

/* Rule number `rule`, which fails calls, held for one; `failed`: and failed it. */
static inline void ag_stats_rule_held(unsigned rule, bool failed)
{
    unsigned slot = ag_slot();
    struct ag_rule_stats *stats = &ag_stats.slots[slot].rules[rule];

    ag_stats_count(slot, &stats->held, 1);
    ag_stats_count(slot, &stats->failed, failed);
}

#define AG_UNWAITED_ITERATION 512u /* operations that stand for an iteration where nobody waits */

/* How long an iteration takes without graphs, and with them. `unwaited`: how long the host takes
 * for AG_UNWAITED_ITERATION operations of a stream that nobody waits for. */
static inline void ag_stats_compared(uint64_t eager_ns, uint64_t replayed_ns, bool unwaited)
{
    ag_stats_add(AG_STAT_REPLAY_COMPARISONS, 1);
    atomic_store_explicit(&ag_stats.eager_ns, eager_ns, memory_order_relaxed);
    atomic_store_explicit(&ag_stats.replayed_ns, replayed_ns, memory_order_relaxed);
    atomic_store_explicit(&ag_stats.compared_unwaited, unwaited, memory_order_relaxed);
}

static inline void ag_level_add(struct ag_level *level, uint64_t amount)
{
    uint64_t now =
        atomic_fetch_add_explicit(&level->current, amount, memory_order_relaxed) + amount;

    ag_raise_to(&level->peak, now);
}

/* Never below 0: two threads may have waited for the same bytes. */
static inline void ag_level_subtract(struct ag_level *level, uint64_t amount)
{
    uint64_t now = atomic_load_explicit(&level->current, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&level->current, &now,
                                                  now > amount ? now - amount : 0,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Sets a level that one thread at a time changes. */
static inline void ag_level_set(struct ag_level *level, uint64_t now)
{
    atomic_store_explicit(&level->current, now, memory_order_relaxed);
    ag_raise_to(&level->peak, now);
}

static inline uint64_t ag_level_current(struct ag_level *level)
{
    return atomic_load_explicit(&level->current, memory_order_relaxed);
}

/* Adds to a counter of a row of the program's pools. */
static inline void ag_stats_app_pool(unsigned row, enum ag_app_count which, uint64_t n)
{
    unsigned slot = ag_slot();

    ag_stats_count(slot, &ag_stats.slots[slot].app_pools[row][which], n);
}

/* What was counted for the row's pool. */
uint64_t ag_stats_app_pool_sum(const struct ag_stats *stats, unsigned row, enum ag_app_count which);

#endif
