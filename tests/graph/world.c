/* world.c: see world.h. */
#include "world.h"

#include <dlfcn.h>
#include <string.h>

#include "graph/record/memory.h"
#include "policy/managed/kernel_params.h"

struct ag_driver ag_cu;
_Atomic uint64_t ag_memory_epoch = 1; /* in the library of graph/record/memory.c */
struct world world;

static uint64_t quiet_runs;

/* --- kernels --- */

static void kernel_mix(const struct sim_kernel_call *call)
{
    CUdeviceptr p = *(CUdeviceptr *)call->args[0];
    unsigned n = *(unsigned *)call->args[1], value = *(unsigned *)call->args[2];
    unsigned *words = sim_kernel_access(p, n * sizeof(unsigned), true);

    for (unsigned i = 0; words && i < n; i++)
        words[i] =
            words[i] * 3 + value + call->grid[0] * 5 + call->block[0] * 7 + call->shared_bytes * 11;
}

struct blended {
    uint64_t to, from;
    unsigned n;
};

static void kernel_blend(const struct sim_kernel_call *call)
{
    unsigned char key = *(unsigned char *)call->args[0];
    struct blended what = *(struct blended *)call->args[1];
    unsigned char *to = sim_kernel_access(what.to, what.n, true);
    unsigned char *from = sim_kernel_access(what.from, what.n, false);

    for (unsigned i = 0; to && from && i < what.n; i++)
        to[i] = (unsigned char)(to[i] * 5 + from[i] + key + call->grid[1]);
}

static void kernel_quiet(const struct sim_kernel_call *call)
{
    quiet_runs = quiet_runs * 31 + call->grid[0];
}

/* --- the world --- */

static void find_driver(void)
{
#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    *(void **)&ag_cu.symbol = dlsym(RTLD_DEFAULT, #symbol);
#define AG_CALL AG_HOOK
#include "interpose/core/driver/hooks.def"
}

void world_open(void)
{
    static const size_t of_mix[] = {8, 4, 4}, of_blend[] = {1, sizeof(struct blended)};
    CUlibrary library;
    CUmodule module;

    find_driver();
    sim_register_kernel("mix", kernel_mix, 3, of_mix);
    sim_register_kernel("blend", kernel_blend, 2, of_blend);
    sim_register_kernel("quiet", kernel_quiet, 0, NULL);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&world.context, 0));
    OK(cuCtxSetCurrent(world.context));
    OK(cuStreamCreateWithPriority(&world.stream, CU_STREAM_NON_BLOCKING, -1));
    OK(cuModuleLoadData(&module, "any"));
    OK(cuModuleGetFunction(&world.mix, module, "mix"));
    OK(cuModuleGetFunction(&world.blend, module, "blend"));
    OK(cuModuleGetFunction(&world.quiet, module, "quiet"));
    OK(cuLibraryLoadData(&library, "any", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&world.mix_kernel, library, "mix"));
    for (unsigned i = 0; i < 2; i++)
        OK(cuMemAlloc_v2(&world.area[i], AREA_BYTES));
    OK(cuMemHostAlloc((void **)&world.pinned, AREA_BYTES, 0));
}

void world_read(struct state *state)
{
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < 2; i++)
        OK(cuMemcpyDtoH_v2(state->area[i], world.area[i], AREA_BYTES));
    memcpy(state->pinned, world.pinned, AREA_BYTES);
    state->quiet = quiet_runs;
}

void world_write(const struct state *state)
{
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < 2; i++)
        OK(cuMemcpyHtoD_v2(world.area[i], state->area[i], AREA_BYTES));
    OK(cuCtxSynchronize());
    memcpy(world.pinned, state->pinned, AREA_BYTES);
    quiet_runs = state->quiet;
}

void world_scramble(uint64_t *chance_state)
{
    struct state state = {.quiet = chance(chance_state)};

    for (unsigned i = 0; i < AREA_BYTES; i++) {
        state.area[0][i] = (unsigned char)chance(chance_state);
        state.area[1][i] = (unsigned char)chance(chance_state);
        state.pinned[i] = (unsigned char)chance(chance_state);
    }
    world_write(&state);
}

