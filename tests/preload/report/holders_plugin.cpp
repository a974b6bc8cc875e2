/* holders_plugin.cpp: a library that leaks managed memory. */
#include <cuda.h>

#include "tests/common/check.h"

static __attribute__((noinline)) void keep(size_t bytes)
{
    CUdeviceptr memory;

    OK(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL)); // leak: plugin
    __asm__ volatile("");
}

extern "C" __attribute__((visibility("default"))) void plugin_keep(void)
{
    keep(256 << 10);
    __asm__ volatile("");
}
