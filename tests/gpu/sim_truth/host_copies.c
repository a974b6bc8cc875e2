/* host_copies.c: copies from and to memory of the host of every kind: which call waits, when a
 * source is read, and what is said where not all of it is there (R1000 to R1099). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/gpu/sim_truth/truth.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* A call's per-thread twin. */
#define PER_THREAD(name) ((__typeof__(&name))symbol(STRING(name) "_ptds"))

/* ---- memory ---- */

static void *mapped(size_t bytes, int flags, int file)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

    if (p == MAP_FAILED)
        abort();
    return p;
}

static void *untouched(size_t bytes)
{
    return mapped(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void *touched(size_t bytes)
{
    return memset(untouched(bytes), 1, bytes);
}

static void *of_file(size_t bytes, int flags)
{
    int file = memfd_create("sim_truth", MFD_CLOEXEC);
    void *p;

    if (file < 0 || ftruncate(file, (off_t)bytes))
        abort();
    p = mapped(bytes, flags, file);
    (void)close(file);
    return p;
}

static void *registered(size_t bytes)
{
    void *p = touched(bytes);

    OK(D(cuMemHostRegister)(p, bytes, 0));
    return p;
}

/* ---- which call waits ---- */

static CUDA_MEMCPY3D box_of(CUdeviceptr p, void *host, bool up, size_t depth)
{
    CUDA_MEMCPY3D box = {.WidthInBytes = 64 * KIB, .Height = 4, .Depth = depth};

    box.srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    box.dstMemoryType = up ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    box.srcHost = up ? host : NULL;
    box.srcDevice = up ? 0 : p;
    box.dstHost = up ? NULL : host;
    box.dstDevice = up ? p : 0;
    box.srcPitch = box.dstPitch = 64 * KIB;
    box.srcHeight = box.dstHeight = 4;
    return box;
}

static CUDA_MEMCPY2D rows_of(CUdeviceptr p, void *host, bool up)
{
    CUDA_MEMCPY3D box = box_of(p, host, up, 1);

    return (CUDA_MEMCPY2D){.srcMemoryType = box.srcMemoryType,
                           .srcHost = box.srcHost,
                           .srcDevice = box.srcDevice,
                           .srcPitch = box.srcPitch,
                           .dstMemoryType = box.dstMemoryType,
                           .dstHost = box.dstHost,
                           .dstDevice = box.dstDevice,
                           .dstPitch = box.dstPitch,
                           .WidthInBytes = box.WidthInBytes,
                           .Height = box.Height};
}

static CUresult rows_async(CUdeviceptr p, void *host, bool up)
{
    CUDA_MEMCPY2D rows = rows_of(p, host, up);

    return D(cuMemcpy2DAsync)(&rows, nonblocking);
}

static CUresult rows_at_once(CUdeviceptr p, void *host, bool up)
{
    CUDA_MEMCPY2D rows = rows_of(p, host, up);

    return D(cuMemcpy2D)(&rows);
}

static CUresult box_async(CUdeviceptr p, void *host, bool up)
{
    CUDA_MEMCPY3D box = box_of(p, host, up, 2);

    return D(cuMemcpy3DAsync)(&box, nonblocking);
}

static CUresult box_at_once(CUdeviceptr p, void *host, bool up)
{
    CUDA_MEMCPY3D box = box_of(p, host, up, 2);

    return D(cuMemcpy3D)(&box);
}

/* Uploads one after the other. */
static CUresult uploads(CUdeviceptr p, const void *plain, unsigned n, size_t bytes, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < n && !result; i++)
        result = D(cuMemcpyHtoDAsync)(p, plain, bytes, stream);
    return result;
}

static void waits_by_size(CUdeviceptr p, void *plain)
{
    WAITS("R1000", "cuMemcpyHtoDAsync, pageable, 64 KiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 64 * KIB, nonblocking));
    WAITS("R1001", "cuMemcpyHtoDAsync, pageable, 1 MiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, MIB, nonblocking));
    WAITS("R1002", "cuMemcpyHtoDAsync, pageable, 16 MiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 16 * MIB, nonblocking));
    WAITS("R1003", "cuMemcpyHtoDAsync, pageable, 128 MiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 128 * MIB, nonblocking));
    WAITS("R1024", "cuMemcpyHtoDAsync, pageable, 2 MiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 2 * MIB, nonblocking));
    WAITS("R1025", "cuMemcpyHtoDAsync, pageable, 4 MiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 4 * MIB, nonblocking));
    WAITS("R1026", "cuMemcpyHtoDAsync, pageable, 8 MiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 8 * MIB, nonblocking));
    WAITS("R1027", "cuMemcpyHtoDAsync, pageable, 8 times 1 MiB, same stream", nonblocking,
          uploads(p, plain, 8, MIB, nonblocking));
    WAITS("R1004", "cuMemcpyHtoDAsync, pageable, 1 MiB, legacy stream, kernel on a blocking one",
          blocking, D(cuMemcpyHtoDAsync)(p, plain, MIB, NULL));
    WAITS("R1005", "cuMemcpyHtoDAsync, pageable, 16 MiB, another stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, plain, 16 * MIB, other_nonblocking));
    WAITS("R1006", "cuMemcpyHtoD, pageable, 16 MiB, kernel on a non-blocking stream", nonblocking,
          D(cuMemcpyHtoD)(p, plain, 16 * MIB));
    WAITS("R1008", "cuMemcpyHtoD, pageable, 16 MiB, kernel on a blocking stream", blocking,
          D(cuMemcpyHtoD)(p, plain, 16 * MIB));
    WAITS("R1009", "cuMemcpyHtoD, pageable, 4 KiB, kernel on a blocking stream", blocking,
          D(cuMemcpyHtoD)(p, plain, 4 * KIB));
    WAITS("R1007", "cuMemcpyDtoHAsync, pageable, 16 MiB, another stream", nonblocking,
          D(cuMemcpyDtoHAsync)(plain, p, 16 * MIB, other_nonblocking));
}

static void waits_by_number(CUdeviceptr p, void *plain)
{
    WAITS("R1028", "cuMemcpyHtoDAsync, pageable, 2 MiB, blocking stream, kernel on the legacy one",
          NULL, uploads(p, plain, 1, 2 * MIB, blocking));
    WAITS("R1029", "cuMemcpyHtoDAsync, pageable, 3 MiB, blocking stream, kernel on the legacy one",
          NULL, uploads(p, plain, 1, 3 * MIB, blocking));
    WAITS("R1038", "the same, twice 2 MiB", NULL, uploads(p, plain, 2, 2 * MIB, blocking));
    WAITS("R1039", "cuMemcpyHtoDAsync, pageable, twice 1 MiB, same stream", nonblocking,
          uploads(p, plain, 2, MIB, nonblocking));
    WAITS("R1052", "cuMemcpyHtoDAsync, pageable, 3 times 1 MiB, same stream", nonblocking,
          uploads(p, plain, 3, MIB, nonblocking));
    WAITS("R1053", "cuMemcpyHtoDAsync, pageable, 3 times 128 KiB, same stream", nonblocking,
          uploads(p, plain, 3, 128 * KIB, nonblocking));
    WAITS("R1054", "cuMemcpyHtoDAsync, pageable, 100 times 64 KiB, same stream", nonblocking,
          uploads(p, plain, 100, 64 * KIB, nonblocking));
    WAITS("R1055", "cuMemcpyHtoDAsync, pageable, 2 MiB and 64 KiB, same stream", nonblocking,
          uploads(p, plain, 1, 2 * MIB, nonblocking)
              ?: uploads(p, plain, 1, 64 * KIB, nonblocking));
}

static void waits_by_call(CUdeviceptr p, void *plain)
{
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)plain;

    WAITS("R1010", "cuMemcpyAsync from pageable memory, 1 MiB, same stream", nonblocking,
          D(cuMemcpyAsync)(p, host, MIB, nonblocking));
    WAITS("R1011", "cuMemcpyAsync to pageable memory, same stream", nonblocking,
          D(cuMemcpyAsync)(host, p, MIB, nonblocking));
    WAITS("R1012", "cuMemcpy2DAsync from pageable memory, same stream", nonblocking,
          rows_async(p, plain, true));
    WAITS("R1013", "cuMemcpy2DAsync to pageable memory, same stream", nonblocking,
          rows_async(p, plain, false));
    WAITS("R1014", "cuMemcpy3DAsync from pageable memory, same stream", nonblocking,
          box_async(p, plain, true));
    WAITS("R1015", "cuMemcpy3DAsync to pageable memory, same stream", nonblocking,
          box_async(p, plain, false));
    WAITS("R1016", "cuMemcpy from pageable memory, behind the legacy stream", NULL,
          D(cuMemcpy)(p, host, MIB));
    WAITS("R1017", "cuMemcpy to pageable memory, behind the legacy stream", NULL,
          D(cuMemcpy)(host, p, MIB));
    WAITS("R1018", "cuMemcpy2D from pageable memory, behind the legacy stream", NULL,
          rows_at_once(p, plain, true));
    WAITS("R1019", "cuMemcpy3D to pageable memory, behind the legacy stream", NULL,
          box_at_once(p, plain, false));
    WAITS("R1020", "per-thread cuMemcpyHtoD, pageable, behind the per-thread stream",
          CU_STREAM_PER_THREAD, PER_THREAD(cuMemcpyHtoD)(p, plain, MIB));
    WAITS("R1021", "per-thread cuMemcpyHtoD, pageable, kernel on a blocking stream", blocking,
          PER_THREAD(cuMemcpyHtoD)(p, plain, MIB));
    WAITS("R1022", "per-thread cuMemcpyHtoD, pageable, kernel on the legacy stream", NULL,
          PER_THREAD(cuMemcpyHtoD)(p, plain, MIB));
    WAITS("R1023", "per-thread cuMemcpyDtoH, pageable, kernel on the legacy stream", NULL,
          PER_THREAD(cuMemcpyDtoH)(plain, p, MIB));
}

static void waits_by_memory(CUdeviceptr p)
{
    void *host = registered(MIB), *file = of_file(MIB, MAP_SHARED);
    void *managed = (void *)(uintptr_t)managed_memory(MIB);

    WAITS("R1030", "cuMemcpyHtoDAsync, registered, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, host, MIB, nonblocking));
    WAITS("R1031", "cuMemcpyDtoHAsync, registered, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(host, p, MIB, nonblocking));
    WAITS("R1032", "cuMemcpyHtoDAsync, managed, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, managed, MIB, nonblocking));
    WAITS("R1033", "cuMemcpyDtoHAsync, managed, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(managed, p, MIB, nonblocking));
    WAITS("R1034", "cuMemcpyHtoDAsync, untouched memory, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, untouched(MIB), MIB, nonblocking));
    WAITS("R1035", "cuMemcpyDtoHAsync, untouched memory, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(untouched(MIB), p, MIB, nonblocking));
    WAITS("R1036", "cuMemcpyHtoDAsync, mapped file, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(p, file, MIB, nonblocking));
    WAITS("R1037", "cuMemcpyDtoHAsync, mapped file, same stream", nonblocking,
          D(cuMemcpyDtoHAsync)(file, p, MIB, nonblocking));
}

/* How many uploads that are read into the command a stream takes before the first has run. */
static void waits_by_commands(CUdeviceptr p, void *plain)
{
    WAITS("R1056", "cuMemcpyHtoDAsync, pageable, 8 times 64 KiB, same stream", nonblocking,
          uploads(p, plain, 8, 64 * KIB, nonblocking));
    WAITS("R1057", "cuMemcpyHtoDAsync, pageable, 16 times 64 KiB, same stream", nonblocking,
          uploads(p, plain, 16, 64 * KIB, nonblocking));
    WAITS("R1058", "cuMemcpyHtoDAsync, pageable, 32 times 64 KiB, same stream", nonblocking,
          uploads(p, plain, 32, 64 * KIB, nonblocking));
    WAITS("R1059", "cuMemcpyHtoDAsync, pageable, 64 times 64 KiB, same stream", nonblocking,
          uploads(p, plain, 64, 64 * KIB, nonblocking));
    WAITS("R1069", "cuMemcpyHtoDAsync, pageable, 400 times 16 KiB, same stream", nonblocking,
          uploads(p, plain, 400, 16 * KIB, nonblocking));
    WAITS("R1070", "cuMemcpyHtoDAsync, pageable, 100 times 4 KiB, same stream", nonblocking,
          uploads(p, plain, 100, 4 * KIB, nonblocking));
    WAITS("R1071", "cuMemcpyHtoDAsync, pageable, 500 times 4 KiB, same stream", nonblocking,
          uploads(p, plain, 500, 4 * KIB, nonblocking));
}

/* Uploads to memory that is not, or not only, the device's. */
static void waits_by_target(void *plain)
{
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUdeviceptr managed = managed_memory(16 * MIB), there = managed_memory(16 * MIB);

    OK(D(cuMemsetD8)(managed, 1, 16 * MIB));
    OK(D(cuMemAdvise)(there, 16 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    OK(D(cuMemPrefetchAsync)(there, 16 * MIB, host, 0, nonblocking));
    synchronize();
    WAITS("R1072", "cuMemcpyHtoDAsync, pageable to managed, 64 KiB, same stream", nonblocking,
          D(cuMemcpyHtoDAsync)(managed, plain, 64 * KIB, nonblocking));
    WAITS("R1073", "the same of 1 MiB", nonblocking,
          D(cuMemcpyHtoDAsync)(managed, plain, MIB, nonblocking));
    WAITS("R1074", "the same of 2 MiB", nonblocking,
          D(cuMemcpyHtoDAsync)(managed, plain, 2 * MIB, nonblocking));
    WAITS("R1075", "the same of 16 MiB", nonblocking,
          D(cuMemcpyHtoDAsync)(managed, plain, 16 * MIB, nonblocking));
    WAITS("R1076", "cuMemcpyHtoDAsync, pageable to managed that prefers the host, 64 KiB",
          nonblocking, D(cuMemcpyHtoDAsync)(there, plain, 64 * KIB, nonblocking));
    WAITS("R1077", "the same of 1 MiB", nonblocking,
          D(cuMemcpyHtoDAsync)(there, plain, MIB, nonblocking));
    WAITS("R1078", "cuMemcpyAsync, pageable to managed that prefers the host, 1 MiB", nonblocking,
          D(cuMemcpyAsync)(there, (CUdeviceptr)(uintptr_t)plain, MIB, nonblocking));
    WAITS("R1079", "cuMemcpyHtoD, pageable to managed, 1 MiB, kernel on a blocking stream",
          blocking, D(cuMemcpyHtoD)(managed, plain, MIB));
    WAITS("R1088", "cuMemcpyAsync, pageable to managed, 64 KiB, same stream", nonblocking,
          D(cuMemcpyAsync)(managed, (CUdeviceptr)(uintptr_t)plain, 64 * KIB, nonblocking));
    WAITS("R1089", "the same of 1 MiB", nonblocking,
          D(cuMemcpyAsync)(managed, (CUdeviceptr)(uintptr_t)plain, MIB, nonblocking));
    WAITS("R1090", "the same of 64 KiB, to managed that prefers the host", nonblocking,
          D(cuMemcpyAsync)(there, (CUdeviceptr)(uintptr_t)plain, 64 * KIB, nonblocking));
}

void group_waits_host_copies(void)
{
    CUdeviceptr p;
    void *plain;

    open_device();
    p = device_memory(128 * MIB);
    plain = touched(128 * MIB);
    OK(D(cuMemcpyHtoD)(p, plain, 128 * MIB));
    OK(D(cuMemcpyDtoH)(plain, p, 128 * MIB));
    synchronize();
    waits_by_size(p, plain);
    waits_by_number(p, plain);
    waits_by_commands(p, plain);
    waits_by_target(plain);
    waits_by_call(p, plain);
    waits_by_memory(p);
}

/* ---- when a source is read ---- */

/* Of the first and of the last word, which are changed when the call is back. */
static void say_source(const char *id, const char *name, CUdeviceptr p, size_t bytes,
                       const volatile uint32_t *first)
{
    const volatile uint32_t *last = first + bytes / 4 - 1;
    bool old_first, old_last;

    synchronize();
    old_first = word_at(p) != *first;
    old_last = word_at(p + bytes - 4) != *last;
    row(id, name, "%s",
        old_first && old_last ? "read at the call"
        : old_last            ? "the last word read at the call"
        : old_first           ? "the first word read at the call"
                              : "read when the copy runs");
}

#define SOURCE(id, name, bytes, memory, call)                       \
    do {                                                            \
        uint32_t *from_ = (memory);                                 \
        void *source = from_;                                       \
        arm(nonblocking);                                           \
        OK(call);                                                   \
        from_[0] = from_[(bytes) / 4 - 1] = 0x02020202;             \
        say_source(id, name, p, bytes, (volatile uint32_t *)from_); \
    } while (0)

void group_host_sources(void)
{
    CUdeviceptr p;

    open_device();
    p = device_memory(128 * MIB);
    SOURCE("R1040", "pageable source of an async copy of 64 KiB behind work", 64 * KIB,
           touched(64 * KIB), D(cuMemcpyHtoDAsync)(p, source, 64 * KIB, nonblocking));
    SOURCE("R1041", "the same of 1 MiB", MIB, touched(MIB),
           D(cuMemcpyHtoDAsync)(p, source, MIB, nonblocking));
    SOURCE("R1042", "the same of 16 MiB", 16 * MIB, touched(16 * MIB),
           D(cuMemcpyHtoDAsync)(p, source, 16 * MIB, nonblocking));
    SOURCE("R1043", "the same of 128 MiB", 128 * MIB, touched(128 * MIB),
           D(cuMemcpyHtoDAsync)(p, source, 128 * MIB, nonblocking));
    SOURCE("R1044", "untouched source of an async copy behind work", MIB, untouched(MIB),
           D(cuMemcpyHtoDAsync)(p, source, MIB, nonblocking));
    SOURCE("R1045", "source in a mapped file, private", MIB, of_file(MIB, MAP_PRIVATE),
           D(cuMemcpyHtoDAsync)(p, source, MIB, nonblocking));
    SOURCE("R1046", "source in a mapped file, shared", MIB, of_file(MIB, MAP_SHARED),
           D(cuMemcpyHtoDAsync)(p, source, MIB, nonblocking));
    SOURCE("R1047", "registered source", MIB, registered(MIB),
           D(cuMemcpyHtoDAsync)(p, source, MIB, nonblocking));
    SOURCE("R1048", "pageable source of cuMemcpy2DAsync", 256 * KIB, touched(256 * KIB),
           rows_async(p, source, true));
    SOURCE("R1049", "pageable source of cuMemcpy3DAsync", 512 * KIB, touched(512 * KIB),
           box_async(p, source, true));
    SOURCE("R1050", "pageable source of cuMemcpyAsync", MIB, touched(MIB),
           D(cuMemcpyAsync)(p, (CUdeviceptr)(uintptr_t)source, MIB, nonblocking));
    SOURCE("R1051", "pageable source of cuMemcpyHtoD, 16 MiB, kernel on a non-blocking stream",
           16 * MIB, touched(16 * MIB), D(cuMemcpyHtoD)(p, source, 16 * MIB));
}

/* ---- copies that are refused, or of two kinds of memory ---- */

static const char *beginning(CUresult code, uint32_t now)
{
    static char text[64];

    (void)snprintf(text, sizeof(text), "code %d, the beginning %s", (int)code,
                   now == 0x01010101 ? "copied" : "untouched");
    return text;
}

void group_host_copy_codes(void)
{
    CUdeviceptr p, small;
    unsigned char *plain, *pages;
    CUresult code;

    open_device();
    p = device_memory(16 * MIB);
    plain = touched(16 * MIB);
    small = device_memory(1000);
    OK(D(cuMemsetD32)(small, 0, 250));
    code = D(cuMemcpyHtoD)(small, plain, 16 * MIB);
    row("R1060", "cuMemcpyHtoD past the end, pageable", "%s", beginning(code, word_at(small)));
    code = D(cuMemcpyHtoDAsync)(small, plain, 16 * MIB, nonblocking);
    synchronize();
    row("R1061", "cuMemcpyHtoDAsync past the end, pageable", "%s", beginning(code, word_at(small)));
    OK(D(cuMemsetD32)(small, 0x01010101, 250));
    memset(plain, 0, 4096);
    code = D(cuMemcpyDtoH)(plain, small, 16 * MIB);
    row("R1062", "cuMemcpyDtoH past the end, pageable", "%s",
        beginning(code, *(volatile uint32_t *)plain));
    row("R1063", "cuMemcpyHtoD from NULL", "code %d", D(cuMemcpyHtoD)(p, NULL, 4096));
    row("R1064", "cuMemcpyDtoH to NULL", "code %d", D(cuMemcpyDtoH)(NULL, p, 4096));
    pages = touched(4 * MIB);
    OK(D(cuMemHostRegister)(pages + MIB, MIB, 0));
    row("R1065", "cuMemcpyHtoD from before registered memory into it", "code %d",
        D(cuMemcpyHtoD)(p, pages, 2 * MIB));
    row("R1066", "cuMemcpyHtoD from registered memory and what is behind it", "code %d",
        D(cuMemcpyHtoD)(p, pages + MIB, 2 * MIB));
    row("R1067", "cuMemcpyDtoH to before registered memory and into it", "code %d",
        D(cuMemcpyDtoH)(pages, p, 2 * MIB));
    row("R1068", "cuMemcpyDtoH to registered memory and what is behind it", "code %d",
        D(cuMemcpyDtoH)(pages + MIB, p, 2 * MIB));
}

/* ---- memory that is not there; each in a process of its own ---- */

static const char *gone_id, *gone_name;
static pid_t caller;
static uint8_t *gone_pages;
static volatile sig_atomic_t n_faults;

static pid_t thread_id(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void end_by_fault(int number)
{
    row(gone_id, gone_name, "signal %d of %s", number,
        thread_id() == caller ? "the calling thread" : "another thread");
    _exit(0);
}

static void expect_fault(const char *id, const char *name, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};

    gone_id = id;
    gone_name = name;
    caller = thread_id();
    (void)sigaction(SIGSEGV, &action, NULL);
    (void)sigaction(SIGBUS, &action, NULL);
}

#define GONE(id, name, call)                                       \
    do {                                                           \
        expect_fault(id, name, end_by_fault);                      \
        CUresult gone_ = (call);                                   \
        CUresult then_ = D(cuCtxSynchronize)();                    \
        row(id, name, "code %d, then %d", (int)gone_, (int)then_); \
    } while (0)

/* 4 MiB of which all is there, or the first quarter only. */
static uint8_t *partly(size_t there, int protection)
{
    uint8_t *p = touched(4 * MIB);

    if (mprotect(p + there, 4 * MIB - there, protection))
        abort();
    return p;
}

void group_gone_source(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    GONE("R1080", "cuMemcpyHtoD of 4 KiB from memory that is not there",
         D(cuMemcpyHtoD)(p, partly(0, PROT_NONE), 4 * KIB));
}

void group_gone_large_source(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    GONE("R1081", "cuMemcpyHtoD of 4 MiB of which 1 MiB is there",
         D(cuMemcpyHtoD)(p, partly(MIB, PROT_NONE), 4 * MIB));
}

void group_gone_async_source(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    GONE("R1082", "cuMemcpyHtoDAsync of 4 MiB of which 1 MiB is there",
         D(cuMemcpyHtoDAsync)(p, partly(MIB, PROT_NONE), 4 * MIB, nonblocking));
}

void group_gone_file(void)
{
    int file;
    void *pages;

    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    file = memfd_create("sim_truth", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)(4 * MIB)))
        abort();
    pages = mapped(4 * MIB, MAP_PRIVATE, file);
    if (ftruncate(file, (off_t)MIB))
        abort();
    GONE("R1083", "cuMemcpyHtoD of 4 MiB of a mapped file of which 1 MiB is left",
         D(cuMemcpyHtoD)(p, pages, 4 * MIB));
}

void group_gone_destination(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    GONE("R1084", "cuMemcpyDtoH of 4 MiB to memory of which 1 MiB is there",
         D(cuMemcpyDtoH)(partly(MIB, PROT_NONE), p, 4 * MIB));
}

void group_shut_destination(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    GONE("R1085", "cuMemcpyDtoH of 4 MiB to memory that may only be read",
         D(cuMemcpyDtoH)(partly(0, PROT_READ), p, 4 * MIB));
}

static void let_in(int number)
{
    (void)number;
    n_faults++;
    if (mprotect(gone_pages, 4 * MIB, PROT_READ | PROT_WRITE))
        _exit(99);
}

/* Run-time systems make memory there in such a handler. */
void group_late_source(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    gone_pages = partly(MIB, PROT_NONE);
    expect_fault("", "", let_in);
    CUresult code = D(cuMemcpyHtoD)(p, gone_pages, 4 * MIB);
    row("R1086", "cuMemcpyHtoD of memory that a handler makes there", "code %d, %s, last word %s",
        (int)code, n_faults ? "handler ran" : "no handler ran",
        word_at(p + 4 * MIB - 4) == 0x01010101 ? "right" : "wrong");
}

void group_late_destination(void)
{
    open_device();
    CUdeviceptr p = device_memory(4 * MIB);
    OK(D(cuMemsetD32)(p, 7, MIB));
    gone_pages = partly(MIB, PROT_NONE);
    expect_fault("", "", let_in);
    CUresult code = D(cuMemcpyDtoH)(gone_pages, p, 4 * MIB);
    if (mprotect(gone_pages, 4 * MIB, PROT_READ))
        abort();
    row("R1087", "cuMemcpyDtoH to memory that a handler makes there", "code %d, %s, last word %s",
        (int)code, n_faults ? "handler ran" : "no handler ran",
        *(uint32_t *)(gone_pages + 4 * MIB - 4) == 7 ? "right" : "wrong");
}
