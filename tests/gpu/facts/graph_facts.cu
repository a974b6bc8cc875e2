/*
 * Facts about the driver's graphs that replay rests on: one line each, `name: answer`. Codes are
 * CUresults, times are medians. Nothing is judged here. With names as arguments only these are
 * asked.
 */
#include "tests/gpu/replay/graph.h"

#include <atomic>
#include <cooperative_groups.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#define BROKEN_ON_PURPOSE 3

static const unsigned long long ms = 1000 * 1000;
static CUstream stream;
static CUcontext context;
static unsigned *words; /* 1 MiB of device memory */
static CUfunction chain_f, slow_f;

static void say(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s: ", name);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

static unsigned word(const unsigned *from = words)
{
    unsigned value = 0;
    OK(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static void clear(void)
{
    OK(cudaMemset(words, 0, MIB));
    OK(cudaDeviceSynchronize());
}

static void add_chain(straight &g, int n, unsigned a = 1)
{
    for (int i = 0; i < n; i++) {
        unsigned b = i;
        void *params[] = {&words, &a, &b};
        OK(g.kernel(chain_f, params));
    }
}

static void add_slow(straight &g, unsigned long long ns, unsigned a = 7)
{
    void *params[] = {&words, &a, &ns};
    OK(g.kernel(slow_f, params));
}

static void run_slow(CUstream s, unsigned long long ns, unsigned a = 7)
{
    slow<<<1, 1, 0, s>>>(words, a, ns);
    OK(cudaGetLastError());
}

static void ready(straight &g)
{
    OK(g.finish());
    OK(cuGraphUpload(g.exec, stream));
    OK(cuStreamSynchronize(stream));
}

/* ---- events inside graphs ---- */

static void events(void)
{
    CUevent event, fresh, first, last;
    CUstream other;
    float elapsed = -1;
    OK(cuEventCreate(&event, 0));
    OK(cuEventCreate(&fresh, 0));
    OK(cuEventCreate(&first, 0));
    OK(cuEventCreate(&last, 0));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    straight g, timed, never;
    add_slow(g, 5 * ms);
    OK(g.record(event));
    ready(g);
    OK(cuEventRecord(event, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphLaunch(g.exec, stream));
    CUresult now = cuEventQuery(event);
    OK(cuStreamSynchronize(stream));
    say("event recorded before, in a graph launched just now, queried", "%d, after the stream %d",
        now, cuEventQuery(event));

    clear();
    OK(cuGraphLaunch(g.exec, stream));
    OK(cuStreamWaitEvent(other, event, 0));
    copy_words<<<1, 1, 0, other>>>(words + 1, words, 1);
    OK(cuStreamSynchronize(other));
    say("another stream waits for an event that a graph just launched records", "%s",
        word(words + 1) == (7u * 16777619u) ? "waits" : "does not wait");
    OK(cuStreamSynchronize(stream));
    OK(cuGraphLaunch(g.exec, stream));
    double start = now_s();
    OK(cuEventSynchronize(event));
    say("cuEventSynchronize of it", "returns after %.2f of 5 ms", 1e3 * (now_s() - start));
    OK(cuStreamSynchronize(stream));

    add_slow(never, 5 * ms);
    OK(never.record(fresh));
    ready(never);
    OK(cuGraphLaunch(never.exec, stream));
    now = cuEventQuery(fresh);
    OK(cuStreamSynchronize(stream));
    say("event never recorded but in a graph launched just now, queried", "%d, after the stream %d",
        now, cuEventQuery(fresh));

    OK(timed.record(first));
    add_slow(timed, 2 * ms);
    OK(timed.record(last));
    ready(timed);
    OK(cuGraphLaunch(timed.exec, stream));
    CUresult early = cuEventElapsedTime(&elapsed, first, last);
    OK(cuStreamSynchronize(stream));
    CUresult late = cuEventElapsedTime(&elapsed, first, last);
    say("elapsed between two records inside a graph around 2 ms",
        "at once %d, after it %d: %.3f ms", early, late, elapsed);
    OK(cuEventRecord(first, stream));
    OK(cuGraphLaunch(g.exec, stream));
    OK(cuEventRecord(last, stream));
    OK(cuStreamSynchronize(stream));
    late = cuEventElapsedTime(&elapsed, first, last);
    say("elapsed between records around a graph of 5 ms", "%d: %.3f ms", late, elapsed);
}

/* ---- updates ---- */

static void updates_in_flight(void)
{
    const int n = 200;
    unsigned long long ns = 50 * 1000;
    straight g;
    unsigned old_word = 0, new_word = 0, a;
    for (int i = 0; i < n; i++)
        add_slow(g, ns, 100 + i);
    ready(g);
    for (int i = 0; i < n; i++) {
        old_word = (old_word ^ (100u + i)) * 16777619u;
        new_word = (new_word ^ (900u + i)) * 16777619u;
    }
    clear();
    OK(cuGraphLaunch(g.exec, stream));
    double start = now_s();
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; i < n && code == CUDA_SUCCESS; i++) {
        a = 900 + i;
        void *params[] = {&words, &a, &ns};
        code = g.set(i, slow_f, params);
    }
    double took = 1e6 * (now_s() - start);
    CUresult busy = cuStreamQuery(stream);
    OK(cuStreamSynchronize(stream));
    unsigned first = word();
    clear();
    start = now_s();
    OK(cuGraphLaunch(g.exec, stream));
    double launched = 1e6 * (now_s() - start);
    OK(cuStreamSynchronize(stream));
    say("SetParams of 200 nodes in flight",
        "code %d, %.2f us a node, stream then %d, the flying one computed %s, the "
        "next %s, its launch %.1f us",
        code, took / n, busy, first == old_word ? "the old" : "ANOTHER",
        word() == new_word ? "the new" : "ANOTHER", launched);
    /* Updated while the one before is in flight, again and again: what does the launch wait for? */
    std::vector<double> us;
    for (int iteration = 0; iteration < 5; iteration++) {
        start = now_s();
        for (int i = 0; i < n; i++) {
            a = iteration + i;
            void *params[] = {&words, &a, &ns};
            OK(g.set(i, slow_f, params));
        }
        OK(cuGraphLaunch(g.exec, stream));
        us.push_back(1e6 * (now_s() - start));
    }
    OK(cuStreamSynchronize(stream));
    say("all 200 updated and launched 5 times in a row, 10 ms of work each",
        "CPU %.0f %.0f %.0f %.0f %.0f us", us[0], us[1], us[2], us[3], us[4]);
}

static void same_executable(void)
{
    for (int n : {16, 64, 192, 1000}) {
        straight g[3];
        for (auto &one : g) {
            add_chain(one, n);
            ready(one);
        }
        double cpu[3], all[3];
        for (int n_used = 1; n_used <= 3; n_used++) {
            std::vector<double> total, call;
            for (int repeat = 0; repeat < 15; repeat++) {
                OK(cuStreamSynchronize(stream));
                double start = now_s();
                for (int i = 0; i < 20; i++) {
                    double before = now_s();
                    OK(cuGraphLaunch(g[i % n_used].exec, stream));
                    call.push_back(1e6 * (now_s() - before));
                }
                OK(cuStreamSynchronize(stream));
                total.push_back(1e6 * (now_s() - start));
            }
            cpu[n_used - 1] = median(call);
            all[n_used - 1] = median(total);
        }
        char name[80];
        snprintf(name, sizeof name, "20 launches in a row of %d nodes with 1, 2, 3 executables", n);
        say(name, "%.0f %.0f %.0f us in all, CPU of one launch %.2f %.2f %.2f us", all[0], all[1],
            all[2], cpu[0], cpu[1], cpu[2]);
    }
    straight g;
    add_slow(g, 5 * ms);
    ready(g);
    OK(cuGraphLaunch(g.exec, stream));
    double start = now_s();
    OK(cuGraphLaunch(g.exec, stream));
    double second = 1e6 * (now_s() - start);
    start = now_s();
    OK(cuGraphLaunch(g.exec, stream));
    double third = 1e6 * (now_s() - start);
    OK(cuStreamSynchronize(stream));
    say("launched again while it runs 5 ms", "second launch %.1f us, third %.1f us", second, third);
}

/* ---- how to cut ---- */

static void cuts(void)
{
    const int n = 1000;
    clear();
    double eager = median_us(30, [&] {
        for (int i = 0; i < n; i++)
            chain<<<1, 1, 0, stream>>>(words, 1, i);
        OK(cuStreamSynchronize(stream));
    });
    say("1000 tiny kernels, eager", "%.0f us", eager);
    for (int length : {4, 8, 16, 32, 64, 128, 192, 250, 500, 1000}) {
        std::vector<straight> g((n + length - 1) / length);
        for (size_t k = 0; k < g.size(); k++) {
            add_chain(g[k], std::min(length, n - (int)k * length));
            ready(g[k]);
        }
        double submit = 0, us = median_us(30, [&] {
                               double start = now_s();
                               for (auto &one : g)
                                   OK(cuGraphLaunch(one.exec, stream));
                               submit = 1e6 * (now_s() - start);
                               OK(cuStreamSynchronize(stream));
                           });
        char name[80];
        snprintf(name, sizeof name, "1000 tiny kernels in %zu graphs of %d", g.size(), length);
        say(name, "%.0f us, of which launching %.0f us", us, submit);
    }
    /* Growing segments, as replay would cut a long iteration. */
    std::vector<straight> g(5);
    const int lengths[] = {16, 64, 256, 256, 408};
    for (int k = 0; k < 5; k++) {
        add_chain(g[k], lengths[k]);
        ready(g[k]);
    }
    say("1000 tiny kernels in graphs of 16, 64, 256, 256, 408", "%.0f us", median_us(30, [&] {
            for (auto &one : g)
                OK(cuGraphLaunch(one.exec, stream));
            OK(cuStreamSynchronize(stream));
        }));
}

static void mixed(void)
{
    straight g;
    add_chain(g, 64);
    ready(g);
    double both = median_us(50, [&] {
        for (int i = 0; i < 10; i++) {
            OK(cuGraphLaunch(g.exec, stream));
            chain<<<1, 1, 0, stream>>>(words, 1, i);
        }
        OK(cuStreamSynchronize(stream));
    });
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    double recorded = median_us(50, [&] {
        for (int i = 0; i < 10; i++) {
            OK(cuGraphLaunch(g.exec, stream));
            OK(cuEventRecord(event, stream));
        }
        OK(cuStreamSynchronize(stream));
    });
    double alone = median_us(50, [&] {
        for (int i = 0; i < 10; i++)
            OK(cuGraphLaunch(g.exec, stream));
        OK(cuStreamSynchronize(stream));
    });
    say("10 graphs of 64, the same executable",
        "%.0f us, with an eager kernel after each %.0f us, with an event "
        "record after each %.0f us",
        alone, both, recorded);
}

/* ---- what building and launching cost ---- */

static void costs_by_length(void)
{
    for (int n : {1, 4, 8, 16, 32, 64, 128, 192, 256, 1000, 4000}) {
        size_t before, after, total;
        std::vector<straight> g(9);
        std::vector<double> add, instantiate, upload, first, launch;
        OK(cuMemGetInfo(&before, &total));
        for (auto &one : g) {
            double t0 = now_s();
            add_chain(one, n);
            double t1 = now_s();
            OK(one.finish());
            double t2 = now_s();
            OK(cuGraphUpload(one.exec, stream));
            double t3 = now_s();
            OK(cuStreamSynchronize(stream));
            double t4 = now_s();
            OK(cuGraphLaunch(one.exec, stream));
            double t5 = now_s();
            OK(cuStreamSynchronize(stream));
            add.push_back(1e6 * (t1 - t0));
            instantiate.push_back(1e6 * (t2 - t1));
            upload.push_back(1e6 * (t3 - t2));
            first.push_back(1e6 * (t5 - t4));
        }
        OK(cuMemGetInfo(&after, &total));
        for (int i = 0; i < 40; i++) {
            double start = now_s();
            OK(cuGraphLaunch(g[i % 9].exec, stream));
            launch.push_back(1e6 * (now_s() - start));
            OK(cuStreamSynchronize(stream));
        }
        double destroy = median_us(5, [&] { g.pop_back(); });
        char name[40];
        snprintf(name, sizeof name, "graph of %d nodes", n);
        say(name,
            "add %.1f, instantiate %.0f, upload %.0f, first launch %.1f, launch %.2f, destroy %.0f "
            "us, %.1f KiB "
            "of device memory each",
            median(add), median(instantiate), median(upload), median(first), median(launch),
            destroy, ((double)before - (double)after) / 9 / 1024);
    }
}

struct wide {
    unsigned words[1000];
};

__global__ void many_params(unsigned *w, wide values)
{
    w[0] = (w[0] ^ values.words[0]) * 16777619u + values.words[999];
}

/* One update of one node, quickest way of many. */
template <class F> static double update_us(F update)
{
    return median_us(21,
                     [&] {
                         for (int i = 0; i < 1000; i++)
                             update(i);
                     }) /
           1000;
}

static void update_costs(void)
{
    straight g;
    unsigned a = 1, b = 2;
    static wide values;
    CUfunction wide_f = function_of((const void *)many_params);
    void *params[] = {&words, &a, &b}, *wide_params[] = {&words, &values};
    struct {
        unsigned *words;
        unsigned a, b;
    } buffer = {words, 1, 2};
    size_t bytes = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    add_chain(g, 64);
    OK(g.kernel(wide_f, wide_params));
    ready(g);
    say("SetParams by kernelParams, 16 bytes", "%.3f us", update_us([&](int i) {
            a = i;
            OK(g.set(i % 64, chain_f, params));
        }));
    CUDA_KERNEL_NODE_PARAMS p = straight::kernel_params(chain_f, NULL);
    p.extra = extra;
    CUresult code = cuGraphExecKernelNodeSetParams(g.exec, g.nodes[0], &p);
    double us = code ? 0 : update_us([&](int i) {
        buffer.a = i;
        (void)cuGraphExecKernelNodeSetParams(g.exec, g.nodes[i % 64], &p);
    });
    say("SetParams by extra, 16 bytes", "code %d, %.3f us", code, us);
    say("SetParams by kernelParams, 4008 bytes", "%.3f us", update_us([&](int i) {
            values.words[0] = i;
            OK(g.set(64, wide_f, wide_params));
        }));
    /* One call a statement: which argument of a call comes first is the compiler's choice. */
    CUresult grid = g.set(0, chain_f, params, 3, 1), block = g.set(0, chain_f, params, 3, 64);
    say("SetParams with another grid", "code %d, another block %d", grid, block);
    unsigned long long no_ns = 0;
    void *slow_params[] = {&words, &a, &no_ns};
    CUresult other = g.set(0, slow_f, slow_params), back = g.set(0, chain_f, params);
    say("SetParams with another function", "code %d, back %d", other, back);
    for (int n_changed : {0, 1, 64}) {
        double launch = median_us(50, [&] {
            for (int i = 0; i < n_changed; i++) {
                a++;
                OK(g.set(i, chain_f, params));
            }
            OK(cuGraphLaunch(g.exec, stream));
        });
        OK(cuStreamSynchronize(stream));
        char name[80];
        snprintf(name, sizeof name, "64 nodes, %d updated, launched, no waiting between",
                 n_changed);
        say(name, "CPU %.2f us", launch);
    }
    double waited = median_us(50, [&] {
        for (int i = 0; i < 64; i++) {
            a++;
            OK(g.set(i, chain_f, params));
        }
        OK(cuGraphLaunch(g.exec, stream));
        OK(cuStreamSynchronize(stream));
    });
    double same = median_us(50, [&] {
        OK(cuGraphLaunch(g.exec, stream));
        OK(cuStreamSynchronize(stream));
    });
    say("64 nodes launched and waited for", "%.1f us, all updated before %.1f us", same, waited);
}

/*
 * Where the driver keeps the parameters of a node that is updated before its executable was
 * uploaded or launched for the first time: time of the device for a chain of 1000 nodes on words
 * all over the memory.
 */
static double chain_us(std::vector<straight> &graphs)
{
    CUevent begun, ended;
    std::vector<double> us;
    OK(cuEventCreate(&begun, 0));
    OK(cuEventCreate(&ended, 0));
    for (int i = 0; i < 40; i++) {
        float took;
        OK(cuEventRecord(begun, stream));
        for (auto &g : graphs)
            OK(cuGraphLaunch(g.exec, stream));
        OK(cuEventRecord(ended, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuEventElapsedTime(&took, begun, ended));
        us.push_back(1e3 * took);
    }
    OK(cuEventDestroy(begun));
    OK(cuEventDestroy(ended));
    return median(us);
}

static void add_spread_chain(straight &g, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        unsigned *w = words + i * 1021 % 2048 * 128, a = 1, b = i;
        void *params[] = {&w, &a, &b};
        OK(g.kernel(chain_f, params));
    }
}

static void set_spread_chain(straight &g, int first, unsigned a)
{
    for (size_t i = 0; i < g.nodes.size(); i++) {
        unsigned *w = words + (first + i) * 1021 % 2048 * 128, b = i;
        void *params[] = {&w, &a, &b};
        OK(g.set(i, chain_f, params));
    }
}

static void first_update(void)
{
    const int n = 1000;
    const char *const ways[] = {"never", "before the first upload", "after an upload",
                                "after a launch"};
    for (int length : {64, 250}) {
        double us[4], again[4];
        for (int way = 0; way < 4; way++) {
            std::vector<straight> graphs((n + length - 1) / length);
            for (size_t k = 0; k < graphs.size(); k++) {
                int first = (int)k * length;
                add_spread_chain(graphs[k], first, std::min(length, n - first));
                OK(graphs[k].finish());
                if (way == 2)
                    OK(cuGraphUpload(graphs[k].exec, stream));
                if (way == 3)
                    OK(cuGraphLaunch(graphs[k].exec, stream));
                if (way > 0)
                    set_spread_chain(graphs[k], first, 7);
                if (way < 2)
                    OK(cuGraphUpload(graphs[k].exec, stream));
            }
            OK(cuStreamSynchronize(stream));
            us[way] = chain_us(graphs);
            for (size_t k = 0; k < graphs.size(); k++)
                set_spread_chain(graphs[k], (int)k * length, 9);
            again[way] = chain_us(graphs);
        }
        for (int way = 0; way < 4; way++) {
            char name[80];
            snprintf(name, sizeof name, "1000 nodes in graphs of %d, updated %s", length,
                     ways[way]);
            say(name, "%.3f us a node on the device, all updated once more %.3f us", us[way] / n,
                again[way] / n);
        }
    }
}

/* ---- kinds of nodes ---- */

static void kernel_handles(void)
{
    cudaKernel_t kernel;
    unsigned a = 5, b = 6;
    void *params[] = {&words, &a, &b};
    OK(cudaGetKernel(&kernel, (const void *)chain));
    CUDA_KERNEL_NODE_PARAMS by_kern = straight::kernel_params(NULL, params),
                            cast = straight::kernel_params((CUfunction)kernel, params);
    by_kern.kern = (CUkernel)kernel;
    for (auto *p : {&by_kern, &cast}) {
        straight g;
        CUgraphNode node = NULL;
        a = 5;
        CUresult add = cuGraphAddKernelNode(&node, g.graph, NULL, 0, p);
        CUresult build = add ? add : g.finish();
        a = 9;
        CUresult update = build ? build : cuGraphExecKernelNodeSetParams(g.exec, node, p);
        CUDA_KERNEL_NODE_PARAMS by_function = straight::kernel_params(chain_f, params);
        CUresult crossed =
            build ? build : cuGraphExecKernelNodeSetParams(g.exec, node, &by_function);
        CUresult again = build ? build : cuGraphExecKernelNodeSetParams(g.exec, node, p);
        clear();
        CUresult launch = build ? build : cuGraphLaunch(g.exec, stream);
        CUresult sync = cuStreamSynchronize(stream);
        say(p == &by_kern ? "CUkernel in .kern" : "CUkernel cast to CUfunction",
            "add %d, instantiate %d, update %d, update by the "
            "CUfunction %d, again %d, launch %d, wait %d, result %s",
            add, build, update, crossed, again, launch, sync,
            word() == chained(0, 9, 6) ? "right" : "WRONG");
    }
}

static CUDA_MEMCPY3D linear(CUmemorytype to_type, void *to, CUmemorytype from_type,
                            const void *from, size_t bytes)
{
    CUDA_MEMCPY3D c = {};
    c.dstMemoryType = to_type;
    c.srcMemoryType = from_type;
    c.dstHost = to;
    c.dstDevice = (CUdeviceptr)to;
    c.srcHost = from;
    c.srcDevice = (CUdeviceptr)from;
    c.WidthInBytes = c.srcPitch = c.dstPitch = bytes;
    c.Height = c.Depth = c.srcHeight = c.dstHeight = 1;
    return c;
}

static void copies(void)
{
    unsigned *pinned, *pageable = (unsigned *)malloc(MIB);
    OK(cudaMallocHost(&pinned, MIB));
    memset(pinned, 1, MIB);
    memset(pageable, 2, MIB);
    const CUmemorytype device = CU_MEMORYTYPE_DEVICE, host = CU_MEMORYTYPE_HOST,
                       unified = CU_MEMORYTYPE_UNIFIED;
    CUDA_MEMCPY3D d2d = linear(device, words + 1024, device, words, 4096),
                  none = linear(device, words + 1024, device, words, 0),
                  h2d = linear(device, words, host, pinned, 4096),
                  uni = linear(unified, words, unified, pinned, 4096),
                  d2h = linear(host, pinned, device, words, 4096),
                  page = linear(device, words, host, pageable, 4096),
                  big = linear(device, words, host, pinned, 512 * KIB);
    straight g;
    CUgraphNode node;
    CUresult code = cuGraphAddMemcpyNode(&node, g.graph, NULL, 0, &none, context);
    say("memcpy node of 0 bytes", "add %d, instantiate %d", code, code ? code : g.finish());
    struct {
        const char *name;
        CUDA_MEMCPY3D *first;
    } rows[] = {{"device to device", &d2d},
                {"pinned to device", &h2d},
                {"unified pinned to device", &uni},
                {"device to pinned", &d2h},
                {"pageable to device", &page}};
    for (auto &row : rows) {
        straight one;
        CUresult add = cuGraphAddMemcpyNode(&node, one.graph, NULL, 0, row.first, context);
        CUresult build = add ? add : one.finish();
        char name[80];
        snprintf(name, sizeof name, "memcpy node %s", row.name);
        if (build) {
            say(name, "add %d, instantiate %d", add, build);
            continue;
        }
        CUDA_MEMCPY3D shifted = *row.first;
        shifted.dstDevice += 512;
        shifted.dstHost = (char *)shifted.dstHost + 512;
        shifted.WidthInBytes = 1000;
        int codes[] = {cuGraphExecMemcpyNodeSetParams(one.exec, node, &shifted, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &none, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &d2d, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &h2d, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &uni, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &d2h, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &page, context),
                       cuGraphExecMemcpyNodeSetParams(one.exec, node, &big, context)};
        say(name,
            "updates: moved and shortened %d, 0 bytes %d, d2d %d, h2d %d, unified %d, d2h %d, "
            "pageable %d, 512 KiB %d",
            codes[0], codes[1], codes[2], codes[3], codes[4], codes[5], codes[6], codes[7]);
        (void)cuGraphExecMemcpyNodeSetParams(one.exec, node, row.first, context);
        say(name, "SetParams %.3f us, launch %.2f us", update_us([&](int) {
                (void)cuGraphExecMemcpyNodeSetParams(one.exec, node, row.first, context);
            }),
            median_us(30, [&] { OK(cuGraphLaunch(one.exec, stream)); }));
        OK(cuStreamSynchronize(stream));
    }
    OK(cudaFreeHost(pinned));
    free(pageable);
}

/* A pageable source: read when it is launched, or when it runs? */
static void pageable_copies(void)
{
    unsigned *pageable = (unsigned *)malloc(MIB);
    CUDA_MEMCPY3D page = linear(CU_MEMORYTYPE_DEVICE, words, CU_MEMORYTYPE_HOST, pageable, 4096);
    CUgraphNode node;
    CUresult code;
    memset(pageable, 2, MIB);
    straight late;
    add_slow(late, 5 * ms);
    code = cuGraphAddMemcpyNode(&node, late.graph, late.before(), 1, &page, context);
    code = code ? code : late.finish();
    if (!code) {
        pageable[0] = 11;
        double start = now_s();
        OK(cuGraphLaunch(late.exec, stream));
        double took = 1e6 * (now_s() - start);
        pageable[0] = 22;
        OK(cuStreamSynchronize(stream));
        say("pageable source behind 5 ms in a graph", "launch took %.0f us, it copied %s", took,
            word() == 11 ? "what was there at the launch" : "what was there when it ran");
    }
    free(pageable);
}

/* Graphs with copies and fills among kernels: what their launches cost. */
static void copies_among_kernels(void)
{
    unsigned *pinned;
    OK(cudaMallocHost(&pinned, MIB));
    CUDA_MEMCPY3D h2d =
                      linear(CU_MEMORYTYPE_DEVICE, words + 1024, CU_MEMORYTYPE_HOST, pinned, 4096),
                  d2d =
                      linear(CU_MEMORYTYPE_DEVICE, words + 1024, CU_MEMORYTYPE_DEVICE, words, 4096);
    for (int kind = 0; kind < 3; kind++)
        for (int every : {0, 16, 4}) {
            straight g;
            CUgraphNode node;
            for (int i = 0; i < 64; i++) {
                add_chain(g, 1);
                if (every == 0 || i % every)
                    continue;
                if (kind == 2) {
                    CUDA_MEMSET_NODE_PARAMS fill = {};
                    fill.dst = (CUdeviceptr)(words + 4096);
                    fill.elementSize = 4;
                    fill.width = 1024;
                    fill.height = 1;
                    OK(cuGraphAddMemsetNode(&node, g.graph, g.before(), 1, &fill, context));
                } else {
                    OK(cuGraphAddMemcpyNode(&node, g.graph, g.before(), 1, kind ? &d2d : &h2d,
                                            context));
                }
                g.nodes.push_back(node);
            }
            ready(g);
            double launch = median_us(40, [&] { OK(cuGraphLaunch(g.exec, stream)); });
            OK(cuStreamSynchronize(stream));
            double all = median_us(40, [&] {
                OK(cuGraphLaunch(g.exec, stream));
                OK(cuStreamSynchronize(stream));
            });
            char name[100];
            snprintf(name, sizeof name, "64 kernels and %zu %s of 4 KiB in a graph",
                     g.nodes.size() - 64,
                     kind == 0   ? "copies from pinned"
                     : kind == 1 ? "copies on the device"
                                 : "fills");
            say(name, "launch %.2f us, with waiting %.1f us", launch, all);
        }
    for (int kind = 0; kind < 3; kind++)
        say(kind == 0   ? "the same eagerly, a copy from pinned every 16"
            : kind == 1 ? "a copy on the device every 16"
                        : "a fill every 16",
            "with waiting %.1f us", median_us(40, [&] {
                for (int i = 0; i < 64; i++) {
                    chain<<<1, 1, 0, stream>>>(words, 1, i);
                    if (i % 16 == 0 && kind == 2)
                        OK(cuMemsetD32Async((CUdeviceptr)(words + 4096), 0, 1024, stream));
                    else if (i % 16 == 0 && kind == 1)
                        OK(cuMemcpyDtoDAsync((CUdeviceptr)(words + 1024), (CUdeviceptr)words, 4096,
                                             stream));
                    else if (i % 16 == 0)
                        OK(cuMemcpyHtoDAsync((CUdeviceptr)(words + 1024), pinned, 4096, stream));
                }
                OK(cuStreamSynchronize(stream));
            }));
    OK(cudaFreeHost(pinned));
}

static void fills(void)
{
    CUgraphNode node;
    straight g;
    CUDA_MEMSET_NODE_PARAMS p = {};
    p.dst = (CUdeviceptr)words;
    p.elementSize = 4;
    p.width = 100;
    p.height = 1;
    p.value = 5;
    OK(cuGraphAddMemsetNode(&node, g.graph, NULL, 0, &p, context));
    ready(g);
    auto set = [&](unsigned element, size_t width, size_t height, unsigned value, CUdeviceptr to) {
        CUDA_MEMSET_NODE_PARAMS q = p;
        q.elementSize = element;
        q.width = width;
        q.height = height;
        q.pitch = 4096;
        q.value = value;
        q.dst = to;
        return (int)cuGraphExecMemsetNodeSetParams(g.exec, node, &q, context);
    };
    CUdeviceptr w = (CUdeviceptr)words;
    say("memset node updates",
        "value %d, address %d, wider %d, narrower %d, 0 wide %d, elements of 1 byte %d, of 2 %d, "
        "2-D %d, "
        "value too large for 1 byte %d",
        set(4, 100, 1, 6, w), set(4, 100, 1, 6, w + 4096), set(4, 1000, 1, 6, w),
        set(4, 10, 1, 6, w), set(4, 0, 1, 6, w), set(1, 100, 1, 6, w), set(2, 100, 1, 6, w),
        set(4, 100, 3, 6, w), set(1, 100, 1, 300, w));
    say("memset node update of width shows", "code %d", set(4, 1000, 1, 77, w));
    clear();
    OK(cuGraphLaunch(g.exec, stream));
    OK(cuStreamSynchronize(stream));
    say("words written", "first %u, at 999 %u, at 1000 %u", word(words), word(words + 999),
        word(words + 1000));
    straight zero;
    p.width = 0;
    CUresult code = cuGraphAddMemsetNode(&node, zero.graph, NULL, 0, &p, context);
    say("memset node of 0 elements", "add %d, instantiate %d", code, code ? code : zero.finish());
}

/* May a fill of one row become one of another length and place? From and to: byte offset and bytes.
 */
static void fill_shapes(void)
{
    const struct {
        size_t at, bytes;
    } shapes[] = {{0, 64}, {0, 128}, {0, 60}, {4, 64},   {4, 60},
                  {0, 1},  {1, 3},   {3, 64}, {0, 65536}};
    for (unsigned element : {1u, 4u})
        for (auto &from : shapes) {
            straight g;
            CUgraphNode node;
            char codes[100] = "";
            CUDA_MEMSET_NODE_PARAMS p = {};
            if (from.at % element || from.bytes % element)
                continue;
            p.elementSize = element;
            p.height = 1;
            p.dst = (CUdeviceptr)words + from.at;
            p.width = from.bytes / element;
            OK(cuGraphAddMemsetNode(&node, g.graph, NULL, 0, &p, context));
            const CUDA_MEMSET_NODE_PARAMS first = p;
            OK(g.finish());
            for (auto &to : shapes) {
                if (to.at % element || to.bytes % element)
                    continue;
                (void)cuGraphExecMemsetNodeSetParams(g.exec, node, &first, context);
                p.dst = (CUdeviceptr)words + to.at;
                p.width = to.bytes / element;
                snprintf(codes + strlen(codes), sizeof codes - strlen(codes), " %zu+%zu:%d", to.at,
                         to.bytes, (int)cuGraphExecMemsetNodeSetParams(g.exec, node, &p, context));
            }
            char name[80];
            snprintf(name, sizeof name,
                     "fill of %u-byte elements, %zu bytes at %zu, set to (at+bytes:code)", element,
                     from.bytes, from.at);
            say(name, "%s", codes);
        }
}

static std::atomic<int> called;
static void host_function(void *data)
{
    called += *(int *)data;
}
static void other_host_function(void *data)
{
    called += 100 * *(int *)data;
}

static void hosts(void)
{
    straight g;
    CUgraphNode node;
    static int one = 1, two = 2;
    CUDA_HOST_NODE_PARAMS p = {host_function, &one}, q = {other_host_function, &two};
    OK(cuGraphAddHostNode(&node, g.graph, NULL, 0, &p));
    ready(g);
    OK(cuGraphLaunch(g.exec, stream));
    OK(cuStreamSynchronize(stream));
    CUresult code = cuGraphExecHostNodeSetParams(g.exec, node, &q);
    OK(cuGraphLaunch(g.exec, stream));
    OK(cuStreamSynchronize(stream));
    say("host node update of function and data",
        "code %d, called adds up to %d (wanted 201), SetParams %.3f us, launch and wait %.1f us, "
        "eagerly %.1f us",
        code, called.load(),
        update_us([&](int) { (void)cuGraphExecHostNodeSetParams(g.exec, node, &q); }),
        median_us(20,
                  [&] {
                      OK(cuGraphLaunch(g.exec, stream));
                      OK(cuStreamSynchronize(stream));
                  }),
        median_us(20, [&] {
            OK(cuLaunchHostFunc(stream, host_function, &one));
            OK(cuStreamSynchronize(stream));
        }));
}

/* ---- attributes ---- */

__global__ void meets_grid(unsigned *w, unsigned a)
{
    auto grid = cooperative_groups::this_grid();
    w[1 + grid.thread_rank()] = a;
    grid.sync();
    if (grid.thread_rank() == 0)
        w[0] = w[grid.size()] + w[1];
}

__global__ void in_cluster(unsigned *w, unsigned a)
{
    unsigned n;
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
    if (blockIdx.x == 0)
        w[0] = 1000 * n + a;
}

static void cooperative_and_cluster(void)
{
    unsigned a = 3;
    void *params[] = {&words, &a};
    CUfunction meets = function_of((const void *)meets_grid),
               cluster = function_of((const void *)in_cluster);
    CUlaunchAttributeValue v = {};
    straight g;
    OK(g.kernel(meets, params, 64, 32));
    v.cooperative = 1;
    CUresult attribute =
        cuGraphKernelNodeSetAttribute(g.nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v);
    CUresult build = g.finish();
    clear();
    CUresult launch = build ? build : cuGraphLaunch(g.exec, stream);
    CUresult sync = cuStreamSynchronize(stream);
    unsigned first = word();
    a = 50;
    CUresult update = build ? build : g.set(0, meets, params, 64, 32),
             grid = build ? build : g.set(0, meets, params, 32, 32);
    clear();
    launch = build ? build : cuGraphLaunch(g.exec, stream);
    sync = cuStreamSynchronize(stream);
    say("cooperative kernel node",
        "attribute %d, instantiate %d, launch %d, wait %d, %u (wanted 6), update %d, another grid "
        "%d, then %u (wanted 100)",
        attribute, build, launch, sync, first, update, grid, word());
    /* Not launched: blocks that never meet would hang the device. */
    say("cooperative node set to too many blocks", "update %d",
        build ? build : (int)g.set(0, meets, params, 1 << 20, 32));

    straight c;
    a = 3;
    OK(c.kernel(cluster, params, 8, 32));
    v = {};
    v.clusterDim.x = 4;
    v.clusterDim.y = v.clusterDim.z = 1;
    attribute =
        cuGraphKernelNodeSetAttribute(c.nodes[0], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &v);
    build = c.finish();
    clear();
    launch = build ? build : cuGraphLaunch(c.exec, stream);
    OK(cuStreamSynchronize(stream));
    first = word();
    a = 5;
    update = build ? build : c.set(0, cluster, params, 16, 32);
    launch = build ? build : cuGraphLaunch(c.exec, stream);
    OK(cuStreamSynchronize(stream));
    say("cluster kernel node",
        "attribute %d, instantiate %d, %u (wanted 4003), update with another grid %d, then %u "
        "(wanted 4005), a grid that does "
        "not divide %d",
        attribute, build, first, update, word(),
        build ? build : (int)c.set(0, cluster, params, 6, 32));
}

static void attributes(void)
{
    unsigned a = 1, b = 2;
    void *params[] = {&words, &a, &b};
    int least, greatest;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    say("stream priorities", "least %d, greatest %d", least, greatest);
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int id = 1; id <= 16; id++) {
        straight g;
        CUlaunchAttributeValue v = {}, back = {};
        OK(g.kernel(chain_f, params));
        v.cooperative = 1; /* and whatever else begins with an int that may be 1 */
        if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
            id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION)
            v.clusterDim.x = v.clusterDim.y = v.clusterDim.z = 1;
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            v.priority = greatest;
        if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
            v = {};
        if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
            v.memSyncDomainMap.default_ = 0;
            v.memSyncDomainMap.remote = 1;
        }
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
            id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            v = {};
            v.programmaticEvent.event = event;
        }
        CUresult set = cuGraphKernelNodeSetAttribute(g.nodes[0], (CUlaunchAttributeID)id, &v);
        CUresult get = cuGraphKernelNodeGetAttribute(g.nodes[0], (CUlaunchAttributeID)id, &back);
        CUresult build = g.finish();
        CUresult update = build ? build : g.set(0, chain_f, params);
        char name[60];
        snprintf(name, sizeof name, "launch attribute %d on a kernel node", id);
        say(name, "set %d, get %d, instantiate %d, SetParams %d", set, get, build, update);
    }
}

