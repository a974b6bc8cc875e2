/* Memory between two processes by IPC handles: whole lives of it, the order of every end, and what
 * is refused. One process, the host, says everything; the other, the guest, does as it is told over
 * a socket and tells back what it got. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB      ((size_t)1 << 20)
#define WORDS    1000u
#define LAZY     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define MAX_OPEN 64u

enum order {
    OPEN,       /* handle, flags -> code; the address goes to place `at` */
    CLOSE,      /* at */
    FREE,       /* at */
    FREE_ASYNC, /* at */
    SAME,       /* at, value: are the addresses of the two places the same? */
    COUNT,      /* at, value -> number of words that are not value + i */
    FILL,       /* at, value: by a kernel, and waits for it */
    LAUNCH,     /* at, value: by a kernel, and does not wait */
    RANGE,   /* at, value: of the address `value` bytes inside -> code, size; is the base right? */
    CONTEXT, /* at -> is it the guest's context? and ten times the device */
    EXPORT,  /* at -> code of cuIpcGetMemHandle */
    CAPTURE, /* handle, at: opens and closes during a capture of mode `value` */
    SECOND,  /* handle, at: opens it in a second context of the guest's device */
    FROM_DEVICE,  /* at: filled with 70 by a kernel of device `value` */
    ELSEWHERE,    /* handle, at: opens it on device `value`, too, and fills it from there with 71 */
    BARE,         /* handle, at: with no context current; codes of a handle, opening and closing */
    DESCRIPTORS,  /* -> how many the guest has open */
    DEVICE_RESET, /* that of device `value`; the guest's own is made anew */
    DIE,
};

struct message {
    enum order order;
    unsigned at, flags;
    uint32_t value;
    CUipcMemHandle handle;
};

struct reply {
    CUresult code;
    size_t number;
};

static int channel;
static pid_t guest;
static int guest_device;

/* --- the guest --- */

static CUdeviceptr opened[MAX_OPEN];
static CUcontext guest_context;

static void take_device(int ordinal)
{
    static const char image[64] = "any bytes";
    CUdevice device;
    CUmodule module;

    OK(cuDeviceGet(&device, ordinal));
    OK(cuDevicePrimaryCtxRetain(&guest_context, device));
    OK(cuCtxSetCurrent(guest_context));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_fill, module, "fill"));
}

static struct reply open_in_capture(const struct message *message)
{
    struct reply reply = {0};
    CUstreamCaptureStatus status;
    CUstream stream;
    CUgraph graph;
    CUresult opening, closing, ended;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, (CUstreamCaptureMode)message->value));
    opening = cuIpcOpenMemHandle(&opened[message->at], message->handle, LAZY);
    closing = opening ? CUDA_SUCCESS : cuIpcCloseMemHandle(opened[message->at]);
    OK(cuStreamIsCapturing(stream, &status));
    ended = cuStreamEndCapture(stream, &graph);
    reply.code = opening;
    reply.number = (size_t)closing * 1000000u + (size_t)status * 10000u + (size_t)ended;
    OK(cuStreamDestroy(stream));
    return reply;
}

static struct reply open_in_second(const struct message *message)
{
    struct reply reply = {0};
    CUcontext second;
    CUdeviceptr p;

    OK(cuCtxCreate(&second, NULL, 0, guest_device));
    reply.code = cuIpcOpenMemHandle(&p, message->handle, LAZY);
    reply.number = reply.code ? 0 : cuIpcCloseMemHandle(p);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(guest_context));
    return reply;
}

/* A kernel of a device that is used for the first time: what is open has to be open to it as well.
 */
static struct reply fill_from_device(const struct message *message)
{
    static const char image[64] = "any bytes";
    CUfunction before = kernel_fill;
    struct reply reply = {0};
    CUcontext other;
    CUmodule module;
    CUresult enabled;

    OK(cuDevicePrimaryCtxRetain(&other, (int)message->value));
    OK(cuCtxSetCurrent(other));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_fill, module, "fill"));
    enabled = cuCtxEnablePeerAccess(guest_context, 0);
    OK(enabled != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED && enabled);
    launch_fill(NULL, opened[message->at], WORDS, 70);
    reply.code = cuCtxSynchronize();
    kernel_fill = before;
    OK(cuCtxSetCurrent(guest_context));
    return reply;
}

/* In the primary context of that device, which the guest keeps. */
static struct reply open_elsewhere(const struct message *message)
{
    CUfunction before = kernel_fill;
    CUcontext home = guest_context;
    struct reply reply = {0};

