/* sim_test.h: what the simulation's own tests share: checks, kernels, and reaching a device. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "tests/common/check.h"

/* Kernel fill(p, n, value): n words of value. */
static void kernel_fill(const struct sim_kernel_call *call)
{
    CUdeviceptr p = *(CUdeviceptr *)call->args[0];
    unsigned n = *(unsigned *)call->args[1], value = *(unsigned *)call->args[2];
    unsigned *words = sim_kernel_access(p, n * sizeof(unsigned), true);

    for (unsigned i = 0; words && i < n; i++)
        words[i] = value;
}

/* Kernel add(p, n, value): adds value to n words. */
static void kernel_add(const struct sim_kernel_call *call)
{
    CUdeviceptr p = *(CUdeviceptr *)call->args[0];
    unsigned n = *(unsigned *)call->args[1], value = *(unsigned *)call->args[2];
    unsigned *words = sim_kernel_access(p, n * sizeof(unsigned), true);

    for (unsigned i = 0; words && i < n; i++)
        words[i] = words[i] * 3 + value;
}

struct test {
    CUcontext ctx;
    CUmodule module;
    CUfunction fill, add;
};

static inline void test_open(struct test *test, int device)
{
    static const size_t sizes[] = {8, 4, 4};

    sim_register_kernel("fill", kernel_fill, 3, sizes);
    sim_register_kernel("add", kernel_add, 3, sizes);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&test->ctx, device));
    OK(cuCtxSetCurrent(test->ctx));
    OK(cuModuleLoadData(&test->module, "any"));
    OK(cuModuleGetFunction(&test->fill, test->module, "fill"));
    OK(cuModuleGetFunction(&test->add, test->module, "add"));
}

static inline CUresult launch(CUfunction function, CUstream stream, CUdeviceptr p, unsigned n,
                              unsigned value)
{
    void *args[] = {&p, &n, &value};

    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL);
}

static inline unsigned word_at(CUdeviceptr p)
{
    unsigned value = 0;

    OK(cuMemcpyDtoH(&value, p, sizeof(value)));
    return value;
}

#endif