static unsigned long long full_ns = 3 * ms;

static void priorities(void)
{
    int least, greatest;
    CUstream high, low;
    CUstreamCaptureStatus status;
    CUgraph captured;
    CUgraphNode nodes[4];
    size_t n = 4;
    CUlaunchAttributeValue v = {};
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
    OK(cuStreamBeginCapture(high, CU_STREAM_CAPTURE_MODE_RELAXED));
    chain<<<1, 1, 0, high>>>(words, 1, 2);
    OK(cuStreamIsCapturing(high, &status));
    OK(cuStreamEndCapture(high, &captured));
    OK(cuGraphGetNodes(captured, nodes, &n));
    CUresult code = cuGraphKernelNodeGetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
    say("priority of a node captured from the stream of greatest priority", "code %d, %d", code,
        v.priority);
    OK(cuGraphDestroy(captured));
    straight plain, marked;
    add_chain(plain, 4);
    add_chain(marked, 4);
    code = cuGraphKernelNodeGetAttribute(plain.nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
    say("priority of an added node", "code %d, %d", code, v.priority);
    v.priority = greatest;
    for (auto node : marked.nodes)
        OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
    ready(plain);
    ready(marked);
    /* The device is full of waves of low priority; how long does work on the high stream take? */
    auto behind = [&](auto submit) {
        return median_us(7, [&] {
            OK(cuCtxSynchronize());
            for (int i = 0; i < 4; i++)
                slow<<<132 * 32, 1024, 0, low>>>(words + 1024, 1, full_ns / 32);
            usleep(300);
            submit();
            OK(cuStreamSynchronize(high));
        });
    };
    double eager = behind([&] {
        for (int i = 0; i < 4; i++)
            chain<<<1, 1, 0, high>>>(words, 1, i);
    });
    double as_is = behind([&] { OK(cuGraphLaunch(plain.exec, high)); });
    double with = behind([&] { OK(cuGraphLaunch(marked.exec, high)); });
    OK(cuCtxSynchronize());
    say("4 kernels on the high stream beside a full device",
        "eager %.0f us, graph %.0f us, graph with the priority on its nodes %.0f us", eager, as_is,
        with);
}

/* ---- programmatic launches ---- */

__global__ void early(unsigned *w, unsigned a, unsigned b)
{
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    w[0] = (w[0] ^ a) * 16777619u + b;
}

static void programmatic(void)
{
    const int n = 200;
    CUfunction early_f = function_of((const void *)early);
    unsigned a = 1, b = 2, wanted = 0;
    void *params[] = {&words, &a, &b};
    for (int i = 0; i < n; i++)
        wanted = chained(wanted, 1, 2);
    for (int ports = 0; ports < 2; ports++) {
        straight g;
        CUresult edge_code = CUDA_SUCCESS;
        for (int i = 0; i < n; i++) {
            CUDA_KERNEL_NODE_PARAMS p = straight::kernel_params(early_f, params);
            CUgraphNode node;
            OK(cuGraphAddKernelNode(&node, g.graph, NULL, 0, &p));
            if (i > 0) {
                CUgraphEdgeData edge = {};
                edge.from_port = ports ? CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC : 0;
                edge.type = ports ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC : 0;
                edge_code = cuGraphAddDependencies(g.graph, &g.nodes.back(), &node, &edge, 1);
                if (edge_code)
                    break;
            }
            g.nodes.push_back(node);
        }
        CUresult build = edge_code ? edge_code : g.finish();
        if (build) {
            say("graph of programmatic edges", "edge %d, instantiate %d", edge_code, build);
            continue;
        }
        clear();
        OK(cuGraphLaunch(g.exec, stream));
        OK(cuStreamSynchronize(stream));
        unsigned got = word();
        double us = median_us(30, [&] {
            OK(cuGraphLaunch(g.exec, stream));
            OK(cuStreamSynchronize(stream));
        });
        say(ports ? "200 kernels with programmatic edges in a graph"
                  : "200 kernels with full edges in a graph",
            "%s, SetParams %d, %.0f us", got == wanted ? "right" : "WRONG",
            g.set(1, early_f, params), us);
    }
}

static void programmatic_serialization(void)
{
    const int n = 200;
    CUfunction early_f = function_of((const void *)early);
    unsigned a = 1, b = 2;
    void *params[] = {&words, &a, &b};
    for (int serialization = 0; serialization < 2; serialization++) {
        CUlaunchAttribute attribute = {};
        CUlaunchConfig config = {};
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
            config.blockDimZ = 1;
        config.hStream = stream;
        config.attrs = &attribute;
        config.numAttrs = serialization;
        say(serialization ? "200 eager launches with programmatic serialization"
                          : "200 eager launches of the same kernel",
            "%.0f us", median_us(30, [&] {
                for (int i = 0; i < n; i++)
                    OK(cuLaunchKernelEx(&config, early_f, params, NULL));
                OK(cuStreamSynchronize(stream));
            }));
        if (!serialization)
            continue;
        CUgraph captured;
        CUgraphNode nodes[3], from[3], to[3];
        CUgraphEdgeData edges[3] = {};
        size_t n_edges = 3;
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        for (int i = 0; i < 3; i++)
            OK(cuLaunchKernelEx(&config, early_f, params, NULL));
        OK(cuStreamEndCapture(stream, &captured));
        CUresult code = cuGraphGetEdges(captured, from, to, edges, &n_edges);
        say("captured programmatic serialization",
            "code %d, %zu edges, from port %d to port %d type %d", code, n_edges,
            edges[0].from_port, edges[0].to_port, edges[0].type);
        (void)nodes;
        OK(cuGraphDestroy(captured));
    }
}

/* ---- streams ---- */

/* Did `graph` run before, or after, what was submitted on the other stream? 5 ms each. */
static void order_against(const char *name, CUstream graph_stream, CUstream other)
{
    straight g;
    unsigned a = 7;
    unsigned long long ns = 5 * ms;
    unsigned *target = words + 16;
    void *params[] = {&target, &a, &ns};
    OK(g.kernel(slow_f, params));
    OK(g.finish());
    clear();
    double start = now_s();
    slow<<<1, 1, 0, other>>>(words, 7, 5 * ms);
    CUresult code = cuGraphLaunch(g.exec, graph_stream);
    slow<<<1, 1, 0, other>>>(words, 7, 5 * ms);
    OK(cuCtxSynchronize());
    double took = 1e3 * (now_s() - start);
    say(name, "code %d, three times 5 ms took %.1f ms: %s", code, took,
        took > 14 ? "one after the other" : "side by side");
}

static void streams(void)
{
    CUstream blocking;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    order_against("graph into the legacy stream beside a blocking stream", CU_STREAM_LEGACY,
                  blocking);
    order_against("graph into stream 0 beside a blocking stream", NULL, blocking);
    order_against("graph into a blocking stream beside the legacy one", blocking, CU_STREAM_LEGACY);
    order_against("graph into the legacy stream beside a non-blocking one", CU_STREAM_LEGACY,
                  stream);
    order_against("graph into CU_STREAM_PER_THREAD beside the legacy one", CU_STREAM_PER_THREAD,
                  CU_STREAM_LEGACY);
    order_against("graph into the legacy stream beside CU_STREAM_PER_THREAD", CU_STREAM_LEGACY,
                  CU_STREAM_PER_THREAD);
    OK(cuStreamDestroy(blocking));
}

static void concurrency(void)
{
    /* The same executable in two streams at once: may it, and does it run twice at once? */
    CUstream other;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    straight g;
    add_slow(g, 5 * ms);
    ready(g);
    double start = now_s();
    OK(cuGraphLaunch(g.exec, stream));
    CUresult code = cuGraphLaunch(g.exec, other);
    OK(cuCtxSynchronize());
    say("one executable of 5 ms in two streams", "code %d, %.1f ms", code, 1e3 * (now_s() - start));
    straight doomed;
    add_slow(doomed, 5 * ms, 9);
    ready(doomed);
    clear();
    OK(cuGraphLaunch(doomed.exec, stream));
    start = now_s();
    code = cuGraphExecDestroy(doomed.exec);
    double took = 1e3 * (now_s() - start);
    doomed.exec = NULL;
    OK(cuStreamSynchronize(stream));
    say("executable destroyed while it runs 5 ms", "code %d, took %.2f ms, result %s", code, took,
        word() == 9u * 16777619u ? "right" : "WRONG");
}

static void depth(void)
{
    /* How much can be submitted while the device is busy, before a call waits? */
    straight g;
    add_chain(g, 64);
    ready(g);
    run_slow(stream, 50 * ms);
    int n = 0;
    double worst = 0, first_wait = 0;
    for (; n < 1500 && worst < 1e-3; n++) {
        double start = now_s();
        OK(cuGraphLaunch(g.exec, stream));
        worst = std::max(worst, now_s() - start);
        first_wait = worst;
    }
    OK(cuStreamSynchronize(stream));
    say("graphs of 64 submitted behind 50 ms until a call took 1 ms", "%d (that call %.2f ms)", n,
        1e3 * first_wait);
    run_slow(stream, 50 * ms);
    worst = 0;
    for (n = 0; n < 5000 && worst < 1e-3; n++) {
        double start = now_s();
        chain<<<1, 1, 0, stream>>>(words, 1, n);
        worst = std::max(worst, now_s() - start);
    }
    OK(cuStreamSynchronize(stream));
    say("kernels submitted behind 50 ms until a call took 1 ms", "%d (that call %.2f ms)", n,
        1e3 * worst);
}

static void building_beside(void)
{
    /* Another thread builds graphs: how long do this thread's launches take at worst? */
    for (int n : {0, 16, 64, 192, 1000}) {
        std::atomic<bool> stop{false};
        std::atomic<int> built{0};
        std::thread builder([&] {
            OK(cuCtxSetCurrent(context));
            while (n && !stop) {
                straight g;
                add_chain(g, n);
                OK(g.finish());
                CUstream own;
                OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
                OK(cuGraphUpload(g.exec, own));
                OK(cuStreamSynchronize(own));
                OK(cuStreamDestroy(own));
                built++;
            }
        });
        std::vector<double> us;
        double end = now_s() + 0.15;
        while (now_s() < end) {
            double start = now_s();
            chain<<<1, 1, 0, stream>>>(words, 1, 2);
            us.push_back(1e6 * (now_s() - start));
            if (us.size() % 200 == 0)
                OK(cuStreamSynchronize(stream));
        }
        stop = true;
        builder.join();
        std::sort(us.begin(), us.end());
        char name[80];
        snprintf(name, sizeof name, "launches beside a thread that builds graphs of %d", n);
        say(name, "median %.2f, 99 %% %.1f, 99.9 %% %.1f, worst %.0f us, %d built",
            us[us.size() / 2], us[us.size() * 99 / 100], us[us.size() * 999 / 1000], us.back(),
            built.load());
    }
}

static void captured_beside(void)
{
    /* What of ours is refused while somebody captures? */
    for (auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                      CU_STREAM_CAPTURE_MODE_RELAXED})
        for (bool exchanged : {false, true})
            for (bool other_thread : {false, true}) {
                straight g, unbuilt;
                add_chain(g, 2);
                add_chain(unbuilt, 2);
                ready(g);
                CUstream captured;
                CUgraph graph = NULL;
                OK(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
                OK(cuStreamBeginCapture(captured, mode));
                int codes[5];
                auto ask = [&] {
                    OK(cuCtxSetCurrent(context));
                    CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
                    unsigned a = 1, b = 2;
                    void *params[] = {&words, &a, &b};
                    if (exchanged)
                        OK(cuThreadExchangeStreamCaptureMode(&own));
                    codes[0] = unbuilt.kernel(chain_f, params);
                    codes[1] = unbuilt.finish();
                    codes[2] = unbuilt.exec ? cuGraphUpload(unbuilt.exec, stream) : -1;
                    codes[3] = g.set(0, chain_f, params);
                    codes[4] = cuGraphLaunch(g.exec, stream);
                    if (exchanged)
                        OK(cuThreadExchangeStreamCaptureMode(&own));
                };
                if (other_thread)
                    std::thread(ask).join();
                else
                    ask();
                CUresult end = cuStreamEndCapture(captured, &graph);
                (void)cuStreamSynchronize(stream);
                if (graph)
                    (void)cuGraphDestroy(graph);
                (void)cuStreamDestroy(captured);
                char name[100];
                snprintf(name, sizeof name, "capture of mode %d, %s thread%s", mode,
                         other_thread ? "another" : "the same", exchanged ? ", exchanged" : "");
                say(name,
                    "add %d, instantiate %d, upload %d, SetParams %d, launch %d, end of the "
                    "capture %d",
                    codes[0], codes[1], codes[2], codes[3], codes[4], end);
            }
}

/* ---- what calls cost ---- */

template <class F> static double call_us(F call)
{
    double us = median_us(15,
                          [&] {
                              for (int i = 0; i < 200; i++)
                                  call();
                          }) /
                200;
    (void)cuCtxSynchronize();
    return us;
}

static void pointer_costs(void)
{
    unsigned *pinned, *managed, *pageable = (unsigned *)malloc(MIB);
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaMallocManaged(&managed, MIB));
    CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_CONTEXT};
    CUmemorytype type = (CUmemorytype)0;
    unsigned is_managed = 0;
    CUcontext owner = NULL;
    void *values[] = {&type, &is_managed, &owner};
    struct {
        const char *name;
        unsigned *p;
    } rows[] = {
        {"device", words}, {"pinned", pinned}, {"managed", managed}, {"pageable", pageable}};
    for (auto &row : rows) {
        type = (CUmemorytype)0;
        CUresult code = cuPointerGetAttributes(3, ids, values, (CUdeviceptr)row.p),
                 one = cuPointerGetAttribute(&type, ids[0], (CUdeviceptr)row.p);
        double many_us =
            call_us([&] { (void)cuPointerGetAttributes(3, ids, values, (CUdeviceptr)row.p); });
        double one_us =
            call_us([&] { (void)cuPointerGetAttribute(&type, ids[0], (CUdeviceptr)row.p); });
        char name[60];
        snprintf(name, sizeof name, "cuPointerGetAttributes of %s memory", row.name);
        say(name,
            "code %d type %d managed %u, three attributes %.3f us; one alone code %d, %.3f us",
            code, type, is_managed, many_us, one, one_us);
    }
    OK(cudaFreeHost(pinned));
    OK(cudaFree(managed));
    free(pageable);
}

