/* Calls one hooked symbol with nothing but zeros, in one of three states, and goes on afterwards.
 * Arguments: the number of the symbol in hooks.def (printed with its name), and the state: "new"
 * before cuInit, "initialised", or "context". Without arguments prints the number of symbols. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooked.h"

/* Zeros enough for every parameter, those by value on the stack too. */
typedef CUresult (*any_function)(long, long, long, long, long, long, long, long, long, long, long,
                                 long, long, long, long, long);

static const struct {
    const char *name;
    any_function function;
} hooked[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    {#symbol, (any_function)(void *)hooked_##symbol},
#include "interpose/core/driver/hooks.def"
};

static void make_state(const char *state)
{
    CUcontext context;

    if (!strcmp(state, "new"))
        return;
    printf("cuInit: %d\n", (int)cuInit(0));
    if (!strcmp(state, "initialised"))
        return;
    printf("retain: %d\n", (int)cuDevicePrimaryCtxRetain(&context, 0));
    printf("set: %d\n", (int)cuCtxSetCurrent(context));
}

/* Does the rest still work, as far as the state allows? */
static void go_on(void)
{
    CUdeviceptr p = 0;
    CUresult code = cuMemAlloc(&p, 4096);

    printf("alloc: %d\n", (int)code);
    if (code == CUDA_SUCCESS) {
        printf("set: %d\n", (int)cuMemsetD8(p, 1, 4096));
        printf("free: %d\n", (int)cuMemFree(p));
        printf("free again: %d\n", (int)cuMemFree(p));
    }
}

int main(int argc, char **argv)
{
    const size_t n = sizeof(hooked) / sizeof(hooked[0]);
    size_t i = argc > 1 ? strtoul(argv[1], NULL, 10) : n;

    if (i >= n) {
        printf("%zu\n", n);
        return 0;
    }
    if (!hooked[i].function)
        return 77;
    setvbuf(stdout, NULL, _IONBF, 0);
    make_state(argc > 2 ? argv[2] : "context");
    printf("%s: ", hooked[i].name);
    printf("%d\n", (int)hooked[i].function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    go_on();
    return 3;
}