    take_device((int)message->value);
    reply.code = cuIpcOpenMemHandle(&opened[message->at], message->handle, LAZY);
    if (reply.code == CUDA_SUCCESS) {
        launch_fill(NULL, opened[message->at], WORDS, 71);
        reply.number = cuCtxSynchronize();
    }
    guest_context = home;
    kernel_fill = before;
    OK(cuCtxSetCurrent(guest_context));
    return reply;
}

/* The driver refuses calls about the memory of processes to a thread that has no context. */
static struct reply without_context(const struct message *message)
{
    CUdeviceptr p = opened[message->at], elsewhere;
    struct reply reply = {0};
    CUipcMemHandle handle;

    OK(cuCtxSetCurrent(NULL));
    reply.number = cuIpcGetMemHandle(&handle, p) * (size_t)1000000;
    reply.number += cuIpcOpenMemHandle(&elsewhere, message->handle, LAZY) * (size_t)1000;
    reply.number += cuIpcCloseMemHandle(p);
    OK(cuCtxSetCurrent(guest_context));
    return reply;
}

static struct reply range_of(const struct message *message)
{
    CUdeviceptr base = 0;
    struct reply reply = {0};

    reply.code = cuMemGetAddressRange(&base, &reply.number, opened[message->at] + message->value);
    if (reply.code == CUDA_SUCCESS && base != opened[message->at])
        reply.number = 77777;
    return reply;
}

static struct reply about(const struct message *message)
{
    CUdeviceptr p = opened[message->at];
    struct reply reply = {0};
    CUcontext context = NULL;
    CUipcMemHandle handle;
    int ordinal = -1;

    switch (message->order) {
    case SAME:
        reply.number = p == opened[message->value];
        break;
    case COUNT:
        reply.number = count_wrong(p, WORDS, message->value);
        break;
    case RANGE:
        return range_of(message);
    case DESCRIPTORS:
        for (int fd = 0; fd < 1024; fd++)
            reply.number += fcntl(fd, F_GETFD) >= 0;
        break;
    case CONTEXT:
        reply.code = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p);
        OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
        reply.number = (size_t)ordinal * 10 + (context == guest_context);
        break;
    default:
        reply.code = cuIpcGetMemHandle(&handle, p);
    }
    return reply;
}

static struct reply obey(const struct message *message)
{
    CUdeviceptr *p = &opened[message->at];
    struct reply reply = {0};

    switch (message->order) {
    case OPEN:
        reply.code = cuIpcOpenMemHandle(p, message->handle, message->flags);
        break;
    case CLOSE:
        reply.code = cuIpcCloseMemHandle(*p);
        break;
    case FREE:
        reply.code = cuMemFree(*p);
        break;
    case FREE_ASYNC:
        reply.code = cuMemFreeAsync(*p, NULL);
        break;
    case FILL:
    case LAUNCH:
        launch_fill(NULL, *p, WORDS, message->value);
        if (message->order == FILL)
            reply.code = cuCtxSynchronize();
        break;
    case CAPTURE:
        return open_in_capture(message);
    case SECOND:
        return open_in_second(message);
    case BARE:
        return without_context(message);
    case FROM_DEVICE:
        return fill_from_device(message);
    case ELSEWHERE:
        return open_elsewhere(message);
    case DEVICE_RESET:
        reply.code = cuDevicePrimaryCtxReset((int)message->value);
        take_device(guest_device);
        break;
    case DIE:
        _exit(0);
    default:
        return about(message);
    }
    return reply;
}

static void be_guest(void)
{
    struct message message;

    (void)device_open();
    take_device(guest_device);
    while (read(channel, &message, sizeof(message)) == (ssize_t)sizeof(message)) {
        struct reply reply = obey(&message);

        if (write(channel, &reply, sizeof(reply)) != (ssize_t)sizeof(reply))
            break;
    }
    exit(0);
}

/* --- the host --- */

static struct reply tell(struct message message)
{
    struct reply reply = {.code = (CUresult)99999};

    if (write(channel, &message, sizeof(message)) != (ssize_t)sizeof(message) ||
        (message.order != DIE && read(channel, &reply, sizeof(reply)) != (ssize_t)sizeof(reply)))
        say("the guest is gone");
    return reply;
}

/* As a program of its own, without what is preloaded here. */
static void be_bare_guest(void)
{
    char end[16];

    (void)snprintf(end, sizeof(end), "%d", channel);
    (void)fcntl(channel, F_SETFD, 0);
    (void)unsetenv("LD_PRELOAD");
    (void)execl("/proc/self/exe", "guest", "guest", end, (char *)NULL);
    _exit(97);
}

