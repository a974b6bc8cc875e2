/*
 * How long loops of launches take, as `name value` lines; lines that begin with `word` are what the
 * loops computed.
 * - loops N...: N dependent tiny kernels an iteration, and captured by hand as a graph
 * - learn: short loops of these, learning included: past the library, by hand, and replayed, on new
 *   streams in turns; some with 13 sets of parameters. learn once: one turn of each; learn
 *   replayed: nothing else
 * - first: the first graph of a process, and the second
 * - many: one kernel 100,000 times, of under 2 us, and of 20 us
 * - fork: fork and join over four streams
 * - copies: pageable host memory copied each iteration and overwritten right after the call, and
 * the same by the driver's own functions
 * - random: launches that never repeat, and the same by the driver's own function
 * - build: each launch on its own while graphs are built, one after another
 * - withhold: one launch in the middle of an iteration of 1000
 * - polling: a host thread waits for mapped memory that a kernel writes, and calls nothing
 */
#include "tests/gpu/own.h"
#include "tests/gpu/replay/graph.h"

#include <string>

static cudaStream_t stream;
static unsigned *words; /* 1 MiB */

/*
 * The word of the i-th launch of a loop. Some words are nearer to a multiprocessor than others: a
 * chain of kernels on one word takes 720 to 850 ns a kernel, depending on where it lies, and that
 * is another place in each process. A loop that touches many words takes the same time everywhere.
 * What orders its kernels is the stream.
 */
static unsigned *word_of(int i)
{
    const unsigned n_slots = 2048;
    return words + i * 1021u % n_slots * (MIB / sizeof *words / n_slots);
}

/* The first kernel of an iteration, as a program's iterations begin with something of their own. */
__global__ void first(unsigned *w, unsigned a, unsigned b)
{
    w[0] = (w[0] ^ a) * 16777619u + b + 1;
}

static void figure(const char *name, int n, const char *unit, double value)
{
    printf("%s_%d_%s %.3f\n", name, n, unit, value);
    fflush(stdout);
}

/* One number of all words, which are then zero again. */
static void say_word(const char *name, int n)
{
    static unsigned all[MIB / sizeof(unsigned)];
    unsigned folded = 0;
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(all, words, MIB, cudaMemcpyDeviceToHost));
    for (unsigned word : all)
        folded = (folded ^ word) * 16777619u + 1;
    printf("word %s_%d %08x\n", name, n, folded);
    OK(cudaMemset(words, 0, MIB));
    OK(cudaDeviceSynchronize());
}

/* ---- loops ---- */

/* On the words at `offset` in their places. */
static void iteration(int n, int offset, unsigned a, unsigned b)
{
    first<<<1, 1, 0, stream>>>(word_of(0) + offset, a, b);
    for (int i = 1; i < n; i++)
        chain<<<1, 1, 0, stream>>>(word_of(i) + offset, a, b + i);
}

/* Median of an iteration that is waited for, after some that are not counted. */
template <class F> static double waited_us(int n_iterations, F run)
{
    for (int i = 0; i < n_iterations / 3; i++) {
        run(i);
        OK(cudaStreamSynchronize(stream));
    }
    int i = n_iterations;
    return median_us(n_iterations, [&] {
        run(i++);
        OK(cudaStreamSynchronize(stream));
    });
}

/* Medians of the iterations of both, twenty of one and twenty of the other in turn, so that a host
 * that is slower for a while is so for both. The first two of each turn are not counted. */
template <class F, class G>
static void waited_in_turns_us(int n_iterations, F one, G other, double *ret_one, double *ret_other)
{
    const int turn = 20, n_warm = 2 * turn * (n_iterations / 3 / turn);
    std::vector<double> us[2];
    for (int i = 0; i < n_warm + 2 * n_iterations; i++) {
        bool is_one = i / turn % 2 == 0;
        double start = now_s();
        if (is_one)
            one();
        else
            other();
        if (i >= n_warm && i % turn >= 2)
            us[is_one ? 0 : 1].push_back(1e6 * (now_s() - start));
    }
    *ret_one = median(us[0]);
    *ret_other = median(us[1]);
}

/* Median of an iteration in batches that are waited for at their end only. */
template <class F> static double unwaited_us(int n_iterations, F run)
{
    const int batch = 20;
    int i = 0;
    for (; i < 2 * batch; i++)
        run(i);
    OK(cudaStreamSynchronize(stream));
    return median_us(n_iterations / batch,
                     [&] {
                         for (int k = 0; k < batch; k++)
                             run(i++);
                         OK(cudaStreamSynchronize(stream));
                     }) /
           batch;
}