/* --- operations --- */

/* A place that is aligned to 16 bytes, with `bytes` behind it. */
static uint64_t place(uint64_t *state, uint32_t bytes)
{
    return chance_below(state, (AREA_BYTES - bytes) / 16 + 1) * 16;
}

static uint64_t device_place(uint64_t *state, uint32_t bytes)
{
    return world.area[chance_below(state, 2)] + place(state, bytes);
}

static uint64_t host_place(uint64_t *state, uint32_t bytes)
{
    return (uint64_t)(uintptr_t)world.pinned + place(state, bytes);
}

static void make_mix(struct ag_op *op, enum what what, uint64_t *fixed, uint64_t *payload)
{
    uint32_t n = 1 + (uint32_t)chance_below(payload, 32), value = (uint32_t)chance(payload);
    CUdeviceptr p = device_place(payload, n * 4);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -2};
    struct {
        CUdeviceptr p;
        uint32_t n, value;
    } packed = {p, n, value};
    size_t size = sizeof(packed);
    void *params[] = {&p, &n, &value};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    bool is_buffer = what == WHAT_BUFFER;
    struct ag_kernel_call call = {
        .function = what == WHAT_KERNEL ? (CUfunction)(void *)world.mix_kernel : world.mix,
        .grid = {1 + (uint32_t)chance_below(what == WHAT_COOPERATIVE ? fixed : payload, 9), 1, 1},
        .block = {1 + (uint32_t)chance_below(fixed, 99), 1, 1},
        .shared_bytes = (uint32_t)chance_below(fixed, 3) * 128,
        .params = is_buffer ? NULL : params,
        .extra = is_buffer ? extra : NULL,
        .attributes = &attribute,
        .n_attributes = what == WHAT_PRIORITY || what == WHAT_OVERLAP,
        .cooperative = what == WHAT_COOPERATIVE,
    };

    if (what == WHAT_OVERLAP)
        attribute = (CUlaunchAttribute){
            .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            .value.programmaticStreamSerializationAllowed = 1,
        };
    CHECK(ag_op_kernel(op, &call, ag_params_of(call.function)));
}

static void make_blend(struct ag_op *op, uint64_t *payload)
{
    struct blended what = {.n = 1 + (uint32_t)chance_below(payload, 64)};
    unsigned char key = (unsigned char)chance(payload);
    void *params[] = {&key, &what};
    struct ag_kernel_call call = {
        .function = world.blend,
        .grid = {1, 1 + (uint32_t)chance_below(payload, 9), 1},
        .block = {1, 1, 1},
        .params = params,
    };

    what.to = device_place(payload, what.n);
    what.from = device_place(payload, what.n);
    CHECK(ag_op_kernel(op, &call, ag_params_of(call.function)));
}

static void cache_fast_path(struct ag_op *op, uint64_t *payload)
{
    struct ag_kernel_call call = {
        .function = world.quiet,
        .grid = {1 + (uint32_t)chance_below(payload, 9), 1, 1},
        .block = {1, 1, 1},
    };

    CHECK(ag_op_kernel(op, &call, ag_params_of(call.function)));
}

static void make_copy(struct ag_op *op, enum what what, uint64_t *fixed, uint64_t *payload)
{
    bool unified = what == WHAT_UNIFIED;
    bool to_host =
        what == WHAT_TO_HOST || what == WHAT_HOST_COPY || (unified && chance_below(fixed, 2));
    bool from_host =
        what == WHAT_TO_DEVICE || what == WHAT_HOST_COPY || (unified && chance_below(fixed, 2));
    uint32_t bytes = 1 + (uint32_t)chance_below(payload, 300);
    CUmemorytype to = unified   ? CU_MEMORYTYPE_UNIFIED
                      : to_host ? CU_MEMORYTYPE_HOST
                                : CU_MEMORYTYPE_DEVICE;
    CUmemorytype from = unified     ? CU_MEMORYTYPE_UNIFIED
                        : from_host ? CU_MEMORYTYPE_HOST
                                    : CU_MEMORYTYPE_DEVICE;
    uint64_t at = to_host ? host_place(payload, bytes) : device_place(payload, bytes);

    CHECK(ag_op_copy(op, at, to,
                     from_host ? host_place(payload, bytes) : device_place(payload, bytes), from,
                     bytes));
}