/* Both processes begin before either has to do with the driver. */
static void invite(void)
{
    int ends[2];

    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    guest = fork();
    channel = ends[guest != 0];
    (void)close(ends[guest == 0]);
    if (guest)
        return;
    if (getenv("TEST_GUEST_POLICY"))
        OK(setenv("ALLOGRAFT_POLICY", getenv("TEST_GUEST_POLICY"), 1));
    if (getenv("TEST_BARE_GUEST"))
        be_bare_guest();
    be_guest();
}

/* The guest's end; what became of it. */
static void see_off(void)
{
    int status = -1;

    (void)close(channel);
    OK(waitpid(guest, &status, 0) != guest);
    say("the guest ended: %d", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

static CUresult g_open(unsigned at, CUipcMemHandle handle)
{
    return tell((struct message){.order = OPEN, .at = at, .handle = handle, .flags = LAZY}).code;
}

static CUresult g_do(enum order order, unsigned at, uint32_t value)
{
    return tell((struct message){.order = order, .at = at, .value = value}).code;
}

static size_t g_ask(enum order order, unsigned at, uint32_t value)
{
    return tell((struct message){.order = order, .at = at, .value = value}).number;
}

/* 1 MiB, or what TEST_BYTES says. */
static size_t bytes_of_blocks(void)
{
    const char *text = getenv("TEST_BYTES");

    return text ? strtoul(text, NULL, 10) : MIB;
}

/* By default native blocks are cut from slabs once the program allocates after a free. */
static void churn(void)
{
    CUdeviceptr p;

    for (unsigned i = 0; i < 2 && getenv("TEST_BYTES"); i++) {
        OK(cuMemAlloc(&p, MIB));
        OK(cuMemFree(p));
    }
}

static CUdeviceptr filled(size_t bytes, uint32_t value)
{
    CUdeviceptr p;

    churn();
    OK(cuMemAlloc(&p, bytes));
    launch_fill(NULL, p, WORDS, value);
    OK(cuCtxSynchronize());
    return p;
}

static CUipcMemHandle handle_of(CUdeviceptr p)
{
    CUipcMemHandle handle;

    OK(cuIpcGetMemHandle(&handle, p));
    return handle;
}

static bool same_bytes(CUipcMemHandle a, CUipcMemHandle b)
{
    return !memcmp(&a, &b, sizeof(a));
}

/* --- one life --- */

/* Of one allocation of the driver's, maybe: each is opened, closed and answered for by itself. */
static void pieces(void)
{
    CUdeviceptr p[6];
    CUipcMemHandle handles[6];

    for (unsigned i = 0; i < 6; i++) {
        p[i] = filled(bytes_of_blocks(), 10 * i);
        handles[i] = handle_of(p[i]);
    }
    for (unsigned i = 0; i < 6; i++)
        SAY_CODE("open", g_open(i, handles[i]));
    SAY_CODE("again", g_open(6, handles[1]));
    say("the same: %zu, another: %zu", g_ask(SAME, 6, 1), g_ask(SAME, 0, 1));
    for (unsigned i = 0; i < 6; i += 2)
        SAY_CODE("close", g_do(CLOSE, i, 0));
    SAY_CODE("free", cuMemFree(p[0]));
    SAY_CODE("free", cuMemFree(p[2]));
    SAY_CODE("writes", g_do(FILL, 3, 300));
    say("written: %u, others: %u %u", count_wrong(p[3], WORDS, 300), count_wrong(p[1], WORDS, 10),
        count_wrong(p[4], WORDS, 40));
    say("sees: %zu %zu", g_ask(COUNT, 1, 10), g_ask(COUNT, 5, 50));
    for (unsigned i = 0; i < 3; i++)
        SAY_CODE("close", g_do(CLOSE, 1 + 2 * i, 0));
    SAY_CODE("close", g_do(CLOSE, 6, 0));
    SAY_CODE("once too often", g_do(CLOSE, 1, 0));
    SAY_CODE("open", g_open(0, handles[4]));
    say("found: %zu", g_ask(COUNT, 0, 40));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    for (unsigned i = 0; i < 6; i++) {
        if (i == 1 || i > 2)
            SAY_CODE("free", cuMemFree(p[i]));
    }
}

static void pair(void)
{
    CUdeviceptr big = filled(bytes_of_blocks(), 5), small = filled(WORDS * 4, 6), own = 0;
    CUipcMemHandle of_big = handle_of(big), of_small = handle_of(small);

    say("the same handle again: %d", same_bytes(of_big, handle_of(big)));
    say("another's handle: %d", same_bytes(of_big, of_small));
    SAY_CODE("its own", cuIpcOpenMemHandle(&own, of_big, LAZY));
    SAY_CODE("big", g_open(0, of_big));
    SAY_CODE("small", g_open(1, of_small));
    say("found: %zu %zu", g_ask(COUNT, 0, 5), g_ask(COUNT, 1, 6));
    SAY_CODE("writes", g_do(FILL, 0, 50));
    SAY_CODE("writes", g_do(FILL, 1, 60));
    say("written: %u %u", count_wrong(big, WORDS, 50), count_wrong(small, WORDS, 60));
    launch_fill(NULL, big, WORDS, 500);
    OK(cuCtxSynchronize());
    say("sees: %zu", g_ask(COUNT, 0, 500));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    SAY_CODE("free", cuMemFree(big));
    SAY_CODE("free", cuMemFree(small));
}

static void inside(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);

    SAY_CODE("from inside", g_open(0, handle_of(p + 4096)));
    say("the beginning: %zu", g_ask(COUNT, 0, 5));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("free", cuMemFree(p));
}

static void answers(void)
{
    CUdeviceptr p = filled(WORDS * 4, 1);
    struct reply reply;

    SAY_CODE("open", g_open(0, handle_of(p)));
    reply = tell((struct message){.order = RANGE});
    say("range: %d %zu", (int)reply.code, reply.number);
    reply = tell((struct message){.order = RANGE, .value = 100});
    say("range from inside: %d %zu", (int)reply.code, reply.number);
    reply = tell((struct message){.order = RANGE, .value = WORDS * 4});
    say("range behind: %d", (int)reply.code);
    reply = tell((struct message){.order = CONTEXT});
    say("context: %d %zu", (int)reply.code, reply.number);
    reply = tell((struct message){.order = SECOND, .handle = handle_of(p)});
    say("in a second context: %d %zu", (int)reply.code, reply.number);
    SAY_CODE("export what is open", g_do(EXPORT, 0, 0));
    SAY_CODE("free what is open", g_do(FREE, 0, 0));
    SAY_CODE("free it in order", g_do(FREE_ASYNC, 0, 0));
    say("still there: %zu", g_ask(COUNT, 0, 1));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("close again", g_do(CLOSE, 0, 0));
    SAY_CODE("free", cuMemFree(p));
    reply = tell((struct message){.order = RANGE});
    say("range of what is closed: %d", (int)reply.code);
}

static void twice(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    CUipcMemHandle handle = handle_of(p);
    size_t descriptors = g_ask(DESCRIPTORS, 0, 0);

    for (unsigned i = 0; i < 3; i++)
        SAY_CODE("open", g_open(i, handle));
    say("one address: %zu %zu", g_ask(SAME, 0, 1), g_ask(SAME, 0, 2));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    say("still there: %zu", g_ask(COUNT, 2, 5));
    SAY_CODE("close", g_do(CLOSE, 2, 0));
    SAY_CODE("once too often", g_do(CLOSE, 2, 0));
    for (unsigned i = 0; i < 20; i++) { /* closed and opened again */
        if (g_open(0, handle) || g_ask(COUNT, 0, 5) || g_do(CLOSE, 0, 0))
            say("turn %u went wrong", i);
    }
    say("descriptors left: %d", (int)(g_ask(DESCRIPTORS, 0, 0) - descriptors));
    SAY_CODE("free", cuMemFree(p));
}

/* Of what a thread has open that has no context current. */
static void bare(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    CUipcMemHandle handle = handle_of(p);
    struct reply reply;

    SAY_CODE("open", g_open(0, handle));
    reply = tell((struct message){.order = BARE, .handle = handle});
    say("a handle, opening and closing with no context current: %09zu", reply.number);
    say("still there: %zu", g_ask(COUNT, 0, 5));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("once too often", g_do(CLOSE, 0, 0));
    SAY_CODE("free", cuMemFree(p));
}

/* The same memory goes from one allocation to the next, a handle each. */
static void again(void)
{
    CUipcMemHandle before;

    for (uint32_t i = 0; i < 8; i++) {
        CUdeviceptr p = filled(bytes_of_blocks(), i);
        CUipcMemHandle handle = handle_of(p);

        if (i > 0)
            say("the handle of before: %d", same_bytes(before, handle));
        SAY_CODE("open", g_open(0, handle));
        say("found: %zu", g_ask(COUNT, 0, i));
        SAY_CODE("writes", g_do(FILL, 0, 100 + i));
        SAY_CODE("close", g_do(CLOSE, 0, 0));
        say("written: %u", count_wrong(p, WORDS, 100 + i));
        SAY_CODE("free", cuMemFree(p));
        before = handle;
    }
}

/* A close waits for the work that uses the memory, as a free does. */
static void close_waits(void)
{
    for (uint32_t i = 0; i < 10; i++) {
        CUdeviceptr p = filled(bytes_of_blocks(), i);

        OK(g_open(0, handle_of(p)));
        OK(g_do(LAUNCH, 0, 1000 + i));
        OK(g_do(CLOSE, 0, 0));
        say("wrong words after the close: %u", count_wrong(p, WORDS, 1000 + i));
        OK(cuMemFree(p));
    }
}

/* --- ends --- */

static void host_frees_first(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5), q;
    CUipcMemHandle handle = handle_of(p);

    OK(g_open(0, handle));
    SAY_CODE("free under the guest", cuMemFree(p));
    q = filled(bytes_of_blocks(), 7); /* maybe there again: another handle, another opening */
    SAY_CODE("open the next", g_open(1, handle_of(q)));
    say("found: %zu", g_ask(COUNT, 1, 7));
    SAY_CODE("close the first", g_do(CLOSE, 0, 0));
    say("found: %zu", g_ask(COUNT, 1, 7));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    SAY_CODE("free", cuMemFree(q));
}

