/*
 * What else a cudaFree orders. Natively it returns after all earlier work of its context, so a
 * program may rely on it between streams that know nothing of each other, may ask events and
 * streams right after it, and may read what a host function wrote.
 *
 * `nobarrier` leaves the cudaFree out: every scenario must then be found broken, or it tests
 * nothing.
 */
#include "tests/gpu/check.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

static const unsigned old_value = 0x11111111u;
static const unsigned new_value = 0x22222222u;
static const unsigned long long late_ns = 100 * 1000 * 1000;
static const size_t n_words = 256 * KIB;
static const int n_iterations = 4;

static bool barrier = true;
static size_t n_wrong, n_checked;

static unsigned *X, *Z; /* written late; copied to */
static unsigned *Y;     /* what the cudaFree is about */

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static void prepare(int iteration)
{
    static const size_t bytes[] = {1 * MIB, 512, 64 * MIB, 100000};
    OK(cudaMalloc(&Y, bytes[iteration % 4]));
    late_write<<<FEW_BLOCKS, THREADS>>>(X, n_words, old_value, 0);
    OK(cudaMemset(Z, 0, n_words * sizeof *Z));
    OK(cudaDeviceSynchronize());
}

static void write_late(cudaStream_t stream)
{
    late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(X, n_words, new_value, late_ns);
    OK(cudaGetLastError());
}

static void free_other(void)
{
    if (barrier)
        OK(cudaFree(Y));
}

static void tidy(void)
{
    OK(cudaDeviceSynchronize());
    if (!barrier)
        OK(cudaFree(Y));
}

static void judge(const unsigned *device_words)
{
    std::vector<unsigned> back(n_words);
    OK(cudaMemcpy(back.data(), device_words, n_words * sizeof(unsigned), cudaMemcpyDeviceToHost));
    n_wrong += count_wrong(back.data(), n_words, new_value);
    n_checked += n_words;
}

static void copy_on(cudaStream_t stream)
{
    copy_words<<<FEW_BLOCKS, THREADS, 0, stream>>>(Z, X, n_words);
    OK(cudaGetLastError());
}

/* Runs `read` after the free in every iteration and looks at Z. */
static void cross(cudaStream_t writer, const std::function<void(void)> &read)
{
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        prepare(iteration);
        write_late(writer);
        free_other();
        read();
        OK(cudaDeviceSynchronize());
        judge(Z);
        tidy();
    }
}

static void cross_nonblocking(void)
{
    cudaStream_t t = new_stream(cudaStreamNonBlocking);
    cross(new_stream(cudaStreamNonBlocking), [=] { copy_on(t); });
}

static void cross_blocking(void)
{
    cudaStream_t t = new_stream(cudaStreamDefault);
    cross(new_stream(cudaStreamDefault), [=] { copy_on(t); });
}

static void cross_priority(void)
{
    int least, greatest;
    cudaStream_t t;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&t, cudaStreamNonBlocking, greatest));
    cross(new_stream(cudaStreamDefault), [=] { copy_on(t); });
}

static void cross_copy_engine(void)
{
    cudaStream_t t = new_stream(cudaStreamNonBlocking);
    cross(new_stream(cudaStreamNonBlocking),
          [=] { OK(cudaMemcpyAsync(Z, X, n_words * sizeof *X, cudaMemcpyDeviceToDevice, t)); });
}

static void cross_late_stream(void)
{
    cross(new_stream(cudaStreamDefault), [] { copy_on(new_stream(cudaStreamDefault)); });
}

static void cross_late_nonblocking(void)
{
    cross(new_stream(cudaStreamDefault), [] { copy_on(new_stream(cudaStreamNonBlocking)); });
}

/* The writer's stream is destroyed, which does not wait for its work. */
static void cross_destroyed(void)
{
    cudaStream_t t = new_stream(cudaStreamNonBlocking);
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        cudaStream_t s = new_stream(iteration % 2 ? cudaStreamNonBlocking : cudaStreamDefault);
        prepare(iteration);
        write_late(s);
        OK(cudaStreamDestroy(s));
        free_other();
        copy_on(t);
        OK(cudaDeviceSynchronize());
        judge(Z);
        tidy();
    }
}

static void cross_graph(void)
{
    cudaStream_t t = new_stream(cudaStreamNonBlocking);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(t, cudaStreamCaptureModeThreadLocal));
    copy_on(t);
    OK(cudaStreamEndCapture(t, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, t)); /* uploaded before it matters */
    OK(cudaDeviceSynchronize());
    cross(new_stream(cudaStreamNonBlocking), [=] { OK(cudaGraphLaunch(exec, t)); });
}

/* The free and what follows it happen on another host thread than the launch. */
static void cross_thread(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking), t = new_stream(cudaStreamNonBlocking);
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        prepare(iteration);
        write_late(s);
        std::thread other([=] {
            free_other();
            copy_on(t);
        });
        other.join();
        OK(cudaDeviceSynchronize());
        judge(Z);
        tidy();
    }
}