static void call_costs(void)
{
    unsigned *pinned, *pageable = (unsigned *)malloc(2 * MIB), a = 1, b = 2;
    void *params[] = {&words, &a, &b};
    static int one = 1;
    CUevent event, timing;
    CUstream other;
    CUdeviceptr w = (CUdeviceptr)words;
    unsigned long long id;
    unsigned flags;
    size_t offset, size;
    CUstreamCaptureStatus status;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cudaMallocHost(&pinned, MIB));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&timing, 0));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    memset(pageable, 1, 2 * MIB);
    say("cost of cuLaunchKernel", "%.3f us",
        call_us([&] { (void)cuLaunchKernel(chain_f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL); }));
    say("cost of cuEventRecord", "%.3f us, with timing %.3f us",
        call_us([&] { (void)cuEventRecord(event, stream); }),
        call_us([&] { (void)cuEventRecord(timing, stream); }));
    say("cost of cuStreamWaitEvent", "%.3f us",
        call_us([&] { (void)cuStreamWaitEvent(other, event, 0); }));
    say("cost of cuEventQuery, cuStreamQuery", "%.3f %.3f us",
        call_us([&] { (void)cuEventQuery(event); }), call_us([&] { (void)cuStreamQuery(stream); }));
    say("cost of cuMemcpyHtoDAsync of 4 KiB", "pinned %.3f us, pageable %.3f us",
        call_us([&] { (void)cuMemcpyHtoDAsync(w, pinned, 4096, stream); }),
        call_us([&] { (void)cuMemcpyHtoDAsync(w, pageable, 4096, stream); }));
    say("cost of cuMemcpyHtoDAsync of 64 KiB", "pinned %.3f us, pageable %.3f us",
        call_us([&] { (void)cuMemcpyHtoDAsync(w, pinned, 64 * KIB, stream); }),
        call_us([&] { (void)cuMemcpyHtoDAsync(w, pageable, 64 * KIB, stream); }));
    say("cost of cuMemcpyDtoHAsync of 4 KiB", "pinned %.3f us, pageable %.3f us",
        call_us([&] { (void)cuMemcpyDtoHAsync(pinned, w, 4096, stream); }),
        call_us([&] { (void)cuMemcpyDtoHAsync(pageable, w, 4096, stream); }));
    say("cost of cuMemcpyDtoDAsync, cuMemsetD32Async of 4 KiB", "%.3f %.3f us",
        call_us([&] { (void)cuMemcpyDtoDAsync(w + 65536, w, 4096, stream); }),
        call_us([&] { (void)cuMemsetD32Async(w, 1, 1024, stream); }));
    say("cost of cuLaunchHostFunc", "%.3f us",
        call_us([&] { (void)cuLaunchHostFunc(stream, host_function, &one); }));
    say("cost of cuStreamGetId, GetFlags, IsCapturing", "%.3f %.3f %.3f us",
        call_us([&] { (void)cuStreamGetId(stream, &id); }),
        call_us([&] { (void)cuStreamGetFlags(stream, &flags); }),
        call_us([&] { (void)cuStreamIsCapturing(stream, &status); }));
    say("cost of cuThreadExchangeStreamCaptureMode", "%.3f us",
        call_us([&] { (void)cuThreadExchangeStreamCaptureMode(&mode); }));
    say("cost of cuFuncGetParamInfo", "%.3f us",
        call_us([&] { (void)cuFuncGetParamInfo(chain_f, 1, &offset, &size); }));
    /* Behind 5 ms of work: which calls wait for it? */
    for (size_t bytes : {(size_t)64, 4 * KIB, 16 * KIB, 64 * KIB, 65 * KIB, 256 * KIB, MIB}) {
        double us[3];
        for (int way = 0; way < 3; way++) {
            run_slow(stream, 5 * ms);
            double start = now_s();
            if (way == 0)
                OK(cuMemcpyHtoDAsync(w, pageable, bytes, stream));
            else if (way == 1)
                OK(cuMemcpyDtoHAsync(pageable, w, bytes, stream));
            else
                OK(cuMemcpyHtoDAsync(w, pinned, bytes, stream));
            us[way] = 1e6 * (now_s() - start);
            OK(cuStreamSynchronize(stream));
        }
        char name[80];
        snprintf(name, sizeof name, "async copy of %zu bytes behind 5 ms returns after", bytes);
        say(name,
            "pageable to device %.1f us, device to pageable %.1f us, pinned to device %.1f us",
            us[0], us[1], us[2]);
    }
    OK(cudaFreeHost(pinned));
    free(pageable);
}