static void guest_dies(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);

    OK(g_open(0, handle_of(p)));
    (void)tell((struct message){.order = DIE});
    see_off();
    say("unharmed: %u", count_wrong(p, WORDS, 5));
    SAY_CODE("free", cuMemFree(p));
}

struct estate {
    CUipcMemHandle handle;
    pid_t heir; /* a child of the host that lives on; 0: none */
};

/* Gives a handle out, and ends when it is told to. */
static void be_mortal(int out, int in, bool with_heir)
{
    struct estate estate = {.heir = 0};
    char c;

    (void)device_open();
    estate.handle = handle_of(filled(bytes_of_blocks(), 5));
    if (with_heir && (estate.heir = fork()) == 0) {
        (void)pause();
        _exit(0);
    }
    OK(write(out, &estate, sizeof(estate)) != (ssize_t)sizeof(estate));
    OK(read(in, &c, 1) != 1);
    _exit(0);
}

/* The host is a process of its own, which ends; `early`: before the guest has opened. */
static void host_dies(bool early, bool with_heir)
{
    int out[2], in[2], status;
    struct estate estate;
    struct timespec began, ended;
    pid_t host;

    OK(pipe(out));
    OK(pipe(in));
    host = fork();
    if (!host)
        be_mortal(out[1], in[0], with_heir);
    OK(read(out[0], &estate, sizeof(estate)) != (ssize_t)sizeof(estate));
    if (!early)
        SAY_CODE("open", g_open(0, estate.handle));
    OK(write(in[1], "x", 1) != 1);
    OK(waitpid(host, &status, 0) != host);
    say("the host ended: %d", status);
    if (early) {
        clock_gettime(CLOCK_MONOTONIC, &began);
        say("opens: %d", g_open(0, estate.handle) == CUDA_SUCCESS);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        say("at once: %d", ended.tv_sec - began.tv_sec < 4);
    } else {
        say("found: %zu", g_ask(COUNT, 0, 5));
        SAY_CODE("writes", g_do(FILL, 0, 50));
        say("found: %zu", g_ask(COUNT, 0, 50));
        SAY_CODE("close", g_do(CLOSE, 0, 0));
    }
    if (estate.heir)
        OK(kill(estate.heir, SIGKILL));
}

