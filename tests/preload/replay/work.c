/* Iterations of stream work made by every call there is for it, good ones and bad: the same
 * codes and bytes, whether the work is launched as graphs or not. Arguments: which part, and on
 * which stream ("null", "blocking", "nonblocking"). Codes that are no success are said where
 * they come. */
#define CUDA_ENABLE_DEPRECATED
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define ITERATIONS 9
#define BYTES      (1u << 19) /* more than a slot of the ring has */
#define PITCH      1024u

static CUfunction kernel_fold, kernel_nothing;
static CUkernel kernel_fold_too; /* the other kind of handle */
static CUmodule module;
static CUstream stream;
static CUdeviceptr block[4];
static unsigned char *pinned[2], *pageable;
static unsigned iterations;

/* to, from, n, value: folds n words of one block into another. */
static void fold(const struct sim_kernel_call *call)
{
    uint32_t n = *(const uint32_t *)call->args[2], value = *(const uint32_t *)call->args[3];
    uint32_t *to = sim_kernel_access(*(const CUdeviceptr *)call->args[0], n * sizeof(*to), true);
    const uint32_t *from =
        sim_kernel_access(*(const CUdeviceptr *)call->args[1], n * sizeof(*to), false);

    for (uint32_t i = 0; to && from && i < n; i++)
        to[i] = to[i] * 33 + (from[i] ^ value) + call->grid[0] * 7 + call->block[0];
}

static void nothing(const struct sim_kernel_call *call)
{
    (void)call;
}

static void load(void)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(CUdeviceptr), sizeof(uint32_t),
                                   sizeof(uint32_t)};
    static const char image[64] = "any bytes";
    CUlibrary library;

    sim_register_kernel("fold", fold, 4, sizes);
    sim_register_kernel("nothing", nothing, 0, NULL);
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&kernel_fold, module, "fold"));
    OK(cuModuleGetFunction(&kernel_nothing, module, "nothing"));
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel_fold_too, library, "fold"));
}

static void begin(const char *which)
{
    if (!strcmp(which, "blocking"))
        OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    if (!strcmp(which, "nonblocking"))
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc(&block[i], BYTES));
        OK(cuMemsetD32(block[i], (unsigned)i, BYTES / 4));
    }
    for (int i = 0; i < 2; i++) {
        OK(cuMemHostAlloc((void **)&pinned[i], BYTES, 0));
        memset(pinned[i], i + 1, BYTES);
    }
    pageable = malloc(BYTES);
    if (!pageable)
        _exit(97);
    OK(cuCtxSynchronize());
}

/* By words: millions of bytes are looked at, and a sanitizer looks at each of our looks. */
static uint32_t sum_of(const unsigned char *bytes, size_t n)
{
    uint64_t sum = 1, word;

    for (; n >= sizeof(word); n -= sizeof(word), bytes += sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        sum = sum * 31 + word;
        sum ^= sum >> 29;
    }
    while (n--)
        sum = sum * 31 + *bytes++;
    return (uint32_t)(sum ^ sum >> 32);
}

/* All there is, at the end of an iteration. */
static void say_iteration(void)
{
    static unsigned char copy[BYTES];

    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 2; i++)
        say("pinned: %08x", sum_of(pinned[i], BYTES));
    for (int i = 0; i < 4; i++) {
        OK(cuMemcpyDtoH(copy, block[i], BYTES));
        say("block: %08x", sum_of(copy, BYTES));
    }
}

/* What the source held is gone when the call has returned. */
static void upload(CUdeviceptr to, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++)
        pageable[i] = (unsigned char)(value + i * 7 + i / 256);
    SAY_CODE("upload", cuMemcpyHtoDAsync(to, pageable, bytes, stream));
    memset(pageable, 0xee, bytes);
}

