/* Operations in a form that can be compared and kept: see op.h.
 *
 * The words of a signature, beside the kind and its flags:
 *                 1         2           3              4             5
 *   kernel        function  block x, y  block z,       attributes    grid, where the driver
 *                                       shared bytes   (interned)    checks it
 *   copy          to type   from type
 *   copy, 3-D     the CUDA_MEMCPY3D (interned)
 *   fill          width
 *   fill, 2-D     to        pitch       width, value   columns       rows
 *   host
 *
 * The driver checks block and shared bytes; they are signature so that a launch with the same ones
 * as a launch that it accepted will be accepted. Whatever else the driver checks must be signature
 * too, or be refused here. Else a program would not see the error of a wrong call. */
#include "graph/record/op.h"

#include <stddef.h>
#include <string.h>

#include "graph/record/intern.h"
#include "policy/managed/kernel_params.h"

#define MAX_ATTRIBUTES   16u
#define MAX_PARAMS_BYTES (AG_MAX_PAYLOAD - (uint32_t)sizeof(struct ag_kernel_payload))

static uint64_t pair(uint64_t low, uint64_t high)
{
    return low | high << 32;
}

uint64_t ag_signature_hash(const struct ag_signature *signature)
{
    const uint64_t *word = signature->word;
    unsigned __int128 a, b, c;

    a = (unsigned __int128)(word[0] ^ 0xa0761d6478bd642fu) * (word[1] ^ 0xe7037ed1a0b428dbu);
    b = (unsigned __int128)(word[2] ^ 0x8ebc6af09c88c6e3u) * (word[3] ^ 0x589965cc75374cc3u);
    c = (unsigned __int128)(word[4] ^ 0x1d8e4e27c47d124fu) * (word[5] ^ 0xeb44accab455d165u);
    a = (unsigned __int128)((uint64_t)a ^ (uint64_t)(a >> 64) ^ (uint64_t)c) *
        ((uint64_t)b ^ (uint64_t)(b >> 64) ^ (uint64_t)(c >> 64) ^ 0x9e3779b97f4a7c15u);
    return (uint64_t)a ^ (uint64_t)(a >> 64);
}

/* --- a kernel's attributes --- */

/* The bytes of an attribute's value; 0 for those that cannot be recorded. The rest of the union is
 * whatever the program left there. */
static size_t value_bytes(CUlaunchAttributeID id)
{
    const CUlaunchAttributeValue *value = NULL;

    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return offsetof(CUaccessPolicyWindow, missProp) +
               sizeof(value->accessPolicyWindow.missProp);
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return sizeof(value->cooperative);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return sizeof(value->clusterDim);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return sizeof(value->clusterSchedulingPolicyPreference);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return sizeof(value->programmaticStreamSerializationAllowed);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        return sizeof(value->priority);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return sizeof(value->memSyncDomainMap);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return sizeof(value->memSyncDomain);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        return sizeof(value->preferredClusterDim);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return sizeof(value->sharedMemCarveout);
    default: /* events, nodes that the device updates, what only streams have, what came later */
        return 0;
    }
}

/* The attributes in the order given, each at most once. `fixed` is set where the driver checks the
 * grid. */
static bool read_attributes(struct ag_signature *signature, const struct ag_kernel_call *call,
                            bool *fixed)
{
    CUlaunchAttribute kept[MAX_ATTRIBUTES];
    const struct ag_interned *interned;
    uint32_t n = 0, seen = 0;

    for (uint32_t i = 0; i < call->n_attributes; i++) {
        const CUlaunchAttribute *given = &call->attributes[i];
        size_t bytes = value_bytes(given->id);

        if (given->id == CU_LAUNCH_ATTRIBUTE_IGNORE)
            continue;
        if (!bytes || n == MAX_ATTRIBUTES || seen >> given->id & 1u)
            return false;
        seen |= 1u << given->id;
        if (given->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            if (given->value.cooperative)
                signature->word[0] |= AG_OP_IS_COOPERATIVE;
            continue;
        }
        *fixed |= given->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
                  given->id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
        memset(&kept[n], 0, sizeof(kept[n]));
        kept[n].id = given->id;
        memcpy(&kept[n++].value, &given->value, bytes);
    }
    if (!n)
        return true;
    interned = ag_intern(kept, n * (uint32_t)sizeof(kept[0]));
    signature->word[4] = (uint64_t)(uintptr_t)interned;
    return interned;
}

/* --- a kernel's parameters --- */

static void copy_param(unsigned char *to, const void *from, uint32_t size)
{
    switch (size) { /* nearly all are one of these */
    case 8:
        memcpy(to, from, 8);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    default:
        memcpy(to, from, size);
        break;
    }
}

