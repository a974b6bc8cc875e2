/* Steps, the kernels, and at the end the number of calls that reached the driver: see step.h. */
#include "step.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SYMBOLS 256
#define LOOKED_AT   (1u << 16) /* words of a block, from its beginning and its end */

CUfunction step_fill, step_check;

static unsigned n_lost; /* blocks whose free failed, and whose place was needed */

static struct {
    const char *symbol;
    unsigned n;
} counts[MAX_SYMBOLS];

void step_print(const char *format, ...)
{
    char line[256];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    line[n++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(99);
}

static unsigned count_of(const char *symbol)
{
    unsigned i = 0;

    while (counts[i].symbol && strcmp(counts[i].symbol, symbol) != 0) {
        if (++i == MAX_SYMBOLS)
            _exit(99);
    }
    counts[i].symbol = symbol;
    return ++counts[i].n;
}

bool step_said(const char *symbol, CUresult code, bool surely_ready)
{
    if (!surely_ready && code == CUDA_ERROR_NOT_READY)
        code = CUDA_SUCCESS;
    step_print("%s %u: %d", symbol, count_of(symbol), (int)code);
    return code == CUDA_SUCCESS;
}

static void fill(const struct sim_kernel_call *call)
{
    uint32_t n = *(uint32_t *)call->args[1], value = *(uint32_t *)call->args[2];
    uint32_t *words = sim_kernel_access(*(CUdeviceptr *)call->args[0], n * sizeof(*words), true);

    for (uint32_t i = 0; words && i < n; i++) {
        if (i == LOOKED_AT && n > 2 * LOOKED_AT) /* pages that nobody looks at cost the most */
            i = n - LOOKED_AT;
        words[i] = value + i;
    }
}

static void check(const struct sim_kernel_call *call)
{
    uint32_t n = *(uint32_t *)call->args[1], value = *(uint32_t *)call->args[2];
    uint32_t *words = sim_kernel_access(*(CUdeviceptr *)call->args[0], n * sizeof(*words), false);
    uint32_t *result = sim_kernel_access(*(CUdeviceptr *)call->args[3], sizeof(*result), true);

    for (uint32_t i = 0; words && result && i < n; i++)
        *result += words[i] != value + i;
}

bool step_load(void)
{
    static const size_t sizes[] = {sizeof(CUdeviceptr), 4, 4, sizeof(CUdeviceptr)};
    static const char image[64] = "any text";
    CUmodule module;

    sim_register_kernel("fill", fill, 3, sizes);
    sim_register_kernel("check", check, 4, sizes);
    return STEP(cuModuleLoadData, &module, image) &&
           STEP(cuModuleGetFunction, &step_fill, module, "fill") &&
           STEP(cuModuleGetFunction, &step_check, module, "check");
}

bool step_open(int ordinal)
{
    CUcontext context;
    CUdevice device;

    return STEP(cuInit, 0) && STEP(cuDeviceGet, &device, ordinal) &&
           STEP(cuDevicePrimaryCtxRetain, &context, device) && STEP(cuCtxSetCurrent, context) &&
           step_load();
}

void step_launch_fill(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value)
{
    void *args[] = {&p, &n, &value};

    STEP(cuLaunchKernel, step_fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

void step_alloc(struct step_block *block, size_t bytes, CUstream stream, uint32_t value)
{
    n_lost += block->p != 0;
    block->n = (uint32_t)(bytes / sizeof(uint32_t));
    block->value = value;
    if (!STEP(cuMemAlloc, &block->p, bytes)) {
        block->p = 0;
        return;
    }
    if (block->n)
        step_launch_fill(stream, block->p, block->n, value);
}

void step_verify(const struct step_block *block, CUstream stream)
{
    static uint32_t words[LOOKED_AT];
    uint32_t wrong = 0, n = block->n < sizeof(words) / 4 ? block->n : (uint32_t)(sizeof(words) / 4);

    if (!block->p || !n || !STEP(cuMemcpyDtoHAsync, words, block->p, n * 4ul, stream) ||
        !STEP(cuStreamSynchronize, stream))
        return;
    for (uint32_t i = 0; i < n; i++)
        wrong += words[i] != block->value + i;
    step_print("wrong words: %u", wrong);
}

void step_free(struct step_block *block)
{
    if (block->p && STEP(cuMemFree, block->p))
        block->p = 0;
}

void step_context_gone(struct step_block *blocks, size_t n, int context)
{
    n_lost = 0; /* programs that lose blocks have one context */
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].context == context)
            blocks[i].p = 0;
    }
}

void step_live(const struct step_block *blocks, size_t n)
{
    unsigned live = n_lost;

    for (size_t i = 0; i < n; i++)
        live += blocks[i].p != 0;
    step_print("live blocks: %u", live);
}

/* After all handlers of exit: how often each symbol that Allograft hooks or calls was reached, into
 * the file that STEP_CALLS names. Twice as many lines as faults can be made of. */
__attribute__((destructor)) static void tell_calls(void)
{
    static const char *const symbols[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) #symbol,
#define AG_CALL                                            AG_HOOK
#include "interpose/core/driver/hooks.def"
    };
    const char *path = getenv("STEP_CALLS");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

    for (size_t i = 0; fd >= 0 && i < sizeof(symbols) / sizeof(symbols[0]); i++)
        dprintf(fd, "%s %lu\n", symbols[i], sim_calls(symbols[i]));
    if (fd >= 0)
        close(fd);
}