/* Both streams are default streams of their threads; the free happens between the two. */
static void cross_per_thread(void)
{
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        prepare(iteration);
        write_late(cudaStreamPerThread);
        free_other();
        std::thread other([] { copy_on(cudaStreamPerThread); });
        other.join();
        OK(cudaDeviceSynchronize());
        judge(Z);
        tidy();
    }
}

/* The same beside a non-blocking stream, which takes another barrier. The other thread ends while
 * its stream still waits: the driver must not be led into waiting for ever then. */
static void cross_per_thread_mixed(void)
{
    (void)new_stream(cudaStreamNonBlocking);
    cross_per_thread();
}

static void cross_legacy_copy(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        prepare(iteration);
        write_late(s);
        free_other();
        judge(X); /* a cudaMemcpy on the legacy stream, which the writer does not wait for */
        tidy();
    }
}

/* Forgets a NOT_READY that the runtime may have kept as its last error. */
static void note(bool right)
{
    (void)cudaGetLastError();
    n_wrong += !right;
    n_checked++;
}

static void query_event(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking), t = new_stream(cudaStreamDefault);
    cudaEvent_t timed, plain;
    OK(cudaEventCreate(&timed));
    OK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        prepare(iteration);
        write_late(iteration % 2 ? s : t);
        OK(cudaEventRecord(timed, iteration % 2 ? s : t));
        OK(cudaEventRecord(plain, iteration % 2 ? s : t));
        free_other();
        cudaError_t first = cudaEventQuery(timed);
        note(first == cudaSuccess && cudaEventQuery(plain) == cudaSuccess);
        tidy();
    }
}

static void query_stream(void)
{
    cudaStream_t streams[] = {new_stream(cudaStreamDefault), new_stream(cudaStreamNonBlocking),
                              cudaStreamPerThread, cudaStreamLegacy};
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        prepare(iteration);
        write_late(streams[iteration % 4]);
        free_other();
        note(cudaStreamQuery(streams[iteration % 4]) == cudaSuccess);
        tidy();
    }
}

static void query_elapsed(void)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaEvent_t from, to;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        float ms = 0;
        prepare(iteration);
        OK(cudaEventRecord(from, s));
        write_late(s);
        OK(cudaEventRecord(to, s));
        free_other();
        note(cudaEventElapsedTime(&ms, from, to) == cudaSuccess && ms > 1e-6f * late_ns * 0.9f);
        tidy();
    }
}

/* Plain memory on purpose: the program relies on cudaFree alone. */
static volatile int host_flag;

static void CUDART_CB set_flag(void *value)
{
    host_flag = *(int *)value;
}

static void CUDART_CB set_flag_after(cudaStream_t stream, cudaError_t status, void *value)
{
    (void)stream;
    (void)status;
    host_flag = *(int *)value;
}

static void host_function(bool callback)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    for (int iteration = 0; iteration < n_iterations; iteration++) {
        static int values[n_iterations];
        values[iteration] = iteration + 1;
        prepare(iteration);
        write_late(s);
        if (callback)
            OK(cudaStreamAddCallback(s, set_flag_after, &values[iteration], 0));
        else
            OK(cudaLaunchHostFunc(s, set_flag, &values[iteration]));
        free_other();
        note(host_flag == iteration + 1);
        tidy();
    }
}

static void host_func(void)
{
    host_function(false);
}

static void stream_callback(void)
{
    host_function(true);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {
        {"cross-nonblocking", cross_nonblocking},
        {"cross-blocking", cross_blocking},
        {"cross-priority", cross_priority},
        {"cross-copy", cross_copy_engine},
        {"cross-late-stream", cross_late_stream},
        {"cross-late-nonblocking", cross_late_nonblocking},
        {"cross-destroyed", cross_destroyed},
        {"cross-graph", cross_graph},
        {"cross-thread", cross_thread},
        {"cross-per-thread", cross_per_thread},
        {"cross-per-thread-mixed", cross_per_thread_mixed},
        {"cross-legacy-copy", cross_legacy_copy},
        {"query-event", query_event},
        {"query-stream", query_stream},
        {"query-elapsed", query_elapsed},
        {"host-function", host_func},
        {"stream-callback", stream_callback},
    };
    const char *wanted = argc > 1 ? argv[1] : "";
    barrier = !(argc > 2 && !strcmp(argv[2], "nobarrier"));
    for (auto &s : scenarios) {
        if (strcmp(s.name, wanted))
            continue;
        warm_up_kernels();
        OK(cudaMalloc(&X, n_words * sizeof *X));
        OK(cudaMalloc(&Z, n_words * sizeof *Z));
        s.run();
        printf("%zu of %zu wrong\n", n_wrong, n_checked);
        return n_wrong ? EXIT_BROKEN : 0;
    }
    fprintf(stderr, "usage: order SCENARIO [nobarrier]\n");
    return EXIT_UNUSABLE;
}
