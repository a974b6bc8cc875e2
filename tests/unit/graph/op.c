/* graph/record/op.c and graph/record/intern.c: what is packed is what was given, and nothing
 * else. */
#include "graph/record/op.h"

#include <pthread.h>
#include <string.h>

#include "graph/record/intern.h"
#include "interpose/core/driver/driver.h"
#include "policy/managed/kernel_params.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

struct ag_driver ag_cu;

#define GUARD 64u

static uint64_t state = 1;

static void fill_with_chance(void *there, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)there)[i] = (unsigned char)chance(&state);
}

/* Room with garbage in it, and behind it, where nothing may be written. */
struct room {
    _Alignas(8) unsigned char bytes[AG_MAX_PAYLOAD + GUARD];
    unsigned char before[GUARD];
    struct ag_op op;
};

static struct ag_op *fresh(struct room *room)
{
    fill_with_chance(room->bytes, sizeof(room->bytes));
    memcpy(room->before, room->bytes + AG_MAX_PAYLOAD, GUARD);
    fill_with_chance(&room->op, sizeof(room->op));
    room->op.payload = room->bytes;
    return &room->op;
}

static void check_room(const struct room *room)
{
    uint32_t bytes = room->op.payload_bytes;

    CHECK(!memcmp(room->before, room->bytes + AG_MAX_PAYLOAD, GUARD));
    CHECK(bytes <= AG_MAX_PAYLOAD);
    for (; bytes % 8; bytes++)
        CHECK(!room->bytes[bytes]);
}

static bool are_equal(const struct room *a, const struct room *b)
{
    return ag_signature_equal(&a->op.signature, &b->op.signature) &&
           a->op.payload_bytes == b->op.payload_bytes &&
           !memcmp(a->bytes, b->bytes, (a->op.payload_bytes + 7u) & ~7u);
}

/* --- kernels --- */

static struct room one, other;

static union {
    struct ag_layout layout;
    unsigned char room[sizeof(struct ag_layout) + AG_MAX_PARAMS * sizeof(struct ag_param)];
} given;

static struct ag_kernel_call a_call(void)
{
    return (struct ag_kernel_call){.function = (CUfunction)(uintptr_t)0x1230,
                                   .grid = {3, 2, 1},
                                   .block = {64, 2, 1},
                                   .shared_bytes = 512};
}

/* Sizes as programs have them, and others; aligned like C would, or not. */
static struct ag_layout *a_layout(void)
{
    static const uint32_t sizes[] = {8, 8, 8, 4, 4, 1, 2, 3, 12, 16, 24, 100, 0};
    uint32_t at = 0;

    given.layout.n = (uint32_t)chance_below(&state, 20);
    for (uint32_t i = 0; i < given.layout.n; i++) {
        uint32_t size = sizes[chance_below(&state, N_OF(sizes))];
        uint32_t gap = chance_below(&state, 3) ? -at & (size >= 8   ? 7
                                                        : size == 4 ? 3
                                                                    : 0)
                                               : (uint32_t)chance_below(&state, 9);

        given.layout.params[i] = (struct ag_param){at + gap, size};
        at += gap + size;
    }
    given.layout.total = at;
    return &given.layout;
}

