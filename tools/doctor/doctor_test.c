/* doctor_test.c: the self-test runs a small program natively and under the library, with the
 * driver's functions looked up in each way, and compares the bytes.
 *
 * The program computes wrong bytes under a library that reuses memory too early: it frees memory
 * that a stream may still write or read, as cudaFree allows, and allocates again at once. Then it
 * repeats the same operations on two buffers with other values each time, which replay can launch
 * as graphs. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/api/allograft.h"
#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_driver.h"
#include "tools/run/environment.h"

#define ITERATIONS 200u
#define WORDS      (64u * 1024u)
#define STREAMS    3u
#define REPEATS    64u /* of a sequence that may be replayed */
#define LINKS      16u /* operations in that sequence */
#define TIMEOUT_S  120u

/* ---- the program ---- */

static struct doctor_calls cu;

static uint64_t hash(const uint32_t *words, size_t n, uint64_t so_far)
{
    for (size_t i = 0; i < n; i++)
        so_far = (so_far ^ words[i]) * 0x100000001b3u; /* FNV-1a, by words */
    return so_far;
}

/* Fills and copies temporaries on a stream, and frees them while that may still be under way. */
static CUresult use_temporaries(CUstream stream, CUdeviceptr out, uint32_t value)
{
    CUdeviceptr first, second;
    CUresult result = cu.cuMemAlloc_v2(&first, WORDS * 4);

    if (result == CUDA_SUCCESS)
        result = cu.cuMemsetD32Async(first, value, WORDS, stream);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemAlloc_v2(&second, WORDS * 4);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemcpyDtoDAsync_v2(second, first, WORDS * 4, stream);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemFree_v2(first);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemcpyDtoDAsync_v2(out, second, WORDS * 4, stream);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemFree_v2(second);
    return result;
}

/* Repeats a chain of operations that copy values to and fro between two buffers, and waits for each
 * repetition. The hash depends on every operation. */
static CUresult repeat(CUstream stream, CUdeviceptr a, CUdeviceptr b, uint64_t *hash_so_far)
{
    static uint32_t words[WORDS];
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < REPEATS && result == CUDA_SUCCESS; i++) {
        for (uint32_t k = 0; k < LINKS && result == CUDA_SUCCESS; k += 2) {
            result = cu.cuMemsetD32Async(a + (CUdeviceptr)k * 64, i * 77u + k, 256, stream);
            if (result == CUDA_SUCCESS)
                result = cu.cuMemcpyDtoDAsync_v2(k % 4 ? a + 1024 : b, k % 4 ? b : a, 8192, stream);
        }
        if (result == CUDA_SUCCESS)
            result = cu.cuStreamSynchronize(stream);
    }
    if (result == CUDA_SUCCESS)
        result = cu.cuMemcpyDtoH_v2(words, a, sizeof(words));
    *hash_so_far = hash(words, WORDS, *hash_so_far);
    return result;
}

static CUresult work(uint64_t *ret_hash)
{
    static uint32_t words[WORDS];
    CUstream streams[STREAMS] = {NULL};
    CUdeviceptr out[STREAMS];
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < STREAMS && result == CUDA_SUCCESS; i++) {
        result = i ? cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            result = cu.cuMemAlloc_v2(&out[i], WORDS * 4);
    }
    *ret_hash = 0xcbf29ce484222325u;
    for (uint32_t k = 0; k < ITERATIONS && result == CUDA_SUCCESS; k++) {
        unsigned i = k * 7 % STREAMS;

        result = use_temporaries(streams[i], out[i], k * 2654435761u);
        if (result != CUDA_SUCCESS || k % 5 != 4)
            continue;
        result = cu.cuStreamSynchronize(streams[i]);
        if (result == CUDA_SUCCESS)
            result = cu.cuMemcpyDtoH_v2(words, out[i], sizeof(words));
        *ret_hash = hash(words, WORDS, *ret_hash);
    }
    if (result == CUDA_SUCCESS)
        result = cu.cuCtxSynchronize(); /* another stream wrote the second buffer */
    return result == CUDA_SUCCESS ? repeat(streams[1], out[1], out[2], ret_hash) : result;
}

/* Prints how much the library took over: zeros without it. */
static void print_taken_over(void)
{
    struct allograft_snapshot snapshot = {.bytes = sizeof(snapshot)};
    unsigned long long redirected, replayed;

    if (allograft_snapshot(&snapshot) != ALLOGRAFT_OK)
        memset(&snapshot, 0, sizeof(snapshot));
    redirected = snapshot.allocations[ALLOGRAFT_POOLED] + snapshot.allocations[ALLOGRAFT_MANAGED];
    replayed = snapshot.replay_replayed;
    printf(" %llu %llu\n", redirected, replayed);
}

