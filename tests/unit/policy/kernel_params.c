/* policy/managed/kernel_params.c: layouts as a driver of this file tells them, until they are to be
 * forgotten. */
#include "policy/managed/kernel_params.h"

#include <pthread.h>
#include <string.h>

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

struct ag_driver ag_cu;

/* What handle i stands for: its number says how many parameters, its layer which sizes. */
#define HANDLE(n) ((CUfunction)(uintptr_t)(0x1000u + (n) * 16u))

static _Atomic unsigned asked; /* calls of either kind */
static _Atomic size_t layer;   /* what is loaded now: handles mean something else in each */
/* What the call for functions says of kernels: the same as of functions, or one of two errors. */
static CUresult of_kernels = CUDA_ERROR_INVALID_HANDLE;
/* Something is unloaded by another thread while the driver answers. */
static bool goes_meanwhile;

enum { FIRST_KERNEL = 100, NOT_THERE = 200, N_HANDLES = 200 };

static CUresult tell(uintptr_t number, size_t i, size_t *offset, size_t *size)
{
    size_t n = (number + atomic_load(&layer)) % 7;

    atomic_fetch_add(&asked, 1);
    if (i >= n)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = i * 24;
    *size = 8 + (number + atomic_load(&layer)) % 3 * 8;
    return CUDA_SUCCESS;
}

static uintptr_t number_of(const void *handle)
{
    return ((uintptr_t)handle - 0x1000u) / 16u;
}

static CUresult tell_function(CUfunction function, size_t i, size_t *offset, size_t *size)
{
    uintptr_t number = number_of(function);

    if (goes_meanwhile)
        ag_params_forget();
    if (number >= NOT_THERE)
        return CUDA_ERROR_INVALID_HANDLE;
    return number >= FIRST_KERNEL && of_kernels ? of_kernels : tell(number, i, offset, size);
}

static CUresult tell_kernel(CUkernel kernel, size_t i, size_t *offset, size_t *size)
{
    uintptr_t number = number_of(kernel);

    if (number < FIRST_KERNEL || number >= NOT_THERE)
        return CUDA_ERROR_INVALID_HANDLE;
    return tell(number, i, offset, size);
}

static void check_layout(unsigned number)
{
    const struct ag_layout *layout = ag_params_of(HANDLE(number));
    unsigned kind = number + (unsigned)atomic_load(&layer);

    CHECK_SAID(layout != NULL, "handle %u", number);
    CHECK_SAID(layout->n == kind % 7, "handle %u", number);
    CHECK_SAID(layout->is_kernel == (number >= FIRST_KERNEL), "handle %u", number);
    for (unsigned i = 0; i < layout->n; i++)
        CHECK(layout->params[i].offset == i * 24 && layout->params[i].size == 8 + kind % 3 * 8);
    CHECK(layout->total == (layout->n ? (layout->n - 1) * 24 + 8 + kind % 3 * 8 : 0));
}

static void functions_and_kernels(void)
{
    static const CUresult ways[] = {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
                                    CUDA_SUCCESS};

    for (unsigned turn = 0; turn < N_OF(ways); turn++) {
        unsigned before;

        of_kernels = ways[turn];
        for (unsigned i = 0; i < N_HANDLES; i++)
            check_layout(i);
        before = asked;
        for (unsigned i = 0; i < N_HANDLES; i++)
            check_layout(i);
        CHECK(asked == before); /* known by now */
        ag_params_forget();
    }
}

static void equal_layouts_are_one(void)
{
    CHECK(ag_params_of(HANDLE(1)) == ag_params_of(HANDLE(22)));
    CHECK(ag_params_of(HANDLE(1)) != ag_params_of(HANDLE(2)));
}

static void handles_come_back_as_others(void)
{
    const struct ag_layout *before = ag_params_of(HANDLE(3));
    struct ag_param first = before->params[0];

    atomic_store(&layer, 5);
    CHECK(ag_params_of(HANDLE(3)) == before); /* nobody said that it went */
    ag_params_forget();
    for (unsigned i = 0; i < N_HANDLES; i++)
        check_layout(i);
    CHECK(!memcmp(&first, &before->params[0], sizeof(first))); /* for whoever still reads it */
    atomic_store(&layer, 0);
    ag_params_begin_child();
    check_layout(3);
    ag_params_forget();
    goes_meanwhile = true;
    check_layout(3); /* of what there was; it is asked again */
    goes_meanwhile = false;
    atomic_store(&layer, 1);
    check_layout(3);
    atomic_store(&layer, 0);
    ag_params_forget();
}

