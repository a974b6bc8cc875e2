/* The context and the kernels that the programs linked with the simulated driver use. */
#include "tests/common/device.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "tests/common/context.h"
#include "tests/common/say.h"

CUfunction kernel_fill, kernel_check, kernel_speak;
static CUfunction kernel_spin;

static uint32_t word_arg(const struct sim_kernel_call *call, unsigned i)
{
    return *(const uint32_t *)call->args[i];
}

static CUdeviceptr pointer_arg(const struct sim_kernel_call *call, unsigned i)
{
    return *(const CUdeviceptr *)call->args[i];
}

/* Whether two kernels meet at a word is for the simulation to say. */
#define OF_THE_DEVICE __attribute__((no_sanitize("thread")))

OF_THE_DEVICE static void fill(const struct sim_kernel_call *call)
{
    uint32_t n = word_arg(call, 1), value = word_arg(call, 2);
    uint32_t *words = sim_kernel_access(pointer_arg(call, 0), n * sizeof(*words), true);

    for (uint32_t i = 0; words != NULL && i < n; i++)
        words[i] = value + i;
}

OF_THE_DEVICE static void check(const struct sim_kernel_call *call)
{
    uint32_t n = word_arg(call, 1), value = word_arg(call, 2), wrong = 0;
    const uint32_t *words = sim_kernel_access(pointer_arg(call, 0), n * sizeof(*words), false);
    uint32_t *result = sim_kernel_access(pointer_arg(call, 3), sizeof(*result), true);

    for (uint32_t i = 0; words != NULL && i < n; i++)
        wrong += words[i] != value + i;
    if (result != NULL)
        *result += wrong;
}

static void speak(const struct sim_kernel_call *call)
{
    say("kernel: %u", word_arg(call, 0));
}

static void spin(const struct sim_kernel_call *call)
{
    const _Atomic uint32_t *flag = *(_Atomic uint32_t *const *)call->args[0];

    if (!atomic_load(flag))
        sim_kernel_again();
}

CUcontext device_open(void)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(uint32_t), sizeof(uint32_t),
                                   sizeof(CUdeviceptr)};
    static const size_t word = sizeof(uint32_t), address = sizeof(void *);
    static const char image[64] = "any bytes";
    CUcontext context;
    CUmodule module;

    sim_register_kernel("fill", fill, 3, sizes);
    sim_register_kernel("check", check, 4, sizes);
    sim_register_kernel("speak", speak, 1, &word);
    sim_register_kernel("spin", spin, 1, &address);
    context = context_open();
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_fill, module, "fill"));
    OK(cuModuleGetFunction(&kernel_check, module, "check"));
    OK(cuModuleGetFunction(&kernel_speak, module, "speak"));
    OK(cuModuleGetFunction(&kernel_spin, module, "spin"));
    return context;
}

void launch_fill(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value)
{
    void *args[] = {&p, &n, &value};

    OK(cuLaunchKernel(kernel_fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void launch_check(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value, CUdeviceptr result)
{
    void *args[] = {&p, &n, &value, &result};

    OK(cuLaunchKernel(kernel_check, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void launch_spin(CUstream stream, const _Atomic uint32_t *flag)
{
    void *args[] = {&flag};

    OK(cuLaunchKernel(kernel_spin, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void launch_speak(CUstream stream, uint32_t number)
{
    void *args[] = {&number};

    OK(cuLaunchKernel(kernel_speak, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

uint32_t wrong_words(const volatile uint32_t *words, uint32_t n, uint32_t value)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < n; i++)
        wrong += words[i] != value + i;
    return wrong;
}

uint32_t count_wrong(CUdeviceptr p, uint32_t n, uint32_t value)
{
    uint32_t wrong, *words = malloc(n * sizeof(*words));

    if (words == NULL)
        _exit(98);
    OK(cuMemcpyDtoH(words, p, n * sizeof(*words)));
    wrong = wrong_words(words, n, value);
    free(words);
    return wrong;
}
