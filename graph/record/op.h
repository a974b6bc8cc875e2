/* One operation on a stream, as the program asked for it, in a form that can be compared, kept, and
 * submitted later: alone or as a node of a graph.
 *
 * The *signature* is what a node of an executable graph cannot change: operations with different
 * signatures are different operations. The *payload* is what can change from launch to launch. Both
 * are plain bytes and are compared as a whole; nothing is ever decided by a hash alone.
 *
 * Example: of a kernel launch, the function, the block and the shared memory are signature, the
 * grid and the parameters are payload. Pure. */
#ifndef AG_GRAPH_OP_H
#define AG_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_layout; /* policy/managed/kernel_params.h */

#define AG_SIGNATURE_WORDS 6u
/* Bytes. The oldest bound on a kernel's parameters is 4096; what needs more is not recorded. */
#define AG_MAX_PAYLOAD 4224u

enum ag_op_kind {
    AG_OP_KERNEL = 1,
    AG_OP_COPY,    /* 1-D: addresses and bytes are payload */
    AG_OP_COPY_3D, /* 2-D, 3-D, arrays: all of it is signature (interned) */
    AG_OP_FILL,    /* 1-D memset: address, value, count are payload, the width signature */
    AG_OP_FILL_2D, /* 2-D memset: all of it is signature */
};

struct ag_signature {
    uint64_t word[AG_SIGNATURE_WORDS]; /* word[0]: kind in the low byte, flags of the kind above */
};

/* Flags of AG_OP_KERNEL in word[0]. */
#define AG_OP_IS_CUKERNEL    (1u << 8) /* the handle is a CUkernel */
#define AG_OP_IS_COOPERATIVE (1u << 9)

/* Flag of AG_OP_COPY in word[0]: from pageable memory, so that what is withheld reads a pinned
 * slot. A node of one cannot become one of the other. */
#define AG_OP_IS_STAGED (1u << 11)

/* Payloads, by kind. Unused bytes are 0, so that equal ones have equal bytes, and so are those up
 * to the next multiple of 8. Equal signatures have payloads of equal size. */
struct ag_kernel_payload {
    uint32_t grid[3];
    uint32_t bytes;                 /* of params */
    const struct ag_layout *layout; /* likewise; never freed */
    unsigned char params[];
};
struct ag_copy_payload {
    uint64_t to, from, bytes;
};
struct ag_fill_payload {
    uint64_t to, count; /* count: elements */
    uint64_t value;
};

struct ag_op {
    struct ag_signature signature;
    uint32_t payload_bytes;
    unsigned char *payload; /* where it is written: room for AG_MAX_PAYLOAD bytes, 8-byte aligned */
};

static inline enum ag_op_kind ag_op_kind(const struct ag_op *op)
{
    return (enum ag_op_kind)(op->signature.word[0] & 0xff);
}

static inline bool ag_signature_equal(const struct ag_signature *a, const struct ag_signature *b)
{
    uint64_t difference = 0;

    for (unsigned i = 0; i < AG_SIGNATURE_WORDS; i++)
        difference |= a->word[i] ^ b->word[i];
    return !difference;
}

/* A hash that finds candidates and boundaries; it never decides that two signatures are equal. */
uint64_t ag_signature_hash(const struct ag_signature *signature);

/* A launch, in either form of parameters. */
struct ag_kernel_call {
    CUfunction function;
    uint32_t grid[3], block[3], shared_bytes;
    void **params, **extra;
    const CUlaunchAttribute *attributes; /* may be NULL */
    uint32_t n_attributes;
    bool cooperative;
};

/* These fill op->signature, op->payload_bytes and the bytes at op->payload. False: the operation
 * cannot be recorded (attributes with an effect outside a graph, too large, NULL parameters) and
 * must be passed. */
bool ag_op_kernel(struct ag_op *op, const struct ag_kernel_call *call,
                  const struct ag_layout *layout);
/* kinds: the memory types, in the signature (CU_MEMORYTYPE_*). */
bool ag_op_copy(struct ag_op *op, uint64_t to, CUmemorytype to_type, uint64_t from,
                CUmemorytype from_type, uint64_t bytes);
/* A copy between host and device memory that both are named by addresses: no arrays. */
bool ag_op_copy_3d(struct ag_op *op, const CUDA_MEMCPY3D *copy);
/* width: bytes of an element, 1, 2 or 4. */
bool ag_op_fill(struct ag_op *op, uint64_t to, unsigned width, uint32_t value, uint64_t count);
bool ag_op_fill_2d(struct ag_op *op, uint64_t to, uint64_t pitch, unsigned width, uint32_t value,
                   uint64_t columns, uint64_t rows);

/* Reading an operation back, as it was recorded. What is pointed to is interned: never freed. */
struct ag_kernel_config {
    CUfunction function; /* or a CUkernel, AG_OP_IS_CUKERNEL */
    uint32_t block[3], shared_bytes;
    const CUlaunchAttribute
        *attributes; /* those that matter; without cooperative, which is a flag */
    uint32_t n_attributes;
};
struct ag_fill_area {
    uint64_t to, pitch, columns, rows; /* pitch 0: one row */
    uint32_t value;
    unsigned width;
};
void ag_op_kernel_config(const struct ag_signature *signature, struct ag_kernel_config *ret_config);
void ag_op_copy_types(const struct ag_signature *signature, CUmemorytype *ret_to,
                      CUmemorytype *ret_from);
const CUDA_MEMCPY3D *ag_op_copy_3d_params(const struct ag_signature *signature);
void ag_op_fill_area(const struct ag_op *op, struct ag_fill_area *ret_area); /* of either kind */

#endif
