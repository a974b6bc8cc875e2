/* peers.c: two devices: who may reach whose memory, and what happens without permission.
 * Runs with SIM_DEVICES=2 (set here) and SIM_VIOLATION=count. */
#include "sim_test.h"

static struct test first, second;

static void use(const struct test *test)
{
    OK(cuCtxSetCurrent(test->ctx));
}

static void test_copies(void)
{
    CUdeviceptr p, q;
    CUmemAccessDesc open = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool;
    CUmemAccess_flags flags;

    /* Native memory: copies need no permission. */
    use(&first);
    OK(cuMemAlloc(&p, 256));
    OK(cuMemsetD32(p, 5, 64));
    use(&second);
    OK(cuMemAlloc(&q, 256));
    OK(cuMemsetD32(q, 1, 64));
    OK(cuCtxSynchronize());
    use(&first);
    OK(cuCtxSynchronize());
    OK(cuMemcpyPeer(q, second.ctx, p, first.ctx, 256));
    OK(cuCtxSynchronize());
    use(&second);
    CHECK(word_at(q) == 5);
    OK(cuMemFree(q));
    /* A pool that was not opened: the copy arrives while peer access is off or goes one way; with
     * both ways of it, success and nothing copied. */
    OK(cuMemAllocAsync(&q, 256, NULL));
    for (unsigned peer_access = 0; peer_access < 3; peer_access++) {
        OK(cuMemsetD32(q, 1, 64));
        OK(cuCtxSynchronize());
        use(&first);
        if (peer_access == 1)
            OK(cuCtxEnablePeerAccess(second.ctx, 0));
        use(&second);
        if (peer_access == 2)
            OK(cuCtxEnablePeerAccess(first.ctx, 0));
        use(&first);
        OK(cuMemcpyPeer(q, second.ctx, p, first.ctx, 256));
        OK(cuCtxSynchronize());
        use(&second);
        CHECK(word_at(q) == (peer_access == 2 ? 1 : 5));
    }
    OK(cuDeviceGetDefaultMemPool(&pool, 1));
    open.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    open.location.id = 0;
    OK(cuMemPoolGetAccess(&flags, pool, &open.location));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemPoolSetAccess(pool, &open, 1));
    use(&first);
    OK(cuMemcpyPeer(q, second.ctx, p, first.ctx, 256));
    OK(cuCtxSynchronize());
    OK(cuCtxDisablePeerAccess(second.ctx));
    OK(cuMemFree(p));
    use(&second);
    CHECK(word_at(q) == 5);
    OK(cuMemFreeAsync(q, NULL));
    OK(cuCtxSynchronize());
    CHECK(sim_violations() == 0);
}

/* Work of one device on another's memory: a free waits for the owner's context only. */
static void test_free_does_not_wait_for_peers(void)
{
    CUdeviceptr p;

    use(&second);
    OK(cuMemAlloc(&p, 256));
    use(&first);
    OK(cuCtxEnablePeerAccess(second.ctx, 0));
    OK(launch(first.fill, NULL, p, 64, 9));
    OK(cuMemFree(p));
    OK(cuCtxSynchronize());
    CHECK(sim_violations() == 1 && strstr(sim_last_violation(), "not ordered"));
    OK(cuCtxDisablePeerAccess(second.ctx));
}

static void test_kernels(void)
{
    CUdeviceptr p;

    use(&second);
    OK(cuMemAlloc(&p, 256));
    use(&first);
    EXPECT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(first.ctx, 0));
    OK(cuCtxEnablePeerAccess(second.ctx, 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(second.ctx, 0));
    OK(launch(first.fill, NULL, p, 64, 9));
    OK(cuCtxSynchronize());
    CHECK(sim_violations() == 1);
    OK(cuCtxDisablePeerAccess(second.ctx));
    EXPECT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(second.ctx));
    OK(launch(first.fill, NULL, p, 64, 9));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    CHECK(sim_violations() == 2 && strstr(sim_last_violation(), "another device"));
    /* The fault is the whole process's. */
    use(&second);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(p));
}

int main(void)
{
    CHECK(setenv("SIM_DEVICES", "2", 1) == 0);
    test_open(&second, 1);
    test_open(&first, 0);
    test_copies();
    test_free_does_not_wait_for_peers();
    test_kernels();
    return 0;
}
