/* capture.c: what each call does while a stream is being captured (R600 to R699). */
#include "tests/gpu/sim_truth/truth.h"

#include <pthread.h>
#include <unistd.h>

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

static void *spare_host[16];
static int n_spare_host;
static char plain_pages[65536];

static CUresult ask_host_free(void)
{
    return n_spare_host ? D(cuMemFreeHost)(spare_host[--n_spare_host]) : CUDA_ERROR_UNKNOWN;
}

static CUresult ask_register(void)
{
    return D(cuMemHostRegister)(malloc(4096), 4096, 0);
}

static CUresult ask_unregister(void)
{
    return n_spare_host ? D(cuMemHostUnregister)(spare_host[--n_spare_host]) : CUDA_ERROR_UNKNOWN;
}

static CUresult ask_host_pointer(void)
{
    CUdeviceptr p;

    return D(cuMemHostGetDevicePointer)(&p, (void *)flag, 0);
}

static CUresult ask_host_flags(void)
{
    unsigned flags;

    return D(cuMemHostGetFlags)(&flags, (void *)flag);
}

static CUresult ask_upload(void)
{
    return D(cuMemcpyHtoDAsync)(spare[0], plain_pages, 4096, other_nonblocking);
}

static CUresult ask_download(void)
{
    return D(cuMemcpyDtoHAsync)(plain_pages, spare[0], 4096, other_nonblocking);
}

static CUresult ask_download_at_once(void)
{
    return D(cuMemcpyDtoH)(plain_pages, spare[0], 4096);
}

static CUresult ask_pool_attribute(void)
{
    CUmemoryPool pool;
    cuuint64_t value;
    CUresult code = D(cuDeviceGetDefaultMemPool)(&pool, 0);

    return code ? code : D(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
}

static CUresult ask_pool_trim(void)
{
    CUmemoryPool pool;
    CUresult code = D(cuDeviceGetDefaultMemPool)(&pool, 0);

    return code ? code : D(cuMemPoolTrimTo)(pool, 0);
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

    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuThreadExchangeStreamCaptureMode)(&mode));
    asking->code = asking->ask();
    OK(D(cuThreadExchangeStreamCaptureMode)(&mode));
    return NULL;
}

/* "code kept" or "code spoilt" for one capture mode and one thread. */
static void one_answer(char *text, size_t bytes, question ask, CUstreamCaptureMode mode,
                       CUstreamCaptureMode thread_mode, bool own_thread)
{
    struct asking asking = {ask, thread_mode, CUDA_SUCCESS};
    pthread_t thread;
    CUgraph graph = NULL;

    OK(D(cuStreamBeginCapture)(nonblocking, mode));
    if (own_thread) {
        ask_in_mode(&asking);
    } else {
        pthread_create(&thread, NULL, ask_in_mode, &asking);
        pthread_join(thread, NULL);
    }
    CUresult end = D(cuStreamEndCapture)(nonblocking, &graph);
    snprintf(text, bytes, "%d%s", (int)asking.code, end ? " spoilt" : "");
    if (graph)
        OK(D(cuGraphDestroy)(graph));
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
    synchronize();
}

void group_capture_memory(void)
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
    capture_line("R613", "in a capture, cuMemPoolTrimTo", ask_pool_trim, false);
}

static void take_host(bool is_registered)
{
    for (n_spare_host = 0; n_spare_host < 16; n_spare_host++) {
        if (!is_registered) {
            OK(D(cuMemAllocHost)(&spare_host[n_spare_host], 4096));
            continue;
        }
        spare_host[n_spare_host] = aligned_alloc(4096, 4096);
        OK(D(cuMemHostRegister)(spare_host[n_spare_host], 4096, 0));
    }
}

void group_capture_host(void)
{
    open_device();
    take_host(false);
    capture_line("R1170", "in a capture, cuMemFreeHost", ask_host_free, false);
    capture_line("R1171", "in a capture, cuMemHostRegister", ask_register, false);
    take_host(true);
    capture_line("R1172", "in a capture, cuMemHostUnregister", ask_unregister, false);
    capture_line("R1173", "in a capture, cuMemHostGetDevicePointer", ask_host_pointer, false);
    capture_line("R1174", "in a capture, cuMemHostGetFlags", ask_host_flags, false);
    capture_line("R1175", "in a capture, cuMemcpyHtoDAsync elsewhere, pageable", ask_upload, false);
    capture_line("R1176", "in a capture, cuMemcpyDtoHAsync elsewhere, pageable", ask_download,
                 false);
    capture_line("R1177", "in a capture, cuMemcpyDtoH, pageable", ask_download_at_once, false);
}