/* The same values by addresses and as a buffer with garbage in its gaps. */
static void both_forms_are_one(void)
{
    unsigned char values[AG_MAX_PAYLOAD], buffer[AG_MAX_PAYLOAD];
    void *params[AG_MAX_PARAMS];

    for (unsigned turn = 0; turn < ALONE(20000); turn++) {
        const struct ag_layout *layout = a_layout();
        struct ag_kernel_call call = a_call();
        size_t size = layout->total, more = chance_below(&state, 4) ? 0 : 1;
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                         CU_LAUNCH_PARAM_END};
        const struct ag_kernel_payload *payload = (const void *)one.bytes;
        unsigned char expected[AG_MAX_PAYLOAD] = {0};

        fill_with_chance(values, layout->total + 8);
        fill_with_chance(buffer, layout->total + 8);
        for (uint32_t i = 0; i < layout->n; i++) {
            const struct ag_param *param = &layout->params[i];

            params[i] = values + param->offset;
            memcpy(buffer + param->offset, params[i], param->size);
            memcpy(expected + param->offset, params[i], param->size);
        }
        call.params = layout->n || turn % 2 ? params : NULL;
        CHECK(ag_op_kernel(fresh(&one), &call, layout));
        check_room(&one);
        CHECK(payload->bytes == layout->total && !memcmp(payload->grid, call.grid, 12));
        CHECK(!memcmp(payload->params, expected, layout->total));
        call.params = NULL;
        call.extra = extra;
        size += more;
        CHECK(ag_op_kernel(fresh(&other), &call, layout));
        check_room(&other);
        CHECK(are_equal(&one, &other) == !more); /* the driver may not take one that is too long */
        CHECK(one.op.payload_bytes == other.op.payload_bytes);
        size = layout->total;
        CHECK(!size-- || !ag_op_kernel(fresh(&other), &call, layout));
    }
}

static void layouts_that_do_not_do(void)
{
    unsigned char value[AG_MAX_PAYLOAD] = {0};
    void *params[] = {value, value, NULL};
    void *extra[] = {(void *)(uintptr_t)77, value, CU_LAUNCH_PARAM_END};
    const uint32_t most = AG_MAX_PAYLOAD - sizeof(struct ag_kernel_payload);
    struct ag_kernel_call call = a_call();

    call.params = params;
    given.layout = (struct ag_layout){.n = 3, .total = 24};
    for (uint32_t i = 0; i < 3; i++)
        given.layout.params[i] = (struct ag_param){8 * i, 8};
    CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout)); /* NULL */
    given.layout.n = 2;
    given.layout.total = 16;
    CHECK(ag_op_kernel(fresh(&one), &call, &given.layout));
    given.layout.params[1].offset = 7;
    given.layout.total = 15;
    CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout)); /* one over the other */
    given.layout.params[0] = (struct ag_param){0, most};
    given.layout.n = 1;
    given.layout.total = most;
    CHECK(ag_op_kernel(fresh(&one), &call, &given.layout));
    check_room(&one);
    given.layout.params[0].size = given.layout.total = most + 1;
    CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout)); /* too large */
    given.layout = (struct ag_layout){0};
    call.params = NULL;
    CHECK(ag_op_kernel(fresh(&one), &call, &given.layout)); /* none */
    call.extra = extra;
    CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout)); /* what nobody knows */
    extra[0] = CU_LAUNCH_PARAM_END;
    CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout)); /* no buffer */
}

