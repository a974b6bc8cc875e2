/* Memory between two processes by IPC handles: every life of it, and every answer, so that a run
 * with the library can be held against the native one.
 *
 * usage: ipc [DEVICE_OF_GUEST] [LIFE]
 * Each life has two processes that begin before either has to do with CUDA: the host says
 * everything, the guest does as it is told over a socket. Without LIFE all are run. The life
 * "facts" prints what the driver answers in corners, and times; it is for reading, not for
 * comparing. */
#include "check.h"

#include <cuda.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS     (MIB / 4)
#define LAZY      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define LONG_NS   200000000ull
#define EXIT_SKIP 77

enum order {
    OPEN,
    CLOSE,
    FREE,
    FREE_ASYNC,
    SAME,
    COUNT,
    FILL,
    LAUNCH,
    RANGE,
    ATTRIBUTES,
    EXPORT,
    CAPTURE,
    PEER_COPY,
    RUNTIME,
    RESET,
    OTHER_CONTEXT,
    COUNT_ABOVE,
    DIE
};

struct message {
    enum order order;
    unsigned at, flags, value;
    CUipcMemHandle handle;
};

struct reply {
    int code;
    size_t number;
    double ms;
    char text[200];
};

static int channel, guest_device;
static pid_t guest;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

#define SAY_CODE(what, call) say("%s: %d", what, (int)(call))

__global__ void fill(unsigned *words, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        words[i] = value + (unsigned)i;
}

static size_t wrong_words(CUdeviceptr p, size_t n, unsigned value)
{
    unsigned *words = (unsigned *)malloc(n * sizeof *words);
    size_t wrong = 0;
    MUST(cuMemcpyDtoH(words, p, n * sizeof *words));
    for (size_t i = 0; i < n; i++)
        wrong += words[i] != value + (unsigned)i;
    free(words);
    return wrong;
}

/* --- the guest --- */

static CUdeviceptr opened[64];

static reply count_above(const message &)
{
    int count = 0;
    reply r = {};
    MUST(cudaGetDeviceCount(&count));
    r.number = (size_t)count;
    return r;
}

static reply attributes(CUdeviceptr p)
{
    unsigned type = 0, managed = 7, legacy = 7, rdma = 7, ordinal = 7;
    unsigned long long types = 7;
    CUcontext context = NULL, current = NULL;
    CUmemoryPool pool = NULL;
    size_t size = 0;
    CUdeviceptr start = 0;
    reply r = {};
    MUST(cuCtxGetCurrent(&current));
    r.code = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    (void)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    (void)cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    (void)cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    (void)cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
    (void)cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p);
    (void)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    (void)cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
    (void)cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p);
    (void)cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p);
    snprintf(r.text, sizeof r.text,
             "type %u managed %u own context %d pool %d legacy %u ordinal %u "
             "handle types %llu size %zu start %d",
             type, managed, context == current, pool != NULL, legacy, ordinal, types, size,
             start == p);
    r.number = rdma;
    return r;
}

static reply in_capture(const message &m)
{
    CUstreamCaptureStatus status;
    CUstream stream;
    CUgraph graph;
    int closing = 0;
    reply r = {};
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(stream, (CUstreamCaptureMode)m.value));
    r.code = cuIpcOpenMemHandle(&opened[m.at], m.handle, LAZY);
    if (r.code == CUDA_SUCCESS)
        closing = cuIpcCloseMemHandle(opened[m.at]);
    MUST(cuStreamIsCapturing(stream, &status));
    int ended = cuStreamEndCapture(stream, &graph);
    snprintf(r.text, sizeof r.text, "close %d, status %d, end %d", closing, (int)status, ended);
    MUST(cuStreamDestroy(stream));
    return r;
}

/* Copies between what is open and memory of the guest's, by every call that copies. */
static reply peer_copy(CUdeviceptr p)
{
    CUdeviceptr own;
    CUcontext current;
    reply r = {};
    MUST(cuCtxGetCurrent(&current));
    MUST(cuMemAlloc(&own, MIB));
    MUST(cuMemcpyDtoD(own, p, MIB));
    size_t first = wrong_words(own, WORDS, 5);
    MUST(cuMemsetD8(own, 0, MIB));
    MUST(cuMemcpyPeer(own, current, p, current, MIB));
    size_t second = wrong_words(own, WORDS, 5);
    fill<<<32, 256>>>((unsigned *)own, WORDS, 9);
    MUST(cuMemcpyPeer(p, current, own, current, MIB));
    size_t third = wrong_words(p, WORDS, 9);
    MUST(cuMemFree(own));
    snprintf(r.text, sizeof r.text, "wrong words %zu %zu %zu", first, second, third);
    return r;
}

