/* smoke.c: a small program from cuInit to the end. */
#include "sim_test.h"

int main(void)
{
    struct test test;
    CUstream stream;
    CUevent start, end;
    CUdeviceptr p, q;
    float ms;

    test_open(&test, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuMemAlloc(&p, 4096));
    OK(cuEventRecord(start, stream));
    OK(launch(test.fill, stream, p, 1024, 7));
    OK(launch(test.add, stream, p, 1024, 1));
    OK(cuEventRecord(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms > 0);
    CHECK(word_at(p) == 22);
    OK(cuMemAllocAsync(&q, 4096, stream));
    OK(launch(test.fill, stream, q, 1024, 5));
    OK(cuMemcpyDtoDAsync(p, q, 4096, stream));
    OK(cuMemFreeAsync(q, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(word_at(p + 4092) == 5);
    OK(cuMemFree(p));
    CHECK(sim_bytes_in_use(0) == 0);
    CHECK(sim_violations() == 0);
    return 0;
}
