/* Patterns of launches that are hard to follow: of each, what the kernels made of their order and
 * of their parameters. Argument: how often each goes round. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "tests/common/context.h"
#include "tests/common/say.h"

#define N_KERNELS 6u
#define END       (-1)

static CUfunction kernels[N_KERNELS];
static CUdeviceptr words;
static CUstream streams[3];
static CUevent event;

/* word = word * 31 + number * value: neither the order nor any parameter may change */
static void fold(const struct sim_kernel_call *call)
{
    uint32_t *word = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*word), true);

    if (word)
        *word = *word * 31 + *(const uint32_t *)call->args[1] * call->block[0];
}

static void launch(unsigned kernel, CUstream stream, CUdeviceptr p, uint32_t value)
{
    void *args[] = {&p, &value};

    OK(cuLaunchKernel(kernels[kernel % N_KERNELS], 1, 1, 1, 1 + kernel, 1, 1, 0, stream, args,
                      NULL));
}

/* ---- which kernel comes as the i-th of the iteration; END: the iteration is over ---- */

static int same(unsigned iteration, unsigned i)
{
    (void)iteration;
    return i < 8 ? 0 : END;
}

static int different(unsigned iteration, unsigned i)
{
    (void)iteration;
    return i < 9 ? (int)(i % N_KERNELS) : END;
}

static int alternating(unsigned iteration, unsigned i)
{
    return i < 7 ? (int)(i * (1 + iteration % 2) % N_KERNELS) : END;
}

static int growing(unsigned iteration, unsigned i)
{
    return i < 1 + iteration % 24 ? (int)(i % 3) : END;
}

static int shrinking(unsigned iteration, unsigned i)
{
    return i < 24 - iteration % 24 ? (int)(i % 4) : END;
}

/* Each iteration is the beginning of another one. */
static int prefixes(unsigned iteration, unsigned i)
{
    static const unsigned lengths[] = {12, 3, 7, 12, 1, 5};

    return i < lengths[iteration % 6] ? (int)(i % N_KERNELS) : END;
}

static int other_end(unsigned iteration, unsigned i)
{
    return i < 10 ? (int)(i < 9 ? i % 5 : iteration % N_KERNELS) : END;
}

static int other_beginning(unsigned iteration, unsigned i)
{
    return i < 10 ? (int)(i ? i % 5 : iteration % N_KERNELS) : END;
}

static int other_middle(unsigned iteration, unsigned i)
{
    return i < 11 ? (int)(i == 5 ? iteration % 3 : i % 4) : END;
}

/* A word that never repeats and is made of two letters all the same. */
static int aperiodic(unsigned iteration, unsigned i)
{
    unsigned n = iteration * 8 + i, ones = (unsigned)__builtin_popcount(n);

    return i < 8 ? (int)(ones % 2) : END;
}

static int random_order(unsigned iteration, unsigned i)
{
    uint32_t mixed = (iteration * 16 + i) * 2654435761u;

    return i < 9 ? (int)((mixed >> 16) % N_KERNELS) : END;
}

static int rarely_other(unsigned iteration, unsigned i)
{
    return i < 8 ? (int)(iteration % 17 == 16 && i == 4 ? 5 : i % 3) : END;
}

static int (*const patterns[])(unsigned, unsigned) = {
    same,      different,       alternating,  growing,   shrinking,    prefixes,
    other_end, other_beginning, other_middle, aperiodic, random_order, rarely_other,
};
static const char *const names[] = {
    "same",      "different",       "alternating",  "growing",   "shrinking",    "prefixes",
    "other end", "other beginning", "other middle", "aperiodic", "random order", "rarely other",
};

#define N_PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

/* ---- how an iteration ends, and where its launches go ---- */

/* On one stream, which the host waits for; the parameters change every third iteration. */
static void in_one_stream(unsigned pattern, unsigned iteration)
{
    int kernel;

    for (unsigned i = 0; (kernel = patterns[pattern](iteration, i)) != END; i++)
        launch((unsigned)kernel, streams[0], words, iteration / 3 + i);
    OK(cuStreamSynchronize(streams[0]));
}

/* On three streams, one of them the legacy one, in turn; nobody waits but now and then. */
static void in_three_streams(unsigned pattern, unsigned iteration)
{
    int kernel;

    for (unsigned i = 0; (kernel = patterns[pattern](iteration, i)) != END; i++) {
        unsigned which = (i / 4 + iteration / 8) % 3;

        launch((unsigned)kernel, streams[which], words + 4 * which, i);
        if (i == 5) { /* what comes on the next one has seen it */
            OK(cuEventRecord(event, streams[which]));
            OK(cuStreamWaitEvent(streams[(which + 1) % 3], event, 0));
            launch(1, streams[(which + 1) % 3], words + 4 * which, iteration);
            OK(cuEventRecord(event, streams[(which + 1) % 3]));
            OK(cuStreamWaitEvent(streams[which], event, 0));
        }
    }
    if (iteration % 5 == 4)
        OK(cuCtxSynchronize());
}

static void run(const char *where, void (*one_iteration)(unsigned, unsigned), unsigned n_iterations)
{
    for (unsigned pattern = 0; pattern < N_PATTERNS; pattern++) {
        uint32_t seen[3];

        OK(cuMemsetD32(words, 1, 3));
        OK(cuCtxSynchronize());
        for (unsigned iteration = 0; iteration < n_iterations; iteration++)
            one_iteration(pattern, iteration);
        OK(cuCtxSynchronize());
        OK(cuMemcpyDtoH(seen, words, sizeof(seen)));
        say("%s, %s: %08x %08x %08x", names[pattern], where, seen[0], seen[1], seen[2]);
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(uint32_t)};
    static const char image[64] = "any bytes";
    unsigned n_iterations = argc == 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    CUmodule module;

    if (!n_iterations)
        return 97;
    (void)context_open();
    for (unsigned i = 0; i < N_KERNELS; i++) {
        char name[] = {'f', (char)('0' + i), '\0'};

        sim_register_kernel(name, fold, 2, sizes);
        OK(cuModuleLoadData(&module, image));
        OK(cuModuleGetFunction(&kernels[i], module, name));
    }
    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    streams[2] = CU_STREAM_LEGACY;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&words, 64));
    run("one stream", in_one_stream, n_iterations);
    run("three streams", in_three_streams, n_iterations);
    return 0;
}