/* Copies the parameters from an array of addresses, or from a packed buffer; what lies between two
 * parameters is 0. */
static bool pack_params(unsigned char *to, const struct ag_layout *layout, void **params,
                        const unsigned char *buffer)
{
    uint32_t end = 0;

    for (uint32_t i = 0; i < layout->n; i++) {
        const struct ag_param *param = &layout->params[i];
        const void *from = params ? params[i] : buffer + param->offset;

        if (!from || param->offset < end)
            return false;
        if (param->offset > end)
            memset(to + end, 0, param->offset - end);
        copy_param(to + param->offset, from, param->size);
        end = param->offset + param->size;
    }
    return end == layout->total;
}

/* *ret_given: bytes of the program's buffer, where the driver may have an opinion about it; else 0.
 */
static bool read_params(unsigned char *to, const struct ag_kernel_call *call,
                        const struct ag_layout *layout, uint32_t *ret_given)
{
    const unsigned char *buffer = NULL;
    size_t size = layout->total;

    if (size > MAX_PARAMS_BYTES || (call->params && call->extra))
        return false;
    if (call->extra)
        buffer = ag_params_buffer(call->extra, &size);
    if ((!buffer && (call->extra || (!call->params && layout->n))) || size < layout->total ||
        size > UINT32_MAX)
        return false;
    *ret_given = size == layout->total ? 0 : (uint32_t)size;
    if (layout->total % 8) /* so that payloads can be compared by words */
        memset(to + (layout->total & ~7u), 0, 8);
    return pack_params(to, layout, call->params, buffer);
}

/* --- a kernel --- */

static bool is_dimension(const uint32_t *dimension, uint32_t most)
{
    return dimension[0] - 1 < most && dimension[1] - 1 < UINT16_MAX &&
           dimension[2] - 1 < UINT16_MAX; /* 0 is too large, too */
}

bool ag_op_kernel(struct ag_op *op, const struct ag_kernel_call *call,
                  const struct ag_layout *layout)
{
    struct ag_kernel_payload *payload = (struct ag_kernel_payload *)(void *)op->payload;
    uint64_t *word = op->signature.word;
    uint32_t given;
    bool fixed = layout->has_clusters; /* the driver checks grids against them */

    if (!is_dimension(call->grid, INT32_MAX) || !is_dimension(call->block, UINT32_MAX) ||
        (call->n_attributes && !call->attributes) ||
        !read_params(payload->params, call, layout, &given))
        return false;
    word[0] = AG_OP_KERNEL | (layout->is_kernel ? AG_OP_IS_CUKERNEL : 0) |
              (call->cooperative ? AG_OP_IS_COOPERATIVE : 0) | (uint64_t)given << 32;
    word[1] = (uint64_t)(uintptr_t)call->function;
    word[2] = pair(call->block[0], call->block[1]);
    word[3] = pair(call->block[2], call->shared_bytes);
    word[4] = word[5] = 0;
    if (call->n_attributes && !read_attributes(&op->signature, call, &fixed))
        return false;
    if (fixed || word[0] & AG_OP_IS_COOPERATIVE)
        word[5] = call->grid[0] | (uint64_t)call->grid[1] << 32 | (uint64_t)call->grid[2] << 48;
    memcpy(payload->grid, call->grid, sizeof(payload->grid));
    payload->layout = layout;
    payload->bytes = layout->total;
    op->payload_bytes = (uint32_t)sizeof(*payload) + layout->total;
    return true;
}

void ag_op_kernel_config(const struct ag_signature *signature, struct ag_kernel_config *ret_config)
{
    const uint64_t *word = signature->word;
    const struct ag_interned *interned = (const struct ag_interned *)(uintptr_t)word[4];

    *ret_config = (struct ag_kernel_config){
        .function = (CUfunction)(uintptr_t)word[1],
        .block = {(uint32_t)word[2], (uint32_t)(word[2] >> 32), (uint32_t)word[3]},
        .shared_bytes = (uint32_t)(word[3] >> 32),
        .attributes = interned ? (const CUlaunchAttribute *)(const void *)interned->content : NULL,
        .n_attributes = interned ? interned->bytes / (uint32_t)sizeof(CUlaunchAttribute) : 0,
    };
}

/* --- copies --- */

static void sign(struct ag_op *op, enum ag_op_kind kind)
{
    op->signature = (struct ag_signature){.word = {kind}};
    op->payload_bytes = 0;
}

