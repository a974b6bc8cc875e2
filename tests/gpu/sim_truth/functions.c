/* functions.c: functions, and codes of streams (R880 on). */
#include "tests/gpu/sim_truth/truth.h"

void group_functions(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    size_t offset = 9, size = 9;
    CUresult code;
    void *args[3] = {0};

    open_device();
    code = D(cuFuncGetParamInfo)(spin_store, 2, &offset, &size);
    row("R860", "parameter 2 of (u64, u32, u64)", "code %d, offset %zu, size %zu", code, offset,
        size);
    row("R861", "parameter 3 of three", "code %d",
        D(cuFuncGetParamInfo)(spin_store, 3, &offset, &size));
    row("R862", "a function that is not there", "code %d",
        D(cuModuleGetFunction)(&function, module, "no_such_kernel"));
    OK(D(cuLibraryLoadData)(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    row("R863", "a kernel that is not there", "code %d",
        D(cuLibraryGetKernel)(&kernel, library, "no_such_kernel"));
    row("R864", "a global that is not there", "code %d", ({
            CUdeviceptr p;
            size_t bytes;
            D(cuModuleGetGlobal)(&p, &bytes, module, "no_such_global");
        }));
    row("R865", "a launch of a grid of 0", "code %d",
        D(cuLaunchKernel)(spin_store, 0, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    row("R866", "a launch of blocks of 2048", "code %d",
        D(cuLaunchKernel)(spin_store, 1, 1, 1, 2048, 1, 1, 0, NULL, args, NULL));
    row("R867", "a launch without parameters", "code %d",
        D(cuLaunchKernel)(spin_store, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

void group_stream_codes(void)
{
    CUstream stream;
    CUcontext of;
    unsigned flags = 9;

    open_device();
    row("R880", "cuStreamDestroy of NULL", "code %d", D(cuStreamDestroy)(NULL));
    row("R881", "cuStreamDestroy of the per-thread stream", "code %d",
        D(cuStreamDestroy)(CU_STREAM_PER_THREAD));
    row("R882", "cuStreamCreate with unknown flags", "code %d", D(cuStreamCreate)(&stream, 64));
    OK(D(cuStreamGetFlags)(NULL, &flags));
    row("R883", "flags of the legacy stream", "%u", flags);
    OK(D(cuStreamGetFlags)(nonblocking, &flags));
    row("R884", "flags of a non-blocking stream", "%u", flags);
    OK(D(cuStreamGetCtx)(CU_STREAM_PER_THREAD, &of));
    row("R885", "context of the per-thread stream", "%s",
        of == context ? "the current" : "another");
    OK(D(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, 100));
    int priority = 9;
    OK(D(cuStreamGetPriority)(stream, &priority));
    row("R886", "priority 100 becomes", "%d", priority);
}
