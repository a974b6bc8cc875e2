/* ipc.c: memory and events between two processes (R940 on). */
#include "tests/gpu/sim_truth/truth.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void group_ipc(void)
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
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    row("R945", "cuIpcGetEventHandle of a plain event", "code %d",
        D(cuIpcGetEventHandle)(&event_handle, event));
    row("R946", "cuIpcCloseMemHandle of something else", "code %d",
        D(cuIpcCloseMemHandle)(device_memory(4096)));
    OK(D(cuDeviceGetDefaultMemPool)(&pool, 0));
    row("R947", "export of a pool that is not for it", "code %d",
        D(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0));
    row("R948", "export of a pointer of such a pool", "code %d",
        D(cuMemPoolExportPointer)(&data, pool_memory(4096)));
}

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

    OK(D(cuIpcOpenMemHandle)(&p, parcel->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
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
    OK(D(cuCtxSetCurrent)(NULL));
    code = D(cuIpcCloseMemHandle)(p);
    OK(D(cuCtxSetCurrent)(context));
    row("R936", "close of opened memory with no context current", "code %d", code);
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

    OK(D(cuDeviceGetCount)(&n));
    if (n < 2)
        return;
    OK(D(cuDevicePrimaryCtxRetain)(&other, 1));
    OK(D(cuCtxSetCurrent)(other));
    OK(D(cuIpcOpenMemHandle)(&p, parcel->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(D(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    row("R937", "device of memory of device 0 that device 1 opened", "%d", ordinal);
    OK(D(cuIpcCloseMemHandle)(p));
    OK(D(cuCtxSetCurrent)(context));
}

static void imported_memory(const struct parcel *parcel, int fd)
{
    CUmemPoolPtrExportData data = parcel->pointer;
    CUdeviceptr p, q;
    CUipcMemHandle handle;
    CUmemoryPool pool, again;
    CUresult code;

    OK(D(cuMemPoolImportFromShareableHandle)(&pool, (void *)(intptr_t)fd,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    code = D(cuMemPoolImportFromShareableHandle)(&again, (void *)(intptr_t)fd,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    row("R927", "a pool of another process imported again", "code %d, %s", code,
        code            ? "no pool"
        : again == pool ? "the same pool"
                        : "another pool");
    row("R956", "cuMemAllocFromPoolAsync of an imported pool", "code %d",
        D(cuMemAllocFromPoolAsync)(&q, 64, pool, nonblocking));
    OK(D(cuMemPoolImportPointer)(&p, pool, &data));
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

void group_ipc_pair(void)
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
    OK(D(cuIpcGetMemHandle)(&parcel.native, p));
    OK(D(cuIpcGetMemHandle)(&parcel.inner, p + 512));
    OK(D(cuMemPoolCreate)(&pool, &props));
    q = from_pool(pool, 1000, nonblocking);
    synchronize();
    row("R939", "export of a pointer before its pool", "code %d",
        D(cuMemPoolExportPointer)(&parcel.pointer, q));
    OK(D(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(D(cuMemPoolExportPointer)(&parcel.pointer, q));
    fflush(stdout);
    send_parcel(&parcel, fd);
    (void)waitpid(child, &status, 0);
    if (status)
        printf("# the other process: %d\n", status);
}
