/* ipc.c: memory and events between two processes: native handles, pools, what is refused. */
#include "sim_test.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct message {
    CUipcMemHandle native;
    CUipcEventHandle event;
    CUmemPoolPtrExportData pointer;
};

static int ends[2];

static void send_all(const struct message *message, int fd)
{
    struct iovec part = {(void *)message, sizeof(*message)};
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
    CHECK(sendmsg(ends[0], &header, 0) == (ssize_t)sizeof(*message));
}

static int receive_all(struct message *message)
{
    struct iovec part = {message, sizeof(*message)};
    char control[CMSG_SPACE(sizeof(int))];
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    int fd;

    CHECK(recvmsg(ends[1], &header, 0) == (ssize_t)sizeof(*message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
    return fd;
}

/* Whole steps in turn: a byte each way. */
static void hand_over(int end)
{
    CHECK(write(end, "x", 1) == 1);
}

static void wait_turn(int end)
{
    char c;

    CHECK(read(end, &c, 1) == 1);
}

/* A context of the other device works on what was opened there, and on the pool's once it is let
 * in. */
static void use_on_other_device(const struct message *message, CUmemoryPool pool,
                                CUdeviceptr pooled)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr there, again;
    struct test other;

    test_open(&other, 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&there, message->native, 0));
    OK(cuIpcOpenMemHandle(&there, message->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(launch(other.add, NULL, there, 64, 2));
    OK(cuMemPoolSetAccess(pool, &access, 1));
    OK(launch(other.add, NULL, pooled, 64, 1));
    CHECK(word_at(there) == (3 * 5 + 1) * 3 + 2 && word_at(pooled) == 8 * 3 + 1);
    OK(cuIpcOpenMemHandle(&again, message->native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(again == there); /* counted, not mapped twice */
    OK(cuIpcCloseMemHandle(there));
    CHECK(word_at(there) == (3 * 5 + 1) * 3 + 2);
    OK(cuIpcCloseMemHandle(there));
}

static int importer(void)
{
    struct test test;
    struct message message;
    CUdeviceptr native, pooled;
    CUmemoryPool pool, again;
    CUevent event;
    int fd = receive_all(&message);

    test_open(&test, 0);
    OK(cuIpcOpenMemHandle(&native, message.native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenEventHandle(&event, message.event));
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolImportFromShareableHandle(&again, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(again == pool);
    OK(cuMemPoolImportPointer(&pooled, pool, &message.pointer));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&native + 0, 64, pool, NULL));
    /* The exporter's work behind the event is not done yet. */
    OK(cuStreamWaitEvent(NULL, event, 0));
    OK(launch(test.add, NULL, native, 64, 1));
    OK(launch(test.fill, NULL, pooled, 64, 8));
    hand_over(ends[1]);
    OK(cuCtxSynchronize());
    CHECK(word_at(native) == 3 * 5 + 1);
    use_on_other_device(&message, pool, pooled);
    OK(cuCtxSetCurrent(NULL));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcCloseMemHandle(native));
    OK(cuCtxSetCurrent(test.ctx));
    OK(cuIpcCloseMemHandle(native));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(native));
    OK(cuMemFree(pooled));
    OK(cuEventDestroy(event));
    hand_over(ends[1]);
    CHECK(sim_violations() == 0);
    return 0;
}

static void test_refusals(CUdeviceptr pooled)
{
    CUipcMemHandle handle;
    CUdeviceptr managed;
    CUevent plain;
    CUipcEventHandle event;

    OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, managed));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, pooled));
    OK(cuMemFree(managed));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&event, plain));
    OK(cuEventDestroy(plain));
}

static int exporter(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    struct test test;
    struct message message;
    CUdeviceptr native, pooled, own;
    CUmemoryPool pool;
    CUevent event;
    int fd;

    test_open(&test, 0);
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAlloc(&native, 256));
    OK(cuMemAllocFromPoolAsync(&pooled, 256, pool, NULL));
    OK(cuCtxSynchronize());
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    test_refusals(pooled);
    OK(cuIpcGetMemHandle(&message.native, native));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&own, message.native, 1));
    OK(cuIpcGetEventHandle(&message.event, event));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolExportPointer(&message.pointer, pooled));
    OK(launch(test.fill, NULL, native, 64, 5));
    OK(cuEventRecord(event, NULL));
    send_all(&message, fd);
    wait_turn(ends[0]);
    OK(cuEventSynchronize(event));
    wait_turn(ends[0]);
    CHECK(word_at(native) == 50 && word_at(pooled) == 25);
    OK(cuMemFree(native));
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    CHECK(sim_violations() == 0);
    return 0;
}

int main(void)
{
    int status;

    (void)setenv("SIM_DEVICES", "2", 1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork(); /* before either process has to do with the driver */
    if (child == 0)
        return importer();
    CHECK(exporter() == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