/* What the driver refuses at once, and what of the launch configuration is signature. */
static void configurations(void)
{
    static const uint32_t wrong[][3] = {{0, 1, 1},        {1, 0, 1},     {1, 1, 0},
                                        {1u << 31, 1, 1}, {1, 65536, 1}, {1, 1, 65536}};
    struct ag_kernel_call call = a_call(), changed;
    struct ag_kernel_config config;

    given.layout = (struct ag_layout){0};
    for (unsigned i = 0; i < N_OF(wrong); i++) {
        call = a_call();
        memcpy(call.grid, wrong[i], sizeof(call.grid));
        CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout));
        memcpy(call.grid, (const uint32_t[]){INT32_MAX, 65535, 65535}, sizeof(call.grid));
        CHECK(ag_op_kernel(fresh(&one), &call, &given.layout));
        memcpy(call.block, wrong[i % 3], sizeof(call.block));
        CHECK(!ag_op_kernel(fresh(&one), &call, &given.layout));
    }
    call = a_call();
    CHECK(ag_op_kernel(fresh(&one), &call, &given.layout));
    ag_op_kernel_config(&one.op.signature, &config);
    CHECK(ag_op_kind(&one.op) == AG_OP_KERNEL && config.function == call.function);
    CHECK(!memcmp(config.block, call.block, 12) && config.shared_bytes == 512 &&
          !config.n_attributes);
    for (unsigned i = 0; i < 8; i++) {
        bool grid = i == 3;

        changed = call;
        changed.function = i == 0 ? (CUfunction)(uintptr_t)0x9990 : call.function;
        changed.block[i % 3] += i / 3 == 2 || i == 1 || i == 2;
        changed.shared_bytes += i == 0 ? 0 : i == 4;
        changed.grid[1] += grid;
        changed.cooperative = i == 5;
        given.layout.is_kernel = i == 6;
        CHECK(ag_op_kernel(fresh(&other), &changed, &given.layout));
        CHECK(ag_signature_equal(&one.op.signature, &other.op.signature) == grid);
        CHECK(grid ==
              (ag_signature_hash(&one.op.signature) == ag_signature_hash(&other.op.signature)));
        CHECK(!are_equal(&one, &other));
    }
    call.cooperative = true; /* now the grid is, too */
    CHECK(ag_op_kernel(fresh(&one), &call, &given.layout));
    CHECK(one.op.signature.word[0] & AG_OP_IS_COOPERATIVE);
    for (unsigned i = 0; i < 3; i++) {
        changed = call;
        changed.grid[i]++;
        CHECK(ag_op_kernel(fresh(&other), &changed, &given.layout));
        CHECK(!ag_signature_equal(&one.op.signature, &other.op.signature));
    }
}

/* --- launch attributes --- */

static CUlaunchAttribute an_attribute(CUlaunchAttributeID id)
{
    CUlaunchAttribute attribute;

    fill_with_chance(&attribute, sizeof(attribute));
    attribute.id = id;
    return attribute;
}

/* With garbage wherever there is no value. */
static CUlaunchAttribute a_cluster(unsigned x)
{
    CUlaunchAttribute attribute = an_attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);

    attribute.value.clusterDim.x = x;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    return attribute;
}

/* What is on the stack where the next function has its own. */
static __attribute__((noinline)) void dirty_stack(void)
{
    volatile unsigned char garbage[8192];

    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (unsigned char)chance(&state);
}

static bool record_with(struct room *room, const CUlaunchAttribute *attributes, unsigned n,
                        unsigned grid)
{
    struct ag_kernel_call call = a_call();

    call.grid[0] = grid;
    call.attributes = attributes;
    call.n_attributes = n;
    given.layout = (struct ag_layout){0};
    dirty_stack();
    return ag_op_kernel(fresh(room), &call, &given.layout);
}

static void which_attributes(void)
{
    static const unsigned char recordable[] = {1, 1, 1, 0, 1, 1, 1, 0, 1,
                                               1, 1, 1, 0, 0, 1, 0, 0, 0};

    for (unsigned id = 0; id < 80; id++) {
        CUlaunchAttribute attribute = an_attribute((CUlaunchAttributeID)id);

        CHECK_SAID(record_with(&one, &attribute, 1, 4) == (id < N_OF(recordable) && recordable[id]),
                   "attribute %u", id);
    }
    CHECK(!record_with(&one, NULL, 1, 4));
}

/* The values are equal, and what lies in and behind them is not. */
static void only_values_count(void)
{
    for (unsigned id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW; id < 16; id++) {
        CUlaunchAttribute a = an_attribute((CUlaunchAttributeID)id), b = a;
        bool is_window = id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
        size_t bytes = is_window ? offsetof(CUaccessPolicyWindow, missProp) + 4
                       : id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ? 2
                                                                       : 12;

        fill_with_chance(b.value.pad + bytes, sizeof(b.value) - bytes);
        CHECK(sizeof(b.pad) == 4);
        fill_with_chance(b.pad, sizeof(b.pad));
        if (!record_with(&one, &a, 1, 4))
            continue;
        CHECK(record_with(&other, &b, 1, 4));
        CHECK_SAID(are_equal(&one, &other), "attribute %u", id);
    }
}