/* A child of the host that lives on neither answers in its name nor keeps the name. */
static void host_forks(void)
{
    CUdeviceptr p, q;
    pid_t child;
    int status;

    (void)device_open();
    p = filled(bytes_of_blocks(), 5);
    OK(g_open(0, handle_of(p)));
    child = fork();
    if (!child) {
        (void)pause();
        _exit(0);
    }
    q = filled(bytes_of_blocks(), 6);
    SAY_CODE("open", g_open(1, handle_of(q)));
    say("found: %zu %zu", g_ask(COUNT, 0, 5), g_ask(COUNT, 1, 6));
    OK(kill(child, SIGKILL));
    OK(waitpid(child, &status, 0) != child);
    SAY_CODE("open again", g_open(2, handle_of(q)));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    SAY_CODE("close", g_do(CLOSE, 2, 0));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("free", cuMemFree(q));
}

static void host_resets(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5), freed = filled(bytes_of_blocks(), 4), more[4];

    OK(g_open(0, handle_of(p)));
    OK(g_open(2, handle_of(freed)));
    OK(cuMemFree(freed)); /* open elsewhere */
    SAY_CODE("reset", cuDevicePrimaryCtxReset(0));
    take_device(0);
    for (uint32_t i = 0; i < 4; i++)
        more[i] = filled(bytes_of_blocks(), 20 + i);
    p = filled(bytes_of_blocks(), 6);
    SAY_CODE("open", g_open(1, handle_of(p)));
    say("found: %zu %zu %zu", g_ask(COUNT, 1, 6), g_ask(COUNT, 0, 5), g_ask(COUNT, 2, 4));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    SAY_CODE("close", g_do(CLOSE, 2, 0));
    SAY_CODE("free", cuMemFree(p));
    p = filled(bytes_of_blocks(), 7);
    SAY_CODE("open", g_open(1, handle_of(p)));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    p = filled(bytes_of_blocks(), 8);
    say("wrong words: %u", count_wrong(p, WORDS, 8));
    SAY_CODE("free", cuMemFree(p));
    for (uint32_t i = 0; i < 4; i++)
        say("wrong words: %u", count_wrong(more[i], WORDS, 20 + i));
    for (uint32_t i = 0; i < 4; i++)
        SAY_CODE("free", cuMemFree(more[i]));
}

