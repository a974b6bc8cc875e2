/* The stub driver's symbols: one distinct function each for what Allograft's list names, and a
 * store of functions without a name for everything else. None does anything but refuse.
 * Those here are weak: what NVIDIA's runtime calls while it starts is in stub_driver.c. */
#include "stub_driver.h"

static volatile int last_refused;

/* The argument makes the functions differ, so that no compiler merges two of them. */
static __attribute__((noinline)) CUresult refuse(int which)
{
    last_refused = which;
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define DEFINE(symbol)                                                               \
    STUB_EXPORT __attribute__((weak)) CUresult stub_##symbol(void) __asm__(#symbol); \
    CUresult stub_##symbol(void)                                                     \
    {                                                                                \
        return refuse(__COUNTER__);                                                  \
    }
#define AG_HOOK(base, symbol, since, flavour, need, flush) DEFINE(symbol)
#define AG_CALL(base, symbol, since, flavour, need, flush) DEFINE(symbol)
#define AG_UNHOOKED(symbol, flush, reason)                 DEFINE(symbol)
#include "interpose/core/driver/hooks.def"
#undef AG_HOOK
#undef AG_CALL
#undef AG_UNHOOKED
#undef AG_LIBC

const struct stub_symbol stub_unhooked[] = {
#define AG_UNHOOKED(symbol, flush, reason) {NULL, #symbol, 0, STUB_NONE, (void *)stub_##symbol},
#include "interpose/core/driver/hooks.def"
#undef AG_HOOK
#undef AG_CALL
#undef AG_UNHOOKED
#undef AG_LIBC
};

const unsigned stub_n_unhooked = sizeof(stub_unhooked) / sizeof(*stub_unhooked);

/* Asked for by NVIDIA's runtime while it starts. Where Allograft's list has the symbol too, both
 * rows name the same function. */
#define STARTUP(S)                                           \
    S(cuInit, cuInit, 2000)                                  \
    S(cuDriverGetVersion, cuDriverGetVersion, 2020)          \
    S(cuGetExportTable, cuGetExportTable, 3000)              \
    S(cuDeviceGet, cuDeviceGet, 2000)                        \
    S(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070) \
    S(cuDeviceGetCount, cuDeviceGetCount, 2000)              \
    S(cuDeviceGetName, cuDeviceGetName, 2000)                \
    S(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)           \
    S(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)      \
    S(cuDeviceGetUuid, cuDeviceGetUuid, 9020)

#define DECLARE(base, symbol, since) extern CUresult startup_##symbol(void) __asm__(#symbol);
STARTUP(DECLARE)
#undef DECLARE

const struct stub_symbol stub_symbols[] = {
#define ROW(base, symbol, since) {#base, #symbol, since, STUB_NONE, (void *)startup_##symbol},
    STARTUP(ROW)
#undef ROW
#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    {#base, #symbol, since, STUB_##flavour, (void *)stub_##symbol},
#define AG_CALL(base, symbol, since, flavour, need, flush) \
    {#base, #symbol, since, STUB_##flavour, (void *)stub_##symbol},
#include "interpose/core/driver/hooks.def"
#undef AG_HOOK
#undef AG_CALL
#undef AG_UNHOOKED
#undef AG_LIBC
        {0},
};

#define ONE(n)                          \
    static CUresult anonymous_##n(void) \
    {                                   \
        return refuse(10000 + n);       \
    }
#define NAME(n)   (void *)anonymous_##n,
#define TEN(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7) M(n##8) M(n##9)
#define HUNDRED(M, n) \
    TEN(M, n##0)      \
    TEN(M, n##1)      \
    TEN(M, n##2)      \
    TEN(M, n##3) TEN(M, n##4) TEN(M, n##5) TEN(M, n##6) TEN(M, n##7) TEN(M, n##8) TEN(M, n##9)
#define THOUSAND(M) \
    HUNDRED(M, 1)   \
    HUNDRED(M, 2)   \
    HUNDRED(M, 3)   \
    HUNDRED(M, 4) HUNDRED(M, 5) HUNDRED(M, 6) HUNDRED(M, 7) HUNDRED(M, 8) HUNDRED(M, 9)

THOUSAND(ONE)

static void *const anonymous[] = {THOUSAND(NAME)};

void *stub_take_anonymous(void)
{
    static unsigned next;
    unsigned taken = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return taken < sizeof(anonymous) / sizeof(*anonymous) ? anonymous[taken] : (void *)0;
}