int doctor_work(const char *lookup)
{
    const char *missing = doctor_open_driver(lookup, &cu);
    CUresult result;
    uint64_t sum = 0;

    (void)alarm(TIMEOUT_S); /* a driver that hangs must not make the doctor hang */
    if (missing) {
        printf("no %s\n", missing);
        return STATUS_FAILED;
    }
    result = doctor_begin(&cu);
    if (result == CUDA_SUCCESS)
        result = work(&sum);
    if (result == CUDA_SUCCESS)
        result = cu.cuCtxSynchronize();
    printf("%d %016llx", (int)result, (unsigned long long)sum);
    print_taken_over();
    return result == CUDA_SUCCESS ? STATUS_OK : STATUS_FAILED;
}

/* ---- running it ---- */

struct outcome {
    bool ran;
    int result;
    char sum[32];
    unsigned long long redirected, replayed;
    char how[64]; /* what went wrong, unless it ran */
};

#define GRAPHS "graphs" /* instead of a policy: native memory, and replay on every stream */

struct under {
    const char *library, *policy; /* no library: natively */
};

/* These settings count, not the user's. */
static bool prepare_program(const void *with)
{
    const struct under *under = with;

    for (size_t i = 0; i < ag_options_count(); i++)
        unsetenv(ag_option_info(i)->name);
    setenv("ALLOGRAFT_GRAPH", strcmp(under->policy, GRAPHS) ? "off" : "all", 1);
    setenv("ALLOGRAFT_GRAPH_PROFIT", "0", 1); /* replay is to work, not to be faster */
    setenv("ALLOGRAFT_STATS", "off", 1);
    setenv("ALLOGRAFT_COUNTERS", "off", 1);
    setenv("ALLOGRAFT_LOG", "error", 1); /* the findings say what the driver lacks */
    setenv("ALLOGRAFT_POLICY", strcmp(under->policy, GRAPHS) ? under->policy : "native", 1);
    return !under->library || preload_library(under->library) == STATUS_OK;
}

static struct outcome run_work(const char *lookup, const char *library, const char *policy)
{
    const struct under under = {library, policy};
    struct outcome outcome = {.ran = false};
    char text[200];
    bool ended = doctor_run_child(lookup, prepare_program, &under, text, sizeof(text));

    outcome.ran = ended && sscanf(text, "%d %31s %llu %llu", &outcome.result, outcome.sum,
                                  &outcome.redirected, &outcome.replayed) == 4;
    text[strcspn(text, "\n")] = '\0';
    snprintf(outcome.how, sizeof(outcome.how), "%.60s", text);
    return outcome;
}

static void compare_with_native(struct findings *findings, const char *lookup, const char *library,
                                const char *policy, const struct outcome *native)
{
    struct outcome outcome = run_work(lookup, library, policy);
    bool graphs = !strcmp(policy, GRAPHS);
    unsigned long long taken_over = graphs ? outcome.replayed : outcome.redirected;
    char name[64], what[64];

    snprintf(name, sizeof(name), "%s_%s", policy, lookup);
    snprintf(what, sizeof(what), "%s%s, looked up by %s",
             graphs ? "GRAPH=all" : "POLICY=", graphs ? "" : policy, lookup);
    if (!outcome.ran || outcome.result)
        findings_add(findings, VERDICT_FAIL, "self-test", name, "%s: %s", what,
                     outcome.ran ? "the driver returned an error" : outcome.how);
    else if (strcmp(outcome.sum, native->sum) != 0)
        findings_add(findings, VERDICT_FAIL, "self-test", name, "%s: DIFFERENT BYTES than natively",
                     what);
    else if (!taken_over)
        findings_add(findings, VERDICT_LACK, "self-test", name,
                     "%s: the same bytes, but nothing was %s", what,
                     graphs ? "launched in graphs" : "redirected");
    else
        findings_add(findings, VERDICT_GOOD, "self-test", name,
                     "%s: the same bytes as natively, %llu %s", what, taken_over,
                     graphs ? "operations launched in graphs" : "allocations redirected");
}

void doctor_self_test(struct findings *findings)
{
    static const char *const lookups[] = {"dlsym", "get-proc"}, *const policies[] = {"pool",
                                                                                     "managed"};
    struct outcome native = run_work("dlsym", NULL, "native");
    char library[PATH_MAX];

    if (!native.ran || native.result) {
        findings_add(findings, VERDICT_FAIL, "self-test", "native",
                     "a small program fails natively: %s", native.how);
        return;
    }
    if (locate_library(library, sizeof(library)) != STATUS_OK || !preload_can_name(library))
        return; /* doctor_machine() has said so */
    for (size_t p = 0; p < 2; p++) {
        for (size_t d = 0; d < 2; d++)
            compare_with_native(findings, lookups[d], library, policies[p], &native);
    }
    compare_with_native(findings, lookups[0], library, GRAPHS, &native);
}
