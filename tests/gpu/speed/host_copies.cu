/*
 * Copies between the device and memory of the host that is not pinned, as `name value` lines,
 * medians of some; each after as many that do not count, as a program that copies much makes.
 *
 * usage: host_copies [two-cores|busy] WHAT
 *   rates       GB/s until the copy is done, by size, way and kind of memory; of pinned memory, too
 *   calls       microseconds until cudaMemcpyAsync is back, which is when the program may go on
 *   small       the same of 64 KiB to 1 MiB, by calls of the driver as a program finds them, and by
 *               its own functions ("own ..."), which whatever is preloaded does not see
 *   rows        GB/s of uploads in turn with no wait between them, until all are done
 *   both        GB/s of 4 and 64 MiB alone, by calls as those of "small"
 *   first MIB   the first copy of the process, which has nothing else behind it
 *   two-cores   on two cores of those that the process may use
 *   busy        beside 16 threads that compute
 */
#include "tests/gpu/check.h"
#include "tests/gpu/own.h"

#include <algorithm>
#include <atomic>
#include <cuda.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

static unsigned char *device;
static const size_t most = GIB;
static const unsigned char mark = 0x5a;

enum way { UP, DOWN };
static const char *const ways[] = {"up", "down"};

static void *map(size_t bytes, int protection, int flags, int file)
{
    void *p = mmap(NULL, bytes, protection, flags, file, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static unsigned char *untouched(size_t bytes)
{
    return (unsigned char *)map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static unsigned char *touched(size_t bytes)
{
    return (unsigned char *)memset(untouched(bytes), mark, bytes);
}

static void copy(enum way way, unsigned char *host, size_t bytes)
{
    if (way == UP)
        OK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, 0));
    else
        OK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, 0));
}

