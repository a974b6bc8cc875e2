/* Who holds memory, and who waits: stacks, and what was allocated from each, or how long the host
 * waited there for the device. The tables are one piece of memory without pointers: that of this
 * process, in its file of counters after them (counters_file.h), where it survives the process and
 * others look at it; or what was read back from a report.
 *
 * Writers only add rows, and publish them by their number. Counts are atomic and relaxed. */
#ifndef AG_HOLDERS_FORMAT_H
#define AG_HOLDERS_FORMAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/slot.h"

#define AG_HOLDERS_MAGIC   "AGHOLD2"
#define AG_HOLDERS_STACKS  8192u
#define AG_HOLDERS_FRAMES  (AG_HOLDERS_STACKS * 24)
#define AG_HOLDERS_MODULES 1024u
#define AG_HOLDERS_TEXT    (1u << 20)
#define AG_HOLDERS_MOST    64u   /* frames of a stack; as many again of Python */
#define AG_HOLDERS_WAITS   4096u /* stacks of waits, of all: some are left for memory */

/* Counts of blocks, which sampling makes fractions of. */
#define AG_HOLDERS_ONE 256u

enum ag_held_kind {
    AG_HELD_DEVICE, /* cudaMalloc */
    AG_HELD_POOL,   /* cudaMallocAsync */
    AG_HELD_MANAGED,
    AG_HELD_HOST, /* pinned */
    AG_N_HELD_KINDS
};
extern const char *const ag_held_names[AG_N_HELD_KINDS];
/* In the place of such a kind: the stack is of a wait. */
#define AG_HELD_WAIT AG_N_HELD_KINDS

/* What kind of call waited (interpose/core/report/waits/). */
enum ag_wait_kind {
    AG_WAIT_SYNC,       /* for a stream, an event or a context */
    AG_WAIT_COPY,       /* a copy that blocks */
    AG_WAIT_ASYNC_COPY, /* one on a stream: the driver stages pageable memory within the call */
    AG_WAIT_FILL,       /* a memset */
    AG_WAIT_FREE,       /* a free of device or pinned memory */
    AG_WAIT_CODE,       /* code is loaded or unloaded */
    AG_N_WAIT_KINDS
};
extern const char *const ag_wait_names[AG_N_WAIT_KINDS];

/* Memory whose peak is one: that of each device, managed, the host's. */
#define AG_HELD_DEVICES 16u /* devices of a higher ordinal share the last */
#define AG_HELD_GROUPS  (AG_HELD_DEVICES + 2)
static inline unsigned ag_held_group(enum ag_held_kind kind, int device)
{
    if (kind == AG_HELD_MANAGED || kind == AG_HELD_HOST)
        return AG_HELD_DEVICES + (kind == AG_HELD_HOST);
    return device < 0 || device >= (int)AG_HELD_DEVICES ? AG_HELD_DEVICES - 1 : (unsigned)device;
}

/* A frame is a module and an offset (walk.h), or of Python: */
#define AG_FRAME_PYTHON (1ull << 63)
/* then bits 32 to 55 are the line, and the lower ones where in `text` its function and, after the
 * NUL, its file stand. */
static inline uint64_t ag_frame_python(uint32_t text, uint32_t line)
{
    return AG_FRAME_PYTHON | (uint64_t)(line & 0xffffff) << 32 | text;
}
static inline uint32_t ag_frame_line(uint64_t frame)
{
    return (uint32_t)(frame >> 32) & 0xffffff;
}

struct ag_held_module {
    uint64_t base;           /* where its first segment is mapped */
    uint32_t path, build_id; /* in `text`; build_id 0: none */
};

/* Bytes, and blocks times AG_HOLDERS_ONE. */
struct ag_held {
    _Atomic uint64_t bytes, blocks;
};

enum ag_held_when {
    AG_HELD_LIVE,
    AG_HELD_EVER,   /* all that was allocated */
    AG_HELD_PEAK,   /* when the group had most */
    AG_HELD_ENDED,  /* went with its context, and was never freed */
    AG_HELD_FAILED, /* when an allocation failed last */
    AG_N_HELD_WHEN
};

/* What became of memory that can move (ALLOGRAFT_OOM=page): bytes. */
enum ag_held_move {
    AG_HELD_CAME,     /* to the device */
    AG_HELD_WENT,     /* to the host */
    AG_HELD_IN_PLACE, /* was used on the host */
    AG_N_HELD_MOVES
};
extern const char *const ag_held_move_keys[AG_N_HELD_MOVES]; /* in JSON */

/* Waits: how many, their sum, and the longest. */
struct ag_waited {
    _Atomic uint64_t times, ns, longest_ns;
};

struct ag_held_stack {
    uint32_t first, n; /* frames */
    uint8_t kind;      /* enum ag_held_kind, or AG_HELD_WAIT */
    uint8_t is_cut;    /* there are more frames than these */
    int16_t device;    /* ordinal; -1: none. Of a wait: enum ag_wait_kind */
    uint32_t call;     /* of a wait: in `text`, the function that waited; else 0 */
    union {
        struct ag_held held[AG_N_HELD_WHEN];
        struct ag_waited waited;
    };
    _Atomic uint64_t moved[AG_N_HELD_MOVES];
};

static inline bool ag_held_is_wait(const struct ag_held_stack *stack)
{
    return stack->kind == AG_HELD_WAIT;
}

struct ag_held_group {
    _Atomic uint64_t live;    /* bytes */
    _Atomic uint64_t most;    /* that ever were */
    _Atomic uint64_t at_peak; /* of AG_HELD_PEAK: close to `most` */
};

/* The last allocation that failed for want of memory, and what held it. */
struct ag_held_failure {
    _Atomic uint64_t n; /* so many failed */
    uint64_t bytes;     /* of the last one, as asked for */
    uint8_t kind;       /* enum ag_held_kind */
    int16_t device;
    uint64_t free_bytes, total_bytes;  /* of the device, by the driver */
    uint64_t cached_bytes;             /* freed blocks that our caches still hold */
    uint64_t pool_reserved, pool_used; /* of our pool: what is between is in pieces */
};

/* Waits that were shorter, by slots of threads. */
struct ag_waited_slot {
    _Alignas(64) _Atomic uint64_t times, ns;
};

struct ag_holders {
    char magic[8];        /* AG_HOLDERS_MAGIC */
    uint64_t bytes;       /* sizeof(struct ag_holders) */
    uint32_t most_frames; /* of stacks that hold memory; 0: nobody asked who does */
    uint32_t unused;
    uint64_t sample_bytes;  /* mean distance of samples; 0: every block counts */
    uint64_t wait_bound_ns; /* shorter waits have no stack; 0: nobody asked who waits */
    struct ag_waited_slot short_waits[AG_SLOTS];
    struct ag_waited waits_lost; /* no room for a row */
    _Atomic uint32_t n_stacks, n_frames, n_modules, n_text;
    _Atomic uint64_t lost;                   /* allocations without a row: there was no room */
    _Atomic uint64_t taken, timed, timed_ns; /* stacks; of some of them, what taking them took */
    struct ag_held_group groups[AG_HELD_GROUPS];
    struct ag_held_failure failure;
    struct ag_held_module modules[AG_HOLDERS_MODULES]; /* the first one is none */
    struct ag_held_stack stacks[AG_HOLDERS_STACKS];
    uint64_t frames[AG_HOLDERS_FRAMES];
    char text[AG_HOLDERS_TEXT]; /* begins with a NUL */
};

#endif