static void loops(int n)
{
    int n_iterations = std::max(90, std::min(400, 120000 / n)),
        n_unwaited = std::max(160, std::min(2000, 160000 / n));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t by_hand;
    OK(cudaStreamCreateWithFlags(&by_hand, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    iteration(n, 0, 1, 2);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphUpload(exec, by_hand));
    OK(cudaStreamSynchronize(by_hand));
    double hand, same;
    waited_in_turns_us(
        n_iterations,
        [&] {
            OK(cudaGraphLaunch(exec, by_hand));
            OK(cudaStreamSynchronize(by_hand));
        },
        [&] {
            iteration(n, 0, 1, 2);
            OK(cudaStreamSynchronize(stream));
        },
        &hand, &same);
    figure("hand", n, "us", hand);
    figure("same", n, "us", same);
    figure("same_to_hand", n, "times", same / hand);
    say_word("same", n);
    figure("changing", n, "us", waited_us(n_iterations, [&](int i) { iteration(n, 0, i, 3 * i); }));
    say_word("changing", n);
    figure("period_2", n, "us", waited_us(n_iterations, [&](int i) { iteration(n, i % 2, 1, 2); }));
    say_word("period_2", n);
    figure("unwaited_hand", n, "us",
           unwaited_us(n_unwaited, [&](int) { OK(cudaGraphLaunch(exec, stream)); }));
    say_word("unwaited_hand", n);
    figure("unwaited", n, "us", unwaited_us(n_unwaited, [&](int) { iteration(n, 0, 1, 2); }));
    say_word("unwaited", n);
    figure("unwaited_changing", n, "us",
           unwaited_us(n_unwaited, [&](int i) { iteration(n, 0, i, i); }));
    say_word("unwaited_changing", n);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(by_hand));
}

/* ---- learning included ---- */

struct learnt {
    int n, iterations, sets; /* sets: of parameters, in turns; 1: always the same */
    int turns;               /* of all ways; the medians are told */
};

/* us an iteration, after the first five, of a loop on a stream of its own. */
template <class F> static double learning_us(const struct learnt &loop, F run)
{
    cudaStream_t fresh;
    double start = 0;
    OK(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking));
    for (int i = 0; i < 5 + loop.iterations; i++) {
        if (i == 5)
            start = now_s();
        run(fresh, i);
        OK(cudaStreamSynchronize(fresh));
    }
    double us = 1e6 * (now_s() - start) / loop.iterations;
    OK(cudaStreamDestroy(fresh));
    return us;
}