/* Memory of both devices of the host. */
static void two_pools(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5), q;
    CUipcMemHandle of_p = handle_of(p), of_q;

    take_device(1);
    q = filled(bytes_of_blocks(), 6);
    of_q = handle_of(q);
    SAY_CODE("open", g_open(0, of_p));
    SAY_CODE("open", g_open(1, of_q));
    say("found: %zu %zu", g_ask(COUNT, 0, 5), g_ask(COUNT, 1, 6));
    SAY_CODE("writes", g_do(FILL, 0, 50));
    SAY_CODE("writes", g_do(FILL, 1, 60));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    say("found: %zu", g_ask(COUNT, 1, 60));
    SAY_CODE("close", g_do(CLOSE, 1, 0));
    say("written: %u %u", count_wrong(p, WORDS, 50), count_wrong(q, WORDS, 60));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("free", cuMemFree(q));
}

/* A device that comes in later, and an opening while it is in. */
static void later_device(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    CUipcMemHandle handle = handle_of(p);

    for (unsigned i = 0; i < 2; i++) {
        OK(g_open(0, handle));
        SAY_CODE("filled", g_do(FROM_DEVICE, 0, 1));
        say("wrong words: %u", count_wrong(p, WORDS, 70));
        launch_fill(NULL, p, WORDS, 5);
        OK(cuCtxSynchronize());
        OK(g_do(CLOSE, 0, 0));
    }
    OK(cuMemFree(p));
}

/* Opened on two devices of one process: each of them has the memory for itself. */
static void on_each_device(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    struct message message = {.order = ELSEWHERE, .at = 1, .value = 1, .handle = handle_of(p)};
    struct reply reply;

    OK(g_open(0, message.handle));
    reply = tell(message);
    say("open on the other: %d, used there: %zu", reply.code, reply.number);
    say("wrong words: %u", count_wrong(p, WORDS, 71));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    say("found on the other: %zu", g_ask(COUNT, 1, 71));
    SAY_CODE("close on the other", g_do(CLOSE, 1, 0));
    SAY_CODE("close again", g_do(CLOSE, 1, 0));
    OK(g_open(0, message.handle));
    OK(tell(message).code);
    OK(g_do(CLOSE, 0, 0));
    SAY_CODE("free", cuMemFree(p));
    say("found on the other: %zu", g_ask(COUNT, 1, 71));
    SAY_CODE("close on the other", g_do(CLOSE, 1, 0));
}

/* What one context has open ends with it, and what another has does not. */
static void one_device_resets(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    struct message message = {.order = ELSEWHERE, .at = 1, .value = 1, .handle = handle_of(p)};
    struct reply reply;

    for (uint32_t reset = 0; reset < 2; reset++) {
        unsigned stays = 1 - reset;

        OK(g_open(0, message.handle));
        OK(tell(message).code);
        SAY_CODE("reset", g_do(DEVICE_RESET, 0, reset));
        say("found on the other: %zu", g_ask(COUNT, stays, 71));
        SAY_CODE("close on the other", g_do(CLOSE, stays, 0));
        SAY_CODE("close again", g_do(CLOSE, stays, 0));
    }
    OK(g_open(0, message.handle));
    OK(tell(message).code);
    OK(g_do(LAUNCH, 0, 80));
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    say("wrong words: %u", count_wrong(p, WORDS, 80));
    reply = tell((struct message){.order = SECOND, .handle = message.handle});
    say("in a second context: %d %zu", (int)reply.code, reply.number);
    SAY_CODE("reset", g_do(DEVICE_RESET, 0, 0));
    say("found on the other: %zu", g_ask(COUNT, 1, 80));
    SAY_CODE("close on the other", g_do(CLOSE, 1, 0));
    SAY_CODE("free", cuMemFree(p));
}