static void attributes(void)
{
    CUlaunchAttribute some[3] = {a_cluster(2), an_attribute(CU_LAUNCH_ATTRIBUTE_IGNORE),
                                 an_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY)};
    CUlaunchAttribute again[2] = {a_cluster(2), an_attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY)};
    CUlaunchAttribute cooperative = an_attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    struct ag_kernel_config config;

    some[2].value.priority = again[1].value.priority = -3;
    CHECK(record_with(&one, some, 3, 4) && record_with(&other, again, 2, 4));
    CHECK(are_equal(&one, &other));
    ag_op_kernel_config(&one.op.signature, &config);
    CHECK(config.n_attributes == 2 &&
          config.attributes[0].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    CHECK(config.attributes[0].value.clusterDim.x == 2 &&
          config.attributes[1].value.priority == -3);
    for (unsigned i = 12; i < sizeof(config.attributes[0].value); i++)
        CHECK(!config.attributes[0].value.pad[i]);
    CHECK(record_with(&other, again, 2, 8)); /* the driver checks the grid against clusters */
    CHECK(!ag_signature_equal(&one.op.signature, &other.op.signature));
    again[0] = a_cluster(4);
    CHECK(record_with(&other, again, 2, 4));
    CHECK(!ag_signature_equal(&one.op.signature, &other.op.signature));
    CHECK(record_with(&one, &again[1], 1, 4) && record_with(&other, &again[1], 1, 8));
    CHECK(ag_signature_equal(&one.op.signature, &other.op.signature));
    again[0] = again[1];
    CHECK(!record_with(&one, again, 2, 4)); /* twice */
    again[0] = a_cluster(2);
    again[0].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
    CHECK(record_with(&one, again, 1, 4) && record_with(&other, again, 1, 8));
    CHECK(!ag_signature_equal(&one.op.signature, &other.op.signature));
    cooperative.value.cooperative = 1;
    CHECK(record_with(&one, &cooperative, 1, 4));
    ag_op_kernel_config(&one.op.signature, &config);
    CHECK(one.op.signature.word[0] & AG_OP_IS_COOPERATIVE && !config.n_attributes);
    cooperative.value.cooperative = 0;
    CHECK(record_with(&one, &cooperative, 1, 4));
    CHECK(!(one.op.signature.word[0] & AG_OP_IS_COOPERATIVE));
}

/* --- the others --- */

static void copies(void)
{
    const struct ag_copy_payload *payload = (const void *)one.bytes;
    CUmemorytype to, from;

    CHECK(ag_op_copy(fresh(&one), 0x1000, CU_MEMORYTYPE_DEVICE, 0x2000, CU_MEMORYTYPE_HOST, 12));
    check_room(&one);
    CHECK(payload->to == 0x1000 && payload->from == 0x2000 && payload->bytes == 12);
    ag_op_copy_types(&one.op.signature, &to, &from);
    CHECK(ag_op_kind(&one.op) == AG_OP_COPY && to == CU_MEMORYTYPE_DEVICE &&
          from == CU_MEMORYTYPE_HOST);
    CHECK(ag_op_copy(fresh(&other), 8, CU_MEMORYTYPE_DEVICE, 9, CU_MEMORYTYPE_HOST, 1));
    CHECK(ag_signature_equal(&one.op.signature, &other.op.signature) && !are_equal(&one, &other));
    CHECK(ag_op_copy(fresh(&other), 8, CU_MEMORYTYPE_HOST, 9, CU_MEMORYTYPE_DEVICE, 1));
    CHECK(!ag_signature_equal(&one.op.signature, &other.op.signature));
    CHECK(!ag_op_copy(fresh(&one), 0, CU_MEMORYTYPE_HOST, 9, CU_MEMORYTYPE_DEVICE, 1));
    CHECK(!ag_op_copy(fresh(&one), 8, CU_MEMORYTYPE_HOST, 0, CU_MEMORYTYPE_DEVICE, 1));
    CHECK(!ag_op_copy(fresh(&one), 8, CU_MEMORYTYPE_HOST, 9, CU_MEMORYTYPE_DEVICE, 0));
}