static reply by_runtime(const message &m)
{
    cudaIpcMemHandle_t handle;
    void *p = NULL;
    reply r = {};
    memcpy(&handle, &m.handle, sizeof handle);
    r.code = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess);
    if (r.code == 0) {
        cudaPointerAttributes a = {};
        MUST(cudaPointerGetAttributes(&a, p));
        r.number = wrong_words((CUdeviceptr)p, WORDS, m.value);
        int closed = cudaIpcCloseMemHandle(p);
        snprintf(r.text, sizeof r.text, "type %d device %d close %d", (int)a.type, a.device,
                 closed);
    }
    (void)cudaGetLastError();
    return r;
}

/* Opened by two contexts of one process. */
static reply other_context(const message &m)
{
    CUcontext before, other;
    CUdeviceptr p = 0;
    reply r = {};
    MUST(cuCtxGetCurrent(&before));
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&other, NULL, 0, guest_device));
#else
    MUST(cuCtxCreate(&other, 0, guest_device));
#endif
    r.code = cuIpcOpenMemHandle(&p, m.handle, LAZY);
    int closed = r.code ? -1 : (int)cuIpcCloseMemHandle(p);
    snprintf(r.text, sizeof r.text, "same address %d, close %d", p == opened[m.at], closed);
    MUST(cuCtxDestroy(other));
    MUST(cuCtxSetCurrent(before));
    return r;
}

static reply obey(const message &m)
{
    CUdeviceptr *p = &opened[m.at], base = 0;
    CUipcMemHandle handle;
    reply r = {};
    double began = now_s();
    switch (m.order) {
    case OPEN:
        r.code = cuIpcOpenMemHandle(p, m.handle, m.flags);
        break;
    case CLOSE:
        r.code = cuIpcCloseMemHandle(*p);
        break;
    case FREE:
        r.code = cuMemFree(*p);
        break;
    case FREE_ASYNC:
        r.code = cuMemFreeAsync(*p, NULL);
        break;
    case SAME:
        r.number = *p == opened[m.value];
        break;
    case COUNT:
        r.number = wrong_words(*p, WORDS, m.value);
        break;
    case FILL:
        fill<<<32, 256>>>((unsigned *)*p, WORDS, m.value);
        r.code = cuCtxSynchronize();
        break;
    case LAUNCH:
        late_write<<<FEW_BLOCKS, THREADS>>>((unsigned *)*p, WORDS, m.value, LONG_NS);
        r.code = cudaGetLastError();
        break;
    case RANGE:
        r.code = cuMemGetAddressRange(&base, &r.number, *p + m.value);
        snprintf(r.text, sizeof r.text, "base %lld", r.code ? -1 : (long long)(*p - base));
        break;
    case ATTRIBUTES:
        r = attributes(*p);
        break;
    case EXPORT:
        r.code = cuIpcGetMemHandle(&handle, *p);
        break;
    case CAPTURE:
        r = in_capture(m);
        break;
    case PEER_COPY:
        r = peer_copy(*p);
        break;
    case RUNTIME:
        r = by_runtime(m);
        break;
    case OTHER_CONTEXT:
        r = other_context(m);
        break;
    case RESET:
        r.code = cudaDeviceReset();
        MUST(cudaSetDevice(guest_device));
        MUST(cudaFree(NULL));
        break;
    case COUNT_ABOVE:
        r = count_above(m);
        break;
    case DIE:
        _exit(0);
    }
    r.ms = (now_s() - began) * 1e3;
    return r;
}

static void be_guest(void)
{
    message m;
    bool ready = false;
    while (read(channel, &m, sizeof m) == (ssize_t)sizeof m) {
        if (!ready && m.order != COUNT_ABOVE) {
            MUST(cudaSetDevice(guest_device));
            warm_up_kernels();
            ready = true;
        }
        reply r = obey(m);
        if (write(channel, &r, sizeof r) != (ssize_t)sizeof r)
            break;
    }
    exit(0);
}

