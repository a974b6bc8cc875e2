/*
 * A capture in each of the three modes while a second thread allocates, computes and frees: the
 * codes of both, what became of the capture, the bytes of its replay and of the other thread.
 * With each mode the other thread comes twice: as threads are, and in relaxed mode. Then a stream
 * that takes part in a capture is destroyed before its end.
 */
#include "tests/gpu/check.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static const size_t n_words = 256 * KIB;
static const int n_steps = 12, n_turns = 4; /* of the capture; of the other thread in each step */

__global__ void add(unsigned *p, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        p[i] += value;
}

/* The two threads take turns, so that the order of all calls is the same in every run. */
struct turns {
    std::mutex lock;
    std::condition_variable changed;
    int whose = 0;

    void wait_for(int who)
    {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [&] { return whose == who; });
    }
    void pass_to(int who)
    {
        std::lock_guard<std::mutex> held(lock);
        whose = who;
        changed.notify_all();
    }
};

struct codes {
    std::map<std::string, int> counts; /* "call code" -> how often */

    cudaError_t operator()(const char *call, cudaError_t code)
    {
        counts[std::string(call) + " " + cudaGetErrorName(code)]++;
        (void)cudaGetLastError();
        return code;
    }
    void print(const char *whose) const
    {
        for (const auto &c : counts)
            printf("  %s: %s x%d\n", whose, c.first.c_str(), c.second);
    }
};

struct other {
    cudaStream_t stream;
    cudaEvent_t done;
    std::vector<unsigned> back;
    size_t n_wrong = 0;
    codes said;
};

/* Allocates, computes on a stream of its own, waits for an event, copies back and frees. */
static void turn(struct other *o, unsigned value)
{
    unsigned *p = NULL;
    if (o->said("malloc", cudaMalloc(&p, n_words * sizeof *p)))
        return;
    bool fine = !o->said("memset", cudaMemsetAsync(p, 0, n_words * sizeof *p, o->stream));
    add<<<64, 256, 0, o->stream>>>(p, n_words, value);
    fine = !o->said("launch", cudaGetLastError()) && fine;
    fine = !o->said("copy", cudaMemcpyAsync(o->back.data(), p, n_words * sizeof *p,
                                            cudaMemcpyDeviceToHost, o->stream)) &&
           fine;
    fine = !o->said("record", cudaEventRecord(o->done, o->stream)) && fine;
    fine = !o->said("wait", cudaEventSynchronize(o->done)) && fine;
    if (fine)
        o->n_wrong += count_wrong(o->back.data(), n_words, value);
    o->said("free", cudaFree(p));
}

static void scenario(cudaStreamCaptureMode mode, bool relaxed)
{
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    struct turns turns;
    struct other o;
    codes said;
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    unsigned *words;
    o.back.resize(n_words);
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&o.stream, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&o.done, cudaEventDisableTiming));
    OK(cudaMalloc(&words, n_words * sizeof *words));
    std::thread thread([&] {
        cudaStreamCaptureMode own = cudaStreamCaptureModeRelaxed;
        if (relaxed)
            OK(cudaThreadExchangeStreamCaptureMode(&own));
        for (int step = 0; step < n_steps; step++) {
            turns.wait_for(1);
            for (int i = 0; i < n_turns; i++)
                turn(&o, (unsigned)(step * n_turns + i + 1));
            turns.pass_to(0);
        }
    });
    OK(cudaStreamBeginCapture(s, mode));
    for (int step = 0; step < n_steps; step++) {
        add<<<64, 256, 0, s>>>(words, n_words, 1u << step);
        said("launch", cudaGetLastError());
        turns.pass_to(1);
        turns.wait_for(0);
    }
    cudaError_t end = said("end", cudaStreamEndCapture(s, &graph));
    thread.join();
    printf("%s, the other thread %s\n", modes[mode], relaxed ? "relaxed" : "as it is");
    said.print("capture");
    o.said.print("other");
    printf("  other: %zu wrong\n", o.n_wrong);
    if (end == cudaSuccess && graph) {
        cudaGraphExec_t exec;
        OK(cudaMemset(words, 0, n_words * sizeof *words));
        OK(cudaDeviceSynchronize());
        OK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++)
            OK(cudaGraphLaunch(exec, s));
        OK(cudaStreamSynchronize(s));
        OK(cudaMemcpy(o.back.data(), words, n_words * sizeof *words, cudaMemcpyDeviceToHost));
        printf("  replay: %zu wrong\n",
               count_wrong(o.back.data(), n_words, 3 * ((1u << n_steps) - 1)));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
    }
    OK(cudaFree(words));
    OK(cudaEventDestroy(o.done));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(o.stream));
}

/* A stream joins the capture and is destroyed before it ends; memory is freed and taken after that.
 */
static void joined_stream_goes(void)
{
    cudaStream_t s, joined;
    cudaEvent_t there, back;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned *words, *more, last;
    OK(cudaMalloc(&words, n_words * sizeof *words));
    OK(cudaMemset(words, 0, n_words * sizeof *words));
    OK(cudaMalloc(&more, n_words * sizeof *more));
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    OK(cudaStreamCreateWithFlags(&joined, cudaStreamNonBlocking));
    OK(cudaEventCreate(&there));
    OK(cudaEventCreate(&back));
    OK(cudaEventRecord(there, s));
    OK(cudaStreamWaitEvent(joined, there, 0));
    add<<<64, 256, 0, joined>>>(words, n_words, 7);
    OK(cudaEventRecord(back, joined));
    OK(cudaStreamWaitEvent(s, back, 0));
    printf("destroyed: %s\n", cudaGetErrorName(cudaStreamDestroy(joined)));
    printf("freed: %s\n", cudaGetErrorName(cudaFree(more)));
    printf("taken: %s\n", cudaGetErrorName(cudaMalloc(&more, n_words * sizeof *more)));
    printf("end: %s\n", cudaGetErrorName(cudaStreamEndCapture(s, &graph)));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(&last, words + n_words - 1, sizeof last, cudaMemcpyDeviceToHost));
    printf("replay: %u\n", last);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(s));
    OK(cudaFree(words));
    OK(cudaFree(more));
}

int main()
{
    const cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeRelaxed,
                                           cudaStreamCaptureModeThreadLocal,
                                           cudaStreamCaptureModeGlobal};
    unsigned *p;
    OK(cudaMalloc(&p, 4));
    add<<<1, 1>>>(p, 1, 1);
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
    for (cudaStreamCaptureMode mode : modes)
        for (int relaxed = 0; relaxed < 2; relaxed++)
            scenario(mode, relaxed);
    joined_stream_goes();
    return 0;
}
