/*
 * A kernel that goes on only when later work of another stream has set a word, after frees of
 * memory that its own stream used. Natively those frees have waited for all before them, and
 * nothing lets the other stream wait for the kernel: whatever orders frees on the device may not
 * cover it either.
 *
 * `late` and `beside-late`: a non-blocking stream is made while the kernel runs, which sets the
 * word or has no part in it.
 *
 * The kernel gives up after a second, so that a wrong order is a wrong answer and no hang. `waits`
 * lets the other stream wait for it: every scenario must then be found broken.
 */
#include "tests/gpu/check.h"

#include <vector>

static const unsigned gave_up = 1, went_on = 2;
static const long long timeout = 2000 * 1000 * 1000LL; /* cycles */
static const int n_iterations = 24;

static bool waits;
static cudaEvent_t behind;
static unsigned *word, *answer, *scratch;
static cudaStream_t held, other; /* the kernel's; what sets the word */
static bool late;                /* a non-blocking stream is made once the kernel runs; */
static bool uses_late;           /* and sets the word */

__global__ void persist(const volatile unsigned *flag, unsigned *how, long long cycles)
{
    long long start = clock64();
    while (!*flag && clock64() - start < cycles)
        ;
    *how = *flag ? went_on : gave_up;
}

__global__ void set(unsigned *flag)
{
    *(volatile unsigned *)flag = 1;
    __threadfence();
}

static void touch(unsigned *p, cudaStream_t stream)
{
    late_write<<<1, 1, 0, stream>>>(p, 1, 0, 20 * 1000);
    OK(cudaGetLastError());
}

/* As many as the iteration says, all used on the kernel's stream, some on the other one too. */
static void use_and_free(int iteration)
{
    static const size_t bytes[] = {512, 100000, 1 * MIB, 64 * MIB};
    std::vector<unsigned *> p(1 + iteration % 3);
    for (unsigned *&one : p) {
        OK(cudaMalloc(&one, bytes[iteration % 4]));
        touch(one, held);
        if (iteration % 5 == 4)
            touch(one, other);
    }
    for (unsigned *one : p) {
        OK(cudaFree(one));
        if (iteration % 7 == 6)
            touch(scratch, held);
    }
}

/* Work between the frees and the kernel, on one stream, the other, both or none. */
static void between(int iteration)
{
    if (iteration & 1)
        touch(scratch, held);
    if (iteration & 2)
        touch(scratch + 1, other);
}

static void set_word(int iteration)
{
    static const unsigned one = 1;
    if (iteration % 3 == 0)
        set<<<1, 1, 0, other>>>(word);
    else if (iteration % 3 == 1)
        OK(cudaMemsetAsync(word, 1, sizeof *word, other));
    else
        OK(cudaMemcpyAsync(word, &one, sizeof one, cudaMemcpyHostToDevice, other));
    OK(cudaGetLastError());
}

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static void start_kernel(long long cycles)
{
    persist<<<1, 1, 0, held>>>(word, answer, cycles);
    OK(cudaGetLastError());
    if (late) {
        cudaStream_t fresh = new_stream(cudaStreamNonBlocking);
        if (uses_late)
            other = fresh;
    }
    if (!waits)
        return;
    OK(cudaEventRecord(behind, held));
    OK(cudaStreamWaitEvent(other, behind, 0));
}

/* True: the kernel went on. */
static bool goes_on(int iteration)
{
    unsigned how = 0;
    OK(cudaMemset(word, 0, sizeof *word));
    OK(cudaDeviceSynchronize());
    use_and_free(iteration);
    between(iteration);
    start_kernel(timeout);
    if (iteration & 4)
        touch(scratch + 1, other);
    set_word(iteration);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(&how, answer, sizeof how, cudaMemcpyDeviceToHost));
    return how == went_on;
}

/* Loads every kernel and copy: the first launch of one may wait for the device. */
static void warm_up(void)
{
    warm_up_kernels();
    for (int i = 0; i < 3; i++)
        set_word(i);
    persist<<<1, 1, 0, held>>>(word, answer, 0);
    touch(scratch, other);
    OK(cudaDeviceSynchronize());
}

static bool choose(const char *scenario)
{
    if (!strcmp(scenario, "null-nonblocking")) {
        held = cudaStreamLegacy;
        other = new_stream(cudaStreamNonBlocking);
    } else if (!strcmp(scenario, "nonblocking-null")) {
        held = new_stream(cudaStreamNonBlocking);
        other = cudaStreamLegacy;
    } else if (!strcmp(scenario, "nonblocking")) {
        held = new_stream(cudaStreamNonBlocking);
        other = new_stream(cudaStreamNonBlocking);
    } else if (!strcmp(scenario, "blocking")) {
        held = new_stream(cudaStreamDefault);
        other = new_stream(cudaStreamDefault);
    } else if (!strcmp(scenario, "late") || !strcmp(scenario, "beside-late")) {
        held = new_stream(cudaStreamDefault);
        other = new_stream(cudaStreamDefault);
        late = true;
        uses_late = !strcmp(scenario, "late");
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    int n = 0, n_wrong = 0;
    waits = argc > 2 && !strcmp(argv[2], "waits");
    if (argc < 2 || !choose(argv[1])) {
        fprintf(stderr, "usage: persistent SCENARIO [waits]\n");
        return EXIT_UNUSABLE;
    }
    OK(cudaMalloc(&word, sizeof *word));
    OK(cudaMalloc(&answer, sizeof *answer));
    OK(cudaMalloc(&scratch, 2 * sizeof *scratch));
    OK(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming));
    warm_up();
    /* One that gave up is enough to know, and takes a second. */
    for (; n < n_iterations && n_wrong < 3; n++)
        n_wrong += !goes_on(n);
    printf("%d of %d gave up\n", n_wrong, n);
    return n_wrong ? EXIT_BROKEN : 0;
}
