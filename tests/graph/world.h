/* world.h: a device with memory, and operations of every kind that change it, for the tests of
 * graph/. */
#ifndef WORLD_H
#define WORLD_H

#include "interpose/core/driver/abi.h"

#include "graph/record/op.h"
#include "graph/replay/builder.h"
#include "interpose/core/driver/driver.h"
#include "sim.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

#define AREA_BYTES 4096u
#define MAX_OPS    64u

struct world {
    CUcontext context;
    CUstream stream;
    CUfunction mix, blend, quiet;
    CUkernel mix_kernel;
    CUdeviceptr area[2];
    unsigned char *pinned;
};

/* All that operations can change. */
struct state {
    unsigned char area[2][AREA_BYTES], pinned[AREA_BYTES];
    uint64_t quiet;
};

extern struct world world;

/* Fills ag_cu from the driver, and makes the world. */
void world_open(void);
void world_read(struct state *state);
void world_write(const struct state *state);
void world_scramble(uint64_t *chance_state);

/* What stays the same when an operation comes again: its signature, in other words. */
enum what {
    WHAT_MIX,
    WHAT_BLEND,
    WHAT_QUIET,
    WHAT_KERNEL,   /* mix, as a CUkernel */
    WHAT_BUFFER,   /* mix, packed into a buffer */
    WHAT_PRIORITY, /* mix, with an attribute */
    WHAT_OVERLAP,  /* mix, that may start before the kernel before it has finished */
    WHAT_COOPERATIVE,
    WHAT_DEVICE_COPY,
    WHAT_TO_DEVICE,
    WHAT_TO_HOST,
    WHAT_HOST_COPY,
    WHAT_UNIFIED,
    WHAT_SHAPED,
    WHAT_FILL,
    WHAT_FILL_SHAPED,
    N_WHATS
};

struct made {
    struct ag_op op;
    _Alignas(8) unsigned char payload[AG_MAX_PAYLOAD];
};

/* fixed: one number, one signature. payload: likewise. */
void world_make(struct made *made, enum what what, uint64_t fixed, uint64_t payload);

/* So many operations of chance. */
struct script {
    uint32_t n;
    enum what what[MAX_OPS];
    uint64_t fixed[MAX_OPS], payload[MAX_OPS];
};

void script_random(struct script *script, uint32_t n, uint64_t *chance_state);
/* Other payloads, each operation with a chance of `of_8` in 8. */
void script_vary(struct script *script, unsigned of_8, uint64_t *chance_state);
/* The operations of a script: payloads in `made`. */
void script_make(const struct script *script, struct made *made, struct ag_op *ops);
CUresult script_build(const struct ag_op *ops, uint32_t n, struct ag_graph **ret_graph);
void script_submit(const struct ag_op *ops, uint32_t n);

#endif