static void launch_set(decltype(&cuLaunchKernel) launch, CUstream s, const struct learnt &loop,
                       int i)
{
    static CUfunction function = function_of((const void *)chain);
    unsigned a = i % loop.sets, b = 3 * a;
    void *params[] = {&words, &a, &b};
    for (int k = 0; k < loop.n; k++)
        OK(launch(function, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

/* Of the first set only. */
static cudaGraphExec_t captured(const struct learnt &loop)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    launch_set(cuLaunchKernel, stream, loop, 0);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

struct way {
    const char *name;
    std::vector<double> us;
    unsigned word; /* what the loop computed, the same each time */
};

template <class F> static void learn_way(struct way *way, const struct learnt &loop, F run)
{
    unsigned word;
    way->us.push_back(learning_us(loop, run));
    OK(cudaMemcpy(&word, words, sizeof word, cudaMemcpyDeviceToHost));
    OK(cudaMemset(words, 0, sizeof word));
    OK(cudaDeviceSynchronize());
    OK(way->us.size() > 1 && word != way->word);
    way->word = word;
}

static void say_way(const struct way &way, const struct learnt &loop)
{
    char name[64];
    snprintf(name, sizeof name, "learn_%s_%dx%d", way.name, loop.sets, loop.iterations);
    figure(name, loop.n, "us", median(way.us));
    printf("word %s_%d %08x\n", name, loop.n, way.word);
}

static void learn_replayed(const struct learnt &loop, struct way *replayed)
{
    learn_way(replayed, loop,
              [&](cudaStream_t s, int i) { launch_set(cuLaunchKernel, (CUstream)s, loop, i); });
}

static void learn_one(const struct learnt &loop, decltype(&cuLaunchKernel) own)
{
    struct way native = {"native"}, hand = {"hand"}, replayed = {"replayed"};
    struct learnt short_one = loop; /* natively, an iteration always takes the same */
    std::vector<double> ratios;
    cudaGraphExec_t exec = captured(loop);
    char name[64];
    short_one.iterations = std::min(loop.iterations, std::max(100000 / loop.n, 50));
    learn_way(&native, short_one,
              [&](cudaStream_t s, int i) { launch_set(own, (CUstream)s, loop, i); });
    for (int turn = 0; turn < loop.turns; turn++) {
        learn_way(&hand, loop, [&](cudaStream_t s, int) { OK(cudaGraphLaunch(exec, s)); });
        learn_replayed(loop, &replayed);
        ratios.push_back(replayed.us.back() / hand.us.back());
    }
    OK(cudaGraphExecDestroy(exec));
    say_way(native, loop);
    say_way(hand, loop);
    say_way(replayed, loop);
    snprintf(name, sizeof name, "learn_to_hand_%dx%d", loop.sets, loop.iterations);
    figure(name, loop.n, "times", median(ratios));
}

static void learn(const std::string &how)
{
    static const struct learnt loops[] = {
        {1000, 40, 1, 3},  {200, 50, 1, 3},    {20, 200, 1, 3},    {1000, 400, 1, 3},
        {200, 2000, 1, 3}, {20, 5000, 1, 3},   {1000, 40, 13, 3},  {200, 50, 13, 3},
        {20, 200, 13, 3},  {1000, 400, 13, 1}, {200, 2000, 13, 1}, {20, 5000, 13, 1}};
    auto own = (decltype(&cuLaunchKernel))own_function("libcuda.so.1", "cuLaunchKernel");
    OK(!own);
    for (struct learnt loop : loops) {
        struct way replayed = {"replayed"};
        if (how == "once")
            loop.turns = 1;
        if (how != "replayed") {
            learn_one(loop, own);
            continue;
        }
        for (int turn = 0; turn < loop.turns; turn++)
            learn_replayed(loop, &replayed);
        say_way(replayed, loop);
    }
}

/* What the driver takes for a graph of one kernel, from its capture to the end of its launch. */
static void first_graph(void)
{
    const struct learnt loop = {20, 1, 1, 1};
    for (int i = 0; i < 3; i++) {
        double start = now_s();
        cudaGraphExec_t exec = captured(loop);
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        figure(i ? "later_graph" : "first_graph", i, "us", 1e6 * (now_s() - start));
        OK(cudaGraphExecDestroy(exec));
    }
    say_word("first_graph", 3);
}

/* ---- one kernel, again and again ---- */

template <class F> static double each_us(cudaStream_t s, int n, F launch)
{
    for (int i = 0; i < n / 20; i++)
        launch(i);
    OK(cudaStreamSynchronize(s));
    double start = now_s();
    for (int i = 0; i < n; i++)
        launch(i);
    OK(cudaStreamSynchronize(s));
    return 1e6 * (now_s() - start) / n;
}

/* The same launch again and again has one word only. */
static void many(void)
{
    const int n = 100000, n_long = 8000;
    figure("many_same", n, "us",
           each_us(stream, n, [](int) { chain<<<1, 1, 0, stream>>>(words, 1, 2); }));
    say_word("many_same", n);
    figure("many_counting", n, "us",
           each_us(stream, n, [](int i) { chain<<<1, 1, 0, stream>>>(word_of(i), i, i >> 4); }));
    say_word("many_counting", n);
    figure("many_20us", n_long, "us", each_us(stream, n_long, [](int i) {
               slow<<<1, 1, 0, stream>>>(word_of(i), i, 20 * 1000);
           }));
    say_word("many_20us", n_long);
    figure("many_20us_legacy", n_long, "us", each_us(cudaStreamLegacy, n_long, [](int i) {
               slow<<<1, 1>>>(word_of(i), i, 20 * 1000);
           }));
    say_word("many_20us_legacy", n_long);
}

/* ---- fork and join ---- */

/* `recorded(k)`: an event was recorded on stream k. */
template <class F>
static void fork_iteration(cudaStream_t *s, cudaEvent_t *joined, cudaEvent_t forked, int iteration,
                           F recorded)
{
    OK(cudaEventRecord(forked, s[0]));
    recorded(0);
    for (int k = 0; k < 4; k++) {
        if (k)
            OK(cudaStreamWaitEvent(s[k], forked, 0));
        for (int i = 0; i < 32; i++)
            chain<<<1, 1, 0, s[k]>>>(word_of(4 * i + k), i, iteration); /* of no other stream */
        if (k) {
            OK(cudaEventRecord(joined[k], s[k]));
            recorded(k);
        }
    }
    for (int k = 1; k < 4; k++)
        OK(cudaStreamWaitEvent(s[0], joined[k], 0));
    for (int i = 0; i < 8; i++)
        chain<<<1, 1, 0, s[0]>>>(word_of(i), i, iteration);
}

/* The iteration as one graph, which is the least that one could take: with its branches alone; and
 * with a node for each event, for whom the program asks later, and the waits that keep later work
 * of the other streams behind their branches. */
static void fork_by_hand(cudaStream_t *s, cudaEvent_t *joined, cudaEvent_t forked,
                         bool keeps_events)
{
    const char *name = keeps_events ? "hand_fork_events" : "hand_fork";
    cudaEvent_t seen[4];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int k = 0; k < 4; k++)
        OK(cudaEventCreateWithFlags(&seen[k], cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeRelaxed));
    fork_iteration(s, joined, forked, 1, [&](int k) {
        if (keeps_events)
            OK(cudaEventRecordWithFlags(seen[k], s[k], cudaEventRecordExternal));
    });
    for (int k = 1; k < 4 && keeps_events; k++) { /* nor may these be left out of the graph */
        OK(cudaEventRecord(joined[k], s[k]));
        OK(cudaStreamWaitEvent(s[0], joined[k], 0));
    }
    OK(cudaStreamEndCapture(s[0], &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    auto launch = [&](int) {
        OK(cudaGraphLaunch(exec, s[0]));
        for (int k = 1; k < 4 && keeps_events; k++)
            OK(cudaStreamWaitEvent(s[k], seen[k], 0));
    };
    figure(name, 4, "us", waited_us(600, launch));
    say_word(name, 4);
    figure((std::string("unwaited_") + name).c_str(), 4, "us", unwaited_us(600, launch));
    OK(cudaDeviceSynchronize());
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    for (int k = 0; k < 4; k++)
        OK(cudaEventDestroy(seen[k]));
}

static void fork_and_join(void)
{
    cudaStream_t s[4];
    cudaEvent_t forked, joined[4];
    auto nothing = [](int) {};
    OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    for (int k = 0; k < 4; k++) {
        OK(cudaStreamCreateWithFlags(&s[k], cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&joined[k], cudaEventDisableTiming));
    }
    std::swap(stream, s[0]);
    s[0] = stream;
    figure("fork", 4, "us",
           waited_us(600, [&](int i) { fork_iteration(s, joined, forked, i, nothing); }));
    say_word("fork", 4);
    figure("unwaited_fork", 4, "us",
           unwaited_us(600, [&](int i) { fork_iteration(s, joined, forked, i, nothing); }));
    say_word("unwaited_fork", 4);
    fork_by_hand(s, joined, forked, false);
    fork_by_hand(s, joined, forked, true);
}

/* ---- copies ---- */

__global__ void fold(unsigned *to, const unsigned *from, unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        sum += from[i] * (2 * i + 1);
    atomicAdd(to, sum);
}

/* The calls of an iteration: the library's, in the marked stream, or the driver's own, in one of
 * which the library hears nothing. */
struct calls {
    CUstream stream;
    decltype(&cuLaunchKernel) launch;
    decltype(&cuMemcpyHtoDAsync) copy;
};

static struct calls marked_calls(void)
{
    return {stream, cuLaunchKernel, cuMemcpyHtoDAsync};
}

static struct calls own_calls(void)
{
    struct calls calls = {};
    calls.launch = (decltype(calls.launch))own_function("libcuda.so.1", "cuLaunchKernel");
    calls.copy = (decltype(calls.copy))own_function("libcuda.so.1", "cuMemcpyHtoDAsync_v2");
    OK(!calls.launch || !calls.copy);
    OK(cudaStreamCreateWithFlags(&calls.stream, cudaStreamNonBlocking));
    return calls;
}

static void copies(void)
{
    struct calls marked = marked_calls(), own = own_calls();
    CUfunction folds = function_of((const void *)fold), chains = function_of((const void *)chain);
    for (size_t bytes : {4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB}) {
        unsigned *host = (unsigned *)malloc(bytes), *device, size = (unsigned)(bytes / 4);
        int n = (int)(bytes / KIB), i = 0;
        double by_own, replayed;
        memset(host, 0, bytes);
        OK(cudaMalloc(&device, bytes));
        auto iteration = [&](const struct calls &by) {
            void *fold_params[] = {&words, &device, &size};
            host[0] = ++i;
            host[size - 1] = ~i;
            OK(by.copy((CUdeviceptr)device, host, bytes, by.stream));
            host[0] = host[size - 1] = 0xdead;
            OK(by.launch(folds, 1, 1, 1, 256, 1, 1, 0, by.stream, fold_params, NULL));
            for (int k = 0; k < 30; k++) {
                unsigned *word = word_of(k);
                void *params[] = {&word, &k, &i};
                OK(by.launch(chains, 1, 1, 1, 1, 1, 1, 0, by.stream, params, NULL));
            }
        };
        auto waited = [&](const struct calls &by) {
            iteration(by);
            OK(cudaStreamSynchronize(by.stream));
        };
        waited_in_turns_us(400, [&] { waited(own); }, [&] { waited(marked); }, &by_own, &replayed);
        figure("copy_kib", n, "us", replayed);
        figure("copy_own_kib", n, "us", by_own);
        figure("copy_to_own_kib", n, "times", replayed / by_own);
        say_word("copy_kib", n);
        figure("unwaited_copy_kib", n, "us", unwaited_us(200, [&](int) { iteration(marked); }));
        say_word("unwaited_copy_kib", n);
        OK(cudaFree(device));
        free(host);
    }
}

/* ---- what never repeats ---- */

template <int K> __global__ void variant(unsigned *w, unsigned a, unsigned b)
{
    w[0] = (w[0] ^ (a + K)) * 16777619u + b;
}

typedef void (*kernel_fn)(unsigned *, unsigned, unsigned);
template <int... K> static std::vector<kernel_fn> variants(std::integer_sequence<int, K...>)
{
    return {variant<K>...};
}

static std::vector<kernel_fn> loaded_variants(void)
{
    auto kernels = variants(std::make_integer_sequence<int, 64>());
    for (auto kernel : kernels)
        kernel<<<1, 1, 0, stream>>>(words, 0, 0);
    OK(cudaDeviceSynchronize());
    return kernels;
}

/* Launches of kernels drawn by lot, in batches, half of them waited for now and then, in both ways
 * in turn. Medians. */
static void random_launches(void)
{
    auto kernels = loaded_variants();
    const struct calls ways[] = {own_calls(), marked_calls()};
    std::vector<CUfunction> functions;
    for (auto kernel : kernels)
        functions.push_back(function_of((const void *)kernel));
    unsigned random = 1;
    int i = 0;
    auto batch = [&](const struct calls &by, int n, bool waits) {
        double start = now_s();
        for (int k = 0; k < n; k++) {
            random = random * 1664525 + 1013904223;
            unsigned *word = word_of(i++);
            void *params[] = {&word, &random, &i};
            OK(by.launch(functions[random >> 26], 1, 1, 1, 1 + (random >> 20) % 4, 1, 1, 0,
                         by.stream, params, NULL));
            if (waits && random >> 25 == 0)
                OK(cudaStreamSynchronize(by.stream));
        }
        double us = 1e6 * (now_s() - start) / n;
        OK(cudaStreamSynchronize(by.stream));
        return us;
    };
    for (int k = 0; k < 5; k++)
        (void)batch(ways[1], 1000, false);
    for (int waits = 0; waits < 2; waits++) {
        std::vector<double> us[2];
        for (int k = 0; k < (waits ? 400 : 1200); k++)
            us[k % 2].push_back(batch(ways[k % 2], waits ? 1000 : 200, waits));
        const char *name = waits ? "random_waited" : "random";
        double launched = median(us[1]), by_own = median(us[0]);
        figure(name, 64, "us", launched);
        figure(waits ? "random_waited_own" : "random_own", 64, "us", by_own);
        figure(waits ? "random_waited_to_own" : "random_to_own", 64, "times", launched / by_own);
        say_word(name, 64);
    }
}

/* ---- while graphs are built ---- */

/* A thousand runs of launches, each its own kernels and parameters, each eight times: so that one
 * graph after another is built and, as they grow too many, given up. What one launch takes, from
 * the first on but for a hundred. */
static void build(void)
{
    const int n_runs = 1000, n_turns = 8;
    auto kernels = loaded_variants();
    std::vector<double> us;
    us.reserve(1 << 20); /* growing it would take longer than a launch */
    for (int run = 0; run < n_runs; run++) {
        int n = run % 100 ? 8 + run % 57 : 500;
        for (int turn = 0; turn < n_turns; turn++) {
            unsigned random = run;
            double before = now_s();
            for (int i = 0; i < n; i++) {
                random = random * 1664525 + 1013904223;
                kernels[random >> 26]<<<1, 1, 0, stream>>>(word_of(i), random, turn);
                double after = now_s();
                us.push_back(1e6 * (after - before));
                before = after;
            }
            OK(cudaStreamSynchronize(stream));
        }
    }
    us.erase(us.begin(), us.begin() + 100);
    std::sort(us.begin(), us.end());
    figure("build_median", n_runs, "us", us[us.size() / 2]);
    figure("build_p99", n_runs, "us", us[us.size() * 99 / 100]);
    figure("build_p999", n_runs, "us", us[us.size() * 999 / 1000]);
    figure("build_longest", n_runs, "us", us.back());
    say_word("build", n_runs);
}

/* ---- what one launch costs ---- */

/* The middle of long iterations: with one segment an iteration, nothing goes out there. Quickest
 * tenth. */
static void withhold(void)
{
    CUfunction function = function_of((const void *)chain),
               begins = function_of((const void *)first);
    unsigned a = 1, b = 2;
    void *params[] = {&words, &a, &b};
    for (int changing = 0; changing < 2; changing++) {
        std::vector<double> ns;
        for (int i = 0; i < 300; i++) {
            double start = 0;
            a = changing ? i : 1;
            OK(cuLaunchKernel(begins, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
            for (int k = 0; k < 999; k++) {
                if (k == 100)
                    start = now_s();
                if (k == 900)
                    ns.push_back(1e9 * (now_s() - start) / 800);
                OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
            }
            OK(cudaStreamSynchronize(stream));
        }
        std::sort(ns.begin(), ns.end());
        figure(changing ? "launch_changing" : "launch_same", 1000, "ns", ns[ns.size() / 10]);
        say_word(changing ? "launch_changing" : "launch_same", 1000);
    }
}

/* ---- polling ---- */

__global__ void tell(volatile unsigned *flag, unsigned value)
{
    *flag = value;
    __threadfence_system();
}

/* Every kernel tells its number; the host stops at one of them and waits until it can see that. */
static int polling(void)
{
    unsigned *flag, *seen;
    std::vector<double> us;
    unsigned value = 0, random = 1;
    OK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer((void **)&seen, flag, 0));
    *flag = 0;
    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < 24; k++)
            tell<<<1, 1, 0, stream>>>(seen, ++value);
        OK(cudaStreamSynchronize(stream));
    }
    for (int i = 0; i < 1000; i++) {
        random = random * 1664525 + 1013904223;
        int n = 1 + (random >> 16) % 24;
        for (int k = 0; k < n; k++)
            tell<<<1, 1, 0, stream>>>(seen, ++value);
        double start = now_s();
        while (*(volatile unsigned *)flag != value)
            if (now_s() - start > 5)
                break;
        us.push_back(1e6 * (now_s() - start));
        if (*(volatile unsigned *)flag != value) {
            printf("not seen within 5 s\n");
            return EXIT_BROKEN;
        }
        if (i % 3 == 0)
            OK(cudaStreamSynchronize(stream));
    }
    std::sort(us.begin(), us.end());
    size_t late = us.end() - std::upper_bound(us.begin(), us.end(), 1000.0);
    printf("seen after %.0f us, 99 %% after %.0f us, the last after %.0f us, %zu of %zu later than "
           "1 ms\n",
           us[us.size() / 2], us[us.size() * 99 / 100], us.back(), late, us.size());
    /* A busy machine may take the host's or the watchdog's thread away now and then. */
    return late > us.size() / 100 ? EXIT_BROKEN : 0;
}

int main(int argc, char **argv)
{
    OK(cudaMalloc(&words, MIB));
    OK(cudaMemset(words, 0, MIB));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    warm_up_kernels();
    iteration(2, 0, 0, 0);
    slow<<<1, 1, 0, stream>>>(words, 0, 0);
    say_word("warm", 0);
    std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "loops")
        for (int i = 2; i < argc; i++)
            loops(atoi(argv[i]));
    else if (mode == "learn")
        learn(argc > 2 ? argv[2] : "");
    else if (mode == "first")
        first_graph();
    else if (mode == "many")
        many();
    else if (mode == "fork")
        fork_and_join();
    else if (mode == "copies")
        copies();
    else if (mode == "random")
        random_launches();
    else if (mode == "withhold")
        withhold();
    else if (mode == "build")
        build();
    else if (mode == "polling")
        return polling();
    else
        return EXIT_UNUSABLE;
    return 0;
}