/* ---- functions and modules ---- */

__global__ void shares(unsigned *w, unsigned a)
{
    extern __shared__ unsigned here[];
    here[threadIdx.x] = a;
    w[0] = here[0];
}

static void shared_memory(void)
{
    unsigned a = 4;
    void *params[] = {&words, &a};
    CUfunction f = function_of((const void *)shares);
    CUDA_KERNEL_NODE_PARAMS p = straight::kernel_params(f, params);
    CUgraphNode node;
    straight before, after;
    p.sharedMemBytes = 100 * 1024;
    CUresult refused = cuGraphAddKernelNode(&node, before.graph, NULL, 0, &p);
    OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024));
    CUresult taken = cuGraphAddKernelNode(&node, after.graph, NULL, 0, &p);
    CUresult build = taken ? taken : after.finish();
    p.sharedMemBytes = 1024;
    CUresult less = build ? build : cuGraphExecKernelNodeSetParams(after.exec, node, &p);
    p.sharedMemBytes = 100 * 1024;
    CUresult more = build ? build : cuGraphExecKernelNodeSetParams(after.exec, node, &p);
    say("100 KiB of dynamic shared memory on a node",
        "before the attribute is set %d, after %d, instantiate %d, update to 1 KiB %d, back %d",
        refused, taken, build, less, more);
}

