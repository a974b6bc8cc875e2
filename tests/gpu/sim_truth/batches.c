/* batches.c: copies in batches: when their sources are read, and what a capture says to them (R544
 * to R547, R248, R249, R674 to R676). */
#include "tests/gpu/sim_truth/truth.h"

/* More than a driver takes along with the call. */
#define LARGE ((size_t)48 << 20)

static CUresult batch(CUdeviceptr to, const void *from, size_t bytes, CUmemcpySrcAccessOrder order,
                      CUstream stream)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = order};
    CUdeviceptr source = (CUdeviceptr)(uintptr_t)from;
    size_t first = 0;

    return D(cuMemcpyBatchAsync)(&to, &source, &bytes, 1, &attributes, &first, 1, stream);
}

static CUresult box(CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
    CUDA_MEMCPY3D_BATCH_OP one = {.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                                  .dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                                  .extent = {64, 1, 1},
                                  .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};

    one.src.op.ptr.ptr = from;
    one.dst.op.ptr.ptr = to;
    return D(cuMemcpy3DBatchAsync)(1, &one, 0, stream);
}

static void say_source(const char *id, const char *name, CUmemcpySrcAccessOrder order)
{
    CUdeviceptr p = device_memory(LARGE);
    uint32_t *plain = malloc(LARGE);

    if (!plain)
        abort();
    memset(plain, 1, LARGE);
    arm(nonblocking);
    OK(batch(p, plain, LARGE, order, nonblocking));
    memset(plain, 2, LARGE);
    synchronize();
    row(id, name, "read %s", word_at(p) == 0x01010101 ? "at the call" : "when the copy runs");
    OK(D(cuMemFree)(p));
    free(plain);
}

static void say_capture(const char *id, const char *name, bool is_box, CUdeviceptr p)
{
    CUstreamCaptureStatus status = 9;
    CUgraph graph;
    CUresult code;

    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = is_box ? box(p, p + 64, nonblocking)
                  : batch(p, (void *)(uintptr_t)(p + 64), 64, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                          nonblocking);
    OK(D(cuStreamIsCapturing)(nonblocking, &status));
    row(id, name, "code %d, status %d, end %d", code, (int)status,
        D(cuStreamEndCapture)(nonblocking, &graph));
}

void group_batches(void)
{
    static char plain[64];
    CUdeviceptr p, q;
    size_t bytes = 64, first = 0;
    CUmemcpyAttributes none = {0};

    open_device();
    say_source("R544", "pageable source of a batch copy behind work, order STREAM",
               CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    say_source("R545", "pageable source of a batch copy behind work, order ANY",
               CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
    say_source("R546", "pageable source of a batch copy behind work, order DURING_API_CALL",
               CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
    p = device_memory(4096);
    q = p + 64;
    WAITS("R547", "a batch copy to pageable memory", nonblocking,
          batch((CUdeviceptr)(uintptr_t)plain, (void *)(uintptr_t)p, 64,
                CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, nonblocking));
    row("R248", "a batch copy of 0 bytes", "code %d",
        batch(p, plain, 0, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, nonblocking));
    row("R249", "a batch copy on the legacy stream", "code %d",
        batch(p, plain, 64, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, NULL));
    row("R676", "a batch copy without an order", "code %d",
        D(cuMemcpyBatchAsync)(&p, &q, &bytes, 1, &none, &first, 1, nonblocking));
    say_capture("R674", "cuMemcpyBatchAsync in a capture", false, p);
    say_capture("R675", "cuMemcpy3DBatchAsync in a capture", true, p);
}
