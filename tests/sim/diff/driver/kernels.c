/* kernels.c: what the random programs run on the simulated device. */
#include <string.h>

#include "diff.h"
#include "sim.h"

static volatile unsigned char *mark_bytes;
static _Atomic size_t stack_needed;

static CUdeviceptr pointer_arg(const struct sim_kernel_call *call, unsigned i)
{
    return *(const CUdeviceptr *)call->args[i];
}

static uint32_t word_arg(const struct sim_kernel_call *call, unsigned i)
{
    return *(const uint32_t *)call->args[i];
}

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

uint32_t fill_word(uint32_t value)
{
    return mix(value);
}

/* p, bytes, value */
static void fill(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(stack_needed);
    uint32_t n = word_arg(call, 1), value = word_arg(call, 2);
    uint32_t *words = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (uint32_t i = 1; words && i < n / 4; i++)
        words[i] = mix(value + i);
    /* The host may be waiting for it without any call (op_poll). */
    if (words && n >= 4)
        __atomic_store_n(words, mix(value), __ATOMIC_RELEASE);
}

/* dst, src, bytes */
static void copy(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(stack_needed);
    uint32_t n = word_arg(call, 2);
    const uint32_t *src = sim_kernel_access(pointer_arg(call, 1), n, false);
    uint32_t *dst = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (uint32_t i = 0; dst && src && i < n / 4; i++)
        dst[i] = src[i];
}

static void add(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(stack_needed);
    uint32_t n = word_arg(call, 2);
    const uint32_t *src = sim_kernel_access(pointer_arg(call, 1), n, false);
    uint32_t *dst = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (uint32_t i = 0; dst && src && i < n / 4; i++)
        dst[i] = mix(dst[i] + 3 * src[i] + i);
}

/* Where the pointers lie, bytes: as above. */
static void follow_pointers(const struct sim_kernel_call *call)
{
    uint32_t n = word_arg(call, 1);
    const CUdeviceptr *slot = sim_kernel_access(pointer_arg(call, 0), 16, false);
    const uint32_t *src = slot ? sim_kernel_access(slot[1], n, false) : NULL;
    uint32_t *dst = slot ? sim_kernel_access(slot[0], n, true) : NULL;

    for (uint32_t i = 0; dst && src && i < n / 4; i++)
        dst[i] = mix(dst[i] + 3 * src[i] + i);
}

/* Folds all of src into the first 16 bytes of dst. */
static void hash(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(stack_needed);
    uint32_t n = word_arg(call, 2);
    const uint32_t *src = sim_kernel_access(pointer_arg(call, 1), n, false);
    uint32_t *dst = sim_kernel_access(pointer_arg(call, 0), 16, true);

    for (uint32_t i = 0; dst && src && i < n / 4; i++)
        dst[i % 4] = mix(dst[i % 4] ^ src[i]);
}

/* Seen outside of the device: like a printf of a kernel. */
static void mark(const struct sim_kernel_call *call)
{
    mark_bytes[word_arg(call, 0)] = 1;
}

/* Until the host has written the word. */
static void spin(const struct sim_kernel_call *call)
{
    const uint32_t *flag = sim_kernel_access(pointer_arg(call, 0), 4, false);

    if (flag && !__atomic_load_n(flag, __ATOMIC_ACQUIRE))
        sim_kernel_again();
}

/* p, bytes, value: mixes in how it was launched. */
static void shape(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(stack_needed);
    uint32_t n = word_arg(call, 1), value = word_arg(call, 2);
    uint32_t *words = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (unsigned i = 0; i < 3; i++)
        value = mix(value ^ (call->grid[i] << 8) ^ call->block[i]);
    value ^= call->shared_bytes;
    for (uint32_t i = 0; words && i < n / 4; i++)
        words[i] = mix(words[i] + value);
}

struct many {
    uint32_t word[9];
};

