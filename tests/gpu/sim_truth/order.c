/* order.c: what runs behind what: streams, events, barriers, sources of copies (R500 to R599). */
#include "tests/gpu/sim_truth/truth.h"

/* Is the second stream's work behind the first one's? Tells before anybody has waited for both. */
static bool behind(CUstream first, CUstream then, void (*between)(CUstream, CUstream))
{
    *flag = *seen = 0;
    OK(launch_store(first, device_of(flag), 1, SPIN_NS));
    if (between)
        between(first, then);
    OK(launch_load(then, device_of(seen), device_of(flag)));
    CUevent event;
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    OK(D(cuEventRecord)(event, then));
    OK(D(cuEventSynchronize)(event));
    bool answer = *seen != 0;
    OK(D(cuEventDestroy)(event));
    synchronize();
    return answer;
}

void group_order(void)
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
    OK(D(cuEventRecord)(between_event, first));
    OK(D(cuStreamWaitEvent)(then, between_event, 0));
}

static void by_legacy_record(CUstream first, CUstream then)
{
    (void)first;
    (void)then;
    OK(D(cuEventRecord)(between_event, NULL));
}

static void by_context(CUstream first, CUstream then)
{
    (void)first;
    (void)then;
    OK(D(cuCtxRecordEvent)(context, between_event));
    OK(D(cuCtxWaitEvent)(context, between_event));
}

static void by_context_record_only(CUstream first, CUstream then)
{
    (void)first;
    (void)then;
    OK(D(cuCtxRecordEvent)(context, between_event));
}

static void by_context_and_stream(CUstream first, CUstream then)
{
    (void)first;
    OK(D(cuCtxRecordEvent)(context, between_event));
    OK(D(cuStreamWaitEvent)(then, between_event, 0));
}

void group_barriers(void)
{
    CUstream fresh;

    open_device();
    OK(D(cuEventCreate)(&between_event, CU_EVENT_DISABLE_TIMING));
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
    OK(launch_store(nonblocking, device_of(flag), 1, SPIN_NS));
    by_context(NULL, NULL);
    OK(D(cuStreamCreate)(&fresh, CU_STREAM_NON_BLOCKING));
    OK(launch_load(fresh, device_of(seen), device_of(flag)));
    OK(D(cuStreamSynchronize)(fresh));
    row("R528", "cuCtxWaitEvent holds streams made later", "%s", yes_no(*seen));
    synchronize();
    /* A stream destroyed with work in it. */
    *flag = *seen = 0;
    OK(launch_store(fresh, device_of(flag), 1, SPIN_NS));
    OK(D(cuStreamDestroy)(fresh));
    by_context(NULL, NULL);
    OK(launch_load(nonblocking, device_of(seen), device_of(flag)));
    OK(D(cuStreamSynchronize)(nonblocking));
    row("R529", "cuCtxRecordEvent covers a destroyed stream", "%s", yes_no(*seen));
    synchronize();
    OK(D(cuStreamCreate)(&fresh, CU_STREAM_DEFAULT));
    *flag = *seen = 0;
    OK(launch_store(fresh, device_of(flag), 1, SPIN_NS));
    OK(D(cuStreamDestroy)(fresh));
    OK(launch_load(NULL, device_of(seen), device_of(flag)));
    OK(D(cuStreamSynchronize)(NULL));
    row("R530", "the legacy stream waits for a destroyed blocking stream", "%s", yes_no(*seen));
    synchronize();
}

