/* spin.c: a kernel that waits for the host: others go on, a wait for it returns when it has ended.
 */
#include "sim_test.h"

static struct test test;

/* Kernel spin(flag): until the host has written a word other than 0. */
static void kernel_spin(const struct sim_kernel_call *call)
{
    const volatile unsigned *flag =
        sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(unsigned), false);

    if (flag && !*flag)
        sim_kernel_again();
}

int main(void)
{
    static const size_t sizes[] = {8};
    CUfunction spin;
    CUstream a, b;
    CUdeviceptr p;
    unsigned *flag;
    void *args[] = {&flag};

    sim_register_kernel("spin", kernel_spin, 1, sizes);
    test_open(&test, 0);
    OK(cuModuleGetFunction(&spin, test.module, "spin"));
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemAllocHost((void **)&flag, sizeof(*flag)));
    *flag = 0;
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, a, args, NULL));
    OK(launch(test.fill, a, p, 1, 5));
    OK(launch(test.add, b, p + 16, 1, 0));
    OK(cuStreamSynchronize(b));
    for (int i = 0; i < 50; i++)
        EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    *flag = 1;
    OK(cuStreamSynchronize(a));
    CHECK(word_at(p) == 5 && sim_violations() == 0);
    return 0;
}