static void fold_into(CUfunction function, CUdeviceptr to, CUdeviceptr from, uint32_t value)
{
    uint32_t n = 1000 + value % 3;
    void *params[] = {&to, &from, &n, &value};

    OK(cuLaunchKernel(function, 1 + value % 5, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

/* So many that they are worth a graph. */
static void fold_often(uint32_t value)
{
    for (uint32_t i = 0; i < 5; i++)
        fold_into(kernel_fold, block[i % 2], block[3 - i % 2], value + i);
}

/* --- copies --- */

static void copies(unsigned iteration)
{
    const size_t half = BYTES / 2;

    upload(block[0] + 8192, BYTES / 4, (unsigned char)(iteration + 3)); /* waits for nothing */
    upload(block[0], 4096, (unsigned char)iteration);
    upload(block[0] + 4096, 100, (unsigned char)(iteration + 1)); /* shares a slot */
    fold_into(kernel_fold, block[1], block[0], iteration);
    upload(block[0], 65536, (unsigned char)(iteration + 2));
    SAY_CODE("within", cuMemcpyDtoDAsync(block[2] + iteration * 4, block[0], half, stream));
    SAY_CODE("any, within", cuMemcpyAsync(block[2] + half, block[1], half, stream));
    SAY_CODE("any, in", cuMemcpyAsync(block[3], (CUdeviceptr)(uintptr_t)pinned[1], half, stream));
    pageable[0] = (unsigned char)iteration;
    SAY_CODE("any, pageable",
             cuMemcpyAsync(block[3] + half, (CUdeviceptr)(uintptr_t)pageable, 5000, stream));
    pageable[0] = 0xdd;
    SAY_CODE("any, out", cuMemcpyAsync((CUdeviceptr)(uintptr_t)pinned[0], block[2], half, stream));
    SAY_CODE("in", cuMemcpyHtoDAsync(block[1] + half, pinned[1] + iteration, 4096, stream));
    SAY_CODE("out", cuMemcpyDtoHAsync(pinned[0] + half, block[1], half, stream));
}

/* Larger than a slot, or than the ring has room for. */
static void large(unsigned iteration)
{
    upload(block[0], BYTES, (unsigned char)iteration);
    fold_into(kernel_fold, block[1], block[0], iteration);
    for (unsigned i = 0; i < 12; i++) {
        upload(block[2] + i * 8192, 8000, (unsigned char)(iteration + i));
        fold_into(kernel_fold, block[1], block[2] + i * 8192, iteration + i);
    }
}

static void upload_row(unsigned iteration)
{
    for (unsigned i = 0; i < 3; i++)
        upload(block[0], 70000, (unsigned char)(iteration + i));
}

/* The call of the third upload in a row waits for what came before the first, which the host may
 * then read (R1052). Those that come first of all wait for none but themselves. */
static void rows(unsigned iteration)
{
    for (unsigned i = 0; i < 2; i++)
        upload(block[0], 66000, (unsigned char)(iteration + i));
    fold_often(iteration);
    fold_into(kernel_fold, (CUdeviceptr)(uintptr_t)pinned[0], block[2], iteration);
    upload_row(iteration);
    say("pinned: %08x", sum_of(pinned[0], 4000));
    for (unsigned i = 0; i < 4; i++)
        fold_often(iteration + i);
}

/* On a stream that seems idle, but comes after the legacy one. */
static void rows_after_legacy(unsigned iteration)
{
    CUstream own = stream;

    stream = NULL;
    fold_into(kernel_fold, (CUdeviceptr)(uintptr_t)pinned[1], block[2], iteration);
    stream = own;
    upload_row(iteration);
    say("pinned: %08x", sum_of(pinned[1], 4000));
    fold_often(iteration);
    OK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 3; i++)
        fold_often(iteration + i);
}

/* To pageable memory the call waits. */
static void downloads(unsigned iteration)
{
    fold_often(iteration);
    SAY_CODE("out", cuMemcpyDtoHAsync(pageable, block[1], 4096, stream));
    OK(cuStreamSynchronize(stream));
    say("pageable: %08x", sum_of(pageable, 4096));
    fold_often(iteration + 1);
    SAY_CODE("any, out",
             cuMemcpyAsync((CUdeviceptr)(uintptr_t)pageable, block[1] + 64, 70000, stream));
    OK(cuStreamSynchronize(stream));
    say("pageable: %08x", sum_of(pageable, 70000));
    fold_into(kernel_fold, block[2], block[1], iteration);
}

static CUDA_MEMCPY2D rectangle(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = PITCH,
                           .srcXInBytes = 16,
                           .srcY = 1,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = PITCH / 2,
                           .WidthInBytes = 200,
                           .Height = 30};
}

static CUDA_MEMCPY3D box(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = PITCH,
                           .srcHeight = 16,
                           .srcZ = 1,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = to,
                           .dstPitch = PITCH,
                           .dstHeight = 12,
                           .dstXInBytes = 4,
                           .WidthInBytes = 333,
                           .Height = 9,
                           .Depth = 5};
}

