/* Recorded parameters of a kernel, and recorded 1-D copies, in the form that the driver takes. */
#ifndef AG_GRAPH_ARGUMENTS_H
#define AG_GRAPH_ARGUMENTS_H

#include "graph/record/op.h"
#include "interpose/core/driver/abi.h"
#include "policy/managed/kernel_params.h"

/* Points into the payload and into itself: not to be moved. */
struct ag_arguments {
    void **params; /* for the driver; NULL: there are none */
    void *pointers[AG_MAX_PARAMS];
};

void ag_arguments_of(struct ag_kernel_payload *payload, struct ag_arguments *ret_arguments);
/* A copy of one row. */
void ag_arguments_copy(const struct ag_signature *signature, const struct ag_copy_payload *payload,
                       CUDA_MEMCPY3D *ret_copy);

#endif
