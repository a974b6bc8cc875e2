/* The format of a trace: what ALLOGRAFT_TRACE writes and `allograft trace` reads.
 *
 * A file is a header, followed by units of AG_TRACE_UNIT bytes, little-endian. A unit is an event,
 * or belongs to the text that the event before it announces. A process that is killed leaves a file
 * that ends anywhere: what follows the last whole unit is ignored.
 *
 * Events of one thread are in their order. Those of several threads come in portions, which a
 * reader sorts by their ticks: allocations, failed ones too, by when they ended, and all else by
 * when it began, since that is when an address became the program's, and when it ceased to be.
 * Ticks are converted to time by the moments in the header and in AG_TRACE_CLOCK events, which have
 * both clocks.
 *
 * Names are in the file, so that a reader of another build can read it: an AG_TRACE_TEXT event
 * names a placement, a reason or a module before the first event that refers to it.
 *
 * Within one version no field moves and no kind gets another meaning. New kinds may be added, which
 * a reader skips. */
#ifndef AG_TRACE_FORMAT_H
#define AG_TRACE_FORMAT_H

#include <stdint.h>

#define AG_TRACE_MAGIC    "AGTRACE"
#define AG_TRACE_VERSION  1u
#define AG_TRACE_UNIT     64u
#define AG_TRACE_TEXT_MAX 4096u /* bytes of a text */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are written as they are");

/* Both clocks at one moment. */
struct ag_trace_moment {
    uint64_t ticks; /* of the counter that events have */
    uint64_t ns;    /* CLOCK_MONOTONIC */
};

struct ag_trace_header {
    char magic[8];         /* AG_TRACE_MAGIC */
    uint32_t version;      /* AG_TRACE_VERSION */
    uint32_t header_bytes; /* the first unit lies there */
    uint32_t unit_bytes;   /* AG_TRACE_UNIT */
    int32_t pid, rank;     /* rank -1: none */
    uint32_t simulated;    /* 1: the driver is the simulated one, whose times mean nothing */
    struct ag_trace_moment started, opened; /* the process's first hooked call; this file */
    uint64_t opened_real_ns;                /* CLOCK_REALTIME when it was opened */
    char allograft[32];                     /* version of the writer */
    char host[72];
    char program[256];
    char unused[80];
};
_Static_assert(sizeof(struct ag_trace_header) == 512, "as documented");

enum ag_trace_kind {
    /* Memory. code: see below; caller, module: who called, where known. */
    AG_TRACE_ALLOC = 1,   /* cudaMalloc: size as asked for; placement that it got */
    AG_TRACE_FREE,        /* cudaFree, or AG_TRACE_BY_CONTEXT: size as it was asked for */
    AG_TRACE_ALLOC_ASYNC, /* the program's own stream-ordered allocation */
    AG_TRACE_FREE_ASYNC,  /* its free: size 0 where the size is not known */
    AG_TRACE_FAILED,      /* an allocation that failed: placement requested; code: the CUresult */
    AG_TRACE_MOVED,       /* a spilled block that the program has is in `placement` now */
    AG_TRACE_STEP,  /* a step of budget and pressure, code: its text; size: bytes wanted, or 0 */
    AG_TRACE_STACK, /* of the allocation that gave `address` just before, with ALLOGRAFT_STACKS:
                       code: the number of its stack in the report (`holders.stacks`) */
    /* Replay. stream: the stream's; size: operations. */
    AG_TRACE_REPLAY = 16, /* launched as a graph; address: nodes updated */
    AG_TRACE_RELEASE,     /* withheld, then submitted one by one */
    AG_TRACE_FLUSH,       /* what is withheld must go out; code: the text of the reason */
    AG_TRACE_BUILD,       /* a graph was built */
    /* The control API, and what moves managed memory. stream: the stream's. */
    AG_TRACE_TRANSFER = 24, /* copied to the device by a ring (code: the slot) or into an input of
                               a stage (code: its number); address: to where; size: bytes */
    AG_TRACE_API_CAPTURE,   /* a graph was captured; code: 0, or it came to nothing: 1 */
    AG_TRACE_API_REPLAY,    /* a captured graph was launched */
    AG_TRACE_MANAGED_ALLOC, /* managed memory that the program asked for: address, size */
    AG_TRACE_MANAGED_FREE,  /* the same, freed */
    AG_TRACE_PREFETCH,  /* managed memory is moved to the device, AG_TRACE_NO_DEVICE: to the host;
                          address, size */
    AG_TRACE_MARK = 32, /* the program or a tool says so; code: its text */
    AG_TRACE_WAIT = 40, /* the host waited in a call; code: the text of its name */
    /* Pinned memory of cudaMallocHost and cudaHostAlloc: address, size. caller, module as above. */
    AG_TRACE_PINNED_ALLOC,
    AG_TRACE_PINNED_FREE, /* the same, freed; size 0 */
    AG_TRACE_PIECES, /* pieces of movable memory came to the device, AG_TRACE_NO_DEVICE: went to the
                        host; size: their bytes; code: how many. Both ways at once are two events */
    /* The file's own. */
    AG_TRACE_TEXT =
        48, /* code: what for (ag_trace_text); address: number; size: bytes, in the units that
               follow, without NUL at the end. Of a module: caller is where it lies in memory,
               and after its path may come a NUL and its build-id in hexadecimal digits */
    AG_TRACE_CLOCK,   /* ticks and, in address, CLOCK_MONOTONIC at the same moment */
    AG_TRACE_DROPPED, /* size: events that were lost since the last of these, for want of room */
    AG_TRACE_END,     /* a normal end; code: ag_trace_end. After a failed exec, more follows */
};

/* What a text names: the number of a field. */
enum ag_trace_text {
    AG_TRACE_TEXT_PLACEMENT = 1,
    AG_TRACE_TEXT_STEP,
    AG_TRACE_TEXT_FLUSH,
    AG_TRACE_TEXT_MARK,
    AG_TRACE_TEXT_MODULE, /* number 0: not known */
    AG_TRACE_TEXT_WAIT,
};

enum ag_trace_end {
    AG_TRACE_END_EXIT = 1,
    AG_TRACE_END_QUICK,
    AG_TRACE_END_AT_ONCE, /* _exit */
    AG_TRACE_END_EXEC,
};

/* code of AG_TRACE_FREE: the context went, and the memory with it. */
#define AG_TRACE_BY_CONTEXT 1u
/* placement of the program's own pools; below it enum ag_placement, whose names are texts. */
#define AG_TRACE_PLACE_APP_POOL 15u
#define AG_TRACE_N_PLACES       16u
#define AG_TRACE_NO_DEVICE      (-1)

struct ag_trace_event {
    uint64_t ticks;    /* when it began */
    uint64_t duration; /* ticks */
    uint64_t address;
    uint64_t size;
    uint64_t stream;   /* handle; 0: the legacy stream, or none */
    uint64_t caller;   /* return address of the call; 0: not known */
    uint32_t thread;   /* gettid() */
    uint32_t sequence; /* in its buffer: serves the writer */
    uint8_t kind;      /* enum ag_trace_kind */
    uint8_t placement; /* enum ag_placement, or AG_TRACE_PLACE_APP_POOL */
    int16_t device;    /* ordinal, or AG_TRACE_NO_DEVICE */
    uint16_t module;   /* number of a text */
    uint16_t code;
};
_Static_assert(sizeof(struct ag_trace_event) == AG_TRACE_UNIT, "one unit");

#endif
