/* lookup.c: cuGetProcAddress: names, versions, flags; the answers are the exported symbols. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "sim_test.h"

static void *driver;

static void *exported(const char *symbol)
{
    void *function = dlsym(driver, symbol);

    CHECK(function);
    return function;
}

static void expect(const char *base, int version, cuuint64_t flags, const char *symbol)
{
    CUdriverProcAddressQueryResult status;
    void *function = &status;

    OK(cuGetProcAddress(base, &function, version, flags, &status));
    if (function != exported(symbol)) {
        fprintf(stderr, "%s at %d with flags %d is not %s\n", base, version, (int)flags, symbol);
        exit(1);
    }
    CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
}

static void expect_none(const char *base, int version, CUdriverProcAddressQueryResult why)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *function = &status;

    OK(cuGetProcAddress(base, &function, version, 0, &status));
    CHECK(!function && status == why);
}

int main(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(driver);
    expect_none("", 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    expect_none("cuNoSuchCall", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    expect_none("cuMemAllocAsync", 11010, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", NULL, 13000, 0, NULL));
    expect("cuInit", 2000, 0, "cuInit");
    expect("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    expect("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    expect("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    expect("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    expect("cuCtxGetDevice", 2000, 0, "cuCtxGetDevice");
    expect("cuCtxGetDevice", 12090, 0, "cuCtxGetDevice");
    expect("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2");
    expect("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2");
    expect("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    expect("cuCtxCreate", 12050, 0, "cuCtxCreate_v4");
    expect("cuMemAdvise", 8000, 0, "cuMemAdvise");
    expect("cuMemAdvise", 12020, 0, "cuMemAdvise_v2");
    expect("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2");
    expect("cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2");
    expect("cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo");
    expect("cuStreamGetCaptureInfo", 11030, 2, "cuStreamGetCaptureInfo_v2_ptsz");
    expect("cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz");
    expect("cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz");
    expect("cuMemcpyHtoD", 7000, 0, "cuMemcpyHtoD_v2");
    expect("cuMemcpyHtoD", 7000, 1, "cuMemcpyHtoD_v2");
    expect("cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds");
    expect("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz");
    expect("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz");
    expect("cuMemFree", 13000, 2, "cuMemFree_v2"); /* has no per-thread form */
    return 0;
}