/* --- the host --- */

static reply tell(message m)
{
    reply r = {};
    r.code = 99999;
    if (write(channel, &m, sizeof m) != (ssize_t)sizeof m ||
        (m.order != DIE && read(channel, &r, sizeof r) != (ssize_t)sizeof r))
        say("the guest is gone");
    return r;
}

static reply tell(enum order order, unsigned at = 0, unsigned value = 0)
{
    message m = {};
    m.order = order;
    m.at = at;
    m.value = value;
    return tell(m);
}

static reply tell(enum order order, unsigned at, CUipcMemHandle handle, unsigned value = 0,
                  unsigned flags = LAZY)
{
    message m = {};
    m.order = order;
    m.at = at;
    m.value = value;
    m.flags = flags;
    m.handle = handle;
    return tell(m);
}

static void invite(void)
{
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    fflush(stdout);
    guest = fork();
    channel = ends[guest != 0];
    close(ends[guest == 0]);
    if (!guest)
        be_guest();
}

static void see_off(void)
{
    int status = -1;
    close(channel);
    waitpid(guest, &status, 0);
    say("the guest ended: %d", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

static void begin(void)
{
    MUST(cudaSetDevice(0));
    warm_up_kernels();
}

static CUdeviceptr filled(size_t bytes, unsigned value)
{
    CUdeviceptr p;
    MUST(cuMemAlloc(&p, bytes));
    fill<<<32, 256>>>((unsigned *)p, bytes / 4 < WORDS ? bytes / 4 : WORDS, value);
    MUST(cudaDeviceSynchronize());
    return p;
}

static CUipcMemHandle handle_of(CUdeviceptr p)
{
    CUipcMemHandle handle;
    MUST(cuIpcGetMemHandle(&handle, p));
    return handle;
}

static bool same_bytes(CUipcMemHandle a, CUipcMemHandle b)
{
    return !memcmp(&a, &b, sizeof a);
}

/* --- lives --- */

static void pair(void)
{
    CUdeviceptr big = filled(4 * MIB, 5), other = filled(MIB, 6), own = 0;
    CUipcMemHandle of_big = handle_of(big), of_other = handle_of(other);
    say("the same handle again: %d", same_bytes(of_big, handle_of(big)));
    say("another's handle: %d", same_bytes(of_big, of_other));
    SAY_CODE("its own", cuIpcOpenMemHandle(&own, of_big, LAZY));
    SAY_CODE("big", tell(OPEN, 0, of_big).code);
    SAY_CODE("other", tell(OPEN, 1, of_other).code);
    say("found: %zu %zu", tell(COUNT, 0, 5).number, tell(COUNT, 1, 6).number);
    SAY_CODE("writes", tell(FILL, 0, 50).code);
    SAY_CODE("writes", tell(FILL, 1, 60).code);
    say("written: %zu", wrong_words(big, WORDS, 50));
    say("written: %zu", wrong_words(other, WORDS, 60));
    fill<<<32, 256>>>((unsigned *)big, WORDS, 500);
    MUST(cudaDeviceSynchronize());
    say("sees: %zu", tell(COUNT, 0, 500).number);
    SAY_CODE("close", tell(CLOSE, 0).code);
    SAY_CODE("close", tell(CLOSE, 1).code);
    SAY_CODE("free", cuMemFree(big));
    SAY_CODE("free", cuMemFree(other));
}

static void inside(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    CUipcMemHandle whole = handle_of(p), part = handle_of(p + MIB / 2);
    SAY_CODE("from inside", tell(OPEN, 0, part).code);
    say("the beginning: %zu", tell(COUNT, 0, 5).number);
    SAY_CODE("whole", tell(OPEN, 1, whole).code);
    say("one address: %zu", tell(SAME, 0, 1).number);
    SAY_CODE("close", tell(CLOSE, 0).code);
    SAY_CODE("close", tell(CLOSE, 1).code);
    SAY_CODE("free", cuMemFree(p));
}

static void answers(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    SAY_CODE("open", tell(OPEN, 0, handle_of(p)).code);
    for (unsigned at : {0u, 100u, (unsigned)MIB, (unsigned)(4 * MIB - 1)}) {
        reply r = tell(RANGE, 0, at);
        say("range at %u: %d, %zu bytes, %s", at, r.code, r.number, r.text);
    }
    reply r = tell(ATTRIBUTES, 0);
    say("attributes: %d, %s", r.code, r.text);
    SAY_CODE("export what is open", tell(EXPORT, 0).code);
    SAY_CODE("free what is open", tell(FREE, 0).code);
    say("still there: %zu", tell(COUNT, 0, 5).number);
    SAY_CODE("close", tell(CLOSE, 0).code);
    SAY_CODE("close again", tell(CLOSE, 0).code);
    SAY_CODE("free", cuMemFree(p));
}

static void twice(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    CUipcMemHandle handle = handle_of(p);
    for (unsigned i = 0; i < 3; i++)
        SAY_CODE("open", tell(OPEN, i, handle).code);
    say("one address: %zu %zu", tell(SAME, 0, 1).number, tell(SAME, 0, 2).number);
    SAY_CODE("close", tell(CLOSE, 0).code);
    SAY_CODE("close", tell(CLOSE, 1).code);
    say("still there: %zu", tell(COUNT, 2, 5).number);
    SAY_CODE("close", tell(CLOSE, 2).code);
    SAY_CODE("once too often", tell(CLOSE, 2).code);
    for (unsigned i = 0; i < 20; i++) {
        if (tell(OPEN, 0, handle).code || tell(COUNT, 0, 5).number || tell(CLOSE, 0).code)
            say("turn %u went wrong", i);
    }
    SAY_CODE("free", cuMemFree(p));
}

static void again(void)
{
    CUipcMemHandle before = {};
    for (unsigned i = 0; i < 8; i++) {
        CUdeviceptr p = filled(4 * MIB, i);
        CUipcMemHandle handle = handle_of(p);
        if (i > 0)
            say("the handle of before: %d", same_bytes(before, handle));
        SAY_CODE("open", tell(OPEN, 0, handle).code);
        say("found: %zu", tell(COUNT, 0, i).number);
        SAY_CODE("writes", tell(FILL, 0, 100 + i).code);
        SAY_CODE("close", tell(CLOSE, 0).code);
        say("written: %zu", wrong_words(p, WORDS, 100 + i));
        SAY_CODE("free", cuMemFree(p));
        before = handle;
    }
}

/* The kernel writes one value everywhere: words after the close tell whether the close waited. */
static void close_waits(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    unsigned word = 0;
    MUST(tell(OPEN, 0, handle_of(p)).code);
    MUST(tell(LAUNCH, 0, 77).code);
    reply r = tell(CLOSE, 0);
    say("close: %d, waited: %d", r.code, r.ms > 100);
    MUST(cuMemcpyDtoH(&word, p + MIB / 2, 4));
    say("written when it was back: %d", word == 77);
    SAY_CODE("free", cuMemFree(p));
}

static void copies(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    MUST(tell(OPEN, 0, handle_of(p)).code);
    reply r = tell(PEER_COPY, 0);
    say("copies: %s", r.text);
    say("here: %zu", wrong_words(p, WORDS, 9));
    SAY_CODE("close", tell(CLOSE, 0).code);
    SAY_CODE("free", cuMemFree(p));
}

static void runtime(void)
{
    cudaIpcMemHandle_t handle;
    CUipcMemHandle bytes;
    void *p;
    MUST(cudaMalloc(&p, 4 * MIB));
    fill<<<32, 256>>>((unsigned *)p, WORDS, 3);
    MUST(cudaDeviceSynchronize());
    SAY_CODE("handle", cudaIpcGetMemHandle(&handle, p));
    memcpy(&bytes, &handle, sizeof bytes);
    reply r = tell(RUNTIME, 0, bytes, 3);
    say("open: %d, wrong words %zu, %s", r.code, r.number, r.text);
    SAY_CODE("free", cudaFree(p));
}

static void host_frees_first(void)
{
    CUdeviceptr p = filled(4 * MIB, 5), q;
    MUST(tell(OPEN, 0, handle_of(p)).code);
    SAY_CODE("free under the guest", cuMemFree(p));
    q = filled(4 * MIB, 7);
    SAY_CODE("open the next", tell(OPEN, 1, handle_of(q)).code);
    say("found: %zu, still there: %zu", tell(COUNT, 1, 7).number, tell(COUNT, 0, 5).number);
    SAY_CODE("close the first", tell(CLOSE, 0).code);
    say("found: %zu", tell(COUNT, 1, 7).number);
    SAY_CODE("close", tell(CLOSE, 1).code);
    SAY_CODE("free", cuMemFree(q));
}

static void guest_dies(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    MUST(tell(OPEN, 0, handle_of(p)).code);
    (void)tell(DIE);
    int status;
    waitpid(guest, &status, 0);
    say("unharmed: %zu", wrong_words(p, WORDS, 5));
    SAY_CODE("free", cuMemFree(p));
}

/* A host of its own that ends, before (`early`) or after the guest has opened. */
static void host_dies(bool early)
{
    int handles[2], hold[2], status;
    char c = 0;
    CUipcMemHandle handle;
    MUST(pipe(handles));
    MUST(pipe(hold));
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        begin();
        handle = handle_of(filled(4 * MIB, 5));
        if (write(handles[1], &handle, sizeof handle) < 0 || read(hold[0], &c, 1) < 0)
            _exit(1);
        exit(0);
    }
    MUST(read(handles[0], &handle, sizeof handle) != (ssize_t)sizeof handle);
    if (!early)
        SAY_CODE("open", tell(OPEN, 0, handle).code);
    MUST(write(hold[1], &c, 1) != 1);
    waitpid(child, &status, 0);
    say("the host ended: %d", status);
    if (early) {
        say("opens: %d", tell(OPEN, 0, handle).code == 0);
        return;
    }
    say("found: %zu", tell(COUNT, 0, 5).number);
    SAY_CODE("writes", tell(FILL, 0, 50).code);
    say("found: %zu", tell(COUNT, 0, 50).number);
    SAY_CODE("close", tell(CLOSE, 0).code);
}

static void host_dies_late(void)
{
    host_dies(false);
}

static void guest_resets(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    CUipcMemHandle handle = handle_of(p);
    MUST(tell(OPEN, 0, handle).code);
    SAY_CODE("reset", tell(RESET).code);
    SAY_CODE("open", tell(OPEN, 2, handle).code);
    say("found: %zu", tell(COUNT, 2, 5).number);
    SAY_CODE("close", tell(CLOSE, 2).code);
    SAY_CODE("free", cuMemFree(p));
}

static void refused(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    CUipcMemHandle handle = handle_of(p), other;
    SAY_CODE("a handle of nothing", cuIpcGetMemHandle(&other, 0));
    SAY_CODE("a handle to nowhere", cuIpcGetMemHandle(NULL, p));
    SAY_CODE("to nowhere", cuIpcOpenMemHandle(NULL, handle, LAZY));
    SAY_CODE("flags", tell(OPEN, 0, handle, 0, 6).code);
    memset(&other, 0, sizeof other);
    SAY_CODE("no handle", tell(OPEN, 0, other).code);
    SAY_CODE("close nothing", cuIpcCloseMemHandle(0));
    SAY_CODE("close what was not opened", cuIpcCloseMemHandle(p));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("a handle of what was freed", cuIpcGetMemHandle(&other, p));
}

static void captures(void)
{
    CUdeviceptr p = filled(4 * MIB, 5);
    CUipcMemHandle handle = handle_of(p);
    for (unsigned mode = 0; mode < 3; mode++) {
        reply r = tell(CAPTURE, 0, handle, mode);
        say("mode %u: open %d, %s", mode, r.code, r.text);
    }
    SAY_CODE("free", cuMemFree(p));
}

/* What nobody promises, and what it costs. */
static void facts(void)
{
    CUdeviceptr p = filled(4 * MIB, 5), small = filled(4096, 1), next = filled(4096, 2);
    CUipcMemHandle handle = handle_of(p), other;
    unsigned legacy = 7;
    size_t before, after, total;
    MUST(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    say("legacy IPC capable here: %u", legacy);
    SAY_CODE("flags 0", tell(OPEN, 0, handle, 0, 0).code);
    (void)tell(CLOSE, 0);
    memset(&other, 0x5a, sizeof other);
    SAY_CODE("a handle of 0x5a", tell(OPEN, 0, other).code);
    memcpy(&other,
           "\xa6"
           "algripc\1\0\0\0somebody else's handle, in a format of its own.......",
           64);
    SAY_CODE("a handle of somebody else's", tell(OPEN, 0, other).code);
    double began = now_s();
    for (int i = 0; i < 100; i++)
        (void)handle_of(p);
    say("export again: %.1f us", (now_s() - began) * 1e4);
    for (int i = 0; i < 3; i++) {
        double open_ms = tell(OPEN, 0, handle).ms;
        say("open %.3f ms, close %.3f ms", open_ms, tell(CLOSE, 0).ms);
    }
    MUST(tell(OPEN, 0, handle).code);
    say("open again %.3f ms", tell(OPEN, 1, handle).ms);
    reply r = tell(OTHER_CONTEXT, 0, handle);
    say("in a second context: %d, %s", r.code, r.text);
    r = tell(ATTRIBUTES, 0);
    say("opened: %s, rdma %zu", r.text, r.number);
    SAY_CODE("free in order", tell(FREE_ASYNC, 0).code);
    (void)tell(CLOSE, 0);
    (void)tell(CLOSE, 1);
    SAY_CODE("small", tell(OPEN, 2, handle_of(small)).code);
    r = tell(RANGE, 2);
    say("small: %d, %zu bytes, %s", r.code, r.number, r.text);
    SAY_CODE("its neighbour", tell(OPEN, 3, handle_of(next)).code);
    r = tell(RANGE, 3);
    say("neighbour: %d, %zu bytes, %s", r.code, r.number, r.text);
    (void)tell(CLOSE, 2);
    (void)tell(CLOSE, 3);
    SAY_CODE("open", tell(OPEN, 0, handle).code);
    MUST(cuMemGetInfo(&before, &total));
    MUST(cuMemFree(p));
    MUST(cuMemGetInfo(&after, &total));
    say("bytes back while the guest has it open: %lld", (long long)after - (long long)before);
    SAY_CODE("opened anew after the free", tell(OPEN, 1, handle).code);
    (void)tell(CLOSE, 0);
    MUST(cuMemGetInfo(&after, &total));
    say("bytes back when it is closed: %lld", (long long)after - (long long)before);
}

static void host_dies_early(void)
{
    host_dies(true);
}

static const struct {
    const char *name;
    void (*run)(void);
    bool by_itself; /* begins CUDA itself, or not at all */
} lives[] = {
    {"inside", inside, false},
    {"answers", answers, false},
    {"twice", twice, false},
    {"again", again, false},
    {"close_waits", close_waits, false},
    {"copies", copies, false},
    {"runtime", runtime, false},
    {"host_frees_first", host_frees_first, false},
    {"host_dies", host_dies_late, true},
    {"guest_resets", guest_resets, false},
    {"refused", refused, false},
    {"captures", captures, false},
    {"guest_dies", guest_dies, false},
    {"pair", pair,
     false}, /* the last one runs in the process that was started, and so is reported */
    {"host_dies_early", host_dies_early, true},
    {"facts", facts, false},
};

#define N_COMPARED 14

static void live(size_t i)
{
    say("--- %s", lives[i].name);
    invite();
    alarm(100);
    if (!lives[i].by_itself)
        begin();
    lives[i].run();
    if (strcmp(lives[i].name, "guest_dies"))
        see_off();
}

static size_t devices(void)
{
    invite();
    size_t n = tell(COUNT_ABOVE).number;
    int status;
    close(channel);
    waitpid(guest, &status, 0);
    return n;
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 2 ? argv[2] : NULL;
    guest_device = argc > 1 ? atoi(argv[1]) : 0;
    signal(SIGPIPE, SIG_IGN);
    if ((size_t)guest_device >= devices())
        return EXIT_SKIP;
    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        bool last = wanted || i == N_COMPARED - 1;
        if (wanted ? strcmp(wanted, lives[i].name) != 0 : i >= N_COMPARED)
            continue;
        /* On another device than its own, pool memory ends with the process it is of (see
         * docs/guarantees.md). */
        if (!wanted && guest_device && lives[i].run == host_dies_late)
            continue;
        if (last) {
            live(i);
            continue;
        }
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            live(i);
            exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status)
            say("%s ended: %d", lives[i].name, status);
    }
    return 0;
}