/* Until the call is back, or until the copy is done. */
static double copy_s(enum way way, unsigned char *host, size_t bytes, bool until_done)
{
    double start = now_s(), end;
    copy(way, host, bytes);
    if (until_done)
        OK(cudaStreamSynchronize(0));
    end = now_s();
    OK(cudaStreamSynchronize(0));
    return end - start;
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static int turns_of(size_t bytes)
{
    return bytes >= GIB ? 3 : bytes >= 16 * MIB ? 30 : 200;
}

static double median_s(enum way way, unsigned char *host, size_t bytes, bool until_done)
{
    std::vector<double> seconds;
    int n = turns_of(bytes);
    for (int i = 0; i < 2 * n; i++) {
        double s = copy_s(way, host, bytes, until_done);
        if (i >= n)
            seconds.push_back(s);
    }
    CHECK(way == UP || host[bytes - 1] == mark);
    return median(seconds);
}

static std::string size_name(size_t bytes)
{
    return bytes >= GIB   ? std::to_string(bytes / GIB) + "gib"
           : bytes >= MIB ? std::to_string(bytes / MIB) + "mib"
                          : std::to_string(bytes / KIB) + "kib";
}

static void say_rate(const char *kind, enum way way, size_t bytes, double seconds)
{
    printf("%s%s_%s_gb_per_s %.3f\n", kind, ways[way], size_name(bytes).c_str(),
           1e-9 * (double)bytes / seconds);
    fflush(stdout);
}

static void rates_of(const char *kind, unsigned char *host)
{
    for (size_t bytes : {64 * MIB, GIB})
        for (enum way way : {UP, DOWN})
            say_rate(kind, way, bytes, median_s(way, host, bytes, true));
}

/* Mapped anew each time: its pages are there, and not in the process. */
static void file_rate(void)
{
    char name[] = "/tmp/host_copies.XXXXXX";
    std::vector<double> seconds;
    int file = mkstemp(name);
    CHECK(file >= 0);
    OK(unlink(name));
    OK(ftruncate(file, (off_t)most));
    void *all = map(most, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    memset(all, mark, most);
    OK(munmap(all, most));
    for (int i = 0; i < 6; i++) {
        void *p = map(most, PROT_READ, MAP_PRIVATE, file);
        double s = copy_s(UP, (unsigned char *)p, most, true);
        if (i >= 3)
            seconds.push_back(s);
        OK(munmap(p, most));
    }
    say_rate("file_", UP, most, median(seconds));
    OK(close(file));
}

static void untouched_rate(void)
{
    std::vector<double> seconds;
    for (int i = 0; i < 6; i++) {
        unsigned char *p = untouched(most);
        double s = copy_s(DOWN, p, most, true);
        CHECK(p[0] == mark && p[most - 1] == mark);
        if (i >= 3)
            seconds.push_back(s);
        OK(munmap(p, most));
    }
    say_rate("untouched_", DOWN, most, median(seconds));
}

static void rates(void)
{
    unsigned char *plain = touched(most), *pinned;
    rates_of("", plain);
    OK(munmap(plain, most));
    untouched_rate();
    file_rate();
    OK(cudaMallocHost(&pinned, most));
    memset(pinned, mark, most);
    rates_of("pinned_", pinned);
    OK(cudaFreeHost(pinned));
}

static void calls_of(const std::vector<size_t> &sizes)
{
    unsigned char *plain = touched(64 * MIB);
    for (size_t bytes : sizes)
        for (enum way way : {UP, DOWN})
            printf("call_%s_%s_us %.3f\n", ways[way], size_name(bytes).c_str(),
                   1e6 * median_s(way, plain, bytes, false));
}

struct calls {
    CUresult (*up)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
    CUresult (*down)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
};

/* The driver's calls as a program finds them, and its own functions. */
struct both_sides {
    struct calls side[2];

    both_sides()
    {
        static const char *const up = "cuMemcpyHtoDAsync_v2", *const down = "cuMemcpyDtoHAsync_v2",
                                 *const driver = "libcuda.so.1";
        void *open = dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
        side[0].up = (decltype(calls::up))dlsym(open, up);
        side[0].down = (decltype(calls::down))dlsym(open, down);
        side[1].up = (decltype(calls::up))own_function(driver, up);
        side[1].down = (decltype(calls::down))own_function(driver, down);
        for (const struct calls &s : side)
            CHECK(s.up && s.down);
        printf("hooked %d\n", side[0].up != side[1].up && side[0].down != side[1].down);
    }
};

static double call_s(const struct calls &calls, enum way way, unsigned char *host, size_t bytes,
                     bool until_done)
{
    double start = now_s(), end;
    if (way == UP)
        OK(calls.up((CUdeviceptr)device, host, bytes, 0));
    else
        OK(calls.down(host, (CUdeviceptr)device, bytes, 0));
    if (until_done)
        OK(cudaStreamSynchronize(0));
    end = now_s();
    OK(cudaStreamSynchronize(0));
    return end - start;
}

/* Medians of both sides, in turns within one process: two processes differ by some percent, by
 * where their memory lies. */
static void compare_sides(const struct both_sides &both, enum way way, unsigned char *host,
                          size_t bytes, bool until_done, int turns, int warm, double ret_s[2])
{
    std::vector<double> seconds[2];
    for (int i = 0; i < 2 * (warm + turns); i++) {
        int side = (i + i / 2) % 2; /* none is always behind the other */
        double s = call_s(both.side[side], way, host, bytes, until_done);
        if (i >= 2 * warm)
            seconds[side].push_back(s);
    }
    for (int side = 0; side < 2; side++)
        ret_s[side] = median(seconds[side]);
}

static const char *const names_of_sides[2] = {"", "own "};

static void small(void)
{
    const struct both_sides both;
    unsigned char *plain = touched(MIB);
    for (size_t bytes : {64 * KIB, 256 * KIB, 512 * KIB, MIB})
        for (enum way way : {UP, DOWN}) {
            double s[2];
            compare_sides(both, way, plain, bytes, false, 1000, 100, s);
            for (int side = 0; side < 2; side++)
                printf("%scall_%s_%s_us %.3f\n", names_of_sides[side], ways[way],
                       size_name(bytes).c_str(), 1e6 * s[side]);
        }
}

/* Sixteen sources, each of which is the program's again when its call is back; `between` bytes are
 * a small copy after each, as biases follow weights. */
static double row_rate(unsigned char *host, size_t bytes, size_t between, cudaStream_t stream)
{
    enum { ROW = 16 };
    double start = now_s();
    for (size_t i = 0; i < ROW; i++) {
        size_t at = i * bytes;
        OK(cudaMemcpyAsync(device + at, host + at, bytes, cudaMemcpyHostToDevice, stream));
        if (between)
            OK(cudaMemcpyAsync(device + at, host + at, between, cudaMemcpyHostToDevice, stream));
    }
    OK(cudaStreamSynchronize(stream));
    return 1e-9 * (double)(ROW * bytes) / (now_s() - start);
}

static void row_of(const char *name, unsigned char *host, size_t bytes, size_t between,
                   cudaStream_t stream)
{
    std::vector<double> rates;
    for (int i = 0; i < 15; i++) {
        double rate = row_rate(host, bytes, between, stream);
        if (i >= 5)
            rates.push_back(rate);
    }
    printf("row_%s_gb_per_s %.3f\n", name, median(rates));
    fflush(stdout);
}

/* Of two mappings, as numpy has its arrays: all but the first page is to have huge pages. */
static unsigned char *advised(size_t bytes)
{
    unsigned char *p = untouched(bytes);
    OK(madvise(p + 4096, bytes - 4096, MADV_HUGEPAGE));
    return (unsigned char *)memset(p, mark, bytes);
}

static void rows(void)
{
    unsigned char *plain = touched(256 * MIB);
    cudaStream_t stream, apart;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    row_of("null_16mib", plain, 16 * MIB, 0, 0);
    row_of("stream_16mib", plain, 16 * MIB, 0, stream);
    row_of("apart_16mib", plain, 16 * MIB, 0, apart);
    row_of("mixed_16mib", plain, 16 * MIB, 4 * KIB, stream);
    row_of("advised_16mib", advised(256 * MIB), 16 * MIB, 0, apart);
    row_of("apart_4mib", plain, 4 * MIB, 0, apart);
    row_of("apart_2mib", plain, 2 * MIB, 0, apart);
}

/* 64 MiB both ways, for a crowd. */
static void both_ways(const std::string &kind)
{
    const struct both_sides both;
    unsigned char *plain = touched(64 * MIB);
    for (size_t bytes : {4 * MIB, 64 * MIB})
        for (enum way way : {UP, DOWN}) {
            double s[2];
            int turns = turns_of(bytes);
            compare_sides(both, way, plain, bytes, true, turns, turns, s);
            for (int side = 0; side < 2; side++)
                say_rate((names_of_sides[side] + kind).c_str(), way, bytes, s[side]);
        }
}

static void first(size_t bytes)
{
    unsigned char *plain = touched(bytes);
    double s = copy_s(UP, plain, bytes, true);
    printf("first_up_%s_us %.3f\n", size_name(bytes).c_str(), 1e6 * s);
}

/* The first two that it may use. */
static void keep_two_cores(void)
{
    cpu_set_t all, two;
    CPU_ZERO(&two);
    OK(sched_getaffinity(0, sizeof all, &all));
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &two);
    OK(sched_setaffinity(0, sizeof two, &two));
}

static std::atomic<bool> is_over{false};

static void compute(void)
{
    volatile double x = 1;
    while (!is_over)
        x = x * 1.0000001 + 0.5;
}

int main(int argc, char **argv)
{
    std::vector<std::thread> crowd;
    std::string kind, what;
    int at = 1;
    if (argc > at && (!strcmp(argv[at], "two-cores") || !strcmp(argv[at], "busy")))
        kind = argv[at++];
    if (argc <= at)
        return EXIT_UNUSABLE;
    what = argv[at];
    if (kind == "two-cores")
        keep_two_cores();
    for (int i = 0; kind == "busy" && i < 16; i++)
        crowd.emplace_back(compute);
    OK(cudaMalloc(&device, most));
    OK(cudaMemset(device, mark, most));
    OK(cudaDeviceSynchronize());
    if (what == "first")
        first((argc > at + 1 ? strtoull(argv[at + 1], NULL, 10) : 16) * MIB);
    else if (what == "calls")
        calls_of({2 * MIB, 4 * MIB, 16 * MIB, 64 * MIB});
    else if (what == "small")
        small();
    else if (what == "rows")
        rows();
    else if (what == "both")
        both_ways(kind == "busy" ? "busy_" : kind == "two-cores" ? "two_cores_" : "");
    else
        rates();
    is_over = true;
    for (std::thread &thread : crowd)
        thread.join();
    return 0;
}