static void shapes(unsigned iteration)
{
    CUDA_MEMCPY2D flat = rectangle(block[1], block[0]);
    CUDA_MEMCPY3D deep = box(block[2], block[1]);

    fold_into(kernel_fold, block[0], block[3], iteration);
    SAY_CODE("2D", cuMemcpy2DAsync(&flat, stream));
    SAY_CODE("3D", cuMemcpy3DAsync(&deep, stream));
    flat.dstMemoryType = CU_MEMORYTYPE_HOST;
    flat.dstHost = pinned[0];
    SAY_CODE("2D, out", cuMemcpy2DAsync(&flat, stream));
    flat = rectangle(block[1] + 65536, 0);
    flat.srcMemoryType = CU_MEMORYTYPE_HOST;
    flat.srcHost = pageable;
    memset(pageable, (int)iteration, BYTES);
    SAY_CODE("2D, pageable", cuMemcpy2DAsync(&flat, stream));
    memset(pageable, 0xcc, BYTES);
    flat.srcHost = pinned[1];
    SAY_CODE("2D, in", cuMemcpy2DAsync(&flat, stream));
    fold_into(kernel_fold, block[3], block[1], iteration);
}

/* --- fills --- */

static void fills(unsigned iteration)
{
    SAY_CODE("8", cuMemsetD8Async(block[0], (unsigned char)iteration, 1000 + iteration, stream));
    SAY_CODE("16",
             cuMemsetD16Async(block[0] + 2048, (unsigned short)(iteration * 259), 500, stream));
    SAY_CODE("32",
             cuMemsetD32Async(block[0] + 4096, iteration * 0x1010101u, 300 + iteration, stream));
    fold_into(kernel_fold, block[1], block[0], iteration);
    SAY_CODE("2D 8", cuMemsetD2D8Async(block[2], PITCH, 5, 77, 9, stream));
    SAY_CODE("2D 16", cuMemsetD2D16Async(block[2] + 65536, PITCH, 0x506, 44, 3, stream));
    SAY_CODE("2D 32", cuMemsetD2D32Async(block[2] + 131072, PITCH, 7, 20, 9, stream));
    SAY_CODE("pinned", cuMemsetD8Async((CUdeviceptr)(uintptr_t)pinned[0], 3, 100, stream));
    fold_into(kernel_fold, block[3], block[2], iteration);
}

/* By the calls that name no stream. */
static void without_stream(unsigned iteration)
{
    SAY_CODE("8", cuMemsetD8(block[0], (unsigned char)iteration, 1000));
    SAY_CODE("16", cuMemsetD16(block[0] + 2048, (unsigned short)iteration, 500));
    SAY_CODE("32", cuMemsetD32(block[0] + 4096, iteration, 300));
    SAY_CODE("2D 8", cuMemsetD2D8(block[2], PITCH, 5, 77, 9));
    SAY_CODE("2D 16", cuMemsetD2D16(block[2] + 65536, PITCH, 0x607, 44, 3));
    SAY_CODE("2D 32", cuMemsetD2D32(block[2] + 131072, PITCH, 7, 20, 9));
    fold_into(kernel_fold, block[1], block[0], iteration);
    SAY_CODE("within", cuMemcpyDtoD(block[3] + 64, block[1], 5000));
    SAY_CODE("within", cuMemcpyDtoD(block[3] + 8192, block[2], 5000));
    SAY_CODE("pinned",
             cuMemsetD8((CUdeviceptr)(uintptr_t)pinned[1], (unsigned char)iteration, 100));
    say("at once: %d", pinned[1][99] == iteration);
    fold_into(kernel_fold, block[1], block[3], iteration);
    memset(pageable, (int)iteration, 4096);
    SAY_CODE("in", cuMemcpyHtoD(block[0], pageable, 4096));
    fold_into(kernel_fold, block[2], block[0], iteration);
    SAY_CODE("out", cuMemcpyDtoH(pageable, block[2], 4096));
    say("pageable: %08x", sum_of(pageable, 4096));
    SAY_CODE("any", cuMemcpy(block[1] + 4096, block[2], 4096));
}

