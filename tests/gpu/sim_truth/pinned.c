/* pinned.c: pinned memory: flags, attributes, codes, and what its end waits for (R1100 to R1199).
 */
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/sim_truth/truth.h"

#define MIB ((size_t)1 << 20)

static void *pinned(size_t bytes, unsigned flags)
{
    void *p;

    OK(D(cuMemHostAlloc)(&p, bytes, flags));
    return p;
}

static void *plainly_pinned(size_t bytes)
{
    void *p;

    OK(D(cuMemAllocHost)(&p, bytes));
    return p;
}

static char *registered(size_t bytes)
{
    char *p = aligned_alloc(4096, bytes);

    if (!p)
        abort();
    memset(p, 0, bytes);
    OK(D(cuMemHostRegister)(p, bytes, 0));
    return p;
}

static void say_flags(const char *id, const char *name, void *p)
{
    unsigned flags = 99;
    CUresult code = D(cuMemHostGetFlags)(&flags, p);

    row(id, name, "code %d, flags %u", (int)code, flags);
}

static void say_pointer(const char *id, const char *name, void *p, unsigned flags)
{
    CUdeviceptr device = 0;
    CUresult code = D(cuMemHostGetDevicePointer)(&device, p, flags);

    row(id, name, "code %d, %s", (int)code,
        !device                  ? "null"
        : device == device_of(p) ? "the same"
                                 : "another");
}

void group_pinned_flags(void)
{
    char *p;

    open_device();
    p = plainly_pinned(1000);
    say_flags("R1100", "flags of cuMemAllocHost memory", p);
    say_flags("R1101", "the same inside it", p + 999);
    say_flags("R1102", "the same behind it", p + 1000);
    say_flags("R1103", "flags of cuMemHostAlloc memory, 0", pinned(1000, 0));
    say_flags("R1104", "the same, portable", pinned(1000, CU_MEMHOSTALLOC_PORTABLE));
    say_flags("R1105", "the same, mapped", pinned(1000, CU_MEMHOSTALLOC_DEVICEMAP));
    say_flags("R1106", "the same, write-combined", pinned(1000, CU_MEMHOSTALLOC_WRITECOMBINED));
    say_flags("R1107", "flags of registered memory", registered(4096));
    say_pointer("R1108", "device pointer inside pinned memory", p + 999, 0);
    say_pointer("R1109", "the same behind it", p + 1000, 0);
    say_pointer("R1110", "the same with flags", p, 1);
    say_pointer("R1111", "device pointer of write-combined memory",
                pinned(1000, CU_MEMHOSTALLOC_WRITECOMBINED), 0);
    say_pointer("R1112", "device pointer of registered memory", registered(4096), 0);
}

void group_pinned_codes(void)
{
    char *p;
    void *q;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult code;

    open_device();
    p = plainly_pinned(8192);
    row("R1120", "cuMemHostAlloc with unknown flags", "code %d", D(cuMemHostAlloc)(&q, 4096, 64));
    row("R1121", "cuMemHostAlloc to NULL", "code %d", D(cuMemHostAlloc)(NULL, 4096, 0));
    row("R1122", "cuMemAllocHost of 1 PiB", "code %d", D(cuMemAllocHost)(&q, (size_t)1 << 50));
    row("R1123", "cuMemFreeHost inside pinned memory", "code %d", D(cuMemFreeHost)(p + 4096));
    row("R1124", "cuMemFreeHost of NULL", "code %d", D(cuMemFreeHost)(NULL));
    row("R1125", "cuMemFreeHost of registered memory", "code %d",
        D(cuMemFreeHost)(registered(4096)));
    row("R1126", "cuMemFreeHost of managed memory", "code %d",
        D(cuMemFreeHost)((void *)(uintptr_t)managed_memory(4096)));
    row("R1127", "cuMemHostUnregister of cuMemAllocHost memory", "code %d",
        D(cuMemHostUnregister)(p));
    row("R1128", "cuMemHostRegister of cuMemAllocHost memory", "code %d",
        D(cuMemHostRegister)(p, 4096, 0));
    q = registered(16384);
    row("R1129", "cuMemHostUnregister inside registered memory", "code %d",
        D(cuMemHostUnregister)((char *)q + 4096));
    row("R1130", "cuMemHostRegister of a part of registered memory", "code %d",
        D(cuMemHostRegister)((char *)q + 4096, 4096, 0));
    q = plainly_pinned(1000);
    code = D(cuMemGetAddressRange)(&base, &size, device_of((char *)q + 999));
    row("R1131", "address range of pinned memory", "code %d, base %s, size %zu", (int)code,
        base == device_of(q) ? "right" : "wrong", size);
    TWO("R1132", "cuMemFreeHost, then again", D(cuMemFreeHost)(p), D(cuMemFreeHost)(p));
    row("R1133", "cuMemHostUnregister of freed pinned memory", "code %d",
        D(cuMemHostUnregister)(p));
    row("R1134", "cuMemHostUnregister of cuMemHostAlloc memory", "code %d",
        D(cuMemHostUnregister)(pinned(4096, 0)));
}

