/* contexts.c: contexts: several, none, and their codes (R900 on). */
#include "tests/gpu/sim_truth/truth.h"

void group_contexts(void)
{
    CUcontext second, now;
    CUdeviceptr native, pooled;
    CUresult code;
    unsigned flags;
    int active;

    open_device();
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    native = device_memory(4096);
    OK(D(cuMemAllocAsync)(&pooled, 4096, NULL));
    synchronize();
    OK(D(cuCtxSetCurrent)(context));
    code = launch_store(nonblocking, native, 5, 0);
    synchronize();
    row("R900", "a kernel on another context's memory of the same device", "code %d, word %u", code,
        word_at(native));
    OK(D(cuCtxDestroy)(second));
    row("R901", "cuMemFree of memory whose context is gone", "code %d", D(cuMemFree)(native));
    code = launch_store(nonblocking, pooled, 6, 0);
    synchronize();
    row("R902", "a kernel on pool memory whose context is gone", "code %d, word %u", code,
        word_at(pooled));
    row("R903", "cuMemFreeAsync of that", "code %d", D(cuMemFreeAsync)(pooled, nonblocking));
    synchronize();
    native = device_memory(4096);
    row("R904", "cuDevicePrimaryCtxReset", "code %d", D(cuDevicePrimaryCtxReset)(0));
    OK(D(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    row("R905", "is the primary context active then", "%d", active);
    row("R906", "cuMemAlloc in the context that was reset", "code %d",
        D(cuMemAlloc)(&native, 4096));
    OK(D(cuDevicePrimaryCtxRetain)(&now, 0));
    row("R907", "the primary context's handle after it was reset", "%s",
        now == context ? "the same" : "another");
}

/* What frees or is asked while no context is current; and then with the context, whether that had
 * freed it. */
static void free_without_context(const char *id, const char *name, CUdeviceptr p)
{
    CUresult code, again;

    OK(D(cuCtxSetCurrent)(NULL));
    code = D(cuMemFree)(p);
    OK(D(cuCtxSetCurrent)(context));
    again = D(cuMemFree)(p);
    row(id, name, "code %d, with the context then %d", code, again);
}

void group_no_context(void)
{
    CUdeviceptr p, base;
    unsigned type = 0;
    size_t size;
    CUresult code;

    open_device();
    free_without_context("R480", "cuMemFree without a current context", device_memory(4096));
    free_without_context("R481", "cuMemFree of managed memory without one", managed_memory(4096));
    free_without_context("R482", "cuMemFree of pool memory without one", pool_memory(4096));
    p = device_memory(4096);
    OK(D(cuCtxSetCurrent)(NULL));
    row("R483", "cuMemFree of 0 without one", "code %d", D(cuMemFree)(0));
    row("R484", "cuMemFree inside an allocation without one", "code %d", D(cuMemFree)(p + 512));
    row("R485", "address range without one", "code %d", D(cuMemGetAddressRange)(&base, &size, p));
    row("R486", "attribute without one", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    OK(D(cuCtxSetCurrent)(context));
    arm(nonblocking);
    OK(D(cuCtxSetCurrent)(NULL));
    code = D(cuMemFree)(p);
    row("R487", "cuMemFree without one, kernel in the owner's", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
    OK(D(cuCtxSetCurrent)(context));
    synchronize();
}

void group_context_codes(void)
{
    CUcontext second, now = NULL;

    open_device();
    row("R910", "cuCtxDestroy of the primary context", "code %d", D(cuCtxDestroy)(context));
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    OK(D(cuCtxGetCurrent)(&now));
    row("R911", "a created context is current", "%s", yes_no(now == second));
    OK(D(cuCtxDestroy)(second));
    OK(D(cuCtxGetCurrent)(&now));
    row("R912", "after its end, current is", "%s",
        now == context ? "the one before"
        : now          ? "another"
                       : "none");
    CUmodule of_second;
    CUfunction function;
    CUevent event;
    CUdeviceptr p = device_memory(64);
    uint32_t value = 1;
    uint64_t ns = 0;
    void *args[] = {&p, &value, &ns};
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    OK(D(cuModuleLoadData)(&of_second, ptx));
    OK(D(cuModuleGetFunction)(&function, of_second, "spin_store"));
    OK(D(cuCtxSetCurrent)(context));
    row("R914", "a launch of a function of another context's module", "code %d",
        D(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nonblocking, args, NULL));
    OK(D(cuCtxDestroy)(second));
    row("R915", "cuEventQuery of an event whose context is gone", "code %d",
        D(cuEventQuery)(event));
    synchronize();
    TWO("R913", "cuDevicePrimaryCtxRelease once too often", D(cuDevicePrimaryCtxRelease)(0),
        D(cuDevicePrimaryCtxRelease)(0));
}