/* --- launches --- */

static void launches(unsigned iteration)
{
    CUdeviceptr to = block[0];
    struct {
        CUdeviceptr to, from;
        uint32_t n, value;
    } packed = {block[0], block[1], 900, iteration};
    size_t size = sizeof(packed);
    void *params[] = {&to, &packed.from, &packed.n, &packed.value};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 0};
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 64,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};

    for (int i = 0; i < 3; i++) {
        SAY_CODE("params", cuLaunchKernel(kernel_fold, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
        SAY_CODE("packed", cuLaunchKernel(kernel_fold, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
        SAY_CODE("kernel", cuLaunchKernel((CUfunction)(void *)kernel_fold_too, 3, 1, 1, 1, 1, 1, 0,
                                          stream, params, NULL));
        SAY_CODE("nothing",
                 cuLaunchKernel(kernel_nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
        SAY_CODE("extended", cuLaunchKernelEx(&config, kernel_fold, params, NULL));
        SAY_CODE("extended, packed", cuLaunchKernelEx(&config, kernel_fold, NULL, extra));
        config.attrs = &attribute;
        config.numAttrs = 1;
        SAY_CODE("with an attribute", cuLaunchKernelEx(&config, kernel_fold, params, NULL));
        SAY_CODE("cooperative",
                 cuLaunchCooperativeKernel(kernel_fold, 1, 1, 1, 32, 1, 1, 0, stream, params));
        packed.value = iteration * 10 + (uint32_t)i;
        to = block[i];
    }
}

static void CUDA_CB add_one(void *counter)
{
    __atomic_fetch_add((unsigned *)counter, 1, __ATOMIC_RELAXED);
}

static void waits(unsigned iteration)
{
    static unsigned called;
    static CUevent event;
    static CUstream other;
    int code;

    if (!event) {
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    }
    fold_into(kernel_fold, block[0], block[1], iteration);
    SAY_CODE("host", cuLaunchHostFunc(stream, add_one, &called));
    fold_often(iteration);
    SAY_CODE("record", cuEventRecord(event, stream));
    SAY_CODE("wait", cuStreamWaitEvent(other, event, 0));
    fold_into(kernel_fold, block[2], block[1], iteration);
    SAY_CODE("elsewhere", cuMemcpyDtoDAsync(block[3], block[1], 4096, other));
    SAY_CODE("record", cuEventRecordWithFlags(event, other, 0));
    SAY_CODE("wait", cuStreamWaitEvent(stream, event, 0));
    fold_often(iteration);
    SAY_CODE("event", cuEventSynchronize(event));
    while ((code = (int)cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
        ;
    say("done: %d", code);
    fold_into(kernel_fold, block[2], block[3], iteration + 1);
    SAY_CODE("context", cuCtxSynchronize());
    say("called: %u", called);
}

/* --- what memory is may change --- */

static void memory(unsigned iteration)
{
    CUdeviceptr p, q, managed, pitched;
    size_t pitch;

    OK(cuMemAlloc(&p, 10000 + 4096 * (iteration % 3)));
    OK(cuMemAllocAsync(&q, 8192, stream));
    OK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocPitch(&pitched, &pitch, 100, 8, 4));
    fold_often(iteration);
    SAY_CODE("own", cuMemcpyDtoDAsync(p, block[0], 10000, stream));
    SAY_CODE("past the end", cuMemcpyDtoDAsync(p, block[0], 64u << 20, stream));
    SAY_CODE("pool", cuMemcpyDtoDAsync(q, p, 8192, stream));
    SAY_CODE("to managed", cuMemcpyDtoDAsync(managed, q, 8192, stream));
    SAY_CODE("from managed", cuMemcpyAsync(block[1], managed, 8192, stream));
    SAY_CODE("pitched", cuMemsetD2D8Async(pitched, pitch, 1, 100, 8, stream));
    SAY_CODE("from pitched", cuMemcpyAsync(block[2], pitched, 100, stream));
    OK(cuMemHostRegister(pageable, 65536, 0));
    memset(pageable, (int)iteration, 65536);
    SAY_CODE("registered", cuMemcpyHtoDAsync(block[3], pageable, 65536, stream));
    SAY_CODE("half", cuMemcpyHtoDAsync(block[3], pageable + 60000, 10000, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemHostUnregister(pageable));
    upload(block[0], 60000, (unsigned char)iteration);
    OK(cuMemFreeAsync(q, stream));
    OK(cuStreamSynchronize(stream));
    SAY_CODE("freed", cuMemFree(pitched));
    SAY_CODE("freed", cuMemFree(managed));
    SAY_CODE("freed", cuMemFree(p));
}

/* Of memory, or in a context, that asks for it, the calls without a stream wait. */
static void synchronous(unsigned iteration, void (*ask)(void))
{
    int on = iteration >= 4;

    if (iteration == 4)
        ask();
    fold_often(iteration);
    SAY_CODE("out", cuMemcpyDtoHAsync(pinned[0], block[2], 4096, stream));
    SAY_CODE("32", cuMemsetD32(block[0], iteration, 300));
    if (on)
        say("pinned: %08x", sum_of(pinned[0], 4096)); /* the host may look */
    fold_often(iteration + 1);
    SAY_CODE("out", cuMemcpyDtoHAsync(pinned[0], block[3], 4096, stream));
    SAY_CODE("within", cuMemcpyDtoD(block[0] + 8192, block[1], 4096));
    if (on)
        say("pinned: %08x", sum_of(pinned[0], 4096));
}

static void ask_of_block(void)
{
    int on = 1;

    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block[0]));
}

static void ask_of_context(void)
{
    OK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
}

static void ask_of_device(void)
{
    OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SYNC_MEMOPS));
}

static void synchronous_block(unsigned iteration)
{
    synchronous(iteration, ask_of_block);
}

static void synchronous_context(unsigned iteration)
{
    synchronous(iteration, ask_of_context);
}

static void synchronous_device(unsigned iteration)
{
    synchronous(iteration, ask_of_device);
}

/* --- what the driver refuses --- */

static void bad_launches(CUdeviceptr to)
{
    uint32_t n = 10, value = 1;
    void *params[] = {&to, &to, &n, &value};
    size_t size = 3;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    void *junk[] = {(void *)(uintptr_t)77, params, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {.gridDimX = 1, .hStream = stream};

    SAY_CODE("no function", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    SAY_CODE("no grid", cuLaunchKernel(kernel_fold, 0, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    SAY_CODE("no block", cuLaunchKernel(kernel_fold, 1, 1, 1, 0, 1, 1, 0, stream, params, NULL));
    SAY_CODE("huge block",
             cuLaunchKernel(kernel_fold, 1, 1, 1, 4096, 1, 1, 0, stream, params, NULL));
    SAY_CODE("no parameters",
             cuLaunchKernel(kernel_fold, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    SAY_CODE("both", cuLaunchKernel(kernel_fold, 1, 1, 1, 32, 1, 1, 0, stream, params, extra));
    SAY_CODE("too short", cuLaunchKernel(kernel_fold, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra));
    SAY_CODE("junk", cuLaunchKernel(kernel_fold, 1, 1, 1, 32, 1, 1, 0, stream, NULL, junk));
    SAY_CODE("no configuration", cuLaunchKernelEx(NULL, kernel_fold, params, NULL));
    SAY_CODE("half a configuration", cuLaunchKernelEx(&config, kernel_fold, params, NULL));
    SAY_CODE("no host function", cuLaunchHostFunc(stream, NULL, NULL));
}

/* Memory that the device may only read. */
static void *read_only(void)
{
    static void *memory;

    if (!memory) {
        memory = aligned_alloc(4096, 4096);
        if (!memory)
            _exit(98);
        OK(cuMemHostRegister(memory, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
    }
    return memory;
}

static void bad_copies(CUdeviceptr to)
{
    CUDA_MEMCPY2D flat = rectangle(to, block[0]);
    CUDA_MEMCPY3D deep = box(to, block[0]);
    const CUdeviceptr nowhere = 0x1000;

    SAY_CODE("to nowhere", cuMemcpyDtoDAsync(nowhere, to, 4096, stream));
    SAY_CODE("from nowhere", cuMemcpyDtoDAsync(to, nowhere, 4096, stream));
    SAY_CODE("in to nowhere", cuMemcpyHtoDAsync(nowhere, pageable, 4096, stream));
    SAY_CODE("in from null", cuMemcpyHtoDAsync(to, NULL, 4096, stream));
    SAY_CODE("out to null", cuMemcpyDtoHAsync(NULL, to, 4096, stream));
    SAY_CODE("out to what is read only", cuMemcpyDtoHAsync(read_only(), to, 4096, stream));
    SAY_CODE("nothing", cuMemcpyDtoDAsync(to, block[1], 0, stream));
    SAY_CODE("nothing to nowhere", cuMemcpyDtoDAsync(nowhere, to, 0, stream));
    SAY_CODE("past the end", cuMemcpyDtoDAsync(to, block[0] + BYTES - 100, 64u << 20, stream));
    SAY_CODE("in past the end", cuMemcpyHtoDAsync(to, pinned[0], 64u << 20, stream));
    SAY_CODE("wraps", cuMemcpyDtoDAsync(to, block[0], SIZE_MAX, stream));
    SAY_CODE("no rectangle", cuMemcpy2DAsync(NULL, stream));
    SAY_CODE("no box", cuMemcpy3DAsync(NULL, stream));
    flat.Height = 1 << 20;
    SAY_CODE("rectangle past the end", cuMemcpy2DAsync(&flat, stream));
    flat.Height = 0;
    SAY_CODE("empty rectangle", cuMemcpy2DAsync(&flat, stream));
    deep.Depth = 1000;
    SAY_CODE("box past the end", cuMemcpy3DAsync(&deep, stream));
    deep.Depth = 1;
    deep.srcPitch = 10;
    SAY_CODE("narrow pitch", cuMemcpy3DAsync(&deep, stream));
    SAY_CODE("blocking, nowhere", cuMemcpyDtoD(nowhere, to, 4096));
}

static void bad_fills(CUdeviceptr to)
{
    const CUdeviceptr nowhere = 0x1000;

    SAY_CODE("nowhere", cuMemsetD8Async(nowhere, 1, 4096, stream));
    SAY_CODE("no bytes", cuMemsetD8Async(to, 1, 0, stream));
    SAY_CODE("odd", cuMemsetD32Async(to + 2, 1, 10, stream));
    SAY_CODE("odd", cuMemsetD16Async(to + 1, 1, 10, stream));
    SAY_CODE("past the end", cuMemsetD32Async(to, 1, 64u << 20, stream));
    SAY_CODE("wraps", cuMemsetD32Async(to, 1, SIZE_MAX / 2, stream));
    SAY_CODE("rows past the end", cuMemsetD2D8Async(to, PITCH, 1, 100, 1u << 20, stream));
    SAY_CODE("no rows", cuMemsetD2D8Async(to, PITCH, 1, 100, 0, stream));
    SAY_CODE("odd pitch", cuMemsetD2D32Async(to, 1001, 1, 100, 2, stream));
    SAY_CODE("blocking, nowhere", cuMemsetD8(nowhere, 1, 4096));
    SAY_CODE("blocking, odd", cuMemsetD32(to + 2, 1, 10));
}

static CUdeviceptr bad_target; /* where a bad call of a good kind goes */

static void bad(unsigned iteration)
{
    void (*const kinds[])(CUdeviceptr) = {bad_launches, bad_copies, bad_fills};

    for (int i = 0; i < 3; i++) {
        fold_into(kernel_fold, block[0], block[1], iteration);
        upload(block[2], 4096, (unsigned char)iteration);
        SAY_CODE("good", cuMemcpyDtoDAsync(block[3], block[2], 4096, stream));
        SAY_CODE("good", cuMemsetD32Async(block[2], iteration, 100, stream));
        if (iteration >= 5)
            kinds[(iteration + (unsigned)i) % 3](bad_target);
    }
}

/* The last of many equal iterations has one bad call where a good one of the same kind was: the
 * code comes at that call. */
static void bad_at_last(unsigned iteration)
{
    bool last = iteration == ITERATIONS - 1;
    const CUdeviceptr nowhere = 0x1000;
    uint32_t n = 100, value = iteration;
    void *params[] = {&block[0], &block[1], &n, &value};
    CUstream kept = stream;

    fold_into(kernel_fold, block[0], block[1], iteration);
    SAY_CODE("launch",
             cuLaunchKernel(kernel_fold, last ? 0 : 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    SAY_CODE("launch",
             cuLaunchKernel(last ? NULL : kernel_fold, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    SAY_CODE("launch",
             cuLaunchKernel(kernel_fold, 1, 1, 1, last ? 2000 : 1, 1, 1, 0, stream, params, NULL));
    SAY_CODE("copy", cuMemcpyDtoDAsync(block[2], last ? nowhere : block[0], 4096, stream));
    SAY_CODE("copy", cuMemcpyDtoDAsync(block[2], block[0], last ? 64u << 20 : 4096, stream));
    SAY_CODE("in", cuMemcpyHtoDAsync(last ? nowhere : block[2], pageable, 4096, stream));
    SAY_CODE("in", cuMemcpyHtoDAsync(block[2], last ? NULL : pinned[0], 4096, stream));
    SAY_CODE("fill", cuMemsetD32Async(last ? nowhere : block[3], 1, 1000, stream));
    SAY_CODE("fill", cuMemsetD32Async(last ? block[3] + 1 : block[3], 1, 1000, stream));
    stream = kept;
    fold_into(kernel_fold, block[1], block[2], iteration);
}

/* --- textures and surfaces by reference, as programs made with CUDA 11 have them --- */

static void texture_reference(unsigned iteration)
{
    CUtexref reference;

    if (iteration == 5)
        OK(cuModuleGetTexRef(&reference, module, "texture"));
    fold_often(iteration);
}

static void surface_reference(unsigned iteration)
{
    CUsurfref reference;

    if (iteration == 5)
        OK(cuModuleGetSurfRef(&reference, module, "surface"));
    fold_often(iteration);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(unsigned iteration);
    } parts[] = {{"copies", copies},
                 {"large", large},
                 {"rows", rows},
                 {"rows-after-legacy", rows_after_legacy},
                 {"downloads", downloads},
                 {"shapes", shapes},
                 {"fills", fills},
                 {"without-stream", without_stream},
                 {"launches", launches},
                 {"waits", waits},
                 {"memory", memory},
                 {"synchronous", synchronous_block},
                 {"synchronous-context", synchronous_context},
                 {"synchronous-device", synchronous_device},
                 {"texture-reference", texture_reference},
                 {"surface-reference", surface_reference},
                 {"bad", bad},
                 {"bad-at-last", bad_at_last}};

    (void)device_open();
    load();
    begin(argc > 2 ? argv[2] : "null");
    bad_target = block[3];
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        for (iterations = 0; argc > 1 && !strcmp(argv[1], parts[i].name) && iterations < ITERATIONS;
             iterations++) {
            parts[i].run(iterations);
            say_iteration();
        }
    }
    say("violations: %u", sim_violations());
    return 0;
}
