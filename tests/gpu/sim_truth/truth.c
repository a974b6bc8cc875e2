/* truth.c: what all groups of questions are asked with: the driver, two kernels, a device that is
 * ready, and the line that is printed for each answer. */
#define _GNU_SOURCE
#include "tests/gpu/sim_truth/truth.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <unistd.h>

static void *driver;

bool open_driver(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        fprintf(stderr, "no libcuda.so.1: %s\n", dlerror());
    return driver != NULL;
}

void *find(const char *name)
{
    return dlsym(driver, name);
}

void *symbol(const char *name)
{
    void *function = find(name);

    if (!function) {
        printf("# no %s\n", name);
        fflush(stdout);
        _exit(0);
    }
    return function;
}

void row(const char *id, const char *name, const char *format, ...)
{
    va_list args;

    printf("%s %s: ", id, name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

const char *yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* ---- two kernels, as PTX for a GPU and as host functions for the simulation ---- */

const char ptx[] = ".version 6.3\n.target sm_70\n.address_size 64\n"
                   ".visible .entry spin_store(.param .u64 p, .param .u32 v, .param .u64 ns)\n"
                   "{\n"
                   ".reg .u64 %rd<6>; .reg .u32 %r<2>; .reg .pred %p<2>;\n"
                   "ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v]; ld.param.u64 %rd2, [ns];\n"
                   "mov.u64 %rd3, %globaltimer;\n"
                   "again:\n"
                   "mov.u64 %rd4, %globaltimer; sub.u64 %rd5, %rd4, %rd3;\n"
                   "setp.lt.u64 %p1, %rd5, %rd2; @%p1 bra again;\n"
                   "st.volatile.u32 [%rd1], %r1; membar.sys; ret;\n"
                   "}\n"
                   ".visible .entry load_store(.param .u64 to, .param .u64 from)\n"
                   "{\n"
                   ".reg .u64 %rd<3>; .reg .u32 %r<2>;\n"
                   "ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from];\n"
                   "ld.volatile.u32 %r1, [%rd2]; st.volatile.u32 [%rd1], %r1; membar.sys; ret;\n"
                   "}\n";

/* What tests/sim/sim.h offers; found by name where there is a simulation. */
struct sim_kernel_call {
    unsigned grid[3], block[3], shared_bytes;
    void **args;
    unsigned n_args;
    CUstream stream;
};
static void *(*sim_access)(CUdeviceptr p, size_t bytes, bool write);

static void sim_spin_store(const struct sim_kernel_call *call)
{
    uint32_t *p = sim_access(*(CUdeviceptr *)call->args[0], 4, true);

    if (p)
        *p = *(uint32_t *)call->args[1];
}

static void sim_load_store(const struct sim_kernel_call *call)
{
    uint32_t *to = sim_access(*(CUdeviceptr *)call->args[0], 4, true);
    const uint32_t *from = sim_access(*(CUdeviceptr *)call->args[1], 4, false);

    if (to && from)
        *to = *from;
}

static void register_kernels(void)
{
    void (*add)(const char *, void (*)(const struct sim_kernel_call *), unsigned, const size_t *);
    static const size_t store[] = {8, 4, 8}, load[] = {8, 8};

    *(void **)&add = find("sim_register_kernel");
    *(void **)&sim_access = find("sim_kernel_access");
    if (!add)
        return;
    add("spin_store", sim_spin_store, 3, store);
    add("load_store", sim_load_store, 2, load);
}

CUcontext context;
CUmodule module;
CUfunction spin_store;
volatile uint32_t *flag, *seen;
CUstream blocking, other_blocking, nonblocking, other_nonblocking;
static CUfunction load_store;

static void load_kernels(void)
{
    OK(D(cuModuleLoadData)(&module, ptx));
    OK(D(cuModuleGetFunction)(&spin_store, module, "spin_store"));
    OK(D(cuModuleGetFunction)(&load_store, module, "load_store"));
}

static void warm_up(void);

void open_device(void)
{
    void *pinned;

    register_kernels();
    OK(D(cuInit)(0));
    OK(D(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(D(cuCtxSetCurrent)(context));
    load_kernels();
    OK(D(cuMemHostAlloc)(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    flag = pinned;
    seen = flag + 64;
    OK(D(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
    OK(D(cuStreamCreate)(&other_blocking, CU_STREAM_DEFAULT));
    OK(D(cuStreamCreate)(&nonblocking, CU_STREAM_NON_BLOCKING));
    OK(D(cuStreamCreate)(&other_nonblocking, CU_STREAM_NON_BLOCKING));
    warm_up();
}

CUdeviceptr device_of(volatile void *pinned)
{
    return (CUdeviceptr)(uintptr_t)pinned;
}

CUresult launch_store(CUstream stream, CUdeviceptr p, uint32_t value, uint64_t ns)
{
    void *args[] = {&p, &value, &ns};

    return D(cuLaunchKernel)(spin_store, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

CUresult launch_load(CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
    void *args[] = {&to, &from};

    return D(cuLaunchKernel)(load_store, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* What loads or allocates when it is used for the first time has done so before it is asked. */
static void warm_up(void)
{
    CUstream streams[] = {NULL, CU_STREAM_PER_THREAD, blocking, nonblocking, other_nonblocking};
    CUdeviceptr p, q;

    OK(D(cuMemAlloc)(&p, 4096));
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        OK(launch_store(streams[i], p, 0, 0));
        OK(launch_load(streams[i], p, p + 64));
        OK(D(cuMemcpyDtoDAsync)(p, p + 64, 64, streams[i]));
        OK(D(cuMemsetD8Async)(p, 0, 64, streams[i]));
        OK(D(cuCtxSynchronize)());
    }
    OK(D(cuMemsetD32)(p, 0, 1024));
    OK(D(cuMemAllocAsync)(&q, 4096, nonblocking));
    OK(D(cuMemFreeAsync)(q, nonblocking));
    OK(D(cuCtxSynchronize)());
    OK(D(cuMemFree)(p));
}

void arm(CUstream stream)
{
    *flag = 0;
    OK(launch_store(stream, device_of(flag), 1, SPIN_NS));
}

void synchronize(void)
{
    OK(D(cuCtxSynchronize)());
}

CUdeviceptr device_memory(size_t bytes)
{
    CUdeviceptr p;

    OK(D(cuMemAlloc)(&p, bytes));
    return p;
}

CUdeviceptr pool_memory(size_t bytes)
{
    CUdeviceptr p;

    OK(D(cuMemAllocAsync)(&p, bytes, nonblocking));
    OK(D(cuStreamSynchronize)(nonblocking));
    return p;
}

CUdeviceptr managed_memory(size_t bytes)
{
    CUdeviceptr p;

    OK(D(cuMemAllocManaged)(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    return p;
}

uint32_t word_at(CUdeviceptr p)
{
    uint32_t value = 0;

    OK(D(cuMemcpyDtoH)(&value, p, 4));
    return value;
}