/* Does 1 MiB that was written and freed come back as zeros? */
static bool is_cleared(void)
{
    for (int i = 0; i < 8; i++) {
        char *p = plainly_pinned(MIB);

        if (p[0] || p[MIB / 2] || p[MIB - 1])
            return false;
        memset(p, 0xff, MIB);
        OK(D(cuMemFreeHost)(p));
    }
    return true;
}

static unsigned long long buffer_id(void *p)
{
    unsigned long long id = 0;

    OK(D(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, device_of(p)));
    return id;
}

/* The pointers of an address, asked for together. */
static void say_pointers(const char *id, const char *name, const void *p)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    const void *host = &host, *device = &host;
    void *data[] = {&host, &device};
    CUresult code = D(cuPointerGetAttributes)(2, which, data, (CUdeviceptr)(uintptr_t)p);

    row(id, name, "code %d, host %s, device %s", (int)code,
        !host       ? "null"
        : host == p ? "the same"
                    : "another",
        !device       ? "null"
        : device == p ? "the same"
                      : "another");
}

void group_pinned_attributes(void)
{
    unsigned long long first;
    int type;
    char *p;

    open_device();
    attribute_line("R1140", "attributes of cuMemAllocHost memory", device_of(plainly_pinned(1000)));
    attribute_line("R1141", "attributes of write-combined memory",
                   device_of(pinned(1000, CU_MEMHOSTALLOC_WRITECOMBINED)));
    attribute_line("R1142", "attributes of registered memory", device_of(registered(4096)));
    p = plainly_pinned(1000);
    row("R1143", "attribute past the end of pinned memory", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_of(p + 1000)));
    first = buffer_id(p);
    OK(D(cuMemFreeHost)(p));
    row("R1144", "attribute of freed pinned memory", "code %d",
        D(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_of(p)));
    row("R1145", "the next block has another buffer id", "%s",
        yes_no(buffer_id(plainly_pinned(1000)) != first));
    row("R1146", "1 byte of pinned memory begins a page", "%s",
        yes_no((uintptr_t)plainly_pinned(1) % 4096 == 0 &&
               (uintptr_t)plainly_pinned(1) % 4096 == 0));
    row("R1147", "pinned memory is cleared", "%s", yes_no(is_cleared()));
    say_pointers("R1183", "pointers of a local variable", &type);
    p = plainly_pinned(MIB);
    say_pointers("R1184", "pointers of pinned memory", p);
    OK(D(cuMemFreeHost)(p));
    say_pointers("R1185", "pointers of freed pinned memory", p);
    p = (char *)(uintptr_t)device_memory(MIB);
    say_pointers("R1186", "pointers of device memory", p);
    OK(D(cuMemFree)(device_of(p)));
    say_pointers("R1187", "pointers of freed device memory", p);
    say_pointers("R1188", "pointers of the address 1", (void *)1);
}

/* --- large blocks, registered by whoever stands between a program and the driver --- */