/* ---- what breaks the context ---- */

__global__ void faults(unsigned *w)
{
    *w = 1;
}

static void failed_before(void)
{
    straight g;
    add_chain(g, 2);
    ready(g);
    faults<<<1, 1, 0, stream>>>(NULL);
    CUresult at_once = cuGraphLaunch(g.exec, stream), wait = cuStreamSynchronize(stream),
             later = cuGraphLaunch(g.exec, stream);
    unsigned a = 1, b = 2;
    void *params[] = {&words, &a, &b};
    CUresult update = g.set(0, chain_f, params), destroy = cuGraphExecDestroy(g.exec),
             graph = cuGraphDestroy(g.graph);
    CUgraph another;
    say("launch behind a kernel that faults",
        "at once %d, wait %d, launch then %d, SetParams %d, destroy exec %d, graph %d, new graph "
        "%d",
        at_once, wait, later, update, destroy, graph, cuGraphCreate(&another, 0));
    _exit(BROKEN_ON_PURPOSE);
}

static void failed_inside(void)
{
    straight g;
    unsigned *nowhere = NULL, a = 1, b = 2;
    void *params[] = {&nowhere, &a, &b};
    add_chain(g, 2);
    OK(g.kernel(function_of((const void *)faults), params));
    add_chain(g, 2);
    ready(g);
    CUresult launch = cuGraphLaunch(g.exec, stream), again = cuGraphLaunch(g.exec, stream),
             wait = cuStreamSynchronize(stream), query = cuStreamQuery(stream);
    CUresult next = cuGraphLaunch(g.exec, stream),
             eager = cuLaunchKernel(chain_f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    say("a graph whose kernel faults",
        "launch %d, again %d, wait %d, query %d, next launch %d, eager launch %d", launch, again,
        wait, query, next, eager);
    _exit(BROKEN_ON_PURPOSE);
}

static void failed_eagerly(void)
{
    unsigned a = 1, b = 2;
    void *params[] = {&words, &a, &b};
    faults<<<1, 1, 0, stream>>>(NULL);
    CUresult launch = cuLaunchKernel(chain_f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
             wait = cuStreamSynchronize(stream), query = cuStreamQuery(stream);
    say("a kernel that faults", "launch behind it %d, wait %d, query %d", launch, wait, query);
    _exit(BROKEN_ON_PURPOSE);
}

static void unloaded(void)
{
    cudaLibrary_t library;
    cudaKernel_t kernel;
    const char *path = getenv("GRAPH_FACTS_FATBIN");
    if (!path ||
        cudaLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0) != cudaSuccess) {
        say("a graph of unloaded code", "not asked: GRAPH_FACTS_FATBIN names no file");
        _exit(BROKEN_ON_PURPOSE);
    }
    OK(cudaLibraryEnumerateKernels(&kernel, 1, library));
    CUfunction f;
    OK(cuKernelGetFunction(&f, (CUkernel)kernel));
    unsigned long long zeros[16] = {};
    void *params[16];
    for (auto &p : params)
        p = &zeros[&p - params];
    zeros[0] = (unsigned long long)words;
    straight g;
    CUresult add = g.kernel(f, params), build = add ? add : g.finish();
    CUresult unload = (CUresult)cudaLibraryUnload(library);
    say("a graph of unloaded code", "add %d, instantiate %d, unload %d", add, build, unload);
    CUresult launch = build ? build : cuGraphLaunch(g.exec, stream),
             wait = cuStreamSynchronize(stream);
    say("it launched", "%d, wait %d, destroy exec %d", launch, wait,
        build ? -1 : (int)cuGraphExecDestroy(g.exec));
    _exit(BROKEN_ON_PURPOSE);
}

/* ---- a limit that is raised since ---- */

__global__ void descends(unsigned *result, unsigned depth)
{
    *result = descend(depth, 1);
}

/* A kernel that needs more stack than there was when its graph was made, and is there now. */
static void stack_raised(void)
{
    unsigned depth = 2, deep = 200, eagerly;
    void *params[] = {&words, &depth}, *deep_params[] = {&words, &deep};
    CUfunction f = function_of((const void *)descends);
    straight g;
    OK(g.kernel(f, params));
    ready(g);
    OK(cuGraphLaunch(g.exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cudaDeviceSetLimit(cudaLimitStackSize, 256 * KIB));
    descends<<<1, 1, 0, stream>>>(words, deep);
    OK(cuStreamSynchronize(stream));
    eagerly = word();
    clear();
    CUresult set = g.set(0, f, deep_params), launch = cuGraphLaunch(g.exec, stream),
             wait = cuStreamSynchronize(stream);
    say("a kernel that needs the stack that was raised since its graph was made",
        "set %d, launch %d, wait %d, %s", set, launch, wait,
        wait                ? "-"
        : word() == eagerly ? "the same as eagerly"
                            : "ANOTHER RESULT");
    _exit(BROKEN_ON_PURPOSE);
}

/* ---- memory that is freed, and comes back at the same address ---- */

enum does { FILLS, COPIES_WITHIN, COPIES_OUT }; /* out: to the host */
enum goes { DEVICE, POOL, PINNED, REGISTERED }; /* which memory is freed and had again */

struct named {
    static constexpr size_t bytes = 4 * MIB, used = 4096;
    bool of_pool, is_registered;
    CUdeviceptr device = 0;
    void *host = NULL;

    explicit named(enum goes which) : of_pool(which == POOL), is_registered(which == REGISTERED)
    {
        if (is_registered)
            host = aligned_alloc(4096, bytes);
        take_device();
        take_host();
    }
    void take_device(void)
    {
        if (of_pool)
            OK(cuMemAllocAsync(&device, bytes, stream));
        else
            OK(cuMemAlloc(&device, bytes));
        OK(cuStreamSynchronize(stream));
    }
    void give_device(void)
    {
        if (of_pool)
            OK(cuMemFreeAsync(device, stream));
        else
            OK(cuMemFree(device));
        OK(cuStreamSynchronize(stream)); /* the pool keeps nothing beyond */
    }
    void take_host(void)
    {
        if (is_registered)
            OK(cuMemHostRegister(host, bytes, 0));
        else
            OK(cuMemHostAlloc(&host, bytes, 0));
    }
    void give_host(void)
    {
        if (is_registered)
            OK(cuMemHostUnregister(host));
        else
            OK(cuMemFreeHost(host));
    }
};

/* Where the driver's own memory was, the host heap has other bytes now. */
static void stir(void)
{
    void *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc(16 + 24 * i);
        memset(blocks[i], 0x5a + i, 16 + 24 * i);
    }
    for (void *block : blocks)
        free(block);
}

/* Is it freed and had again? At the same address. */
static bool had_again(named &memory, enum goes which)
{
    CUdeviceptr device = memory.device;
    void *host = memory.host;
    bool is_host = which == PINNED || which == REGISTERED;
    if (is_host)
        memory.give_host();
    else
        memory.give_device();
    stir();
    if (is_host)
        memory.take_host();
    else
        memory.take_device();
    return memory.device == device && memory.host == host;
}

/* One graph after the other names such memory, and is launched before and behind its free; or
 * uploaded before it, or only instantiated. `set`: its node is set once more, to what it has. */
static void freed(const char *name, enum does what, enum goes which, bool set, int before)
{
    named memory(which);
    int same = 0, wrong = 0, code = 0;
    CUdeviceptr other;
    OK(cuMemAlloc(&other, named::bytes));
    for (int turn = 0; turn < 100; turn++) {
        straight g;
        CUgraphNode node;
        CUDA_MEMSET_NODE_PARAMS fill = {};
        fill.dst = memory.device;
        fill.value = turn & 255;
        fill.elementSize = 1;
        fill.width = named::used;
        fill.height = 1;
        CUDA_MEMCPY3D copy = linear(what == COPIES_OUT ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                                    what == COPIES_OUT ? memory.host : (void *)other,
                                    CU_MEMORYTYPE_DEVICE, (void *)memory.device, named::used);
        add_chain(g, 1);
        CUresult added =
            what == FILLS
                ? cuGraphAddMemsetNode(&node, g.graph, g.before(), g.n_before(), &fill, context)
                : cuGraphAddMemcpyNode(&node, g.graph, g.before(), g.n_before(), &copy, context);
        OK(g.added(added, node));
        add_chain(g, 1);
        OK(g.finish());
        if (before > 0)
            OK(cuGraphUpload(g.exec, stream));
        if (before > 1)
            OK(cuGraphLaunch(g.exec, stream));
        OK(cuStreamSynchronize(stream));
        if (!had_again(memory, which))
            continue;
        same++;
        if (what != FILLS)
            OK(cuMemsetD8(memory.device, turn & 255, named::used));
        OK(cuCtxSynchronize());
        if (set)
            code |= what == FILLS
                        ? cuGraphExecMemsetNodeSetParams(g.exec, g.nodes[1], &fill, context)
                        : cuGraphExecMemcpyNodeSetParams(g.exec, g.nodes[1], &copy, context);
        code |= cuGraphLaunch(g.exec, stream);
        OK(cuStreamSynchronize(stream));
        unsigned char byte;
        OK(cuMemcpyDtoH(&byte, what == COPIES_WITHIN ? other : memory.device, 1));
        wrong += (what == COPIES_OUT ? *(unsigned char *)memory.host : byte) != (turn & 255);
    }
    say(name, "code %d, %d wrong; had its address again %d of 100 times", code, wrong, same);
}

#define FREED(name, text, does, goes, before)                   \
    static void name(void)                                      \
    {                                                           \
        freed(text, does, goes, false, before);                 \
    }                                                           \
    static void name##_set(void)                                \
    {                                                           \
        freed("the same, set again", does, goes, true, before); \
    }
FREED(freed_fill, "a fill of device memory freed since", FILLS, DEVICE, 2)
FREED(freed_copy, "a copy from it, within the device", COPIES_WITHIN, DEVICE, 2)
FREED(freed_to_host, "a copy from it to pinned memory", COPIES_OUT, DEVICE, 2)
FREED(freed_uploaded, "likewise, uploaded before the free, launched behind it", COPIES_OUT, DEVICE,
      1)
FREED(freed_built, "likewise, instantiated before the free, launched behind it", COPIES_OUT, DEVICE,
      0)
FREED(freed_pinned, "a copy to pinned memory freed since", COPIES_OUT, PINNED, 2)
FREED(freed_registered, "a copy to registered memory unregistered since", COPIES_OUT, REGISTERED, 2)
FREED(freed_pool, "a copy from a pool's memory freed since, to pinned memory", COPIES_OUT, POOL, 2)

/* What a run of 1000 fills takes the device, set once more before or behind its first upload. */
static void first_set(void)
{
    double us[3];
    for (int how = 0; how < 3; how++) {
        straight g;
        std::vector<CUDA_MEMSET_NODE_PARAMS> fills(1000);
        for (auto &fill : fills) {
            CUgraphNode node;
            fill = {};
            fill.dst = (CUdeviceptr)words;
            fill.elementSize = 1;
            fill.width = 64;
            fill.height = 1;
            CUresult added =
                cuGraphAddMemsetNode(&node, g.graph, g.before(), g.n_before(), &fill, context);
            OK(g.added(added, node));
        }
        OK(g.finish());
        if (how == 2)
            OK(cuGraphUpload(g.exec, stream));
        for (size_t i = 0; how && i < fills.size(); i++)
            OK(cuGraphExecMemsetNodeSetParams(g.exec, g.nodes[i], &fills[i], context));
        OK(cuGraphUpload(g.exec, stream));
        OK(cuStreamSynchronize(stream));
        us[how] = median_us(31, [&] {
            OK(cuGraphLaunch(g.exec, stream));
            OK(cuStreamSynchronize(stream));
        });
    }
    say("1000 fills", "%.1f us; set before the first upload %.1f, behind it %.1f", us[0], us[1],
        us[2]);
}

static const struct fact {
    const char *name;
    void (*ask)(void);
} facts[] = {
    {"events", events},
    {"updates_in_flight", updates_in_flight},
    {"same_executable", same_executable},
    {"cuts", cuts},
    {"mixed", mixed},
    {"costs_by_length", costs_by_length},
    {"update_costs", update_costs},
    {"first_update", first_update},
    {"kernel_handles", kernel_handles},
    {"copies", copies},
    {"pageable_copies", pageable_copies},
    {"copies_among_kernels", copies_among_kernels},
    {"fills", fills},
    {"fill_shapes", fill_shapes},
    {"hosts", hosts},
    {"cooperative_and_cluster", cooperative_and_cluster},
    {"attributes", attributes},
    {"priorities", priorities},
    {"programmatic", programmatic},
    {"programmatic_serialization", programmatic_serialization},
    {"streams", streams},
    {"concurrency", concurrency},
    {"depth", depth},
    {"building_beside", building_beside},
    {"captured_beside", captured_beside},
    {"pointer_costs", pointer_costs},
    {"call_costs", call_costs},
    {"shared_memory", shared_memory},
    {"failed_before", failed_before},
    {"failed_inside", failed_inside},
    {"failed_eagerly", failed_eagerly},
    {"stack_raised", stack_raised},
    {"freed_fill", freed_fill},
    {"freed_fill_set", freed_fill_set},
    {"freed_copy", freed_copy},
    {"freed_copy_set", freed_copy_set},
    {"freed_to_host", freed_to_host},
    {"freed_to_host_set", freed_to_host_set},
    {"freed_uploaded", freed_uploaded},
    {"freed_uploaded_set", freed_uploaded_set},
    {"freed_built", freed_built},
    {"freed_built_set", freed_built_set},
    {"freed_pinned", freed_pinned},
    {"freed_pinned_set", freed_pinned_set},
    {"freed_registered", freed_registered},
    {"freed_registered_set", freed_registered_set},
    {"freed_pool", freed_pool},
    {"freed_pool_set", freed_pool_set},
    {"first_set", first_set},
    {"unloaded", unloaded},
};
#define N_FACTS (sizeof facts / sizeof *facts)

/* Which fact is being asked, seen by the parent when its child dies of it. */
static volatile size_t *asking;

static void begin(void)
{
    OK(cudaFree(NULL));
    OK(cuCtxGetCurrent(&context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cudaMalloc(&words, MIB));
    chain_f = function_of((const void *)chain);
    slow_f = function_of((const void *)slow);
    clear();
    run_slow(stream, 0);
    chain<<<1, 1, 0, stream>>>(words, 1, 2);
    copy_words<<<1, 1, 0, stream>>>(words + 1, words, 1);
    OK(cudaDeviceSynchronize());
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name))
            return true;
    return argc == 1;
}

static void ask_from(size_t i, int argc, char **argv)
{
    begin();
    for (; i < N_FACTS; i++) {
        if (!wanted(facts[i].name, argc, argv))
            continue;
        *asking = i;
        alarm(30);
        facts[i].ask();
    }
    _exit(0);
}

/* What breaks the context or hangs ends its process, and the next fact is asked in a new one. */
int main(int argc, char **argv)
{
    size_t next = 0;
    int status;
    asking = (volatile size_t *)mmap(NULL, sizeof *asking, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OK(asking == MAP_FAILED);
    while (next < N_FACTS) {
        *asking = N_FACTS;
        pid_t child = fork();
        if (child == 0)
            ask_from(next, argc, argv);
        OK(child < 0 || waitpid(child, &status, 0) != child);
        if (*asking == N_FACTS)
            return status != 0;
        if (status && status != W_EXITCODE(BROKEN_ON_PURPOSE, 0))
            say(facts[*asking].name, "ENDED WITH STATUS %#x", status);
        if (!status)
            return 0;
        next = *asking + 1;
    }
    return 0;
}
