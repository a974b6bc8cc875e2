/* sim_truth.c: asks a driver the questions that the simulation's rules answer, one line a rule.
 *
 * The same program runs on a GPU and on the simulated driver (tests/sim); tests/sim/RULES.md says
 * which rule each line is about, and the two outputs are to be the same, line by line:
 *
 *     gcc -O1 -I$CUDA_HOME/include sim_truth.c -o sim_truth -ldl -lpthread
 *     ./sim_truth > gpu.txt
 *     LD_LIBRARY_PATH=build/tests/sim SIM_SCHED=lazy SIM_VIOLATION=count SIM_DEVICES=2 \
 *         SIM_MEMORY=8GiB ./sim_truth > sim.txt
 *
 * The driver API only, every call looked up by its exported name. Each group of questions has a
 * process of its own, forked before cuInit, so that a fault or a hang costs no more than its group.
 * "Waits" means: a kernel that takes SPIN_NS and then writes a word of pinned memory had written it
 * when the call returned. */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPIN_NS   200000000ull
#define GROUP_SEC 120

/* ---- the driver ---- */

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)
/* cuda.h's macros are expanded first, so this is the name that a linker would see. */
#define D(name) ((__typeof__(&name))symbol(STRING(name)))

static void *driver;

static void *find(const char *name)
{
    return dlsym(driver, name);
}

static void *symbol(const char *name)
{
    void *function = find(name);

    if (!function) {
        printf("# no %s\n", name);
        fflush(stdout);
        _exit(0);
    }
    return function;
}