static char *mapped_and_registered(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        abort();
    OK(D(cuMemHostRegister)(p, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    return p;
}

static void say_kind(const char *id, const char *name, char *p)
{
    static const CUpointer_attribute kinds[] = {
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    };
    char text[256] = "";

    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        unsigned long long value = 0;
        CUresult code = D(cuPointerGetAttribute)(&value, kinds[i], device_of(p));
        size_t length = strlen(text);

        (void)snprintf(text + length, sizeof(text) - length, " %d:%llu", (int)code, value);
    }
    row(id, name, "codes and values%s", text);
}

static void say_range(const char *id, const char *name, char *p, size_t offset)
{
    CUdeviceptr start = 0, base = 0;
    size_t size = 0;
    CUresult one = D(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                            device_of(p + offset));
    CUresult other = D(cuMemGetAddressRange)(&base, &size, device_of(p + offset));

    row(id, name, "codes %d %d, begins %d %d, size %zu", (int)one, (int)other,
        start == device_of(p), base == device_of(p), size);
}

static void say_set(const char *id, const char *name, char *p)
{
    unsigned value = 1;

    row(id, name, "code %d",
        D(cuPointerSetAttribute)(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device_of(p)));
}

/* What a child finds there, and whether its parent finds what it wrote. */
static void say_forked(const char *id, const char *name, volatile char *p)
{
    int status = 0;
    pid_t child;

    *p = 1;
    child = fork();
    if (!child) {
        bool finds = *p == 1;

        *p = 2;
        _exit(finds ? 7 : 8);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    row(id, name, "the child %s, the parent then %d",
        WIFSIGNALED(status)        ? "faults"
        : WEXITSTATUS(status) == 7 ? "finds it"
                                   : "finds something else",
        *p);
}

void group_pinned_large(void)
{
    const size_t bytes = 64 * MIB - 5000;
    char *ours, *drivers;

    open_device();
    drivers = pinned(bytes, CU_MEMHOSTALLOC_PORTABLE);
    ours = mapped_and_registered(bytes);
    say_kind("R1190", "the kind of 64 MiB of pinned memory", drivers);
    say_kind("R1191", "the kind of 64 MiB of registered memory", ours);
    say_range("R1192", "the range of pinned memory, inside", drivers, 5 * MIB + 7);
    say_range("R1193", "the range of registered memory, inside", ours, 5 * MIB + 7);
    say_forked("R1194", "pinned memory in a forked child", drivers);
    say_forked("R1195", "4 KiB of pinned memory in a forked child", plainly_pinned(4096));
    say_set("R1196", "SYNC_MEMOPS set of pinned memory", drivers);
    say_set("R1197", "SYNC_MEMOPS set of registered memory", ours);
    row("R1198", "cuMemFree of registered memory", "code %d", D(cuMemFree)(device_of(ours)));
}

void group_pinned_waits(void)
{
    open_device();
    void *p[8], *large = plainly_pinned(64 * MIB);

    for (int i = 0; i < 8; i++)
        p[i] = plainly_pinned(4096);
    WAITS("R1150", "cuMemFreeHost, kernel on the legacy stream", NULL, D(cuMemFreeHost)(p[0]));
    WAITS("R1151", "cuMemFreeHost, kernel on a blocking stream", blocking, D(cuMemFreeHost)(p[1]));
    WAITS("R1152", "cuMemFreeHost, kernel on the per-thread stream", CU_STREAM_PER_THREAD,
          D(cuMemFreeHost)(p[2]));
    WAITS("R1153", "cuMemFreeHost of 64 MiB", nonblocking, D(cuMemFreeHost)(large));
    p[3] = pinned(4096, CU_MEMHOSTALLOC_WRITECOMBINED);
    WAITS("R1154", "cuMemFreeHost of write-combined memory", nonblocking, D(cuMemFreeHost)(p[3]));
    WAITS("R1155", "cuMemFreeHost of NULL", nonblocking, D(cuMemFreeHost)(NULL));
    WAITS("R1156", "cuMemFreeHost of something else", nonblocking, D(cuMemFreeHost)(&large));
    WAITS("R1157", "cuMemAllocHost of 64 MiB", nonblocking, D(cuMemAllocHost)(&large, 64 * MIB));
    WAITS("R1158", "cuMemHostAlloc of write-combined memory", nonblocking,
          D(cuMemHostAlloc)(&large, 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
}

/* The end of one context's pinned memory while another context of the device works. */
void group_pinned_contexts(void)
{
    CUcontext second;
    unsigned flags = 99;
    void *p, *of_second, *registered_there, *last;
    CUresult code;

    open_device();
    p = plainly_pinned(4096);
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    of_second = plainly_pinned(4096);
    registered_there = registered(4096);
    last = plainly_pinned(4096);
    OK(D(cuCtxSetCurrent)(context));
    WAITS("R1160", "cuMemFreeHost of another context's memory, kernel here", nonblocking,
          D(cuMemFreeHost)(of_second));
    WAITS("R1161", "cuMemHostUnregister of another context's memory, kernel here", nonblocking,
          D(cuMemHostUnregister)(registered_there));
    arm(nonblocking);
    OK(D(cuCtxSetCurrent)(second));
    code = D(cuMemFreeHost)(p);
    row("R1162", "cuMemFreeHost with another context current, kernel in the owner's", "%s, code %d",
        *flag ? "waits" : "does not wait", (int)code);
    OK(D(cuCtxSetCurrent)(context));
    synchronize();
    p = plainly_pinned(4096);
    OK(D(cuCtxSetCurrent)(NULL));
    row("R1163", "cuMemFreeHost without a current context", "code %d", D(cuMemFreeHost)(p));
    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuCtxDestroy)(second));
    code = D(cuMemHostGetFlags)(&flags, last);
    row("R1164", "flags, then cuMemFreeHost, of pinned memory whose context is gone", "codes %d %d",
        (int)code, (int)D(cuMemFreeHost)(last));
}
