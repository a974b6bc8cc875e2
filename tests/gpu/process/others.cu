/*
 * A kernel that goes on only when another thread has set a word, while the thread that launched it
 * frees memory. Natively that free waits for the kernel, in its own thread and nowhere else: the
 * other one works, asks and allocates as if nothing were.
 *
 *     others SCENARIO [waits]     SCENARIO: works, asks (about its event, first), calls (what
 *                                 natively waits for nothing, first)
 *
 * The kernel gives up after a second, so that a wrong order is a wrong answer and no hang. `waits`
 * lets the other thread's stream wait for it: every scenario must then be found broken.
 */
#include "tests/gpu/check.h"

#include <atomic>
#include <thread>

static const unsigned gave_up = 1, went_on = 2;
static const long long timeout = 2000 * 1000 * 1000LL; /* cycles */
static const int n_iterations = 50;

static const char *scenario;
static bool waits;
static unsigned *word, *answer;
static cudaStream_t ours, theirs;
static cudaEvent_t behind; /* the kernel */
static std::atomic<int> launched{0}, answered{0};
static std::atomic<bool> is_ready{false};

__global__ void persist(const volatile unsigned *flag, unsigned *how, long long cycles)
{
    long long start = clock64();
    while (!*flag && clock64() - start < cycles)
        ;
    *how = *flag ? went_on : gave_up;
}

static void wait_for(const std::atomic<int> &count, int n)
{
    while (count.load() < n)
        std::this_thread::yield();
}

static void sleep_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};
    (void)nanosleep(&t, NULL);
}

static void call_this_and_that(void)
{
    void *p;
    OK(cudaMalloc(&p, 4096));
    OK(cudaStreamQuery(theirs));
    OK(cudaMemsetAsync(p, 1, 4096, theirs));
}

static void set_words(void)
{
    static const unsigned one = 1;
    OK(cudaMemsetAsync(answer + 1, 0, sizeof *answer, theirs));
    OK(cudaStreamSynchronize(theirs));
    is_ready = true;
    for (int i = 1; i <= n_iterations; i++) {
        wait_for(launched, i);
        sleep_ms(1 + i % 3); /* the free is under way, or has returned */
        if (waits)
            OK(cudaStreamWaitEvent(theirs, behind, 0));
        if (!strcmp(scenario, "asks"))
            EXPECT(cudaErrorNotReady, cudaEventQuery(behind));
        if (!strcmp(scenario, "calls"))
            call_this_and_that();
        OK(cudaMemcpyAsync(word, &one, sizeof one, cudaMemcpyHostToDevice, theirs));
        answered = i;
    }
}

/* True: the kernel went on. */
static bool goes_on(int i, void **block)
{
    unsigned how = 0;
    OK(cudaMemsetAsync(word, 0, sizeof *word, ours));
    OK(cudaStreamSynchronize(ours));
    persist<<<1, 1, 0, ours>>>(word, answer, timeout);
    OK(cudaGetLastError());
    OK(cudaEventRecord(behind, ours));
    launched = i;
    OK(cudaFree(*block));
    OK(cudaMalloc(block, MIB));
    wait_for(answered, i);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(&how, answer, sizeof how, cudaMemcpyDeviceToHost));
    return how == went_on;
}

static void begin(void **block)
{
    OK(cudaMalloc(&word, sizeof *word));
    OK(cudaMalloc(&answer, 2 * sizeof *answer));
    OK(cudaStreamCreateWithFlags(&ours, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming));
    for (int i = 0; i < 4; i++) { /* from here on, frees need not wait */
        OK(cudaMalloc(block, MIB));
        OK(cudaFree(*block));
    }
    OK(cudaMalloc(block, MIB));
    persist<<<1, 1, 0, ours>>>(word, answer, 0);
    OK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    int n = 0, n_wrong = 0;
    void *block;
    scenario = argc > 1 ? argv[1] : "";
    waits = argc > 2 && !strcmp(argv[2], "waits");
    if (strcmp(scenario, "works") && strcmp(scenario, "asks") && strcmp(scenario, "calls")) {
        fprintf(stderr, "usage: others works|asks|calls [waits]\n");
        return EXIT_UNUSABLE;
    }
    begin(&block);
    std::thread other(set_words);
    while (!is_ready)
        std::this_thread::yield();
    for (int i = 1; i <= n_iterations; i++, n++)
        n_wrong += n_wrong < 3 ? !goes_on(i, &block) : (launched = i, 0);
    other.join();
    printf("%d of %d gave up\n", n_wrong, n);
    return n_wrong ? EXIT_BROKEN : 0;
}
