/* The layout of a kernel's parameters, as the driver reports it, for as long as the kernel
 * exists. */
#ifndef AG_POLICY_PARAMS_H
#define AG_POLICY_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

#define AG_MAX_PARAMS 256u /* kernels with more have no layout here */

struct ag_param {
    uint32_t offset, size; /* bytes, in the packed buffer of all parameters */
};

struct ag_layout {
    uint32_t n, total;     /* total: bytes of the packed buffer */
    uint32_t is_kernel;    /* the handle is a CUkernel, and no CUfunction */
    uint32_t has_clusters; /* of a size that the kernel, not the launch, names: grids must fit it */
    struct ag_param params[];
};

/* The layout of a function that can be launched: a CUfunction, or a CUkernel cast to one (as
 * CUDA's runtime passes it). NULL when the driver does not report it, which is counted and
 * logged once. Layouts are never freed or changed. Takes no lock once a function is known; asks
 * the driver the first time, which may load the kernel: not inside a capture. */
const struct ag_layout *ag_params_of(CUfunction function);

/* What the driver says of a function, or of a CUkernel cast to one on the current device. False: it
 * does not say. */
bool ag_params_attribute(CUfunction function, bool as_kernel, CUfunction_attribute attribute,
                         int *ret_value);

/* The packed buffer that a launch's `extra` names, of *ret_bytes; NULL when there is none, or when
 * it says what the driver refuses. */
const void *ag_params_buffer(void **extra, size_t *ret_bytes);

/* Makes the tables before the first question. */
void ag_params_prepare(void);

/* Some functions are about to go (a module, library or context): another may come under the same
 * handle. Before the driver's call. */
void ag_params_forget(void);
void ag_params_begin_child(void);

#endif