static void guest_resets(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    CUipcMemHandle handle = handle_of(p);

    OK(g_open(0, handle));
    OK(g_open(1, handle));
    SAY_CODE("reset", g_do(DEVICE_RESET, 0, 0));
    SAY_CODE("close what went with it", g_do(CLOSE, 0, 0));
    SAY_CODE("open", g_open(2, handle));
    say("found: %zu", g_ask(COUNT, 2, 5));
    SAY_CODE("close", g_do(CLOSE, 2, 0));
    SAY_CODE("close again", g_do(CLOSE, 2, 0));
    SAY_CODE("free", cuMemFree(p));
}

/* --- what is refused --- */

static void refused(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5), q = 0;
    CUipcMemHandle handle = handle_of(p), other;

    SAY_CODE("a handle of nothing", cuIpcGetMemHandle(&handle, 0));
    SAY_CODE("a handle to nowhere", cuIpcGetMemHandle(NULL, p));
    SAY_CODE("to nowhere", cuIpcOpenMemHandle(NULL, handle, LAZY));
    SAY_CODE("flags", tell((struct message){.order = OPEN, .handle = handle, .flags = 6}).code);
    SAY_CODE("no flags", tell((struct message){.order = OPEN, .handle = handle}).code);
    memset(&other, 0, sizeof(other));
    SAY_CODE("no handle", g_open(0, other));
    memset(&other, 0x5a, sizeof(other));
    SAY_CODE("no handle", g_open(0, other));
    SAY_CODE("close nothing", cuIpcCloseMemHandle(0));
    SAY_CODE("close what was not opened", cuIpcCloseMemHandle(p));
    SAY_CODE("freed", cuMemFree(p));
    SAY_CODE("a handle of what was freed", cuIpcGetMemHandle(&other, p));
    SAY_CODE("close what was freed", cuIpcCloseMemHandle(p));
    OK(cuMemAllocManaged(&q, MIB, CU_MEM_ATTACH_GLOBAL));
    SAY_CODE("a handle of managed memory", cuIpcGetMemHandle(&other, q));
    OK(cuMemFree(q));
}

/* Who is refused a handle may allocate anew. */
static void tries_again(void)
{
    CUdeviceptr first = filled(bytes_of_blocks(), 5), second;
    CUipcMemHandle handle;

    SAY_CODE("a handle", cuIpcGetMemHandle(&handle, first));
    second = filled(bytes_of_blocks(), 7);
    SAY_CODE("a handle of later memory", cuIpcGetMemHandle(&handle, second));
    SAY_CODE("opened", g_open(0, handle));
    say("found: %zu", g_ask(COUNT, 0, 7));
    SAY_CODE("closed", g_do(CLOSE, 0, 0));
    OK(cuMemFree(second));
    OK(cuMemFree(first));
}

/* The guest may not know our handles. */
static void stranger(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);

    SAY_CODE("open", g_open(0, handle_of(p)));
    SAY_CODE("free", cuMemFree(p));
}

/* Handles of what was freed, and handles that nobody has given out; on ours only (see test_ipc.py).
 */
static void stale(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    CUipcMemHandle handle = handle_of(p), forged = handle;
    uint8_t *bytes = (uint8_t *)&forged;
    uint64_t sum = 0xcbf29ce484222325u;

    bytes[40] ^= 1; /* of the token, and then the checksum behind it all */
    for (unsigned i = 0; i < 56; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3u;
    for (unsigned i = 0; i < 8; i++)
        bytes[56 + i] = (uint8_t)(sum >> 8 * i);
    SAY_CODE("forged", g_open(0, forged));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("stale", g_open(0, handle));
}

/* What is freed while the guest has it open stays as it is until that is closed. The simulation's
 * own memory does not; an H200's does (see test_ipc.py). */
static void kept(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5), q;

    OK(g_open(0, handle_of(p)));
    OK(cuMemFree(p));
    for (uint32_t i = 0; i < 4; i++) {
        q = filled(bytes_of_blocks(), 7);
        OK(g_open(1, handle_of(q)));
        say("kept: %zu, found: %zu", g_ask(COUNT, 0, 5), g_ask(COUNT, 1, 7));
        OK(g_do(CLOSE, 1, 0));
        OK(cuMemFree(q));
    }
    SAY_CODE("close", g_do(CLOSE, 0, 0));
    q = filled(bytes_of_blocks(), 8);
    OK(g_open(1, handle_of(q)));
    OK(g_do(CLOSE, 1, 0));
    OK(cuMemFree(q));
}