/* byte, p, half, many, bytes */
static void mixed(const struct sim_kernel_call *call)
{
    sim_kernel_needs_stack(stack_needed);
    uint32_t n = word_arg(call, 4), value = *(const uint8_t *)call->args[0];
    uint32_t *words = sim_kernel_access(pointer_arg(call, 1), n, true);
    const struct many *many = call->args[3];

    value = mix(value << 16 | *(const uint16_t *)call->args[2]);
    for (unsigned i = 0; i < 9; i++)
        value = mix(value + many->word[i]);
    for (uint32_t i = 0; words && i < n / 4; i++)
        words[i] = mix(words[i] ^ value);
}

#define LONG_PARTS 60u
#define MAX_LONG   256u

/* p, bytes, value, number: each time it is asked whether it goes on some of its time has passed. */
static void fill_late(const struct sim_kernel_call *call)
{
    static unsigned parts[MAX_LONG];

    if (parts[word_arg(call, 3)]++ < LONG_PARTS) {
        clock_skip(LONG_NS / LONG_PARTS);
        sim_kernel_again();
        return;
    }
    fill(call);
}

static const char *const names[N_KERNELS] = {"fill",  "copy",  "add",  "hash", "mark",  "spin",
                                             "shape", "mixed", "late", "deep", "follow"};
static const size_t one[] = {8, 4, 4}, late[] = {8, 4, 4, 4}, two[] = {8, 8, 4}, word[] = {4},
                    pointer[] = {8}, table[] = {8, 4}, sizes[] = {1, 8, 2, sizeof(struct many), 4};
static const struct {
    sim_kernel_fn run;
    unsigned n;
    const size_t *sizes;
} kernels[N_KERNELS] = {{fill, 3, one},
                        {copy, 3, two},
                        {add, 3, two},
                        {hash, 3, two},
                        {mark, 1, word},
                        {spin, 1, pointer},
                        {shape, 3, one},
                        {mixed, 5, sizes},
                        {fill_late, 4, late},
                        {fill, 3, one},
                        {follow_pointers, 2, table}};

void kernels_need_stack(size_t bytes)
{
    stack_needed = bytes;
}

void kernels_need_local(size_t bytes)
{
    const size_t n_threads = 32768; /* S13 of RULES.md */

    sim_kernel_local(names[KERNEL_DEEP], bytes / n_threads);
}

void kernels_register(volatile unsigned char *marks)
{
    mark_bytes = marks;
    for (int i = 0; i < N_KERNELS; i++)
        sim_register_kernel(names[i], kernels[i].run, kernels[i].n, kernels[i].sizes);
    sim_register_global("table", TABLE_BYTES, false, NULL);
    sim_start_early();
}

bool kernels_load(struct context *context)
{
    static const char image[64] = "any bytes";

    if (cu.cuModuleLoadData(&context->module, image) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < N_KERNELS; i++)
        if (cu.cuModuleGetFunction(&context->kernels[i], context->module, names[i]) != CUDA_SUCCESS)
            return false;
    return true;
}

bool kernels_reload(struct world *w, struct context *context)
{
    if (!did(w, cu.cuModuleUnload(context->module), "cuModuleUnload"))
        return false;
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];

        if (buffer->live && buffer->kind == BUFFER_GLOBAL &&
            &w->contexts[buffer->context] == context)
            buffer_gone(w, buffer);
    }
    return did(w, kernels_load(context) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "loaded again");
}

/* The parameters as one packed buffer; returns its size. */
static size_t pack(enum kernel kernel, void **args, unsigned char *to)
{
    size_t at = 0;

    for (unsigned i = 0; i < kernels[kernel].n; i++) {
        size_t bytes = kernels[kernel].sizes[i];
        size_t align = bytes & -bytes;

        align = align < 8 ? align : 8;
        at = (at + align - 1) / align * align;
        memcpy(to + at, args[i], bytes);
        at += bytes;
    }
    return at;
}

