/* ipc_descriptors host|guest|often N: memory of one process is opened in another; host: the first
 * one has no file descriptor left then; guest: the second one has none; often: N times, opened and
 * closed. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cuda.h>

#include "tests/common/say.h"

#define BYTES 4096
#define MOST  600 /* descriptors: a small limit is soon reached */

static void take_device(void)
{
    CUcontext context;
    CUdevice device;

    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
}

static void use_up_descriptors(void)
{
    struct rlimit limit;

    NEED(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max < MOST ? limit.rlim_max : MOST;
    NEED(setrlimit(RLIMIT_NOFILE, &limit));
    while (dup(STDOUT_FILENO) >= 0)
        ;
}

static unsigned count_wrong(CUdeviceptr p)
{
    unsigned char bytes[BYTES];
    unsigned wrong = 0;

    NEED(cuMemcpyDtoH(bytes, p, BYTES));
    for (unsigned i = 0; i < BYTES; i++)
        wrong += bytes[i] != 42;
    return wrong;
}

static void be_guest(int from, const char *part, unsigned n)
{
    CUipcMemHandle handle;
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr p;

    NEED(read(from, &handle, sizeof(handle)) != sizeof(handle));
    take_device();
    if (!strcmp(part, "guest"))
        use_up_descriptors();
    for (unsigned i = 0; i < n && !result; i++) {
        result = cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (result || i == 0)
            say("open: %d, wrong bytes: %u", result, result ? 0 : count_wrong(p));
        if (!result)
            NEED(cuIpcCloseMemHandle(p));
    }
    exit(0);
}

int main(int argc, char **argv)
{
    unsigned n = argc > 2 ? (unsigned)atol(argv[2]) : 1;
    CUipcMemHandle handle;
    CUdeviceptr p;
    pid_t guest;
    int ends[2], status;

    NEED(argc < 2 || pipe(ends));
    guest = fork();
    if (!guest)
        be_guest(ends[0], argv[1], n);
    take_device();
    NEED(cuMemAlloc(&p, BYTES));
    NEED(cuMemsetD8(p, 42, BYTES));
    NEED(cuCtxSynchronize());
    NEED(cuIpcGetMemHandle(&handle, p));
    if (!strcmp(argv[1], "host"))
        use_up_descriptors();
    NEED(write(ends[1], &handle, sizeof(handle)) != sizeof(handle));
    NEED(waitpid(guest, &status, 0) != guest || status);
    say("the guest has left");
    return 0;
}