static void captures(void)
{
    CUdeviceptr p = filled(bytes_of_blocks(), 5);
    CUipcMemHandle handle = handle_of(p);

    for (uint32_t mode = 0; mode < 3; mode++) {
        struct reply reply =
            tell((struct message){.order = CAPTURE, .value = mode, .handle = handle});

        say("mode %u: open %d, then %zu", mode, (int)reply.code, reply.number);
    }
    SAY_CODE("free", cuMemFree(p));
}

/* --- many at once --- */

#define THREADS 4u
#define TURNS   12u
static pthread_mutex_t one_word = PTHREAD_MUTEX_INITIALIZER;

static void in_threads(void *(*function)(void *))
{
    pthread_t ids[THREADS];
    uint32_t numbers[THREADS];

    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        OK(pthread_create(&ids[i], NULL, function, &numbers[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++)
        OK(pthread_join(ids[i], NULL));
}

static void *export_often(void *data)
{
    uint32_t thread = *(uint32_t *)data;
    CUcontext context;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (uint32_t i = 0; i < TURNS; i++) {
        CUdeviceptr p = filled(bytes_of_blocks() / 4, thread * 100 + i);
        CUipcMemHandle handle = handle_of(p);

        pthread_mutex_lock(&one_word);
        if (g_open(thread, handle) || g_ask(COUNT, thread, thread * 100 + i) ||
            g_open(thread + 10, handle) || g_do(CLOSE, thread, 0) || g_do(CLOSE, thread + 10, 0))
            say("thread %u, turn %u went wrong", thread, i);
        pthread_mutex_unlock(&one_word);
        OK(cuMemFree(p));
    }
    return NULL;
}

static void threads(void)
{
    in_threads(export_often);
    say("all threads are through");
}

/* One handle that all threads of a process open and close at once, and one of each thread's own. */
static CUipcMemHandle handles[THREADS + 1];

static void open_and_close(CUipcMemHandle handle, uint32_t value)
{
    CUdeviceptr p;

    OK(cuIpcOpenMemHandle(&p, handle, LAZY));
    OK(count_wrong(p, WORDS, value));
    OK(cuIpcCloseMemHandle(p));
}

static void *open_often(void *data)
{
    uint32_t thread = *(uint32_t *)data;
    CUcontext context;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 25; i++) {
        open_and_close(handles[THREADS], 50);
        open_and_close(handles[thread], 5 + thread);
    }
    return NULL;
}

static void crowd(void)
{
    int pipes[2], status;
    pid_t child;

    OK(pipe(pipes));
    child = fork();
    if (!child) {
        OK(read(pipes[0], handles, sizeof(handles)) != (ssize_t)sizeof(handles));
        (void)device_open();
        in_threads(open_often);
        exit(0);
    }
    (void)device_open();
    for (uint32_t i = 0; i <= THREADS; i++)
        handles[i] = handle_of(filled(bytes_of_blocks(), i < THREADS ? 5 + i : 50));
    OK(write(pipes[1], handles, sizeof(handles)) != (ssize_t)sizeof(handles));
    OK(waitpid(child, &status, 0) != child);
    say("the crowd ended: %d", status);
}

static const struct {
    const char *name;
    void (*run)(void);
    bool alone; /* opens the device itself */
} lives[] = {
    {"pair", pair, false},
    {"pieces", pieces, false},
    {"inside", inside, false},
    {"answers", answers, false},
    {"twice", twice, false},
    {"bare", bare, false},
    {"again", again, false},
    {"close_waits", close_waits, false},
    {"host_frees_first", host_frees_first, false},
    {"guest_resets", guest_resets, false},
    {"host_resets", host_resets, false},
    {"two_pools", two_pools, false},
    {"later_device", later_device, false},
    {"on_each_device", on_each_device, false},
    {"one_device_resets", one_device_resets, false},
    {"refused", refused, false},
    {"tries_again", tries_again, false},
    {"stranger", stranger, false},
    {"stale", stale, false},
    {"kept", kept, false},
    {"captures", captures, false},
    {"threads", threads, false},
    {"host_forks", host_forks, true},
    {"crowd", crowd, true},
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "pair";

    if (!strcmp(name, "guest") && argc > 2) {
        channel = atoi(argv[2]);
        be_guest();
    }
    guest_device = argc > 2 ? atoi(argv[2]) : 0;
    invite();
    if (!strcmp(name, "guest_dies")) {
        (void)device_open();
        guest_dies();
        return 0;
    }
    if (!strncmp(name, "host_dies", 9))
        host_dies(strstr(name, "early") != NULL, strstr(name, "heir") != NULL);
    for (unsigned i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        if (strcmp(name, lives[i].name))
            continue;
        if (!lives[i].alone)
            (void)device_open();
        lives[i].run();
    }
    see_off();
    return 0;
}