/* Before the kernel before it on the stream has ended, perhaps: of memory that nobody has used. */
CUresult launch_fill_early(struct world *w, unsigned stream, CUdeviceptr p, size_t bytes,
                           uint32_t value)
{
    uint32_t n = (uint32_t)bytes;
    void *args[] = {&p, &n, &value};
    CUlaunchAttribute attribute = {
        .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value.programmaticStreamSerializationAllowed = 1,
    };
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, stream_handle(w, stream), &attribute, 1};

    return cu.cuLaunchKernelEx(
        &config, w->contexts[w->streams[stream].context].kernels[KERNEL_FILL], args, NULL);
}

static CUresult launch_ex(CUfunction function, CUstream handle, void **args,
                          const struct shape *shape)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                   .value.priority = -(int)(shape->block / 32 % 2)};
    CUlaunchConfig config = {.gridDimX = shape->grid[0],
                             .gridDimY = shape->grid[1],
                             .gridDimZ = shape->grid[2],
                             .blockDimX = shape->block,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = shape->shared_bytes,
                             .hStream = handle,
                             .attrs = &attribute,
                             .numAttrs = shape->block > 64};

    return cu.cuLaunchKernelEx(&config, function, args, NULL);
}

CUresult launch_as(struct world *w, unsigned stream, enum kernel kernel, void **args,
                   const struct shape *shape)
{
    CUfunction function = w->contexts[w->streams[stream].context].kernels[kernel];
    CUstream handle = stream_handle(w, stream);
    const unsigned *grid = shape->grid;
    unsigned char packed[128];
    size_t bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUresult result;

    switch (shape->how) {
    case LAUNCH_EX:
        result = launch_ex(function, handle, args, shape);
        break;
    case LAUNCH_EXTRA:
        bytes = pack(kernel, args, packed);
        result = cu.cuLaunchKernel(function, grid[0], grid[1], grid[2], shape->block, 1, 1,
                                   shape->shared_bytes, handle, NULL, extra);
        memset(packed, 0xee, sizeof(packed));
        break;
    case LAUNCH_COOPERATIVE:
        result = cu.cuLaunchCooperativeKernel(function, grid[0], grid[1], grid[2], shape->block, 1,
                                              1, shape->shared_bytes, handle, args);
        break;
    default:
        result = cu.cuLaunchKernel(function, grid[0], grid[1], grid[2], shape->block, 1, 1,
                                   shape->shared_bytes, handle, args, NULL);
        break;
    }
    return result;
}

static CUresult launch(struct world *w, unsigned stream, enum kernel kernel, void **args)
{
    return cu.cuLaunchKernel(w->contexts[w->streams[stream].context].kernels[kernel], 1, 1, 1, 32,
                             1, 1, 0, stream_handle(w, stream), args, NULL);
}

CUresult launch_fill(struct world *w, unsigned stream, CUdeviceptr p, size_t bytes, uint32_t value)
{
    uint32_t n = (uint32_t)bytes;
    void *args[] = {&p, &n, &value};

    return launch(w, stream, KERNEL_FILL, args);
}

CUresult launch_two(struct world *w, unsigned stream, enum kernel kernel, CUdeviceptr dst,
                    CUdeviceptr src, size_t bytes)
{
    uint32_t n = (uint32_t)bytes;
    void *args[] = {&dst, &src, &n};

    return launch(w, stream, kernel, args);
}

CUresult launch_spin(struct world *w, unsigned stream, CUdeviceptr flag)
{
    void *args[] = {&flag};

    return launch(w, stream, KERNEL_SPIN, args);
}

CUresult launch_long(struct world *w, unsigned stream, CUdeviceptr p, size_t bytes, uint32_t value)
{
    static unsigned n_launched; /* by the only thread */
    uint32_t n = (uint32_t)bytes, number = n_launched++ % MAX_LONG;
    void *args[] = {&p, &n, &value, &number};

    return launch(w, stream, KERNEL_LONG, args);
}

CUresult launch_mark(struct world *w, unsigned stream, uint32_t index)
{
    void *args[] = {&index};

    return launch(w, stream, KERNEL_MARK, args);
}