#define NEED(call)                                                      \
    do {                                                                \
        CUresult code_ = (call);                                        \
        if (code_ != CUDA_SUCCESS) {                                    \
            printf("# line %d: %s: %d\n", __LINE__, #call, (int)code_); \
            fflush(stdout);                                             \
            _exit(1);                                                   \
        }                                                               \
    } while (0)

static void row(const char *id, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void row(const char *id, const char *name, const char *format, ...)
{
    va_list args;

    printf("%s %s: ", id, name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* Two calls, one after the other. */
#define TWO(id, name, first, second)                        \
    do {                                                    \
        CUresult one_ = (first);                            \
        CUresult two_ = (second);                           \
        row(id, name, "codes %d %d", (int)one_, (int)two_); \
    } while (0)

static const char *yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* ---- two kernels, as PTX for a GPU and as host functions for the simulation ---- */

static const char ptx[] =
    ".version 6.3\n.target sm_70\n.address_size 64\n"
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

static CUcontext context;
static CUmodule module;
static CUfunction spin_store, load_store;
static volatile uint32_t *flag, *seen; /* pinned */
static CUstream blocking, other_blocking, nonblocking, other_nonblocking;

static void load_kernels(void)
{
    NEED(D(cuModuleLoadData)(&module, ptx));
    NEED(D(cuModuleGetFunction)(&spin_store, module, "spin_store"));
    NEED(D(cuModuleGetFunction)(&load_store, module, "load_store"));
}

static void warm_up(void);

static void open_device(void)
{
    void *pinned;

    register_kernels();
    NEED(D(cuInit)(0));
    NEED(D(cuDevicePrimaryCtxRetain)(&context, 0));
    NEED(D(cuCtxSetCurrent)(context));
    load_kernels();
    NEED(D(cuMemHostAlloc)(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    flag = pinned;
    seen = flag + 64;
    NEED(D(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
    NEED(D(cuStreamCreate)(&other_blocking, CU_STREAM_DEFAULT));
    NEED(D(cuStreamCreate)(&nonblocking, CU_STREAM_NON_BLOCKING));
    NEED(D(cuStreamCreate)(&other_nonblocking, CU_STREAM_NON_BLOCKING));
    warm_up();
}

static CUdeviceptr device_of(volatile void *pinned)
{
    return (CUdeviceptr)(uintptr_t)pinned;
}

static CUresult launch_store(CUstream stream, CUdeviceptr p, uint32_t value, uint64_t ns)
{
    void *args[] = {&p, &value, &ns};

    return D(cuLaunchKernel)(spin_store, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

static CUresult launch_load(CUstream stream, CUdeviceptr to, CUdeviceptr from)
{
    void *args[] = {&to, &from};

    return D(cuLaunchKernel)(load_store, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

/* What loads or allocates when it is used for the first time has done so before it is asked. */
static void warm_up(void)
{
    CUstream streams[] = {NULL, CU_STREAM_PER_THREAD, blocking, nonblocking, other_nonblocking};
    CUdeviceptr p, q;

    NEED(D(cuMemAlloc)(&p, 4096));
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        NEED(launch_store(streams[i], p, 0, 0));
        NEED(launch_load(streams[i], p, p + 64));
        NEED(D(cuMemcpyDtoDAsync)(p, p + 64, 64, streams[i]));
        NEED(D(cuMemsetD8Async)(p, 0, 64, streams[i]));
        NEED(D(cuCtxSynchronize)());
    }
    NEED(D(cuMemsetD32)(p, 0, 1024));
    NEED(D(cuMemAllocAsync)(&q, 4096, nonblocking));
    NEED(D(cuMemFreeAsync)(q, nonblocking));
    NEED(D(cuCtxSynchronize)());
    NEED(D(cuMemFree)(p));
}

/* A kernel that will set the flag is on its way in the stream. */
static void arm(CUstream stream)
{
    *flag = 0;
    NEED(launch_store(stream, device_of(flag), 1, SPIN_NS));
}

static void settle(void)
{
    NEED(D(cuCtxSynchronize)());
}

static CUdeviceptr device_memory(size_t bytes)
{
    CUdeviceptr p;

    NEED(D(cuMemAlloc)(&p, bytes));
    return p;
}

static CUdeviceptr pool_memory(size_t bytes)
{
    CUdeviceptr p;

    NEED(D(cuMemAllocAsync)(&p, bytes, nonblocking));
    NEED(D(cuStreamSynchronize)(nonblocking));
    return p;
}

static CUdeviceptr managed_memory(size_t bytes)
{
    CUdeviceptr p;

    NEED(D(cuMemAllocManaged)(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    return p;
}

static uint32_t word_at(CUdeviceptr p)
{
    uint32_t value = 0;

    NEED(D(cuMemcpyDtoH)(&value, p, 4));
    return value;
}

/* ---- 100: looking calls up ---- */

static void group_lookup(void)
{
    CUdriverProcAddressQueryResult status = 7;
    void *p = &status, *q = NULL;
    CUresult code;
    int version = 0;

    NEED(D(cuDriverGetVersion)(&version));
    code = D(cuGetProcAddress)("", &p, 0, 0, &status);
    row("R100", "look-up of the empty name", "code %d, %s, status %d", code,
        p ? "a pointer" : "null", (int)status);
    code = D(cuGetProcAddress)("cuNoSuchCall", &p, version, 0, &status);
    row("R101", "look-up of an unknown name", "code %d, %s, status %d", code,
        p ? "a pointer" : "null", (int)status);
    code = D(cuGetProcAddress)("cuMemAllocAsync", &p, 11010, 0, &status);
    row("R102", "look-up at a version before the call's first", "code %d, %s, status %d", code,
        p ? "a pointer" : "null", (int)status);
    code = D(cuGetProcAddress)("cuInit", &p, version + 1000, 0, &status);
    row("R103", "look-up at a version after the driver's", "code %d", code);
    code = D(cuGetProcAddress)("cuMemAlloc", &p, 3020, 0, NULL);
    row("R104", "cuMemAlloc at 3020 is cuMemAlloc_v2", "%s", yes_no(p == find("cuMemAlloc_v2")));
    code = D(cuGetProcAddress)("cuMemFree", &p, version, 2, NULL);
    code = D(cuGetProcAddress)("cuMemFree", &q, version, 1, NULL);
    row("R105", "per-thread look-up of a call without such a form is the plain one", "%s",
        yes_no(p && p == q));
    code = D(cuGetProcAddress)("cuLaunchKernel", &p, version, 2, NULL);
    row("R106", "per-thread cuLaunchKernel is cuLaunchKernel_ptsz", "%s",
        yes_no(p == find("cuLaunchKernel_ptsz")));
    code = D(cuGetProcAddress)("cuGraphInstantiate", &p, 12000, 0, NULL);
    row("R107", "cuGraphInstantiate at 12000 is cuGraphInstantiate_v2", "%s",
        yes_no(p == find("cuGraphInstantiate_v2")));
    code = D(cuGetProcAddress)("cuGetProcAddress", &p, 11030, 0, NULL);
    code = D(cuGetProcAddress)("cuGetProcAddress", &q, 12000, 0, NULL);
    row("R108", "cuGetProcAddress looks itself up by version", "%s",
        yes_no(p == find("cuGetProcAddress") && q == find("cuGetProcAddress_v2")));
    (void)code;
}

static void group_uninitialised(void)
{
    CUdeviceptr p;
    int n;

    row("R110", "cuDeviceGetCount before cuInit", "code %d", D(cuDeviceGetCount)(&n));
    row("R111", "cuInit with flags", "code %d", D(cuInit)(1));
    NEED(D(cuInit)(0));
    row("R112", "cuMemAlloc without a context", "code %d", D(cuMemAlloc)(&p, 64));
    row("R113", "cuCtxPopCurrent of nothing", "code %d", D(cuCtxPopCurrent)(NULL));
    row("R114", "cuDeviceGet of a device that is not there", "code %d", D(cuDeviceGet)(&n, 1000));
}

/* ---- 200: memory: codes and sizes ---- */

static void group_alloc_codes(void)
{
    CUdeviceptr p = 0;
    CUmemoryPool pool;
    CUresult code, again;
    size_t pitch;

    open_device();
    row("R200", "cuMemAlloc of 0 bytes", "code %d", D(cuMemAlloc)(&p, 0));
    row("R201", "cuMemAlloc to NULL", "code %d", D(cuMemAlloc)(NULL, 1));
    row("R202", "cuMemAlloc of 1 PiB", "code %d", D(cuMemAlloc)(&p, (size_t)1 << 50));
    row("R203", "cuMemAllocManaged of 0 bytes", "code %d",
        D(cuMemAllocManaged)(&p, 0, CU_MEM_ATTACH_GLOBAL));
    row("R204", "cuMemAllocAsync of 0 bytes", "code %d", D(cuMemAllocAsync)(&p, 0, NULL));
    NEED(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    row("R205", "cuMemAllocFromPoolAsync of 0 bytes", "code %d",
        D(cuMemAllocFromPoolAsync)(&p, 0, pool, NULL));
    row("R206", "cuMemAllocFromPoolAsync of 1 PiB", "code %d",
        D(cuMemAllocFromPoolAsync)(&p, (size_t)1 << 50, pool, NULL));
    code = D(cuMemAllocPitch)(&p, &pitch, 700, 3, 4);
    row("R207", "cuMemAllocPitch of 700", "code %d, pitch %zu", code, pitch);
    row("R208", "cuMemAllocPitch of elements of 3", "code %d",
        D(cuMemAllocPitch)(&p, &pitch, 700, 3, 3));
    row("R209", "cuMemAllocPitch of width 0", "code %d", D(cuMemAllocPitch)(&p, &pitch, 0, 3, 4));
    row("R210", "cuMemFree of 0", "code %d", D(cuMemFree)(0));
    p = device_memory(4096);
    row("R211", "cuMemFree inside an allocation", "code %d", D(cuMemFree)(p + 512));
    code = D(cuMemFree)(p);
    again = D(cuMemFree)(p);
    row("R212", "cuMemFree, then again", "codes %d %d", code, again);

    p = device_memory(4096);
    row("R214", "cuMemFreeAsync inside an allocation", "code %d",
        D(cuMemFreeAsync)(p + 512, nonblocking));
    row("R215", "cuMemFreeAsync of 0", "code %d", D(cuMemFreeAsync)(0, nonblocking));
    p = managed_memory(4096);
    row("R216", "cuMemFreeAsync of managed memory", "code %d", D(cuMemFreeAsync)(p, nonblocking));
    row("R217", "cuMemFree of pinned memory", "code %d", D(cuMemFree)(device_of(flag)));
    p = pool_memory(4096);
    code = D(cuMemFree)(p);
    row("R218", "cuMemFree of pool memory, then again", "codes %d %d", code, D(cuMemFree)(p));
}

/* In a process of its own: drivers have been seen to lock up some time after this. */
static void group_free_async_codes(void)
{
    open_device();
    CUdeviceptr p = device_memory(4096);
    settle();
    row("R213", "cuMemFreeAsync of cuMemAlloc memory", "code %d",
        D(cuMemFreeAsync)(p, nonblocking));
    /* What a second free of it says differs from run to run, and one run crashed in the driver. */
}

static void group_host_codes(void)
{
    static char plain[3 * 4096];
    CUdeviceptr p;
    void *q;
    unsigned flags;

    open_device();
    row("R220", "cuMemAllocHost of 0 bytes", "code %d", D(cuMemAllocHost)(&q, 0));
    row("R221", "cuMemFreeHost of something else", "code %d", D(cuMemFreeHost)(plain));
    row("R222", "cuMemHostRegister", "code %d", D(cuMemHostRegister)(plain, 4096, 0));
    row("R223", "cuMemHostRegister again", "code %d", D(cuMemHostRegister)(plain, 4096, 0));
    TWO("R224", "cuMemHostUnregister, then again", D(cuMemHostUnregister)(plain),
        D(cuMemHostUnregister)(plain));
    row("R225", "device pointer of pinned memory is the pointer", "%s",
        yes_no(D(cuMemHostGetDevicePointer)(&p, (void *)flag, 0) == CUDA_SUCCESS &&
               p == device_of(flag)));
    row("R226", "device pointer of pageable memory", "code %d",
        D(cuMemHostGetDevicePointer)(&p, plain, 0));
    row("R227", "flags of pageable memory", "code %d", D(cuMemHostGetFlags)(&flags, plain));
    row("R228", "cuMemHostRegister of 0 bytes", "code %d", D(cuMemHostRegister)(plain, 0, 0));
}

static void group_sizes(void)
{
    CUdeviceptr p, base = 0;
    size_t before, after, size = 0;
    CUresult code;

    open_device();
    p = device_memory((size_t)64 << 20); /* whatever the driver takes at first, it has now */
    NEED(D(cuMemFree)(p));
    NEED(D(cuMemGetInfo)(&before, &size));
    p = device_memory((size_t)5 << 20);
    NEED(D(cuMemGetInfo)(&after, &size));
    row("R230", "5 MiB less free memory after 5 MiB, in MiB", "%zu", (before - after) >> 20);
    NEED(D(cuMemFree)(p));
    row("R231", "cuMemGetInfo to NULL", "code %d", D(cuMemGetInfo)(NULL, NULL));
    p = device_memory(1000);
    code = D(cuMemGetAddressRange)(&base, &size, p + 999);
    row("R232", "address range at the last byte", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R233", "address range past the end", "code %d",
        D(cuMemGetAddressRange)(&base, &size, p + 1000));
    row("R234", "address range past the end, to NULL", "code %d",
        D(cuMemGetAddressRange)(NULL, NULL, p + 1000));
    row("R235", "address range of a local variable", "code %d",
        D(cuMemGetAddressRange)(&base, &size, (CUdeviceptr)(uintptr_t)&p));
    p = pool_memory(1000);
    code = D(cuMemGetAddressRange)(&base, &size, p + 999);
    row("R236", "address range of pool memory", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R237", "alignment of 1000 bytes to 512", "%s",
        yes_no(p % 512 == 0 && device_memory(1000) % 512 == 0));
    row("R238", "alignment of 4 MiB to 2 MiB", "%s",
        yes_no(device_memory((size_t)4 << 20) % ((size_t)2 << 20) == 0));
}

static void group_copy_codes(void)
{
    CUdeviceptr p;
    char plain[64];

    open_device();
    p = device_memory(256);
    row("R240", "cuMemcpyDtoD past the end", "code %d", D(cuMemcpyDtoD)(p, p + 4, 256));
    row("R241", "cuMemsetD8 past the end", "code %d", D(cuMemsetD8)(p, 0, 257));
    row("R242", "cuMemsetD32 at an odd address", "code %d", D(cuMemsetD32)(p + 1, 0, 1));
    row("R243", "cuMemcpyHtoD of 0 bytes", "code %d", D(cuMemcpyHtoD)(p, plain, 0));
    row("R244", "cuMemcpyHtoD to pageable memory", "code %d",
        D(cuMemcpyHtoD)((CUdeviceptr)(uintptr_t)plain, plain + 32, 8));
    row("R245", "cuMemcpyHtoD to 0", "code %d", D(cuMemcpyHtoD)(0, plain, 8));
    row("R246", "cuMemcpy between host pointers", "code %d",
        D(cuMemcpy)((CUdeviceptr)(uintptr_t)plain, (CUdeviceptr)(uintptr_t)(plain + 32), 8));
    row("R247", "cuMemsetD8 of 0 bytes", "code %d", D(cuMemsetD8)(p, 0, 0));
}

/* ---- 300: pointer attributes ---- */

static void attribute_line(const char *id, const char *name, CUdeviceptr p)
{
    CUcontext ctx = NULL;
    CUmemoryPool pool = NULL;
    void *host = NULL;
    int type = -1, managed = -1, ordinal = -1, ipc = -1, rdma = -1, mapped = -1;
    unsigned long long kinds = 99;
    size_t size = 0;
    CUresult code = D(cuPointerGetAttribute)(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p), host_code;

    D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    D(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    D(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    D(cuPointerGetAttribute)(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
    D(cuPointerGetAttribute)(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p);
    D(cuPointerGetAttribute)(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, p);
    D(cuPointerGetAttribute)(&kinds, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
    D(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p);
    D(cuPointerGetAttribute)(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    host_code = D(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    row(id, name,
        "code %d, context %s, type %d, managed %d, ordinal %d, legacy ipc %d, rdma %d, mapped %d, "
        "handle types %llu, size %zu, pool %s, host pointer code %d",
        code, ctx ? "set" : "null", type, managed, ordinal, ipc, rdma, mapped, kinds, size,
        pool ? "set" : "null", host_code);
}

static void group_attributes(void)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    int type = 9, ordinal = 9;
    CUdeviceptr pointer = 9;
    void *data[] = {&type, &ordinal, &pointer};
    CUresult code;

    open_device();
    attribute_line("R300", "attributes of cuMemAlloc memory", device_memory(1000));
    attribute_line("R301", "attributes of pool memory", pool_memory(1000));
    attribute_line("R302", "attributes of managed memory", managed_memory(1000));
    attribute_line("R303", "attributes of pinned memory", device_of(flag));
    row("R304", "attribute of a local variable", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 (CUdeviceptr)(uintptr_t)&type));
    code = D(cuPointerGetAttributes)(3, which, data, (CUdeviceptr)(uintptr_t)&type);
    row("R305", "attributes of a local variable", "code %d, type %d, ordinal %d, pointer %s", code,
        type, ordinal, pointer ? "set" : "null");
    row("R306", "attribute of freed memory", "code %d", ({
            CUdeviceptr p = device_memory(4096);
            NEED(D(cuMemFree)(p));
            D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
        }));
    row("R307", "attribute past the end of an allocation", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 device_memory(1000) + 1000));
}

/* ---- 400: what waits for unfinished work ---- */

#define WAITS(id, name, stream, call)                                                  \
    do {                                                                               \
        arm(stream);                                                                   \
        CUresult code_ = (call);                                                       \
        bool waited_ = *flag != 0;                                                     \
        row(id, name, "%s, code %d", waited_ ? "waits" : "does not wait", (int)code_); \
        settle();                                                                      \
    } while (0)

static void group_waits_memory(void)
{
    CUdeviceptr p, q;
    CUmemoryPool pool;
    void *host, *more;
    static char plain[4096];

    open_device();
    WAITS("R400", "cuMemAlloc", nonblocking, D(cuMemAlloc)(&p, 1 << 20));
    WAITS("R401", "cuMemFree", nonblocking, D(cuMemFree)(p));
    p = pool_memory(1 << 20);
    WAITS("R402", "cuMemFree of pool memory", nonblocking, D(cuMemFree)(p));
    p = managed_memory(1 << 20);
    WAITS("R403", "cuMemFree of managed memory", nonblocking, D(cuMemFree)(p));
    WAITS("R404", "cuMemAllocManaged", nonblocking,
          D(cuMemAllocManaged)(&p, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    WAITS("R405", "cuMemAllocAsync on another stream", nonblocking,
          D(cuMemAllocAsync)(&q, 1 << 20, other_nonblocking));
    WAITS("R406", "cuMemFreeAsync on another stream", nonblocking,
          D(cuMemFreeAsync)(q, other_nonblocking));
    WAITS("R407", "cuMemAllocHost", nonblocking, D(cuMemAllocHost)(&host, 4096));
    WAITS("R408", "cuMemFreeHost", nonblocking, D(cuMemFreeHost)(host));
    WAITS("R409", "cuMemHostRegister", nonblocking, D(cuMemHostRegister)(plain, 4096, 0));
    WAITS("R410", "cuMemHostUnregister", nonblocking, D(cuMemHostUnregister)(plain));
    NEED(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    WAITS("R411", "cuMemPoolTrimTo", nonblocking, D(cuMemPoolTrimTo)(pool, 0));
    size_t free_bytes;
    WAITS("R412", "cuMemGetInfo", nonblocking, D(cuMemGetInfo)(&free_bytes, NULL));
    NEED(D(cuMemAllocHost)(&more, 4096));
    WAITS("R413", "cuMemFree(0)", nonblocking, D(cuMemFree)(0));
}

static void group_waits_copies(void)
{
    static char plain[65536];
    CUdeviceptr p, q, pinned = device_of(flag + 128);
    void *host = (void *)(flag + 128);

    open_device();
    pinned = device_of(flag + 128);
    host = (void *)(flag + 128);
    p = device_memory(65536);
    q = device_memory(65536);
    NEED(D(cuMemcpyHtoD)(p, plain, 65536));
    settle();
    WAITS("R420", "cuMemcpyHtoD, pageable, behind the legacy stream", NULL,
          D(cuMemcpyHtoD)(p, plain, 4096));
    WAITS("R421", "cuMemcpyHtoD, pinned, behind the legacy stream", NULL,
          D(cuMemcpyHtoD)(p, host, 1024));
    WAITS("R422", "cuMemcpyDtoH, pageable, behind the legacy stream", NULL,
          D(cuMemcpyDtoH)(plain, p, 1024));
    WAITS("R423", "cuMemcpyDtoH, pinned, behind the legacy stream", NULL,
          D(cuMemcpyDtoH)(host, p, 1024));
    WAITS("R424", "cuMemcpyDtoD, behind the legacy stream", NULL, D(cuMemcpyDtoD)(p, q, 4096));
    WAITS("R425", "cuMemsetD8, behind the legacy stream", NULL, D(cuMemsetD8)(p, 0, 4096));
    WAITS("R426", "cuMemsetD8 of pinned memory, behind the legacy stream", NULL,
          D(cuMemsetD8)(pinned, 0, 64));
    WAITS("R427", "cuMemcpyHtoD, pageable, kernel on a non-blocking stream", nonblocking,
          D(cuMemcpyHtoD)(p, plain, 4096));
    WAITS("R428", "cuMemcpyDtoH, kernel on a blocking stream", blocking,
          D(cuMemcpyDtoH)(plain, p, 1024));
    WAITS("R429", "cuMemcpyHtoDAsync, pageable, 4 KiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 4096, nonblocking));
    WAITS("R430", "cuMemcpyHtoDAsync, pinned, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, host, 1024, nonblocking));
    WAITS("R431", "cuMemcpyDtoHAsync, pageable, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(plain, p, 1024, nonblocking));
    WAITS("R432", "cuMemcpyDtoHAsync, pinned, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(host, p, 1024, nonblocking));
    WAITS("R433", "cuMemcpyDtoDAsync, same stream", nonblocking,
          D(cuMemcpyDtoDAsync)(p, q, 4096, nonblocking));
    WAITS("R434", "cuMemsetD8Async, same stream", nonblocking,
          D(cuMemsetD8Async)(p, 0, 4096, nonblocking));
}

static void group_waits_streams(void)
{
    CUstream fresh;
    CUevent event, none;

    open_device();
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    WAITS("R440", "cuStreamSynchronize of the legacy stream, kernel on a blocking stream", blocking,
          D(cuStreamSynchronize)(NULL));
    WAITS("R441", "cuStreamSynchronize of the legacy stream, kernel on a non-blocking stream",
          nonblocking, D(cuStreamSynchronize)(NULL));
    WAITS("R442", "cuStreamSynchronize of another stream", nonblocking,
          D(cuStreamSynchronize)(other_nonblocking));
    WAITS("R443", "cuStreamQuery of the legacy stream, kernel on a blocking stream", blocking,
          D(cuStreamQuery)(NULL));
    WAITS("R444", "cuStreamQuery of the stream", nonblocking, D(cuStreamQuery)(nonblocking));
    WAITS("R445", "cuStreamQuery of another stream", nonblocking,
          D(cuStreamQuery)(other_nonblocking));
    WAITS("R446", "cuStreamCreate", nonblocking, D(cuStreamCreate)(&fresh, CU_STREAM_NON_BLOCKING));
    WAITS("R447", "cuStreamDestroy of the stream", fresh, D(cuStreamDestroy)(fresh));
    arm(nonblocking);
    NEED(D(cuEventRecord)(event, nonblocking));
    row("R448", "cuEventQuery of work under way", "code %d", D(cuEventQuery)(event));
    CUresult code = D(cuEventDestroy)(event);
    row("R449", "cuEventDestroy of work under way", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
    settle();
    NEED(D(cuEventCreate)(&none, CU_EVENT_DISABLE_TIMING));
    row("R450", "cuEventQuery of an event never recorded", "code %d", D(cuEventQuery)(none));
    row("R451", "cuEventSynchronize of an event never recorded", "code %d",
        D(cuEventSynchronize)(none));
    NEED(D(cuStreamCreate)(&fresh, CU_STREAM_NON_BLOCKING));
    arm(fresh);
    NEED(D(cuStreamDestroy)(fresh));
    code = D(cuCtxSynchronize)();
    row("R452", "cuCtxSynchronize, kernel on a destroyed stream", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
}

static void group_waits_others(void)
{
    CUDA_ARRAY_DESCRIPTOR desc = {64, 64, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUarray array;
    CUmodule second;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;

    open_device();
    WAITS("R460", "cuArrayCreate", nonblocking, D(cuArrayCreate)(&array, &desc));
    WAITS("R461", "cuArrayDestroy", nonblocking, D(cuArrayDestroy)(array));
    NEED(D(cuModuleLoadData)(&second, ptx));
    WAITS("R462", "cuModuleUnload", nonblocking, D(cuModuleUnload)(second));
    WAITS("R463", "cuCtxSetLimit of the device heap", nonblocking,
          D(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)16 << 20));
    NEED(D(cuGraphCreate)(&graph, 0));
    NEED(D(cuGraphAddEmptyNode)(&node, graph, NULL, 0));
    WAITS("R464", "cuGraphInstantiate", nonblocking, D(cuGraphInstantiate)(&exec, graph, 0));
    NEED(D(cuGraphLaunch)(exec, other_nonblocking));
    settle();
    WAITS("R465", "cuGraphLaunch on another stream", nonblocking,
          D(cuGraphLaunch)(exec, other_nonblocking));
    WAITS("R466", "cuGraphExecDestroy", nonblocking, D(cuGraphExecDestroy)(exec));
    CUdeviceptr m = managed_memory(1 << 20);
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    WAITS("R467", "cuMemAdvise", nonblocking,
          D(cuMemAdvise)(m, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    WAITS("R468", "cuMemPrefetchAsync on another stream", nonblocking,
          D(cuMemPrefetchAsync)(m, 1 << 20, here, 0, other_nonblocking));
}

/* The free of one context's memory while another context of the device works. */
static void group_waits_contexts(void)
{
    CUcontext second;
    CUdeviceptr p, of_second;

    open_device();
    p = device_memory(4096);
    NEED(D(cuCtxCreate)(&second, NULL, 0, 0));
    of_second = device_memory(4096);
    NEED(D(cuCtxSetCurrent)(context));
    WAITS("R470", "cuMemFree of another context's memory", nonblocking, D(cuMemFree)(of_second));
    arm(nonblocking);
    NEED(D(cuCtxSetCurrent)(second));
    CUresult code = D(cuMemFree)(p);
    row("R471", "cuMemFree with another context current, kernel in the owner's", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
    NEED(D(cuCtxSetCurrent)(context));
    settle();
}

/* ---- 500: order ---- */

/* Is the second stream's work behind the first one's? Tells before anybody has waited for both. */
static bool behind(CUstream first, CUstream then, void (*between)(CUstream, CUstream))
{
    *flag = *seen = 0;
    NEED(launch_store(first, device_of(flag), 1, SPIN_NS));
    if (between)
        between(first, then);
    NEED(launch_load(then, device_of(seen), device_of(flag)));
    CUevent event;
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    NEED(D(cuEventRecord)(event, then));
    NEED(D(cuEventSynchronize)(event));
    bool answer = *seen != 0;
    NEED(D(cuEventDestroy)(event));
    settle();
    return answer;
}

static void group_order(void)
{
    open_device();
    row("R500", "legacy behind legacy", "%s", yes_no(behind(NULL, NULL, NULL)));
    row("R501", "blocking behind legacy", "%s", yes_no(behind(NULL, blocking, NULL)));
    row("R502", "legacy behind blocking", "%s", yes_no(behind(blocking, NULL, NULL)));
    row("R503", "per-thread behind legacy", "%s", yes_no(behind(NULL, CU_STREAM_PER_THREAD, NULL)));
    row("R504", "legacy behind per-thread", "%s", yes_no(behind(CU_STREAM_PER_THREAD, NULL, NULL)));
    row("R505", "blocking behind blocking", "%s", yes_no(behind(blocking, other_blocking, NULL)));
    row("R506", "blocking behind per-thread", "%s",
        yes_no(behind(CU_STREAM_PER_THREAD, blocking, NULL)));
    row("R507", "non-blocking behind legacy", "%s", yes_no(behind(NULL, nonblocking, NULL)));
    row("R508", "legacy behind non-blocking", "%s", yes_no(behind(nonblocking, NULL, NULL)));
    row("R509", "non-blocking behind non-blocking", "%s",
        yes_no(behind(nonblocking, other_nonblocking, NULL)));
    row("R510", "non-blocking behind blocking", "%s", yes_no(behind(blocking, nonblocking, NULL)));
}

static CUevent between_event;

static void by_event(CUstream first, CUstream then)
{
    NEED(D(cuEventRecord)(between_event, first));
    NEED(D(cuStreamWaitEvent)(then, between_event, 0));
}

static void by_legacy_record(CUstream first, CUstream then)
{
    (void)first;
    (void)then;
    NEED(D(cuEventRecord)(between_event, NULL));
}

static void by_context(CUstream first, CUstream then)
{
    (void)first;
    (void)then;
    NEED(D(cuCtxRecordEvent)(context, between_event));
    NEED(D(cuCtxWaitEvent)(context, between_event));
}

static void by_context_record_only(CUstream first, CUstream then)
{
    (void)first;
    (void)then;
    NEED(D(cuCtxRecordEvent)(context, between_event));
}

static void by_context_and_stream(CUstream first, CUstream then)
{
    (void)first;
    NEED(D(cuCtxRecordEvent)(context, between_event));
    NEED(D(cuStreamWaitEvent)(then, between_event, 0));
}

static void group_barriers(void)
{
    CUstream fresh;

    open_device();
    NEED(D(cuEventCreate)(&between_event, CU_EVENT_DISABLE_TIMING));
    row("R520", "an event between non-blocking streams", "%s",
        yes_no(behind(nonblocking, other_nonblocking, by_event)));
    row("R521", "a record on the legacy stream between blocking streams", "%s",
        yes_no(behind(blocking, other_blocking, by_legacy_record)));
    row("R522", "a record on the legacy stream between per-thread and blocking", "%s",
        yes_no(behind(CU_STREAM_PER_THREAD, blocking, by_legacy_record)));
    row("R523", "a record on the legacy stream between non-blocking streams", "%s",
        yes_no(behind(nonblocking, other_nonblocking, by_legacy_record)));
    row("R524", "cuCtxRecordEvent and cuCtxWaitEvent between non-blocking streams", "%s",
        yes_no(behind(nonblocking, other_nonblocking, by_context)));
    row("R525", "cuCtxRecordEvent and cuCtxWaitEvent, legacy then non-blocking", "%s",
        yes_no(behind(NULL, nonblocking, by_context)));
    row("R526", "cuCtxRecordEvent alone between blocking streams", "%s",
        yes_no(behind(blocking, other_blocking, by_context_record_only)));
    row("R527", "cuCtxRecordEvent, awaited by one stream", "%s",
        yes_no(behind(blocking, nonblocking, by_context_and_stream)));
    /* A stream made after the barrier. */
    *flag = *seen = 0;
    NEED(launch_store(nonblocking, device_of(flag), 1, SPIN_NS));
    by_context(NULL, NULL);
    NEED(D(cuStreamCreate)(&fresh, CU_STREAM_NON_BLOCKING));
    NEED(launch_load(fresh, device_of(seen), device_of(flag)));
    NEED(D(cuStreamSynchronize)(fresh));
    row("R528", "cuCtxWaitEvent holds streams made later", "%s", yes_no(*seen));
    settle();
    /* A stream destroyed with work in it. */
    *flag = *seen = 0;
    NEED(launch_store(fresh, device_of(flag), 1, SPIN_NS));
    NEED(D(cuStreamDestroy)(fresh));
    by_context(NULL, NULL);
    NEED(launch_load(nonblocking, device_of(seen), device_of(flag)));
    NEED(D(cuStreamSynchronize)(nonblocking));
    row("R529", "cuCtxRecordEvent covers a destroyed stream", "%s", yes_no(*seen));
    settle();
    NEED(D(cuStreamCreate)(&fresh, CU_STREAM_DEFAULT));
    *flag = *seen = 0;
    NEED(launch_store(fresh, device_of(flag), 1, SPIN_NS));
    NEED(D(cuStreamDestroy)(fresh));
    NEED(launch_load(NULL, device_of(seen), device_of(flag)));
    NEED(D(cuStreamSynchronize)(NULL));
    row("R530", "the legacy stream waits for a destroyed blocking stream", "%s", yes_no(*seen));
    settle();
}

/* When are the bytes of a copy's source taken? */
static void group_sources(void)
{
    static uint32_t plain[16];
    CUdeviceptr p;

    open_device();
    p = device_memory(64);
    arm(nonblocking);
    plain[0] = 1;
    NEED(D(cuMemcpyHtoDAsync)(p, plain, 4, nonblocking));
    plain[0] = 2;
    settle();
    row("R540", "pageable source of an async copy behind work", "read %s",
        word_at(p) == 1 ? "at the call" : "when the copy runs");
    arm(nonblocking);
    flag[64] = 1;
    NEED(D(cuMemcpyHtoDAsync)(p, (void *)(flag + 64), 4, nonblocking));
    flag[64] = 2;
    settle();
    row("R541", "pinned source of an async copy behind work", "read %s",
        word_at(p) == 1 ? "at the call" : "when the copy runs");
    CUgraph graph;
    CUgraphExec exec;
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    plain[0] = 3;
    NEED(D(cuMemcpyHtoDAsync)(p, plain, 4, nonblocking));
    NEED(D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    plain[0] = 4;
    NEED(D(cuGraphLaunch)(exec, nonblocking));
    settle();
    row("R542", "pageable source of a captured copy", "read %s",
        word_at(p) == 3 ? "at the capture" : "at the launch");
}

static CUresult inside_codes[3];

static void inside(void *event)
{
    CUdeviceptr p;

    inside_codes[0] = D(cuStreamQuery)(nonblocking);
    inside_codes[1] = D(cuEventQuery)(event);
    inside_codes[2] = D(cuMemAlloc)(&p, 4096);
}

static void group_host_functions(void)
{
    CUevent event;

    open_device();
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    WAITS("R550", "cuLaunchHostFunc", nonblocking, D(cuLaunchHostFunc)(nonblocking, inside, event));
    row("R551", "cuStreamQuery of the stream inside a host function", "code %d", inside_codes[0]);
    row("R552", "cuLaunchHostFunc of NULL", "code %d",
        D(cuLaunchHostFunc)(nonblocking, NULL, NULL));
    row("R553", "cuEventQuery inside a host function", "code %d", inside_codes[1]);
    row("R554", "cuMemAlloc inside a host function", "code %d", inside_codes[2]);
}

static void group_event_codes(void)
{
    CUevent start, end, plain;
    CUcontext second;
    CUstream foreign;
    float ms;

    open_device();
    NEED(D(cuEventCreate)(&start, CU_EVENT_DEFAULT));
    NEED(D(cuEventCreate)(&end, CU_EVENT_DEFAULT));
    NEED(D(cuEventCreate)(&plain, CU_EVENT_DISABLE_TIMING));
    row("R560", "elapsed time of events never recorded", "code %d",
        D(cuEventElapsedTime)(&ms, start, end));
    NEED(D(cuEventRecord)(start, nonblocking));
    arm(nonblocking);
    NEED(D(cuEventRecord)(end, nonblocking));
    row("R561", "elapsed time of work under way", "code %d",
        D(cuEventElapsedTime)(&ms, start, end));
    settle();
    row("R562", "elapsed time of finished work is positive", "%s",
        yes_no(D(cuEventElapsedTime)(&ms, start, end) == CUDA_SUCCESS && ms > 0));
    NEED(D(cuEventRecord)(plain, nonblocking));
    settle();
    row("R563", "elapsed time to an event without timing", "code %d",
        D(cuEventElapsedTime)(&ms, start, plain));
    row("R564", "cuEventCreate, interprocess with timing", "code %d",
        D(cuEventCreate)(&end, CU_EVENT_INTERPROCESS));
    NEED(D(cuCtxCreate)(&second, NULL, 0, 0));
    NEED(D(cuStreamCreate)(&foreign, CU_STREAM_NON_BLOCKING));
    NEED(D(cuCtxSetCurrent)(context));
    row("R565", "cuEventRecord on a stream of another context", "code %d",
        D(cuEventRecord)(plain, foreign));
    row("R566", "cuStreamWaitEvent across contexts", "code %d",
        D(cuStreamWaitEvent)(foreign, plain, 0));
    row("R567", "cuStreamWaitEvent for an event never recorded", "code %d", ({
            CUevent never;
            NEED(D(cuEventCreate)(&never, CU_EVENT_DISABLE_TIMING));
            D(cuStreamWaitEvent)(nonblocking, never, 0);
        }));
}

/* ---- 600: capture ---- */

typedef CUresult (*question)(void);

static CUdeviceptr spare[64];
static int n_spare;
static CUevent outside_event;

static CUresult ask_alloc(void)
{
    CUdeviceptr p;
    CUresult code = D(cuMemAlloc)(&p, 4096);

    return code;
}

static CUresult ask_free(void)
{
    return n_spare ? D(cuMemFree)(spare[--n_spare]) : CUDA_ERROR_UNKNOWN;
}

static CUresult ask_pool_alloc(void)
{
    CUdeviceptr p;

    return D(cuMemAllocAsync)(&p, 4096, other_nonblocking);
}

static CUresult ask_pool_free(void)
{
    return n_spare ? D(cuMemFreeAsync)(spare[--n_spare], other_nonblocking) : CUDA_ERROR_UNKNOWN;
}

static CUresult ask_managed(void)
{
    CUdeviceptr p;

    return D(cuMemAllocManaged)(&p, 4096, CU_MEM_ATTACH_GLOBAL);
}

static CUresult ask_pinned(void)
{
    void *p;

    return D(cuMemHostAlloc)(&p, 4096, 0);
}

static CUresult ask_stream_query(void)
{
    return D(cuStreamQuery)(other_nonblocking);
}

static CUresult ask_stream_sync(void)
{
    return D(cuStreamSynchronize)(other_nonblocking);
}

static CUresult ask_event_query(void)
{
    return D(cuEventQuery)(outside_event);
}

static CUresult ask_event_sync(void)
{
    return D(cuEventSynchronize)(outside_event);
}

static CUresult ask_context_sync(void)
{
    return D(cuCtxSynchronize)();
}

static CUresult ask_context_record(void)
{
    return D(cuCtxRecordEvent)(context, outside_event);
}

static CUresult ask_context_wait(void)
{
    return D(cuCtxWaitEvent)(context, outside_event);
}

static CUresult ask_info(void)
{
    size_t bytes;

    return D(cuMemGetInfo)(&bytes, NULL);
}

static CUresult ask_event_record(void)
{
    return D(cuEventRecord)(outside_event, other_nonblocking);
}

static CUresult ask_stream_create(void)
{
    CUstream stream;

    return D(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
}

static CUresult ask_launch(void)
{
    return launch_store(other_nonblocking, device_of(seen), 1, 0);
}

static CUresult ask_copy(void)
{
    static char plain[64];

    return D(cuMemcpyHtoD)(spare[0], plain, 64);
}

static CUresult ask_memset(void)
{
    return D(cuMemsetD8)(spare[0], 0, 64);
}

static CUresult ask_pool_attribute(void)
{
    CUmemoryPool pool;
    cuuint64_t value;
    CUresult code = D(cuDeviceGetDefaultMemPool)(&pool, 0);

    return code ? code : D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
}

static CUresult ask_pointer_attribute(void)
{
    int value;

    return D(cuPointerGetAttribute)(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, spare[0]);
}

static CUresult ask_module(void)
{
    CUmodule one;

    return D(cuModuleLoadData)(&one, ptx);
}

struct asking {
    question ask;
    CUstreamCaptureMode mode;
    CUresult code;
};

static void *ask_in_mode(void *data)
{
    struct asking *asking = data;
    CUstreamCaptureMode mode = asking->mode;

    NEED(D(cuCtxSetCurrent)(context));
    NEED(D(cuThreadExchangeStreamCaptureMode)(&mode));
    asking->code = asking->ask();
    NEED(D(cuThreadExchangeStreamCaptureMode)(&mode));
    return NULL;
}

/* "code kept" or "code spoilt" for one capture mode and one thread. */
static void one_answer(char *text, size_t bytes, question ask, CUstreamCaptureMode mode,
                       CUstreamCaptureMode thread_mode, bool own_thread)
{
    struct asking asking = {ask, thread_mode, CUDA_SUCCESS};
    pthread_t thread;
    CUgraph graph = NULL;

    NEED(D(cuStreamBeginCapture)(nonblocking, mode));
    if (own_thread) {
        ask_in_mode(&asking);
    } else {
        pthread_create(&thread, NULL, ask_in_mode, &asking);
        pthread_join(thread, NULL);
    }
    CUresult end = D(cuStreamEndCapture)(nonblocking, &graph);
    snprintf(text, bytes, "%d%s", (int)asking.code, end ? " spoilt" : "");
    if (graph)
        NEED(D(cuGraphDestroy)(graph));
}

static void capture_line(const char *id, const char *name, question ask, bool pool)
{
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    char text[7][32];

    for (n_spare = 0; n_spare < 16; n_spare++)
        spare[n_spare] = pool ? pool_memory(4096) : device_memory(4096);
    one_answer(text[0], sizeof(text[0]), ask, global, global, true);
    one_answer(text[1], sizeof(text[1]), ask, global, global, false);
    one_answer(text[2], sizeof(text[2]), ask, global, relaxed, true);
    one_answer(text[3], sizeof(text[3]), ask, global, local, false);
    one_answer(text[4], sizeof(text[4]), ask, local, global, true);
    one_answer(text[5], sizeof(text[5]), ask, local, global, false);
    one_answer(text[6], sizeof(text[6]), ask, relaxed, global, true);
    row(id, name,
        "global %s, other thread %s, relaxed %s, other thread local %s; local %s, other thread "
        "%s; relaxed %s",
        text[0], text[1], text[2], text[3], text[4], text[5], text[6]);
    settle();
}

static void group_capture_memory(void)
{
    open_device();
    capture_line("R600", "in a capture, cuMemAlloc", ask_alloc, false);
    capture_line("R601", "in a capture, cuMemFree", ask_free, false);
    capture_line("R602", "in a capture, cuMemFree of pool memory", ask_free, true);
    capture_line("R603", "in a capture, cuMemAllocAsync elsewhere", ask_pool_alloc, false);
    capture_line("R604", "in a capture, cuMemFreeAsync elsewhere", ask_pool_free, true);
    capture_line("R605", "in a capture, cuMemAllocManaged", ask_managed, false);
    capture_line("R606", "in a capture, cuMemHostAlloc", ask_pinned, false);
    capture_line("R607", "in a capture, cuMemGetInfo", ask_info, false);
    capture_line("R608", "in a capture, cuMemPoolGetAttribute", ask_pool_attribute, false);
    capture_line("R609", "in a capture, cuPointerGetAttribute", ask_pointer_attribute, false);
    capture_line("R610", "in a capture, cuModuleLoadData", ask_module, false);
    capture_line("R611", "in a capture, cuMemcpyHtoD", ask_copy, false);
    capture_line("R612", "in a capture, cuMemsetD8", ask_memset, false);
}

static void group_capture_waits(void)
{
    open_device();
    NEED(D(cuEventCreate)(&outside_event, CU_EVENT_DISABLE_TIMING));
    NEED(D(cuEventRecord)(outside_event, other_nonblocking));
    settle();
    capture_line("R620", "in a capture, cuStreamQuery elsewhere", ask_stream_query, false);
    capture_line("R621", "in a capture, cuStreamSynchronize elsewhere", ask_stream_sync, false);
    capture_line("R622", "in a capture, cuEventQuery", ask_event_query, false);
    capture_line("R623", "in a capture, cuEventSynchronize", ask_event_sync, false);
    capture_line("R624", "in a capture, cuCtxSynchronize", ask_context_sync, false);
    capture_line("R625", "in a capture, cuCtxRecordEvent", ask_context_record, false);
    capture_line("R626", "in a capture, cuCtxWaitEvent", ask_context_wait, false);
    capture_line("R627", "in a capture, cuEventRecord elsewhere", ask_event_record, false);
    capture_line("R628", "in a capture, cuStreamCreate", ask_stream_create, false);
    capture_line("R629", "in a capture, a launch elsewhere", ask_launch, false);
}

static int status_of(CUstream stream)
{
    CUstreamCaptureStatus status = 9;
    CUresult code = D(cuStreamIsCapturing)(stream, &status);

    return code ? (int)code : (int)status;
}

static void group_capture_codes(void)
{
    CUgraph graph;
    CUevent event;
    CUdeviceptr p;
    CUresult code;

    open_device();
    p = device_memory(4096);
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    row("R640", "capture of the legacy stream", "code %d",
        D(cuStreamBeginCapture)(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    row("R641", "end of a capture that is not", "code %d",
        D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuStreamBeginCapture)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    row("R642", "is the legacy stream capturing while a blocking stream is", "%d", status_of(NULL));
    row("R643", "the blocking stream after that question", "%d", status_of(blocking));
    code = launch_store(NULL, device_of(seen), 1, 0);
    int status = status_of(blocking);
    row("R644", "a launch on the legacy stream while a blocking stream captures",
        "code %d, status %d, end %d", code, status, D(cuStreamEndCapture)(blocking, &graph));
    NEED(D(cuStreamBeginCapture)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuEventRecord)(event, NULL);
    row("R645", "cuEventRecord on the legacy stream while a blocking stream captures",
        "code %d, end %d", code, D(cuStreamEndCapture)(blocking, &graph));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = launch_store(NULL, device_of(seen), 1, 0);
    row("R646", "a launch on the legacy stream while a non-blocking stream captures",
        "code %d, end %d", code, D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuStreamQuery)(nonblocking);
    row("R647", "cuStreamQuery of a capturing stream", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuStreamSynchronize)(nonblocking);
    row("R648", "cuStreamSynchronize of a capturing stream", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(D(cuEventRecord)(event, nonblocking));
    code = D(cuEventQuery)(event);
    row("R649", "cuEventQuery of a captured event", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuEventRecord)(event, other_nonblocking));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuStreamWaitEvent)(nonblocking, event, 0);
    row("R650", "a capturing stream waits for an event from outside", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    (void)p;
}

static void group_capture_joins(void)
{
    CUgraph graph;
    CUevent event;
    CUdeviceptr p;
    CUresult code, second;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

    open_device();
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(D(cuEventRecord)(event, nonblocking));
    NEED(D(cuStreamWaitEvent)(other_nonblocking, event, 0));
    NEED(launch_store(other_nonblocking, device_of(seen), 1, 0));
    row("R660", "a stream that waited for a captured event captures", "%d",
        status_of(other_nonblocking));
    code = D(cuStreamEndCapture)(other_nonblocking, &graph);
    row("R661", "end of a capture on a stream that joined it", "code %d", code);
    row("R662", "end of the capture after that", "code %d",
        D(cuStreamEndCapture)(nonblocking, &graph));
    row("R663", "the unjoined stream afterwards", "%d", status_of(other_nonblocking));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(D(cuEventRecord)(event, nonblocking));
    NEED(D(cuStreamWaitEvent)(other_nonblocking, event, 0));
    NEED(launch_store(other_nonblocking, device_of(seen), 1, 0));
    row("R669", "end of a capture with an unjoined stream, nothing else wrong", "code %d",
        D(cuStreamEndCapture)(nonblocking, &graph));
    for (int join = 1; join >= 0; join--) {
        CUstream branch;
        NEED(D(cuStreamCreate)(&branch, CU_STREAM_NON_BLOCKING));
        NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
        NEED(D(cuEventRecord)(event, nonblocking));
        NEED(D(cuStreamWaitEvent)(branch, event, 0));
        NEED(launch_store(branch, device_of(seen), 1, 0));
        NEED(D(cuEventRecord)(event, branch));
        if (join)
            NEED(D(cuStreamWaitEvent)(nonblocking, event, 0));
        NEED(D(cuStreamDestroy)(branch));
        row(join ? "R670" : "R671",
            join ? "end of a capture whose other stream joined and was destroyed"
                 : "end of a capture whose other stream was destroyed unjoined",
            "code %d", D(cuStreamEndCapture)(nonblocking, &graph));
    }
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    second = D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    row("R664", "a second begin on the stream", "code %d, end %d", second,
        D(cuStreamEndCapture)(nonblocking, &graph));
    p = managed_memory(1 << 20);
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemPrefetchAsync)(p, 1 << 20, here, 0, nonblocking);
    row("R665", "cuMemPrefetchAsync in a capture", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    p = pool_memory(4096);
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemFreeAsync)(p, nonblocking);
    row("R666", "cuMemFreeAsync in a capture of memory from before it", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    NEED(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemAllocAsync)(&p, 4096, nonblocking);
    row("R667", "cuMemAllocAsync on the capturing stream", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    row("R668", "address range of a graph's memory before its launch", "code %d",
        D(cuMemGetAddressRange)(NULL, &(size_t){0}, p));
}

/* ---- 700: pools ---- */

static cuuint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    NEED(D(cuMemPoolGetAttribute)(pool, which, &value));
    return value;
}

static CUmemoryPool own_pool(bool keep, bool follow, bool opportunistic, bool internal)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    cuuint64_t all = UINT64_MAX;
    int values[] = {follow, opportunistic, internal};
    CUmemoryPool pool;

    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(D(cuMemPoolCreate)(&pool, &props));
    if (keep)
        NEED(D(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    for (int i = 0; i < 3; i++)
        NEED(D(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES + i,
                                      &values[i]));
    return pool;
}

static CUdeviceptr from_pool(CUmemoryPool pool, size_t bytes, CUstream stream)
{
    CUdeviceptr p;

    NEED(D(cuMemAllocFromPoolAsync)(&p, bytes, pool, stream));
    return p;
}

static void group_pool_numbers(void)
{
    CUmemoryPool pool;
    CUdeviceptr p, q;
    cuuint64_t one = 1;
    int follow, opportunistic, internal;

    open_device();
    NEED(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    NEED(D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow));
    NEED(D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic));
    NEED(D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                                  &internal));
    row("R700", "a pool's defaults", "follow %d, opportunistic %d, internal %d, threshold %llu",
        follow, opportunistic, internal,
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    row("R701", "destroying the default pool", "code %d", D(cuMemPoolDestroy)(pool));
    pool = own_pool(false, true, true, true);
    p = from_pool(pool, 1000, nonblocking);
    q = from_pool(pool, 3000, nonblocking);
    row("R702", "used after 1000 and 3000 bytes", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    row("R703", "reserved then, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    arm(nonblocking);
    NEED(D(cuMemFreeAsync)(p, nonblocking));
    row("R704", "used after the first is freed behind work under way", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    row("R705", "used, high", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    row("R706", "setting the high mark to 1", "code %d",
        D(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
    NEED(D(cuMemFreeAsync)(q, nonblocking));
    settle();
    row("R707", "reserved after all is freed and waited for, threshold 0", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    pool = own_pool(true, true, true, true);
    p = from_pool(pool, 1000, nonblocking);
    NEED(D(cuMemFreeAsync)(p, nonblocking));
    settle();
    row("R708", "the same with threshold max, in MiB", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
    NEED(D(cuMemPoolTrimTo)(pool, 0));
    row("R709", "after cuMemPoolTrimTo", "%llu",
        (unsigned long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    p = from_pool(pool, 1000, nonblocking);
    TWO("R710", "destroying a pool in use, then a free of its memory", D(cuMemPoolDestroy)(pool),
        D(cuMemFreeAsync)(p, nonblocking));
    row("R711", "a destroyed pool", "code %d", D(cuMemPoolTrimTo)(pool, 0));
}

/* Memory freed on one stream behind work under way: does another stream's allocation get it? */
static const char *reuse(bool follow, bool opportunistic, bool internal, CUstream then, bool event)
{
    CUmemoryPool pool = own_pool(true, follow, opportunistic, internal);
    CUdeviceptr p = from_pool(pool, (size_t)8 << 20, nonblocking), q;
    CUevent record;

    arm(nonblocking);
    NEED(D(cuMemFreeAsync)(p, nonblocking));
    NEED(D(cuEventCreate)(&record, CU_EVENT_DISABLE_TIMING));
    NEED(D(cuEventRecord)(record, nonblocking));
    if (event)
        NEED(D(cuStreamWaitEvent)(then, record, 0));
    q = from_pool(pool, (size_t)8 << 20, then);
    bool waited = *flag != 0;
    NEED(D(cuMemFreeAsync)(q, then));
    settle();
    NEED(D(cuEventDestroy)(record));
    NEED(D(cuMemPoolDestroy)(pool));
    return waited ? "waits" : p == q ? "gets it" : "gets other memory";
}

static void group_pool_reuse(void)
{
    open_device();
    row("R720", "the same stream, no reuse allowed", "%s",
        reuse(false, false, false, nonblocking, false));
    row("R721", "another stream, no reuse allowed", "%s",
        reuse(false, false, false, other_nonblocking, false));
    row("R722", "another stream behind an event, follow", "%s",
        reuse(true, false, false, other_nonblocking, true));
    row("R723", "another stream behind an event, no follow", "%s",
        reuse(false, false, false, other_nonblocking, true));
    row("R724", "another stream, opportunistic only", "%s",
        reuse(false, true, false, other_nonblocking, false));
}

static void group_pool_managed(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemoryPool pool;
    CUdeviceptr p;
    CUresult code;

    open_device();
    props.location = here;
    code = D(cuMemPoolCreate)(&pool, &props);
    row("R730", "a managed pool", "code %d", code);
    if (code != CUDA_SUCCESS)
        return;
    p = from_pool(pool, 1 << 20, nonblocking);
    settle();
    row("R731", "cuMemAdvise of its memory", "code %d",
        D(cuMemAdvise)(p, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    row("R732", "cuMemPrefetchAsync of its memory", "code %d",
        D(cuMemPrefetchAsync)(p, 1 << 20, here, 0, nonblocking));
    attribute_line("R733", "attributes of its memory", p);
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    row("R734", "a managed pool to export", "code %d", D(cuMemPoolCreate)(&pool, &props));
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    props.location.type = CU_MEM_LOCATION_TYPE_HOST;
    row("R735", "a managed pool on the host", "code %d", D(cuMemPoolCreate)(&pool, &props));
    int location = 99;
    code = D(cuMemRangeGetAttribute)(&location, sizeof(location),
                                     CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 1 << 20);
    row("R736", "last prefetch of its memory", "code %d, location %d", code, location);
    settle();
    WAITS("R737", "cuMemFree of its memory", nonblocking, D(cuMemFree)(p));
    code = D(cuMemGetDefaultMemPool)(&pool, &here, CU_MEM_ALLOCATION_TYPE_MANAGED);
    row("R738", "the default managed pool of a device", "code %d", code);
    NEED(D(cuMemSetMemPool)(&here, CU_MEM_ALLOCATION_TYPE_MANAGED, pool));
    int managed = 9;
    NEED(D(cuMemAllocAsync)(&p, 64, nonblocking));
    NEED(D(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    row("R739", "cuMemAllocAsync gives managed memory when that is the current one", "%d", managed);
}

static int range(CUdeviceptr p, size_t bytes, CUmem_range_attribute attribute)
{
    int value = 99;
    CUresult code = D(cuMemRangeGetAttribute)(&value, sizeof(value), attribute, p, bytes);

    return code ? 1000 + (int)code : value;
}

static void range_line(const char *id, const char *name, CUdeviceptr p, size_t bytes)
{
    int by[3] = {99, 99, 99};

    (void)D(cuMemRangeGetAttribute)(by, sizeof(by), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, bytes);
    row(id, name, "preferred %d, prefetched %d, mostly read %d, accessed by %d %d %d",
        range(p, bytes, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION),
        range(p, bytes, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION),
        range(p, bytes, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), by[0], by[1], by[2]);
}

static void group_managed_advice(void)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                  host = {.type = CU_MEM_LOCATION_TYPE_HOST},
                  numa = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
                  far_numa = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 1000},
                  nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    const size_t half = (size_t)2 << 20, all = 2 * half;
    CUdeviceptr p, native;

    open_device();
    p = managed_memory(all);
    native = device_memory(all);
    range_line("R740", "a managed range, nothing said", p, all);
    NEED(D(cuMemAdvise)(p, half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    NEED(D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
    NEED(D(cuMemAdvise)(p, half, CU_MEM_ADVISE_SET_READ_MOSTLY, host));
    NEED(D(cuMemPrefetchAsync)(p, half, host, 0, NULL));
    range_line("R741", "its first half, advised and prefetched to the host", p, half);
    range_line("R742", "all of it then", p, all);
    row("R743", "advice for a device that is not there", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere));
    row("R744", "advice to be mostly read, of such a device", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_READ_MOSTLY, nowhere));
    row("R745", "advice to be accessed by a NUMA node", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_ACCESSED_BY, numa));
    row("R746", "advice to prefer NUMA node 1000", "code %d",
        D(cuMemAdvise)(p, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, far_numa));
    row("R747", "advice beyond the end", "code %d",
        D(cuMemAdvise)(p, all + half, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    row("R748", "advice for cuMemAlloc memory", "code %d",
        D(cuMemAdvise)(native, all, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    row("R749", "advice for nothing", "code %d",
        D(cuMemAdvise)(p, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    row("R750", "cuMemPrefetchAsync to a device that is not there", "code %d",
        D(cuMemPrefetchAsync)(p, all, nowhere, 0, NULL));
    row("R751", "cuMemPrefetchAsync of cuMemAlloc memory", "code %d",
        D(cuMemPrefetchAsync)(native, all, here, 0, NULL));
    row("R752", "cuMemPrefetchAsync of nothing", "code %d",
        D(cuMemPrefetchAsync)(p, 0, here, 0, NULL));
    row("R753", "cuMemPrefetchAsync beyond the end", "code %d",
        D(cuMemPrefetchAsync)(p, all + half, here, 0, NULL));
    row("R754", "cuMemPrefetchAsync with flags", "code %d",
        D(cuMemPrefetchAsync)(p, all, here, 1, NULL));
    row("R755", "a range attribute of cuMemAlloc memory", "%d",
        range(native, all, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
}

static size_t free_mib(void)
{
    size_t bytes;

    settle();
    NEED(D(cuMemGetInfo)(&bytes, NULL));
    return bytes >> 20;
}

/* What a process held that ended just before comes free only by and by: a second without a
 * change. */
static size_t steady_free_mib(void)
{
    enum { LOOKS = 200, SAME = 20, PAUSE_US = 50000 };
    size_t last = free_mib();

    for (int look = 0, same = 0; look < LOOKS && same < SAME; look++) {
        size_t now;

        usleep(PAUSE_US);
        now = free_mib();
        same = now == last ? same + 1 : 0;
        last = now;
    }
    return last;
}

/* Takes all memory there is and frees it: what the driver kept for managed memory is free then. */
static void empty_room(void)
{
    enum { MOST = 64 };
    CUdeviceptr held[MOST];
    unsigned n = 0;

    for (size_t bytes = (size_t)1 << 38; bytes >= (size_t)1 << 20; bytes >>= 1) {
        while (n < MOST && D(cuMemAlloc)(&held[n], bytes) == CUDA_SUCCESS)
            n++;
    }
    while (n-- > 0)
        NEED(D(cuMemFree)(held[n]));
}

/* What managed memory takes of the card, in MiB. */
static void group_managed_room(void)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                  host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = here};
    const size_t bytes = (size_t)64 << 20;
    CUmemoryPool pool;
    CUdeviceptr p;
    size_t before, kept;

    open_device();
    before = steady_free_mib();
    p = managed_memory(bytes);
    row("R760", "64 MiB of managed memory take of the card", "%zu", before - free_mib());
    NEED(D(cuMemPrefetchAsync)(p, bytes, here, 0, NULL));
    row("R761", "prefetched to it, at least 64", "%s", yes_no(before - free_mib() >= 64));
    NEED(D(cuMemPrefetchAsync)(p, bytes, host, 0, NULL));
    row("R762", "prefetched to the host then, at least 64", "%s",
        yes_no(before - free_mib() >= 64));
    NEED(D(cuMemPrefetchAsync)(p, bytes, here, 0, NULL));
    settle();
    NEED(D(cuMemFree)(p));
    row("R763", "prefetched to it and freed, at least 64", "%s", yes_no(before - free_mib() >= 64));
    kept = free_mib();
    NEED(D(cuMemPoolCreate)(&pool, &props));
    p = from_pool(pool, bytes, nonblocking);
    row("R766", "64 MiB of a managed pool take just after that", "%zu", kept - free_mib());
    NEED(D(cuMemFreeAsync)(p, nonblocking));
    settle();
    NEED(D(cuMemPoolDestroy)(pool));
    row("R767", "cuMemAlloc of what was free before, less 32 MiB", "code %d",
        D(cuMemAlloc)(&p, (before - 32) << 20));
    NEED(D(cuMemFree)(p));
    empty_room();
    before = steady_free_mib();
    NEED(D(cuMemPoolCreate)(&pool, &props));
    p = from_pool(pool, bytes, nonblocking);
    row("R764", "64 MiB of a managed pool take when nothing is kept, at least 64", "%s",
        yes_no(before - free_mib() >= 64));
    NEED(D(cuMemPrefetchAsync)(p, bytes, host, 0, nonblocking));
    row("R765", "prefetched to the host, at least 64", "%s", yes_no(before - free_mib() >= 64));
}

/* ---- 800: graphs, functions, streams ---- */

static void count_up(void *data)
{
    ++*(unsigned *)data;
}

static CUDA_KERNEL_NODE_PARAMS store_node(void **args)
{
    CUDA_KERNEL_NODE_PARAMS params = {.func = spin_store, .kernelParams = args};

    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    return params;
}

static void group_graph_nodes(void)
{
    CUdeviceptr p;
    uint32_t value = 1;
    uint64_t ns = 0;
    CUlibrary library;
    CUkernel kernel;
    CUgraph graph;
    CUgraphNode node, second;
    CUgraphExec exec;
    unsigned calls = 0;

    open_device();
    p = device_memory(4096);
    void *args[] = {&p, &value, &ns};
    CUDA_KERNEL_NODE_PARAMS params = store_node(args);
    NEED(D(cuLibraryLoadData)(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    NEED(D(cuLibraryGetKernel)(&kernel, library, "spin_store"));
    NEED(D(cuGraphCreate)(&graph, 0));
    params.func = (CUfunction)(void *)kernel;
    row("R800", "a kernel node with a CUkernel in .func", "code %d",
        D(cuGraphAddKernelNode)(&node, graph, NULL, 0, &params));
    params.func = NULL;
    params.kern = kernel;
    row("R801", "a kernel node with a CUkernel in .kern", "code %d",
        D(cuGraphAddKernelNode)(&node, graph, NULL, 0, &params));
    row("R802", "a launch of a CUkernel as CUfunction", "code %d",
        D(cuLaunchKernel)((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, nonblocking, args,
                          NULL));
    CUDA_HOST_NODE_PARAMS host = {count_up, &calls};
    NEED(D(cuGraphAddHostNode)(&second, graph, &node, 1, &host));
    row("R803", "adding an edge that is there", "code %d",
        D(cuGraphAddDependencies)(graph, &node, &second, NULL, 1));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    value = 2; /* too late for the node */
    NEED(D(cuGraphLaunch)(exec, nonblocking));
    settle();
    row("R804", "a node's parameters are taken when it is made", "%s, host function ran %u times",
        yes_no(word_at(p) == 1), calls);
    NEED(D(cuGraphExecKernelNodeSetParams)(exec, node, &params));
    NEED(D(cuGraphLaunch)(exec, nonblocking));
    settle();
    row("R805", "an exec's kernel parameters can be set", "%s", yes_no(word_at(p) == 2));
    row("R806", "switching a kernel node off", "code %d", D(cuGraphNodeSetEnabled)(exec, node, 0));
    row("R807", "switching a host node off", "code %d", D(cuGraphNodeSetEnabled)(exec, second, 0));
    TWO("R808", "adding an edge that makes a cycle, then instantiating",
        D(cuGraphAddDependencies)(graph, &second, &node, NULL, 1),
        D(cuGraphInstantiate)(&exec, graph, 0));
}

static void group_graph_updates(void)
{
    CUdeviceptr p;
    CUgraph graph, longer;
    CUgraphNode node, second;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info = {0};
    CUresult code;

    open_device();
    p = device_memory(4096);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMSET_NODE_PARAMS rows = {
        .dst = p, .pitch = 64, .value = 1, .elementSize = 4, .width = 2, .height = 2};
    NEED(D(cuGraphCreate)(&graph, 0));
    NEED(D(cuGraphAddMemsetNode)(&node, graph, NULL, 0, &set, context));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    set.value = 6;
    row("R820", "a memset's value in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, node, &set, context));
    row("R821", "a memset of one row to two rows in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, node, &rows, context));
    NEED(D(cuGraphCreate)(&longer, 0));
    NEED(D(cuGraphAddMemsetNode)(&node, longer, NULL, 0, &set, context));
    code = D(cuGraphExecUpdate)(exec, longer, &info);
    row("R822", "cuGraphExecUpdate with an equal graph", "code %d, result %d", code, info.result);
    NEED(D(cuGraphAddEmptyNode)(&second, longer, &node, 1));
    code = D(cuGraphExecUpdate)(exec, longer, &info);
    row("R823", "cuGraphExecUpdate with a longer graph", "code %d, result %d", code, info.result);
    NEED(D(cuGraphCreate)(&longer, 0));
    NEED(D(cuGraphAddEmptyNode)(&second, longer, NULL, 0));
    code = D(cuGraphExecUpdate)(exec, longer, &info);
    row("R824", "cuGraphExecUpdate with a node of another type", "code %d, result %d", code,
        info.result);
}

/* What graphs need besides, to stand for launches of streams. */
static void group_graph_edges(void)
{
    const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                   .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUdeviceptr p;
    uint32_t value = 1;
    uint64_t ns = 0;
    CUlaunchAttributeValue allowed = {.programmaticStreamSerializationAllowed = 1};
    CUgraph graph;
    CUgraphNode nodes[3], fill;
    CUgraphExec exec;
    size_t n = 8;
    CUgraphNode from[8], to[8];

    open_device();
    p = device_memory(4096);
    void *args[] = {&p, &value, &ns};
    CUDA_KERNEL_NODE_PARAMS params = store_node(args);
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    NEED(D(cuGraphCreate)(&graph, 0));
    for (unsigned i = 0; i < 3; i++)
        NEED(D(cuGraphAddKernelNode)(&nodes[i], graph, NULL, 0, &params));
    NEED(D(cuGraphAddMemsetNode)(&fill, graph, NULL, 0, &set, context));
    row("R810", "a programmatic edge from a kernel to a fill", "code %d",
        D(cuGraphAddDependencies)(graph, &nodes[0], &fill, &early, 1));
    row("R811", "a programmatic edge between kernels", "code %d",
        D(cuGraphAddDependencies)(graph, &nodes[0], &nodes[1], &early, 1));
    row("R812", "its edges asked for without their data", "code %d",
        D(cuGraphGetEdges)(graph, from, to, NULL, &n));
    row("R813", "programmatic serialisation as a node's attribute", "code %d",
        D(cuGraphKernelNodeSetAttribute)(
            nodes[2], CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &allowed));
    NEED(D(cuGraphAddDependencies)(graph, &nodes[1], &nodes[2], NULL, 1));
    TWO("R814", "a node that waits in full beside a programmatic edge, instantiated",
        D(cuGraphAddDependencies)(graph, &nodes[0], &nodes[2], NULL, 1),
        D(cuGraphInstantiate)(&exec, graph, 0));
}

/* Copies from host memory keep the type that they were added with. */
static void graph_host_places(CUdeviceptr p, void *pinned)
{
    static unsigned char pageable[64];
    CUgraph graph;
    CUgraphNode copy;
    CUgraphExec exec;
    CUDA_MEMCPY3D move = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = p,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};

    NEED(D(cuGraphCreate)(&graph, 0));
    NEED(D(cuGraphAddMemcpyNode)(&copy, graph, NULL, 0, &move, context));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    move.srcHost = pageable;
    row("R831", "a copy from pageable instead of pinned memory in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    move.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    move.srcDevice = (CUdeviceptr)(uintptr_t)pinned;
    row("R832", "a copy from the pinned memory as CU_MEMORYTYPE_UNIFIED in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
}

/* Which updates of an executable's copies and fills are taken. */
static void group_graph_places(void)
{
    CUdeviceptr p, q;
    void *pinned;
    CUgraph graph;
    CUgraphNode copy, fill;
    CUgraphExec exec;

    open_device();
    p = device_memory(4096);
    q = device_memory(4096);
    NEED(D(cuMemHostAlloc)(&pinned, 4096, 0));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .value = 1, .elementSize = 4, .width = 8, .height = 1};
    CUDA_MEMCPY3D move = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = q,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};
    NEED(D(cuGraphCreate)(&graph, 0));
    NEED(D(cuGraphAddMemcpyNode)(&copy, graph, NULL, 0, &move, context));
    NEED(D(cuGraphAddMemsetNode)(&fill, graph, NULL, 0, &set, context));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    move.WidthInBytes = 100;
    row("R825", "a copy of other bytes in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    move.srcDevice = (CUdeviceptr)(uintptr_t)pinned;
    row("R826", "a copy from pinned instead of device memory in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    move.srcDevice = p;
    move.WidthInBytes = 0;
    row("R827", "a copy of nothing in an exec", "code %d",
        D(cuGraphExecMemcpyNodeSetParams)(exec, copy, &move, context));
    set.width = 64;
    row("R828", "a longer fill in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    set.width = 3;
    row("R829", "a fill of 12 bytes instead of 32 in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    set.width = 8;
    set.dst = (CUdeviceptr)(uintptr_t)pinned;
    row("R830", "a fill of pinned instead of device memory in an exec", "code %d",
        D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    graph_host_places(p, pinned);
}

/* Attributes of kernel nodes, and the grids that they allow. */
static void group_graph_grids(void)
{
    CUdeviceptr p;
    uint32_t value = 1;
    uint64_t ns = 0;
    CUlaunchAttributeValue meet = {.cooperative = 1}, cluster = {.clusterDim = {4, 1, 1}};
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphExec exec;

    open_device();
    p = device_memory(4096);
    void *args[] = {&p, &value, &ns};
    CUDA_KERNEL_NODE_PARAMS params = store_node(args);
    params.gridDimX = 8;
    NEED(D(cuGraphCreate)(&graph, 0));
    for (unsigned i = 0; i < 2; i++)
        NEED(D(cuGraphAddKernelNode)(&nodes[i], graph, NULL, 0, &params));
    row("R833", "a preferred cluster dimension of a node without a cluster dimension", "code %d",
        D(cuGraphKernelNodeSetAttribute)(nodes[1], CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                                         &cluster));
    NEED(D(cuGraphKernelNodeSetAttribute)(nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &meet));
    NEED(D(cuGraphKernelNodeSetAttribute)(nodes[1], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                          &cluster));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    params.gridDimX = 6;
    row("R834", "a grid that clusters do not divide in an exec", "code %d",
        D(cuGraphExecKernelNodeSetParams)(exec, nodes[1], &params));
    params.gridDimX = 1 << 20;
    row("R835", "a cooperative grid that finds no room in an exec", "code %d",
        D(cuGraphExecKernelNodeSetParams)(exec, nodes[0], &params));
}

static void group_graph_memory(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096};
    CUgraph graph, copy;
    CUgraphNode node, free_node;
    CUgraphExec exec;
    CUresult code, again;

    open_device();
    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(D(cuGraphCreate)(&graph, 0));
    NEED(D(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &alloc));
    row("R840", "cuGraphClone with an allocation node", "code %d", D(cuGraphClone)(&copy, graph));
    row("R841", "cuGraphDestroyNode of an allocation node", "code %d", D(cuGraphDestroyNode)(node));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    code = D(cuGraphLaunch)(exec, nonblocking);
    settle();
    again = D(cuGraphLaunch)(exec, nonblocking);
    row("R842", "a launch, and another one without a free between", "codes %d %d", code, again);
    code = D(cuMemFreeAsync)(alloc.dptr, nonblocking);
    again = D(cuGraphLaunch)(exec, nonblocking);
    row("R843", "cuMemFreeAsync of the memory, and a launch", "codes %d %d", code, again);
    settle();
    row("R844", "cuMemFree of the memory", "code %d", D(cuMemFree)(alloc.dptr));
    NEED(D(cuGraphExecDestroy)(exec));
    row("R846", "a free node added after the graph was instantiated", "code %d",
        D(cuGraphAddMemFreeNode)(&free_node, graph, &node, 1, alloc.dptr));
    NEED(D(cuGraphCreate)(&graph, 0));
    NEED(D(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &alloc));
    NEED(D(cuGraphAddMemFreeNode)(&free_node, graph, &node, 1, alloc.dptr));
    NEED(D(cuGraphInstantiate)(&exec, graph, 0));
    code = D(cuGraphLaunch)(exec, nonblocking);
    again = D(cuGraphLaunch)(exec, nonblocking);
    row("R845", "two launches with a free node", "codes %d %d", code, again);
    settle();
}

static void group_functions(void)
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
    NEED(D(cuLibraryLoadData)(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
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

static void group_stream_codes(void)
{
    CUstream stream;
    CUcontext of;
    unsigned flags = 9;

    open_device();
    row("R880", "cuStreamDestroy of NULL", "code %d", D(cuStreamDestroy)(NULL));
    row("R881", "cuStreamDestroy of the per-thread stream", "code %d",
        D(cuStreamDestroy)(CU_STREAM_PER_THREAD));
    row("R882", "cuStreamCreate with unknown flags", "code %d", D(cuStreamCreate)(&stream, 64));
    NEED(D(cuStreamGetFlags)(NULL, &flags));
    row("R883", "flags of the legacy stream", "%u", flags);
    NEED(D(cuStreamGetFlags)(nonblocking, &flags));
    row("R884", "flags of a non-blocking stream", "%u", flags);
    NEED(D(cuStreamGetCtx)(CU_STREAM_PER_THREAD, &of));
    row("R885", "context of the per-thread stream", "%s",
        of == context ? "the current" : "another");
    NEED(D(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, 100));
    int priority = 9;
    NEED(D(cuStreamGetPriority)(stream, &priority));
    row("R886", "priority 100 becomes", "%d", priority);
}

/* ---- 900: contexts, the end, faults, processes, peers ---- */

static void group_contexts(void)
{
    CUcontext second, now;
    CUdeviceptr native, pooled;
    CUresult code;
    unsigned flags;
    int active;

    open_device();
    NEED(D(cuCtxCreate)(&second, NULL, 0, 0));
    native = device_memory(4096);
    NEED(D(cuMemAllocAsync)(&pooled, 4096, NULL));
    settle();
    NEED(D(cuCtxSetCurrent)(context));
    code = launch_store(nonblocking, native, 5, 0);
    settle();
    row("R900", "a kernel on another context's memory of the same device", "code %d, word %u", code,
        word_at(native));
    NEED(D(cuCtxDestroy)(second));
    row("R901", "cuMemFree of memory whose context is gone", "code %d", D(cuMemFree)(native));
    code = launch_store(nonblocking, pooled, 6, 0);
    settle();
    row("R902", "a kernel on pool memory whose context is gone", "code %d, word %u", code,
        word_at(pooled));
    row("R903", "cuMemFreeAsync of that", "code %d", D(cuMemFreeAsync)(pooled, nonblocking));
    settle();
    native = device_memory(4096);
    row("R904", "cuDevicePrimaryCtxReset", "code %d", D(cuDevicePrimaryCtxReset)(0));
    NEED(D(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    row("R905", "is the primary context active then", "%d", active);
    row("R906", "cuMemAlloc in the context that was reset", "code %d",
        D(cuMemAlloc)(&native, 4096));
    NEED(D(cuDevicePrimaryCtxRetain)(&now, 0));
    row("R907", "the primary context's handle after it was reset", "%s",
        now == context ? "the same" : "another");
}

/* What frees or is asked while no context is current; and then with the context, whether that had
 * freed it. */
static void free_without_context(const char *id, const char *name, CUdeviceptr p)
{
    CUresult code, again;

    NEED(D(cuCtxSetCurrent)(NULL));
    code = D(cuMemFree)(p);
    NEED(D(cuCtxSetCurrent)(context));
    again = D(cuMemFree)(p);
    row(id, name, "code %d, with the context then %d", code, again);
}

static void group_no_context(void)
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
    NEED(D(cuCtxSetCurrent)(NULL));
    row("R483", "cuMemFree of 0 without one", "code %d", D(cuMemFree)(0));
    row("R484", "cuMemFree inside an allocation without one", "code %d", D(cuMemFree)(p + 512));
    row("R485", "address range without one", "code %d", D(cuMemGetAddressRange)(&base, &size, p));
    row("R486", "attribute without one", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    NEED(D(cuCtxSetCurrent)(context));
    arm(nonblocking);
    NEED(D(cuCtxSetCurrent)(NULL));
    code = D(cuMemFree)(p);
    row("R487", "cuMemFree without one, kernel in the owner's", "%s, code %d",
        *flag ? "waits" : "does not wait", code);
    NEED(D(cuCtxSetCurrent)(context));
    settle();
}

static void group_context_codes(void)
{
    CUcontext second, now = NULL;

    open_device();
    row("R910", "cuCtxDestroy of the primary context", "code %d", D(cuCtxDestroy)(context));
    NEED(D(cuCtxCreate)(&second, NULL, 0, 0));
    NEED(D(cuCtxGetCurrent)(&now));
    row("R911", "a created context is current", "%s", yes_no(now == second));
    NEED(D(cuCtxDestroy)(second));
    NEED(D(cuCtxGetCurrent)(&now));
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
    NEED(D(cuCtxCreate)(&second, NULL, 0, 0));
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    NEED(D(cuModuleLoadData)(&of_second, ptx));
    NEED(D(cuModuleGetFunction)(&function, of_second, "spin_store"));
    NEED(D(cuCtxSetCurrent)(context));
    row("R914", "a launch of a function of another context's module", "code %d",
        D(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nonblocking, args, NULL));
    NEED(D(cuCtxDestroy)(second));
    row("R915", "cuEventQuery of an event whose context is gone", "code %d",
        D(cuEventQuery)(event));
    settle();
    TWO("R913", "cuDevicePrimaryCtxRelease once too often", D(cuDevicePrimaryCtxRelease)(0),
        D(cuDevicePrimaryCtxRelease)(0));
}

static void early_handler(void)
{
    row("R922", "cuCtxSynchronize in an exit handler from before cuInit", "code %d",
        D(cuCtxSynchronize)());
}

static void late_handler(void)
{
    CUcontext now = NULL;
    CUresult code = D(cuCtxGetCurrent)(&now);

    row("R920", "current context in an exit handler from after the context", "code %d, %s", code,
        now == context ? "the same" : "another");
    code = D(cuCtxSynchronize)();
    row("R921", "cuCtxSynchronize there", "%s, code %d", *flag ? "waits" : "does not wait", code);
}

static void group_exit(void)
{
    atexit(early_handler);
    open_device();
    atexit(late_handler);
    arm(nonblocking);
    exit(0);
}

static void group_fork(void)
{
    CUdeviceptr p;

    open_device();
    pid_t child = fork();
    if (child == 0) {
        row("R925", "cuMemAlloc in a forked child", "code %d", D(cuMemAlloc)(&p, 4096));
        row("R926", "cuInit in a forked child", "code %d", D(cuInit)(0));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void group_fault(void)
{
    static uint32_t plain;
    CUcontext second;
    CUdeviceptr p;
    CUresult code;

    open_device();
    int pageable = 0;
    NEED(D(cuDeviceGetAttribute)(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
    if (pageable)
        return;
    NEED(D(cuCtxCreate)(&second, NULL, 0, 0));
    NEED(D(cuCtxSetCurrent)(context));
    NEED(launch_store(nonblocking, (CUdeviceptr)(uintptr_t)&plain, 1, 0));
    code = D(cuStreamSynchronize)(nonblocking);
    row("R930", "a kernel on pageable memory", "code %d", code);
    row("R931", "cuMemAlloc after a fault", "code %d", D(cuMemAlloc)(&p, 4096));
    row("R932", "cuStreamQuery of another stream after a fault", "code %d",
        D(cuStreamQuery)(other_nonblocking));
    NEED(D(cuCtxSetCurrent)(second));
    row("R934", "cuMemAlloc in another context of the device then", "code %d",
        D(cuMemAlloc)(&p, 4096));
    NEED(D(cuCtxSetCurrent)(context));
    row("R933", "cuCtxGetDevice after a fault", "code %d", D(cuCtxGetDevice)(&(CUdevice){0}));
}

/* The host looks into device memory: ends with a signal, told by the parent. */
static void group_host_access(void)
{
    open_device();
    CUdeviceptr p = device_memory(4096);
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would make an exit of it */
        (void)signal(SIGBUS, SIG_DFL);
        _exit(*(volatile uint32_t *)(uintptr_t)p ? 1 : 0);
    }
    waitpid(child, &status, 0);
    row("R935", "a host that reads device memory", "%s",
        WIFSIGNALED(status) ? "faults" : "goes on");
}

static void group_ipc(void)
{
    CUipcMemHandle handle;
    CUipcEventHandle event_handle;
    CUdeviceptr p;
    CUevent event;
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    int fd;

    open_device();
    row("R940", "cuIpcGetMemHandle of pool memory", "code %d",
        D(cuIpcGetMemHandle)(&handle, pool_memory(4096)));
    row("R941", "cuIpcGetMemHandle of managed memory", "code %d",
        D(cuIpcGetMemHandle)(&handle, managed_memory(4096)));
    row("R942", "cuIpcGetMemHandle of pinned memory", "code %d",
        D(cuIpcGetMemHandle)(&handle, device_of(flag)));
    row("R943", "cuIpcGetMemHandle of cuMemAlloc memory", "code %d",
        D(cuIpcGetMemHandle)(&handle, device_memory(4096)));
    row("R944", "cuIpcOpenMemHandle in the same process", "code %d",
        D(cuIpcOpenMemHandle)(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    row("R945", "cuIpcGetEventHandle of a plain event", "code %d",
        D(cuIpcGetEventHandle)(&event_handle, event));
    row("R946", "cuIpcCloseMemHandle of something else", "code %d",
        D(cuIpcCloseMemHandle)(device_memory(4096)));
    NEED(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    row("R947", "export of a pool that is not for it", "code %d",
        D(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0));
    row("R948", "export of a pointer of such a pool", "code %d",
        D(cuMemPoolExportPointer)(&data, pool_memory(4096)));
}

/* ---- between two processes ---- */

struct parcel {
    CUipcMemHandle native, inner;
    CUmemPoolPtrExportData pointer;
};

static int parcel_ends[2];

static void send_parcel(const struct parcel *parcel, int fd)
{
    struct iovec part = {(void *)parcel, sizeof(*parcel)};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    struct cmsghdr *at = CMSG_FIRSTHDR(&header);

    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = SCM_RIGHTS;
    at->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(at), &fd, sizeof(fd));
    if (sendmsg(parcel_ends[0], &header, 0) != (ssize_t)sizeof(*parcel))
        _exit(1);
}

static int receive_parcel(struct parcel *parcel)
{
    struct iovec part = {parcel, sizeof(*parcel)};
    char control[CMSG_SPACE(sizeof(int))];
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    int fd;

    if (recvmsg(parcel_ends[1], &header, 0) != (ssize_t)sizeof(*parcel))
        _exit(1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
    return fd;
}

static void opened_memory(const struct parcel *parcel)
{
    CUdeviceptr p, again, inner, base;
    CUipcMemHandle handle;
    size_t size;
    CUresult code;

    NEED(D(cuIpcOpenMemHandle)(&p, parcel->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    code = D(cuIpcOpenMemHandle)(&again, parcel->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    row("R949", "memory of another process, opened again", "code %d, %s", code,
        code         ? "no pointer"
        : again == p ? "the same pointer"
                     : "another pointer");
    code = D(cuIpcOpenMemHandle)(&inner, parcel->inner, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    row("R950", "opened by a handle from inside it", "code %d, %s", code,
        code         ? "no pointer"
        : inner == p ? "the beginning"
                     : "elsewhere");
    attribute_line("R951", "attributes of opened memory", p);
    code = D(cuMemGetAddressRange)(&base, &size, p + 100);
    row("R952", "address range of opened memory", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R953", "cuIpcGetMemHandle of opened memory", "code %d", D(cuIpcGetMemHandle)(&handle, p));
    row("R954", "cuMemFree of opened memory", "code %d", D(cuMemFree)(p));
    CUresult closes[4];
    for (int i = 0; i < 4; i++)
        closes[i] = D(cuIpcCloseMemHandle)(p);
    row("R955", "three closes of memory opened three times, and a fourth", "codes %d %d %d %d",
        closes[0], closes[1], closes[2], closes[3]);
}

/* By a context of the other device. */
static void opened_elsewhere(const struct parcel *parcel)
{
    CUcontext other;
    CUdeviceptr p;
    int n = 0, ordinal = 9;

    NEED(D(cuDeviceGetCount)(&n));
    if (n < 2)
        return;
    NEED(D(cuDevicePrimaryCtxRetain)(&other, 1));
    NEED(D(cuCtxSetCurrent)(other));
    NEED(D(cuIpcOpenMemHandle)(&p, parcel->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(D(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    row("R937", "device of memory of device 0 that device 1 opened", "%d", ordinal);
    NEED(D(cuIpcCloseMemHandle)(p));
    NEED(D(cuCtxSetCurrent)(context));
}

static void imported_memory(const struct parcel *parcel, int fd)
{
    CUmemPoolPtrExportData data = parcel->pointer;
    CUdeviceptr p, q;
    CUipcMemHandle handle;
    CUmemoryPool pool;
    CUresult code;

    NEED(D(cuMemPoolImportFromShareableHandle)(&pool, (void *)(intptr_t)fd,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    row("R956", "cuMemAllocFromPoolAsync of an imported pool", "code %d",
        D(cuMemAllocFromPoolAsync)(&q, 64, pool, nonblocking));
    NEED(D(cuMemPoolImportPointer)(&p, pool, &data));
    attribute_line("R957", "attributes of imported pool memory", p);
    code = D(cuMemPoolImportPointer)(&q, pool, &data);
    row("R958", "the pointer imported again", "code %d, %s", code,
        code     ? "no pointer"
        : q == p ? "the same pointer"
                 : "another pointer");
    row("R959", "cuIpcGetMemHandle of imported pool memory", "code %d",
        D(cuIpcGetMemHandle)(&handle, p));
    CUresult frees[3];
    for (int i = 0; i < 3; i++)
        frees[i] = D(cuMemFree)(p);
    row("R938", "cuMemFree of what was imported twice, three times", "codes %d %d %d", frees[0],
        frees[1], frees[2]);
}

static void group_ipc_pair(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    struct parcel parcel;
    CUmemoryPool pool;
    CUdeviceptr p, q;
    int fd, status;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, parcel_ends))
        _exit(1);
    pid_t child = fork();
    open_device();
    if (child == 0) {
        fd = receive_parcel(&parcel);
        opened_memory(&parcel);
        opened_elsewhere(&parcel);
        imported_memory(&parcel, fd);
        fflush(stdout);
        _exit(0);
    }
    p = device_memory(1000);
    NEED(D(cuIpcGetMemHandle)(&parcel.native, p));
    NEED(D(cuIpcGetMemHandle)(&parcel.inner, p + 512));
    NEED(D(cuMemPoolCreate)(&pool, &props));
    q = from_pool(pool, 1000, nonblocking);
    settle();
    row("R939", "export of a pointer before its pool", "code %d",
        D(cuMemPoolExportPointer)(&parcel.pointer, q));
    NEED(D(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0));
    NEED(D(cuMemPoolExportPointer)(&parcel.pointer, q));
    fflush(stdout);
    send_parcel(&parcel, fd);
    (void)waitpid(child, &status, 0);
    if (status)
        printf("# the other process: %d\n", status);
}

static void group_mapping(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr p;
    size_t unit;

    open_device();
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(D(cuMemGetAllocationGranularity)(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    row("R960", "granularity", "%zu", unit);
    row("R961", "cuMemCreate of an odd size", "code %d",
        D(cuMemCreate)(&handle, unit + 1, &prop, 0));
    NEED(D(cuMemAddressReserve)(&p, 4 * unit, 0, 0, 0));
    NEED(D(cuMemCreate)(&handle, unit, &prop, 0));
    TWO("R962", "cuMemMap, then again", D(cuMemMap)(p, unit, 0, handle, 0),
        D(cuMemMap)(p, unit, 0, handle, 0));
    row("R963", "cuMemAddressFree while mapped", "code %d", D(cuMemAddressFree)(p, 4 * unit));
    NEED(D(cuMemSetAccess)(p, unit, &access, 1));
    NEED(D(cuMemRelease)(handle));
    NEED(launch_store(nonblocking, p, 7, 0));
    settle();
    row("R964", "the mapping outlives its handle", "%s", yes_no(word_at(p) == 7));
    attribute_line("R965", "attributes of mapped memory", p);
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult code = D(cuMemGetAddressRange)(&base, &size, p + 64);
    row("R969", "address range of mapped memory", "code %d, base %s, size %zu", code,
        base == p ? "right" : "wrong", size);
    row("R966", "cuMemFree of mapped memory", "code %d", D(cuMemFree)(p));
    TWO("R967", "cuMemUnmap, then again", D(cuMemUnmap)(p, unit), D(cuMemUnmap)(p, unit));
    row("R968", "cuMemAddressFree", "code %d", D(cuMemAddressFree)(p, 4 * unit));
}

static bool two_devices(CUcontext *ret_second)
{
    int n = 0, can = 0;

    NEED(D(cuDeviceGetCount)(&n));
    if (n < 2)
        return false;
    NEED(D(cuDeviceCanAccessPeer)(&can, 0, 1));
    if (!can)
        return false;
    NEED(D(cuDevicePrimaryCtxRetain)(ret_second, 1));
    return true;
}

static void group_peer_copies(void)
{
    CUcontext second;
    CUdeviceptr p, q;
    CUmemoryPool pool;
    CUmemAccess_flags flags = 9;
    CUmemLocation first = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccessDesc access = {first, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    open_device();
    if (!two_devices(&second))
        return;
    p = device_memory(4096);
    NEED(D(cuMemsetD32)(p, 5, 1024));
    settle();
    NEED(D(cuCtxSetCurrent)(second));
    q = device_memory(4096);
    NEED(D(cuMemsetD32)(q, 1, 1024));
    settle();
    NEED(D(cuCtxSetCurrent)(context));
    CUresult code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    settle();
    NEED(D(cuCtxSetCurrent)(second));
    settle();
    row("R980", "cuMemcpyPeer between cuMemAlloc memory, no access", "code %d, word %u", code,
        word_at(q));
    NEED(D(cuMemAllocAsync)(&q, 4096, NULL));
    NEED(D(cuMemsetD32)(q, 1, 1024));
    settle();
    NEED(D(cuCtxSetCurrent)(context));
    code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    settle();
    NEED(D(cuCtxSetCurrent)(second));
    settle();
    row("R981", "cuMemcpyPeer into pool memory, pool not opened", "code %d, word %u", code,
        word_at(q));
    NEED(D(cuMemsetD32)(q, 1, 1024));
    settle();
    NEED(D(cuCtxSetCurrent)(context));
    NEED(D(cuCtxEnablePeerAccess)(second, 0));
    code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    settle();
    NEED(D(cuCtxSetCurrent)(second));
    settle();
    row("R985", "the same with peer access from the one context to the other", "code %d, word %u",
        code, word_at(q));
    NEED(D(cuDeviceGetDefaultMemPool)(&pool, 1));
    NEED(D(cuMemPoolGetAccess)(&flags, pool, &first));
    row("R982", "access of the other device to a pool", "%d", (int)flags);
    row("R983", "cuMemPoolSetAccess", "code %d", D(cuMemPoolSetAccess)(pool, &access, 1));
    NEED(D(cuCtxSetCurrent)(context));
    code = D(cuMemcpyPeer)(q, second, p, context, 4096);
    settle();
    NEED(D(cuCtxSetCurrent)(second));
    settle();
    row("R984", "cuMemcpyPeer into pool memory, pool opened", "code %d, word %u", code, word_at(q));
}

static void group_peer_kernels(void)
{
    CUcontext second;
    CUdeviceptr p;

    open_device();
    if (!two_devices(&second))
        return;
    NEED(D(cuCtxSetCurrent)(second));
    p = device_memory(4096);
    NEED(D(cuCtxSetCurrent)(context));
    row("R990", "cuCtxEnablePeerAccess of itself", "code %d", D(cuCtxEnablePeerAccess)(context, 0));
    row("R991", "cuCtxDisablePeerAccess before it", "code %d", D(cuCtxDisablePeerAccess)(second));
    TWO("R992", "cuCtxEnablePeerAccess, twice", D(cuCtxEnablePeerAccess)(second, 0),
        D(cuCtxEnablePeerAccess)(second, 0));
    NEED(launch_store(nonblocking, p, 9, 0));
    row("R993", "a kernel on a peer's memory with access", "code %d",
        D(cuStreamSynchronize)(nonblocking));
    WAITS("R994", "cuMemFree of a peer's memory, kernel here", nonblocking, D(cuMemFree)(p));
}

static void group_peer_fault(void)
{
    CUcontext second;
    CUdeviceptr p;

    open_device();
    if (!two_devices(&second))
        return;
    NEED(D(cuCtxSetCurrent)(second));
    p = device_memory(4096);
    NEED(D(cuCtxSetCurrent)(context));
    NEED(launch_store(nonblocking, p, 9, 0));
    row("R996", "a kernel on a peer's memory without access", "code %d",
        D(cuStreamSynchronize)(nonblocking));
    NEED(D(cuCtxSetCurrent)(second));
    row("R997", "the other context then", "code %d", D(cuCtxSynchronize)());
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"lookup", group_lookup},
    {"uninitialised", group_uninitialised},
    {"alloc codes", group_alloc_codes},
    {"free async codes", group_free_async_codes},
    {"host codes", group_host_codes},
    {"sizes", group_sizes},
    {"copy codes", group_copy_codes},
    {"attributes", group_attributes},
    {"waits: memory", group_waits_memory},
    {"waits: copies", group_waits_copies},
    {"waits: streams", group_waits_streams},
    {"waits: others", group_waits_others},
    {"waits: contexts", group_waits_contexts},
    {"order", group_order},
    {"barriers", group_barriers},
    {"sources", group_sources},
    {"host functions", group_host_functions},
    {"event codes", group_event_codes},
    {"capture: memory", group_capture_memory},
    {"capture: waits", group_capture_waits},
    {"capture: codes", group_capture_codes},
    {"capture: joins", group_capture_joins},
    {"pool numbers", group_pool_numbers},
    {"pool reuse", group_pool_reuse},
    {"pool managed", group_pool_managed},
    {"managed advice", group_managed_advice},
    {"managed room", group_managed_room},
    {"graph nodes", group_graph_nodes},
    {"graph edges", group_graph_edges},
    {"graph updates", group_graph_updates},
    {"graph places", group_graph_places},
    {"graph grids", group_graph_grids},
    {"graph memory", group_graph_memory},
    {"functions", group_functions},
    {"stream codes", group_stream_codes},
    {"contexts", group_contexts},
    {"no context", group_no_context},
    {"context codes", group_context_codes},
    {"exit", group_exit},
    {"fork", group_fork},
    {"fault", group_fault},
    {"host access", group_host_access},
    {"ipc", group_ipc},
    {"ipc pair", group_ipc_pair},
    {"mapping", group_mapping},
    {"peer copies", group_peer_copies},
    {"peer kernels", group_peer_kernels},
    {"peer fault", group_peer_fault},
};

static void run_group(size_t i)
{
    int status;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(GROUP_SEC);
        groups[i].run();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("# %s: ended by signal %d\n", groups[i].name, WTERMSIG(status));
    else if (WEXITSTATUS(status))
        printf("# %s: ended with status %d\n", groups[i].name, WEXITSTATUS(status));
}

/* Without arguments: all groups; else those whose names contain one of the arguments. */
int main(int argc, char **argv)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "no libcuda.so.1: %s\n", dlerror());
        return 77;
    }
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        bool wanted = argc == 1;
        for (int j = 1; j < argc; j++)
            wanted |= strstr(groups[i].name, argv[j]) != NULL;
        if (wanted)
            run_group(i);
    }
    return 0;
}