static void what_is_not_told(void)
{
    uint64_t unknown = ag_stats_counter(AG_STAT_LAUNCH_UNKNOWN);
    const uintptr_t too_high = 1ull << 60;

    CHECK(!ag_params_of(HANDLE(NOT_THERE)) && !ag_params_of(HANDLE(NOT_THERE)));
    CHECK(!ag_params_of(NULL) && !ag_params_of((CUfunction)too_high));
    CHECK(ag_stats_counter(AG_STAT_LAUNCH_UNKNOWN) == unknown + 4);
}

/* Each kernel of its own has a layout of its own. */
static CUresult tell_many(CUfunction function, size_t i, size_t *offset, size_t *size)
{
    uintptr_t number = (uintptr_t)function / 16;

    if (i >= 1 + number % 40)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = i * 4096 + number % (1u << 20);
    *size = 1 + number % (1u << 20);
    return CUDA_SUCCESS;
}

static CUresult tell_endless(CUfunction function, size_t i, size_t *offset, size_t *size)
{
    (void)function;
    *offset = i;
    *size = 1;
    return CUDA_SUCCESS;
}

static void the_store_fills_up(void)
{
    unsigned known = 0;

    ag_cu.cuFuncGetParamInfo = tell_endless;
    CHECK(!ag_params_of((CUfunction)(uintptr_t)0x10));
    ag_cu.cuFuncGetParamInfo = tell_many;
    ag_params_forget();
    for (uintptr_t i = 1; i < 40000; i++) {
        const struct ag_layout *layout = ag_params_of((CUfunction)(i * 16));

        known += layout != NULL;
        CHECK(!layout || (layout->n == 1 + i % 40 && layout->params[0].offset == i));
    }
    CHECK(known > 5000 && known < 40000);
    CHECK(ag_params_of((CUfunction)(uintptr_t)160)->n == 11); /* those that are in stay */
}

/* More bits than an entry has room for: told each time, and mistaken for no other. */
static void high_handles(void)
{
    const uintptr_t low = 7 * 16, high = low + (1ull << 48);

    ag_cu.cuFuncGetParamInfo = tell_many;
    ag_params_forget();
    CHECK(ag_params_of((CUfunction)high)->n == 1 + (high / 16) % 40);
    CHECK(ag_params_of((CUfunction)low)->n == 8);
    CHECK(ag_params_of((CUfunction)high)->n == 1 + (high / 16) % 40);
    ag_params_forget();
}

static void old_drivers(void)
{
    ag_cu.cuFuncGetParamInfo = NULL;
    ag_cu.cuKernelGetParamInfo = NULL;
    ag_params_forget();
    CHECK(!ag_params_of(HANDLE(1)));
}

/* --- threads: asking beside forgetting --- */

static void *ask(void *unused)
{
    uint64_t state = (uintptr_t)&state;

    (void)unused;
    for (unsigned i = 0; i < 20000; i++)
        check_layout((unsigned)chance_below(&state, N_HANDLES));
    return NULL;
}

static void threads(void)
{
    pthread_t each[4];

    for (unsigned i = 0; i < N_OF(each); i++)
        CHECK(!pthread_create(&each[i], NULL, ask, NULL));
    for (unsigned i = 0; i < 200; i++)
        ag_params_forget();
    for (unsigned i = 0; i < N_OF(each); i++)
        CHECK(!pthread_join(each[i], NULL));
}

int main(void)
{
    ag_cu.cuFuncGetParamInfo = tell_function;
    ag_cu.cuKernelGetParamInfo = tell_kernel;
    functions_and_kernels();
    equal_layouts_are_one();
    handles_come_back_as_others();
    what_is_not_told();
    threads();
    high_handles();
    the_store_fills_up();
    old_drivers();
    return 0;
}