void group_capture_waits(void)
{
    open_device();
    OK(D(cuEventCreate)(&outside_event, CU_EVENT_DISABLE_TIMING));
    OK(D(cuEventRecord)(outside_event, other_nonblocking));
    synchronize();
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

void group_capture_codes(void)
{
    CUgraph graph;
    CUevent event;
    CUdeviceptr p;
    CUresult code;

    open_device();
    p = device_memory(4096);
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    row("R640", "capture of the legacy stream", "code %d",
        D(cuStreamBeginCapture)(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    row("R641", "end of a capture that is not", "code %d",
        D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuStreamBeginCapture)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    row("R642", "is the legacy stream capturing while a blocking stream is", "%d", status_of(NULL));
    row("R643", "the blocking stream after that question", "%d", status_of(blocking));
    code = launch_store(NULL, device_of(seen), 1, 0);
    int status = status_of(blocking);
    row("R644", "a launch on the legacy stream while a blocking stream captures",
        "code %d, status %d, end %d", code, status, D(cuStreamEndCapture)(blocking, &graph));
    OK(D(cuStreamBeginCapture)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuEventRecord)(event, NULL);
    row("R645", "cuEventRecord on the legacy stream while a blocking stream captures",
        "code %d, end %d", code, D(cuStreamEndCapture)(blocking, &graph));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = launch_store(NULL, device_of(seen), 1, 0);
    row("R646", "a launch on the legacy stream while a non-blocking stream captures",
        "code %d, end %d", code, D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuStreamQuery)(nonblocking);
    row("R647", "cuStreamQuery of a capturing stream", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuStreamSynchronize)(nonblocking);
    row("R648", "cuStreamSynchronize of a capturing stream", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(D(cuEventRecord)(event, nonblocking));
    code = D(cuEventQuery)(event);
    row("R649", "cuEventQuery of a captured event", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuEventRecord)(event, other_nonblocking));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuStreamWaitEvent)(nonblocking, event, 0);
    row("R650", "a capturing stream waits for an event from outside", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    (void)p;
}

void group_capture_joins(void)
{
    CUgraph graph;
    CUevent event;
    CUdeviceptr p;
    CUresult code, second;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

    open_device();
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(D(cuEventRecord)(event, nonblocking));
    OK(D(cuStreamWaitEvent)(other_nonblocking, event, 0));
    OK(launch_store(other_nonblocking, device_of(seen), 1, 0));
    row("R660", "a stream that waited for a captured event captures", "%d",
        status_of(other_nonblocking));
    code = D(cuStreamEndCapture)(other_nonblocking, &graph);
    row("R661", "end of a capture on a stream that joined it", "code %d", code);
    row("R662", "end of the capture after that", "code %d",
        D(cuStreamEndCapture)(nonblocking, &graph));
    row("R663", "the unjoined stream afterwards", "%d", status_of(other_nonblocking));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(D(cuEventRecord)(event, nonblocking));
    OK(D(cuStreamWaitEvent)(other_nonblocking, event, 0));
    OK(launch_store(other_nonblocking, device_of(seen), 1, 0));
    row("R669", "end of a capture with an unjoined stream, nothing else wrong", "code %d",
        D(cuStreamEndCapture)(nonblocking, &graph));
    for (int join = 1; join >= 0; join--) {
        CUstream branch;
        OK(D(cuStreamCreate)(&branch, CU_STREAM_NON_BLOCKING));
        OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(D(cuEventRecord)(event, nonblocking));
        OK(D(cuStreamWaitEvent)(branch, event, 0));
        OK(launch_store(branch, device_of(seen), 1, 0));
        OK(D(cuEventRecord)(event, branch));
        if (join)
            OK(D(cuStreamWaitEvent)(nonblocking, event, 0));
        OK(D(cuStreamDestroy)(branch));
        row(join ? "R670" : "R671",
            join ? "end of a capture whose other stream joined and was destroyed"
                 : "end of a capture whose other stream was destroyed unjoined",
            "code %d", D(cuStreamEndCapture)(nonblocking, &graph));
    }
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    second = D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    row("R664", "a second begin on the stream", "code %d, end %d", second,
        D(cuStreamEndCapture)(nonblocking, &graph));
    p = managed_memory(1 << 20);
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemPrefetchAsync)(p, 1 << 20, here, 0, nonblocking);
    row("R665", "cuMemPrefetchAsync in a capture", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemAllocAsync)(&p, 4096, nonblocking);
    row("R667", "cuMemAllocAsync on the capturing stream", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    row("R668", "address range of a graph's memory before its launch", "code %d",
        D(cuMemGetAddressRange)(NULL, &(size_t){0}, p));
}

void group_capture_frees(void)
{
    CUgraph graph;
    CUdeviceptr p;
    CUresult code, second;

    open_device();
    p = pool_memory(4096);
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemFreeAsync)(p, nonblocking);
    row("R666", "cuMemFreeAsync in a capture of memory from before it", "code %d, end %d", code,
        D(cuStreamEndCapture)(nonblocking, &graph));
    p = device_memory(4096);
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemFreeAsync)(p, nonblocking);
    second = D(cuMemFreeAsync)(p + 256, nonblocking);
    row("R672", "cuMemFreeAsync in a capture of cuMemAlloc memory from before it, and inside it",
        "codes %d %d, end %d", code, second, D(cuStreamEndCapture)(nonblocking, &graph));
    p = managed_memory(4096);
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    code = D(cuMemFreeAsync)(p, nonblocking);
    row("R673", "cuMemFreeAsync in a capture of managed memory from before it", "code %d, end %d",
        code, D(cuStreamEndCapture)(nonblocking, &graph));
}

static void *leave_capturing(void *unused)
{
    (void)unused;
    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuStreamBeginCapture)(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    return NULL;
}

void group_capture_of_thread(void)
{
    pthread_t thread;
    CUdeviceptr p;

    open_device();
    alarm(10); /* a driver may never come back from the end of the thread */
    pthread_create(&thread, NULL, leave_capturing, NULL);
    pthread_join(thread, NULL);
    row("R677", "cuMemAlloc after the end of a thread whose own stream captured", "code %d",
        D(cuMemAlloc)(&p, 4096));
}
