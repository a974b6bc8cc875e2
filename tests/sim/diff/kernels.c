/* kernels.c: what the random programs run on the simulated device. */
#include "diff.h"
#include "sim.h"

static volatile unsigned char *mark_bytes;

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

/* p, bytes, value */
static void fill(const struct sim_kernel_call *call)
{
    uint32_t n = word_arg(call, 1), value = word_arg(call, 2);
    uint32_t *words = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (uint32_t i = 0; words && i < n / 4; i++)
        words[i] = mix(value + i);
}

/* dst, src, bytes */
static void copy(const struct sim_kernel_call *call)
{
    uint32_t n = word_arg(call, 2);
    const uint32_t *src = sim_kernel_access(pointer_arg(call, 1), n, false);
    uint32_t *dst = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (uint32_t i = 0; dst && src && i < n / 4; i++)
        dst[i] = src[i];
}

static void add(const struct sim_kernel_call *call)
{
    uint32_t n = word_arg(call, 2);
    const uint32_t *src = sim_kernel_access(pointer_arg(call, 1), n, false);
    uint32_t *dst = sim_kernel_access(pointer_arg(call, 0), n, true);

    for (uint32_t i = 0; dst && src && i < n / 4; i++)
        dst[i] = mix(dst[i] + 3 * src[i] + i);
}

/* Folds all of src into the first 16 bytes of dst. */
static void hash(const struct sim_kernel_call *call)
{
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
    const volatile uint32_t *flag = sim_kernel_access(pointer_arg(call, 0), 4, false);

    if (flag && !*flag)
        sim_kernel_again();
}

static const char *const names[N_KERNELS] = {"fill", "copy", "add", "hash", "mark", "spin"};

void kernels_register(volatile unsigned char *marks)
{
    static const size_t one[] = {8, 4, 4}, two[] = {8, 8, 4}, word[] = {4}, pointer[] = {8};

    mark_bytes = marks;
    sim_register_kernel("fill", fill, 3, one);
    sim_register_kernel("copy", copy, 3, two);
    sim_register_kernel("add", add, 3, two);
    sim_register_kernel("hash", hash, 3, two);
    sim_register_kernel("mark", mark, 1, word);
    sim_register_kernel("spin", spin, 1, pointer);
}

bool kernels_load(struct context *context)
{
    static const char image[64] = "any bytes";
    CUmodule module;

    if (cu.cuModuleLoadData(&module, image) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < N_KERNELS; i++)
        if (cu.cuModuleGetFunction(&context->kernels[i], module, names[i]) != CUDA_SUCCESS)
            return false;
    return true;
}

static CUresult launch(struct world *w, unsigned lane, enum kernel kernel, void **args)
{
    return cu.cuLaunchKernel(w->contexts[w->lanes[lane].context].kernels[kernel], 1, 1, 1, 32, 1, 1,
                             0, lane_stream(w, lane), args, NULL);
}

CUresult launch_fill(struct world *w, unsigned lane, CUdeviceptr p, size_t bytes, uint32_t value)
{
    uint32_t n = (uint32_t)bytes;
    void *args[] = {&p, &n, &value};

    return launch(w, lane, KERNEL_FILL, args);
}

CUresult launch_two(struct world *w, unsigned lane, enum kernel kernel, CUdeviceptr dst,
                    CUdeviceptr src, size_t bytes)
{
    uint32_t n = (uint32_t)bytes;
    void *args[] = {&dst, &src, &n};

    return launch(w, lane, kernel, args);
}

CUresult launch_spin(struct world *w, unsigned lane, CUdeviceptr flag)
{
    void *args[] = {&flag};

    return launch(w, lane, KERNEL_SPIN, args);
}

CUresult launch_mark(struct world *w, unsigned lane, uint32_t index)
{
    void *args[] = {&index};

    return launch(w, lane, KERNEL_MARK, args);
}