static void make_3d(struct ag_op *op, uint64_t *fixed)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = world.pinned + place(fixed, 512),
        .srcPitch = 128,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = device_place(fixed, 256),
        .dstPitch = 64,
        .WidthInBytes = 1 + chance_below(fixed, 64),
        .Height = 1 + chance_below(fixed, 4),
        .Depth = 1,
    };

    CHECK(ag_op_copy_3d(op, &copy));
}

void world_make(struct made *made, enum what what, uint64_t fixed, uint64_t payload)
{
    struct ag_op *op = &made->op;
    unsigned width = 1u << chance_below(&fixed, 3);

    memset(made, 0, sizeof(*made));
    op->payload = made->payload;
    switch (what) {
    case WHAT_BLEND:
        make_blend(op, &payload);
        break;
    case WHAT_QUIET:
        cache_fast_path(op, &payload);
        break;
    case WHAT_DEVICE_COPY:
    case WHAT_TO_DEVICE:
    case WHAT_TO_HOST:
    case WHAT_HOST_COPY:
    case WHAT_UNIFIED:
        make_copy(op, what, &fixed, &payload);
        break;
    case WHAT_SHAPED:
        make_3d(op, &fixed);
        break;
    case WHAT_FILL: /* rows that an update may put in each other's place: see the simulation */
        CHECK(ag_op_fill(op, device_place(&payload, 320), width, (uint32_t)chance(&payload),
                         16 / width * (1 + chance_below(&payload, 20))));
        break;
    case WHAT_FILL_SHAPED:
        CHECK(ag_op_fill_2d(op, device_place(&fixed, 512), 128, width, (uint32_t)chance(&fixed),
                            1 + chance_below(&fixed, 16), 1 + chance_below(&fixed, 4)));
        break;
    default:
        make_mix(op, what, &fixed, &payload);
        break;
    }
}

/* --- scripts --- */

void script_random(struct script *script, uint32_t n, uint64_t *chance_state)
{
    script->n = n;
    for (uint32_t i = 0; i < n; i++) {
        script->what[i] = (enum what)chance_below(chance_state, N_WHATS);
        script->fixed[i] = chance(chance_state);
        script->payload[i] = chance(chance_state);
    }
}

void script_vary(struct script *script, unsigned of_8, uint64_t *chance_state)
{
    for (uint32_t i = 0; i < script->n; i++) {
        if (chance_below(chance_state, 8) < of_8)
            script->payload[i] = chance(chance_state);
    }
}

void script_make(const struct script *script, struct made *made, struct ag_op *ops)
{
    for (uint32_t i = 0; i < script->n; i++) {
        world_make(&made[i], script->what[i], script->fixed[i], script->payload[i]);
        ops[i] = made[i].op;
    }
}

CUresult script_build(const struct ag_op *ops, uint32_t n, struct ag_graph **ret_graph)
{
    struct ag_graph_params params = {.context = world.context, .priority = -1, .n_ops = n};
    struct ag_graph *graph;
    CUresult result;

    for (uint32_t i = 0; i < n; i++)
        params.n_bytes += (ops[i].payload_bytes + 7) & ~7u;
    graph = ag_graph_begin(&params, &result);
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < n; i++)
        result = ag_graph_add(graph, &ops[i]);
    if (result == CUDA_SUCCESS)
        result = ag_graph_finish(graph);
    if (result != CUDA_SUCCESS) {
        ag_graph_destroy(graph);
        graph = NULL;
    }
    *ret_graph = graph;
    return result;
}

void script_submit(const struct ag_op *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        OK(ag_op_submit(&ops[i], world.stream));
}
