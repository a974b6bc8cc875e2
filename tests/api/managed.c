/* Managed memory of the control API beyond allocating and moving it: how it is counted, however it
 * is freed, and advice on what cuMemAlloc gave. */
#include "control.h"

#define MIB (1u << 20)

static struct allograft_snapshot now(void)
{
    struct allograft_snapshot snapshot = {.bytes = sizeof(snapshot)};

    EXPECT_STATUS(ALLOGRAFT_OK, allograft_snapshot(&snapshot));
    return snapshot;
}

/* Since `before`, the program has so many bytes more in blocks of the API. */
static void expect_more(const struct allograft_snapshot *before, uint64_t bytes, uint64_t blocks)
{
    struct allograft_snapshot after = now();

    CHECK(after.current_bytes[ALLOGRAFT_MANAGED] - before->current_bytes[ALLOGRAFT_MANAGED] ==
          bytes);
    CHECK(after.peak_bytes[ALLOGRAFT_MANAGED] >= after.current_bytes[ALLOGRAFT_MANAGED]);
    CHECK(after.allocations[ALLOGRAFT_MANAGED] - after.frees[ALLOGRAFT_MANAGED] ==
          before->allocations[ALLOGRAFT_MANAGED] - before->frees[ALLOGRAFT_MANAGED] + blocks);
}

void test_counted(void)
{
    struct allograft_snapshot before = now();
    CUcontext context, other;
    void *blocks[300], *more;

    for (unsigned i = 0; i < 300; i++)
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&blocks[i], 4096 + i, 0, NULL));
    expect_more(&before, 300 * 4096 + 299 * 150, 300);
    EXPECT_STATUS(ALLOGRAFT_DRIVER, allograft_managed_free((char *)blocks[0] + 8, 0, 0, NULL));
    expect_more(&before, 300 * 4096 + 299 * 150, 300);
    for (unsigned i = 0; i < 300; i++)
        EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_free(blocks[i], 4096 + i, 0, NULL));
    expect_more(&before, 0, 0);
    EXPECT_STATUS(ALLOGRAFT_DRIVER, allograft_managed_free(blocks[0], 4096, 0, NULL));
    expect_more(&before, 0, 0);
    CHECK(now().peak_bytes[ALLOGRAFT_MANAGED] >= 300 * 4096);
    /* By the program's own call, which an opened library does not see. */
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&more, 2 * MIB, 0, NULL));
    OK(cuMemFree((CUdeviceptr)more));
    expect_more(&before, intercepted ? 0 : 2 * MIB, !intercepted);
    /* With its context. */
    before = now();
    OK(cuCtxGetCurrent(&context));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    EXPECT_STATUS(ALLOGRAFT_OK, allograft_managed_alloc(&more, 2 * MIB, 0, NULL));
    expect_more(&before, 2 * MIB, 1);
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(context));
    expect_more(&before, intercepted ? 0 : 2 * MIB, !intercepted);
    say("counted: right");
}

static allograft_status prefer(CUdeviceptr memory, size_t bytes, int device)
{
    struct allograft_range range = {(void *)memory, bytes};
    size_t covered = 0;
    allograft_status status = allograft_advise_preferred_location(&range, 1, device, &covered);

    CHECK(covered == (status == ALLOGRAFT_OK ? bytes : 0));
    return status;
}

static allograft_status let_access(CUdeviceptr memory, size_t bytes, int device)
{
    struct allograft_range range = {(void *)memory, bytes};

    return allograft_advise_accessed_by(&range, 1, device, NULL);
}

/* A managed pool of the program's own. */
static void advise_own_pool(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    CUmemoryPool pool;
    CUdeviceptr memory;

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&memory, MIB, pool, NULL));
    EXPECT_STATUS(ALLOGRAFT_UNSUPPORTED, prefer(memory, MIB, 0));
    CHECK(strstr(allograft_last_error(), "pools"));
    OK(cuMemFreeAsync(memory, NULL));
    OK(cuMemPoolDestroy(pool));
}

/* Blocks of every size under ALLOGRAFT_POLICY=managed, before and after the program's first advice.
 * The settings have the first ones in the driver's managed pool, up to `pooled` bytes, but for
 * those that are cut from slabs. */
void test_advice(size_t pooled)
{
    static const size_t sizes[] = {512, 4096, MIB, 16 * MIB, 32 * MIB, 40 * MIB};
    CUdeviceptr first[6], next;

    for (unsigned i = 0; i < 6; i++)
        OK(cuMemAlloc(&first[i], sizes[i]));
    for (unsigned i = 0; i < 6; i++) {
        bool refuses = sizes[i] <= pooled && sizes[i] > MIB / 16;

        EXPECT_STATUS(ALLOGRAFT_OK, prefer(first[i], sizes[i], 0)); /* as it does anyhow */
        EXPECT_STATUS(ALLOGRAFT_OK, let_access(first[i] + 4, sizes[i] - 4, 0));
        EXPECT_STATUS(refuses ? ALLOGRAFT_UNSUPPORTED : ALLOGRAFT_OK,
                      prefer(first[i], sizes[i], ALLOGRAFT_HOST));
        CHECK(!refuses || strstr(allograft_last_error(), "ALLOGRAFT_MANAGED_BACKEND=plain"));
        EXPECT_STATUS(refuses ? ALLOGRAFT_UNSUPPORTED : ALLOGRAFT_OK,
                      let_access(first[i], sizes[i], ALLOGRAFT_HOST));
        EXPECT_STATUS(ALLOGRAFT_OK,
                      allograft_prefetch((void *)first[i], sizes[i], ALLOGRAFT_HOST, NULL));
    }
    for (unsigned i = 0; i < 6; i++)
        OK(cuMemFree(first[i]));
    for (unsigned i = 0; i < 6; i++) {
        OK(cuMemAlloc(&next, sizes[i]));
        EXPECT_STATUS(ALLOGRAFT_OK, prefer(next, sizes[i], ALLOGRAFT_HOST));
        EXPECT_STATUS(ALLOGRAFT_OK, let_access(next, sizes[i], 0));
        OK(cuMemFree(next));
    }
    advise_own_pool();
    say("advice: right");
}