bool ag_op_copy(struct ag_op *op, uint64_t to, CUmemorytype to_type, uint64_t from,
                CUmemorytype from_type, uint64_t bytes)
{
    struct ag_copy_payload payload = {.to = to, .from = from, .bytes = bytes};

    if (!to || !from || !bytes)
        return false;
    sign(op, AG_OP_COPY);
    op->signature.word[1] = to_type;
    op->signature.word[2] = from_type;
    memcpy(op->payload, &payload, sizeof(payload));
    op->payload_bytes = sizeof(payload);
    return true;
}

void ag_op_copy_types(const struct ag_signature *signature, CUmemorytype *ret_to,
                      CUmemorytype *ret_from)
{
    *ret_to = (CUmemorytype)signature->word[1];
    *ret_from = (CUmemorytype)signature->word[2];
}

/* Copies only what counts for a source, or destination, of its type. */
#define TAKE_SIDE(kept, copy, side)                         \
    do {                                                    \
        (kept).side##XInBytes = (copy)->side##XInBytes;     \
        (kept).side##Y = (copy)->side##Y;                   \
        (kept).side##Z = (copy)->side##Z;                   \
        (kept).side##MemoryType = (copy)->side##MemoryType; \
        if ((copy)->side##MemoryType == CU_MEMORYTYPE_HOST) \
            (kept).side##Host = (copy)->side##Host;         \
        else                                                \
            (kept).side##Device = (copy)->side##Device;     \
        (kept).side##Pitch = (copy)->side##Pitch;           \
        (kept).side##Height = (copy)->side##Height;         \
    } while (0)

static bool is_type(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE;
}

bool ag_op_copy_3d(struct ag_op *op, const CUDA_MEMCPY3D *copy)
{
    const struct ag_interned *interned;
    CUDA_MEMCPY3D kept;

    if (!is_type(copy->srcMemoryType) || !is_type(copy->dstMemoryType) || !copy->WidthInBytes ||
        !copy->Height || !copy->Depth)
        return false;
    memset(&kept, 0, sizeof(kept)); /* the padding, too */
    TAKE_SIDE(kept, copy, src);
    TAKE_SIDE(kept, copy, dst);
    kept.WidthInBytes = copy->WidthInBytes;
    kept.Height = copy->Height;
    kept.Depth = copy->Depth;
    interned = ag_intern(&kept, sizeof(kept));
    if (!interned)
        return false;
    sign(op, AG_OP_COPY_3D);
    op->signature.word[1] = (uint64_t)(uintptr_t)interned;
    return true;
}

const CUDA_MEMCPY3D *ag_op_copy_3d_params(const struct ag_signature *signature)
{
    const struct ag_interned *interned = (const struct ag_interned *)(uintptr_t)signature->word[1];

    return (const CUDA_MEMCPY3D *)(const void *)interned->content;
}

/* --- fills --- */

static bool is_fill(uint64_t to, unsigned width, uint32_t *value)
{
    if (width == 1 || width == 2)
        *value &= (1u << 8 * width) - 1;
    else if (width != 4)
        return false;
    return to && to % width == 0;
}

bool ag_op_fill(struct ag_op *op, uint64_t to, unsigned width, uint32_t value, uint64_t count)
{
    struct ag_fill_payload payload;

    if (!is_fill(to, width, &value) || !count || count > UINT64_MAX / width)
        return false;
    sign(op, AG_OP_FILL);
    op->signature.word[1] = width;
    payload = (struct ag_fill_payload){.to = to, .count = count, .value = value};
    memcpy(op->payload, &payload, sizeof(payload));
    op->payload_bytes = sizeof(payload);
    return true;
}

bool ag_op_fill_2d(struct ag_op *op, uint64_t to, uint64_t pitch, unsigned width, uint32_t value,
                   uint64_t columns, uint64_t rows)
{
    if (!is_fill(to, width, &value) || !columns || !rows)
        return false;
    sign(op, AG_OP_FILL_2D);
    op->signature.word[1] = to;
    op->signature.word[2] = pitch;
    op->signature.word[3] = pair(width, value);
    op->signature.word[4] = columns;
    op->signature.word[5] = rows;
    return true;
}

void ag_op_fill_area(const struct ag_op *op, struct ag_fill_area *ret_area)
{
    const struct ag_fill_payload *fill = (const void *)op->payload;
    const uint64_t *word = op->signature.word;

    if (ag_op_kind(op) == AG_OP_FILL) {
        *ret_area = (struct ag_fill_area){.to = fill->to,
                                          .columns = fill->count,
                                          .rows = 1,
                                          .value = (uint32_t)fill->value,
                                          .width = (unsigned)word[1]};
        return;
    }
    *ret_area = (struct ag_fill_area){
        .to = word[1],
        .pitch = word[2],
        .width = (unsigned)(uint32_t)word[3],
        .value = (uint32_t)(word[3] >> 32),
        .columns = word[4],
        .rows = word[5],
    };
}
