/* step.h: how the programs of the fault tests call the driver: every call is a step that prints its
 * code, and a step that fails is lived with, as a careful program does.
 *
 *     cuMemAlloc_v2 3: 0          the third call of that symbol by this program gave 0
 *
 * So a run in which one call fails can be held against a native run in which the same call
 * fails. */
#ifndef STEP_H
#define STEP_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim.h"

/* Counts and prints a step; returns whether it worked. A question whether work is finished may be
 * answered "not ready" unless it is known to be: that is printed as a success. */
bool step_said(const char *symbol, CUresult code, bool surely_ready);
void step_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define STEP_NAME(symbol) #symbol
/* The symbol that cuda.h makes of a name. */
#define STEP_SYMBOL(name)             STEP_NAME(name)
#define STEP(name, ...)               step_said(STEP_SYMBOL(name), name(__VA_ARGS__), true)
#define STEP_READY(surely, name, ...) step_said(STEP_SYMBOL(name), name(__VA_ARGS__), surely)

/* Initialises the driver, makes the primary context of `device` current, loads the kernels. */
bool step_open(int device);
/* The kernels, again for a new context. */
bool step_load(void);

extern CUfunction step_fill;  /* p, n, value: writes value + i to word i */
extern CUfunction step_check; /* p, n, value, result: adds the number of wrong words to *result */

void step_launch_fill(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value);

/* A block of the program: 0 where the allocation failed. */
struct step_block {
    CUdeviceptr p;
    uint32_t n, value; /* words, and what they were filled with */
    int context;       /* the program's own number for where it lives */
};

/* Allocates `bytes` and fills them on `stream`, if there is memory. */
void step_alloc(struct step_block *block, size_t bytes, CUstream stream, uint32_t value);
/* Reads a block back, prints whether it holds what it was filled with. */
void step_verify(const struct step_block *block, CUstream stream);
/* Frees it, if it is there; after a failure it is still the program's. */
void step_free(struct step_block *block);
/* Blocks of this context are gone with it. */
void step_context_gone(struct step_block *blocks, size_t n, int context);
/* Prints what the program still holds, which is what the report has to say too. */
void step_live(const struct step_block *blocks, size_t n);

#endif