/* A copy, of these types, with garbage wherever it does not count. */
static CUDA_MEMCPY3D a_copy(CUmemorytype to, CUmemorytype from)
{
    CUDA_MEMCPY3D copy;

    fill_with_chance(&copy, sizeof(copy));
    copy.srcMemoryType = from;
    copy.dstMemoryType = to;
    copy.srcXInBytes = 1, copy.srcY = 2, copy.srcZ = 3, copy.srcLOD = 0;
    copy.dstXInBytes = 4, copy.dstY = 5, copy.dstZ = 6, copy.dstLOD = 0;
    copy.reserved0 = copy.reserved1 = NULL;
    if (from == CU_MEMORYTYPE_HOST)
        copy.srcHost = &one;
    else if (from == CU_MEMORYTYPE_ARRAY)
        copy.srcArray = (CUarray)(void *)&one;
    else
        copy.srcDevice = 0x3000;
    if (to == CU_MEMORYTYPE_HOST)
        copy.dstHost = &other;
    else if (to == CU_MEMORYTYPE_ARRAY)
        copy.dstArray = (CUarray)(void *)&other;
    else
        copy.dstDevice = 0x4000;
    if (from != CU_MEMORYTYPE_ARRAY)
        copy.srcPitch = 512, copy.srcHeight = 16;
    if (to != CU_MEMORYTYPE_ARRAY)
        copy.dstPitch = 256, copy.dstHeight = 32;
    copy.WidthInBytes = 100, copy.Height = 8, copy.Depth = 2;
    return copy;
}

static void copies_3d(void)
{
    for (unsigned to = 0; to < 6; to++) {
        for (unsigned from = 0; from < 6; from++) {
            CUDA_MEMCPY3D copy = a_copy((CUmemorytype)to, (CUmemorytype)from);
            CUDA_MEMCPY3D again = a_copy((CUmemorytype)to, (CUmemorytype)from);
            bool known = to >= 1 && to <= 2 && from >= 1 && from <= 2;
            const CUDA_MEMCPY3D *kept;

            CHECK(ag_op_copy_3d(fresh(&one), &copy) == known);
            if (!known)
                continue;
            CHECK(ag_op_copy_3d(fresh(&other), &again) && are_equal(&one, &other));
            kept = ag_op_copy_3d_params(&one.op.signature);
            CHECK(kept->srcMemoryType == from && kept->dstZ == 6 && kept->Depth == 2);
            CHECK(from != CU_MEMORYTYPE_DEVICE ||
                  (kept->srcDevice == 0x3000 && !kept->srcHost && kept->srcPitch == 512));
            again.dstY++;
            CHECK(ag_op_copy_3d(fresh(&other), &again) && !are_equal(&one, &other));
            again.Height = 0;
            CHECK(!ag_op_copy_3d(fresh(&other), &again));
        }
    }
}