/* When are the bytes of a copy's source taken? */
void group_sources(void)
{
    static uint32_t plain[16];
    CUdeviceptr p;

    open_device();
    p = device_memory(64);
    arm(nonblocking);
    plain[0] = 1;
    OK(D(cuMemcpyHtoDAsync)(p, plain, 4, nonblocking));
    plain[0] = 2;
    synchronize();
    row("R540", "pageable source of an async copy behind work", "read %s",
        word_at(p) == 1 ? "at the call" : "when the copy runs");
    arm(nonblocking);
    flag[64] = 1;
    OK(D(cuMemcpyHtoDAsync)(p, (void *)(flag + 64), 4, nonblocking));
    flag[64] = 2;
    synchronize();
    row("R541", "pinned source of an async copy behind work", "read %s",
        word_at(p) == 1 ? "at the call" : "when the copy runs");
    CUgraph graph;
    CUgraphExec exec;
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    plain[0] = 3;
    OK(D(cuMemcpyHtoDAsync)(p, plain, 4, nonblocking));
    OK(D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    plain[0] = 4;
    OK(D(cuGraphLaunch)(exec, nonblocking));
    synchronize();
    row("R542", "pageable source of a captured copy", "read %s",
        word_at(p) == 3 ? "at the capture" : "at the launch");
    OK(D(cuStreamBeginCapture)(nonblocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(D(cuMemcpyDtoHAsync)(plain, p, 4, nonblocking));
    OK(D(cuStreamEndCapture)(nonblocking, &graph));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    WAITS("R543", "launch of a graph that copies to pageable memory", nonblocking,
          D(cuGraphLaunch)(exec, nonblocking));
}

static CUresult inside_codes[3];

static void inside(void *event)
{
    CUdeviceptr p;

    inside_codes[0] = D(cuStreamQuery)(nonblocking);
    inside_codes[1] = D(cuEventQuery)(event);
    inside_codes[2] = D(cuMemAlloc)(&p, 4096);
}

void group_host_functions(void)
{
    CUevent event;

    open_device();
    OK(D(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    WAITS("R550", "cuLaunchHostFunc", nonblocking, D(cuLaunchHostFunc)(nonblocking, inside, event));
    row("R551", "cuStreamQuery of the stream inside a host function", "code %d", inside_codes[0]);
    row("R552", "cuLaunchHostFunc of NULL", "code %d",
        D(cuLaunchHostFunc)(nonblocking, NULL, NULL));
    row("R553", "cuEventQuery inside a host function", "code %d", inside_codes[1]);
    row("R554", "cuMemAlloc inside a host function", "code %d", inside_codes[2]);
}

void group_event_codes(void)
{
    CUevent start, end, plain;
    CUcontext second;
    CUstream foreign;
    float ms;

    open_device();
    OK(D(cuEventCreate)(&start, CU_EVENT_DEFAULT));
    OK(D(cuEventCreate)(&end, CU_EVENT_DEFAULT));
    OK(D(cuEventCreate)(&plain, CU_EVENT_DISABLE_TIMING));
    row("R560", "elapsed time of events never recorded", "code %d",
        D(cuEventElapsedTime)(&ms, start, end));
    OK(D(cuEventRecord)(start, nonblocking));
    arm(nonblocking);
    OK(D(cuEventRecord)(end, nonblocking));
    row("R561", "elapsed time of work under way", "code %d",
        D(cuEventElapsedTime)(&ms, start, end));
    synchronize();
    row("R562", "elapsed time of finished work is positive", "%s",
        yes_no(D(cuEventElapsedTime)(&ms, start, end) == CUDA_SUCCESS && ms > 0));
    OK(D(cuEventRecord)(plain, nonblocking));
    synchronize();
    row("R563", "elapsed time to an event without timing", "code %d",
        D(cuEventElapsedTime)(&ms, start, plain));
    row("R564", "cuEventCreate, interprocess with timing", "code %d",
        D(cuEventCreate)(&end, CU_EVENT_INTERPROCESS));
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    OK(D(cuStreamCreate)(&foreign, CU_STREAM_NON_BLOCKING));
    OK(D(cuCtxSetCurrent)(context));
    row("R565", "cuEventRecord on a stream of another context", "code %d",
        D(cuEventRecord)(plain, foreign));
    row("R566", "cuStreamWaitEvent across contexts", "code %d",
        D(cuStreamWaitEvent)(foreign, plain, 0));
    row("R567", "cuStreamWaitEvent for an event never recorded", "code %d", ({
            CUevent never;
            OK(D(cuEventCreate)(&never, CU_EVENT_DISABLE_TIMING));
            D(cuStreamWaitEvent)(nonblocking, never, 0);
        }));
}
