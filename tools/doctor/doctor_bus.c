/* doctor_bus.c: measures copies between host and device, of pageable and of pinned memory, and says
 * what faster copies of pageable memory could gain.
 *
 * The simulated driver makes the same calls, of less memory; what they take is not shown. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/copies/processors.h"
#include "interpose/copies/reach.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/text.h"
#include "tools/base/complain.h"
#include "tools/doctor/bus.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_driver.h"

#define MOST_BYTES      ((size_t)64 << 20)
#define SIMULATED_BYTES ((size_t)4 << 20)
#define LEAST_BYTES     ((size_t)1 << 20) /* where less is free */
#define COPIES          5u
#define MOST_NS         40000000u /* after which no further copy of a kind and direction begins */
#define TIMEOUT_S       30u

/* ---- measuring, in a process of its own ---- */

static struct doctor_calls cu;

struct buffers {
    CUdeviceptr device;
    void *host;
    size_t bytes;
    bool is_pinned;
};

static void release(const struct buffers *buffers)
{
    if (buffers->is_pinned && buffers->host)
        (void)cu.cuMemFreeHost(buffers->host);
    else
        free(buffers->host);
    if (buffers->device)
        (void)cu.cuMemFree_v2(buffers->device);
}

static CUresult get(struct buffers *buffers, size_t bytes)
{
    CUresult result = cu.cuMemAlloc_v2(&buffers->device, bytes);

    buffers->bytes = bytes;
    if (result != CUDA_SUCCESS)
        return result;
    if (buffers->is_pinned)
        result = cu.cuMemAllocHost_v2(&buffers->host, bytes);
    else
        buffers->host = malloc(bytes);
    if (result == CUDA_SUCCESS && !buffers->host)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        memset(buffers->host, 1, bytes); /* the first touch of a page is no copy */
    return result;
}

/* Gets as much as there is of both memories, up to `bytes`. */
static CUresult get_most(struct buffers *ret, bool is_pinned, size_t bytes)
{
    for (;; bytes /= 2) {
        CUresult result;

        *ret = (struct buffers){.is_pinned = is_pinned};
        result = get(ret, bytes);
        if (result == CUDA_SUCCESS)
            return result;
        release(ret);
        if (result != CUDA_ERROR_OUT_OF_MEMORY || bytes / 2 < LEAST_BYTES)
            return result;
    }
}

static CUresult copy(const struct buffers *buffers, bool to_device)
{
    CUresult result = to_device
                          ? cu.cuMemcpyHtoD_v2(buffers->device, buffers->host, buffers->bytes)
                          : cu.cuMemcpyDtoH_v2(buffers->host, buffers->device, buffers->bytes);

    /* The call may be over once all is in the driver's own memory. */
    return result == CUDA_SUCCESS ? cu.cuCtxSynchronize() : result;
}

/* In MB/s, the median of some copies after one that is not timed. */
static CUresult measure(const struct buffers *buffers, bool to_device, unsigned *ret_rate)
{
    uint64_t begin = ag_clock_ns(), took[COPIES], from;
    CUresult result = copy(buffers, to_device);
    unsigned n = 0;

    while (result == CUDA_SUCCESS && n < COPIES && (!n || ag_clock_ns() - begin < MOST_NS)) {
        from = ag_clock_ns();
        result = copy(buffers, to_device);
        took[n++] = ag_clock_ns() - from;
    }
    if (result != CUDA_SUCCESS)
        return result;
    qsort(took, n, sizeof(took[0]), doctor_compare_times);
    *ret_rate = (unsigned)(buffers->bytes * 1000 / (took[n / 2] + 1));
    return CUDA_SUCCESS;
}

static CUresult measure_both_ways(bool is_pinned, struct bus_rates *ret)
{
    size_t most = doctor_driver_is_simulated() ? SIMULATED_BYTES : MOST_BYTES;
    struct buffers buffers;
    CUresult result = get_most(&buffers, is_pinned, most);

    if (result != CUDA_SUCCESS)
        return result;
    ret->bytes = buffers.bytes;
    result = measure(&buffers, true, &ret->to_device);
    if (result == CUDA_SUCCESS)
        result = measure(&buffers, false, &ret->from_device);
    release(&buffers);
    return result;
}

/* Prints a line: the kind of memory, and what `rates` has or why there are none. */
static void print_rates(const char *kind, CUresult result, const struct bus_rates *rates)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        printf("%s %zu %u %u\n", kind, rates->bytes, rates->to_device, rates->from_device);
    else if (cu.cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
        printf("%s %s\n", kind, name);
    else
        printf("%s error %d\n", kind, (int)result);
}

int doctor_bus_work(void)
{
    static const char *const kinds[] = {"pageable", "pinned"};
    CUresult begun, result;

    (void)alarm(TIMEOUT_S);
    if (doctor_open_driver("dlsym", &cu))
        return STATUS_FAILED;
    begun = doctor_begin(&cu);
    for (size_t i = 0; i < 2; i++) {
        struct bus_rates rates = {0};

        result = begun == CUDA_SUCCESS ? measure_both_ways(i == 1, &rates) : begun;
        print_rates(kinds[i], result, &rates);
    }
    return STATUS_OK;
}

/* ---- showing it ---- */

/* Adds what the line of `text` that begins with `kind` says. */
static struct bus_rates add_rates(struct findings *findings, const char *kind, const char *text)
{
    const char *line = strstr(text, kind);
    struct bus_rates rates = {0};
    char size[32];

    line = line ? line + strlen(kind) + 1 : text;
    if (sscanf(line, "%zu %u %u", &rates.bytes, &rates.to_device, &rates.from_device) != 3) {
        rates.bytes = 0;
        findings_add(findings, VERDICT_INFO, "bus", kind, "%s memory: copies not measured: %.*s",
                     kind, (int)strcspn(line, "\n"), *line ? line : "the driver failed");
        return rates;
    }
    ag_text_size(size, sizeof(size), rates.bytes);
    if (doctor_driver_is_simulated())
        findings_add(findings, VERDICT_INFO, "bus", kind,
                     "%s memory: %s copied to device 0 and back", kind, size);
    else
        findings_add(findings, VERDICT_INFO, "bus", kind,
                     "%s memory: %.1f GB/s to device 0, %.1f GB/s from it, in copies of %s", kind,
                     rates.to_device / 1e3, rates.from_device / 1e3, size);
    return rates;
}

void doctor_bus(struct findings *findings)
{
    struct bus bus = {.processors = ag_processors_usable(),
                      .finds_host_memory = doctor_finds_host_memory(0),
                      .has_pages_by_call = ag_reach_can()};
    char text[400];

    (void)doctor_run_child("bus", doctor_prepare_alone, NULL, text, sizeof(text));
    bus.pageable = add_rates(findings, "pageable", text);
    bus.pinned = add_rates(findings, "pinned", text);
    if (doctor_driver_is_simulated() || !bus.pageable.bytes || !bus.pinned.bytes)
        return;
    bus_say_gain(&bus, text, sizeof(text));
    findings_add(findings, VERDICT_INFO, "bus", "gain", "%s", text);
}