static void fills(void)
{
    const struct ag_fill_payload *payload = (const void *)one.bytes;
    struct ag_fill_area area;

    for (unsigned width = 0; width < 9; width++) {
        bool known = width == 1 || width == 2 || width == 4;

        CHECK(ag_op_fill(fresh(&one), 0x1000, width, 0x12345678, 77) == known);
        CHECK(ag_op_fill_2d(fresh(&other), 0x1000, 64, width, 0x12345678, 5, 6) == known);
        if (!known)
            continue;
        check_room(&one);
        check_room(&other);
        CHECK(payload->to == 0x1000 && payload->count == 77);
        CHECK(payload->value == (width == 1 ? 0x78 : width == 2 ? 0x5678 : 0x12345678));
        ag_op_fill_area(&one.op, &area);
        CHECK(area.to == 0x1000 && area.columns == 77 && area.rows == 1 && !area.pitch);
        CHECK(area.value == payload->value && area.width == width);
        ag_op_fill_area(&other.op, &area);
        CHECK(area.to == 0x1000 && area.pitch == 64 && area.columns == 5 && area.rows == 6);
        CHECK(area.value == payload->value && area.width == width);
        CHECK(ag_op_fill(fresh(&one), 0x1001, width, 1, 1) == (width == 1));
        CHECK(!ag_op_fill(fresh(&one), 0x1000, width, 1, 0));
        CHECK(!ag_op_fill(fresh(&one), 0, width, 1, 1));
        CHECK(ag_op_fill(fresh(&one), 0x1000, width, 1, UINT64_MAX / 2) == (width < 4));
        CHECK(!ag_op_fill_2d(fresh(&one), 0x1000, 64, width, 1, 0, 1));
        CHECK(!ag_op_fill_2d(fresh(&one), 0x1000, 64, width, 1, 1, 0));
    }
}

/* Where it is, how it is aligned and how long it is are no signature: a node takes all of it. */
static void fills_of_a_width(void)
{
    static const struct {
        uint64_t to, count;
        unsigned width;
    } rows[] = {{0x1000, 64, 1}, {0x2010, 32, 1}, {0x1004, 4, 1}, {0x1001, 16, 1}, {0x1000, 3, 1},
                {0x1000, 2, 2},  {0x1002, 3, 2},  {0x1000, 8, 2}, {0x1000, 3, 4},  {0x1004, 4, 4}};

    for (unsigned i = 0; i < N_OF(rows); i++) {
        for (unsigned j = 0; j < N_OF(rows); j++) {
            CHECK(ag_op_fill(fresh(&one), rows[i].to, rows[i].width, 1, rows[i].count));
            CHECK(ag_op_fill(fresh(&other), rows[j].to, rows[j].width, 1, rows[j].count));
            CHECK(ag_signature_equal(&one.op.signature, &other.op.signature) ==
                  (rows[i].width == rows[j].width));
        }
    }
}

/* --- interning --- */

static void *look_up_many(void *results)
{
    const struct ag_interned **interned = results;
    uint64_t content[5] = {0};

    for (uint64_t i = 0; i < 3000; i++) {
        content[i % 5] = i / 3;
        interned[i] = ag_intern(content, 8 + (uint32_t)i % 32);
        CHECK(interned[i] && !memcmp(interned[i]->content, content, interned[i]->bytes));
    }
    return NULL;
}

static void equal_content_is_one_object(void)
{
    static const struct ag_interned *interned[4][3000];
    static unsigned char large[AG_MAX_INTERNED + 1];
    pthread_t threads[4];
    unsigned known = 0;

    for (unsigned i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, look_up_many, interned[i]));
    for (unsigned i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (unsigned i = 1; i < N_OF(threads); i++)
        CHECK(!memcmp(interned[0], interned[i], sizeof(interned[0])));
    CHECK(ag_intern(large, AG_MAX_INTERNED) && !ag_intern(large, AG_MAX_INTERNED + 1));
    CHECK(ag_intern(large, 7) != ag_intern(large, 8));
    ag_intern_begin_child();
    for (uint64_t i = 0; i < 100000; i++) { /* until there are too many */
        const uint64_t content[] = {i, ~i};
        const struct ag_interned *one = ag_intern(content, sizeof(content));

        CHECK(ag_intern(content, sizeof(content)) == one);
        known += one != NULL;
    }
    CHECK(known > 20000 && known < 40000);
    CHECK(ag_intern(large, 8)); /* those that are in stay */
}

int main(void)
{
    both_forms_are_one();
    layouts_that_do_not_do();
    configurations();
    which_attributes();
    only_values_count();
    attributes();
    copies();
    copies_3d();
    fills();
    fills_of_a_width();
    equal_content_is_one_object();
    return 0;
}
