/* pageable.c: memory of the host that the driver does not know: copies of what is not there, and
 * devices that reach it by themselves. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (3 * 4096)

static struct test test;
static CUstream stream;
static CUdeviceptr p;
static unsigned char *pages;
static pid_t faulted;

/* The last two pages are there from now on. */
static void let_in(int number)
{
    (void)number;
    faulted = gettid();
    if (mprotect(pages + 4096, BYTES - 4096, PROT_READ | PROT_WRITE))
        _exit(99);
}

static void shut_out(int protection)
{
    CHECK(mprotect(pages + 4096, BYTES - 4096, protection) == 0);
    faulted = 0;
}

/* As memcpy would: the calling thread faults, and goes on where its handler has seen to it. */
static void test_faults(void)
{
    struct sigaction action = {.sa_handler = let_in, .sa_flags = SA_NODEFER};

    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    memset(pages, 7, BYTES);
    for (int i = 0; i < 2; i++) {
        shut_out(PROT_NONE);
        if (i)
            OK(cuMemcpyHtoDAsync(p, pages, BYTES, stream));
        else
            OK(cuMemcpyHtoD(p, pages, BYTES));
        CHECK(faulted == gettid());
        OK(cuCtxSynchronize());
        CHECK(word_at(p + BYTES - 4) == 0x07070707);
    }
    OK(cuMemsetD8(p, 9, BYTES));
    for (int i = 0; i < 2; i++) {
        memset(pages, 0, BYTES);
        shut_out(i ? PROT_NONE : PROT_READ);
        if (i)
            OK(cuMemcpyDtoHAsync(pages, p, BYTES, NULL));
        else
            OK(cuMemcpyDtoH(pages, p, BYTES));
        CHECK(faulted == gettid());
        CHECK(pages[0] == 9 && pages[BYTES - 1] == 9);
    }
}

/* A device that reads pageable memory by itself, through tables of the host or not. */
static void test_reached(void)
{
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)pages;
    int value = 0;

    CHECK(setenv("SIM_ATTRIBUTES", "88=1,100=1,18=1", 1) == 0);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
    CHECK(value == 1);
    OK(cuDeviceGetAttribute(&value,
                            CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0));
    CHECK(value == 1);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0));
    CHECK(value == 1);
    OK(launch(test.fill, stream, host + 4, 8, 5));
    OK(cuStreamSynchronize(stream));
    CHECK(pages[3] == 9 && pages[4] == 5 && pages[32] == 5 && pages[36] == 9);
    CHECK(sim_violations() == 0);
}

/* R930: any other one cannot. */
static void test_not_reached(void)
{
    CHECK(unsetenv("SIM_ATTRIBUTES") == 0);
    OK(launch(test.fill, stream, (CUdeviceptr)(uintptr_t)pages, 8, 5));
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(sim_violations() == 1 && strstr(sim_last_violation(), "pageable host memory"));
}

int main(void)
{
    test_open(&test, 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, BYTES));
    pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    test_faults();
    test_reached();
    test_not_reached();
    return 0;
}
