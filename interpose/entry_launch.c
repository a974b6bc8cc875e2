/* Hooks of kernel launches: substituted only where some setting watches launches (AG_HOOK_IF).
 *
 * Programs that are linked with the driver come here in any case, so a launch that nobody watches
 * is two loads, two comparisons and a jump: nothing is entered or counted. What is to be done about
 * the others stands in functions of their own, or the compiler would save registers here. */
#include "driver.h"
#include "entry.h"
#include "prefetch.h"

static void watch(enum ag_hook hook, CUfunction function, CUstream stream, void **params,
                  void **extra)
{
    struct ag_launch launch = {
        .function = function,
        .stream = stream,
        .per_thread = ag_hook_info(hook)->flavour == AG_FLAVOUR_PTSZ,
        .params = params,
        .extra = extra,
    };

    if (ag_entry_inside())
        return;
    if (atomic_load_explicit(&ag_entry_launches, memory_order_relaxed) == AG_LAUNCHES_NEW)
        (void)ag_entry_start();
    if (atomic_load_explicit(&ag_entry_launches, memory_order_acquire) != AG_LAUNCHES_WATCHED)
        return;
    ag_stats_hit(hook);
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    ag_prefetch_before(&launch);
    (void)ag_entry_leave(CUDA_SUCCESS);
}

static inline bool passes(void)
{
    return atomic_load_explicit(&ag_entry_launches, memory_order_acquire) == AG_LAUNCHES_PASSED;
}

#define LAUNCHES(symbol, stream, params, extra, parameters, ...)                    \
    static __attribute__((noinline)) CUresult watched_##symbol parameters           \
    {                                                                               \
        watch(AG_HOOK_##symbol, function, stream, params, extra);                   \
        return ag_cu.symbol ? ag_cu.symbol(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED; \
    }                                                                               \
    AG_ENTRY CUresult symbol parameters                                             \
    {                                                                               \
        __typeof__(&symbol) way = ag_cu.symbol;                                     \
                                                                                    \
        if (AG_UNLIKELY(!passes() || !way))                                         \
            way = watched_##symbol;                                                 \
        return way(__VA_ARGS__);                                                    \
    }

LAUNCHES(cuLaunchKernel, stream, params, extra,
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
          unsigned int block_x, unsigned int block_y, unsigned int block_z,
          unsigned int shared_bytes, CUstream stream, void **params, void **extra),
         function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
         extra)
LAUNCHES(cuLaunchKernel_ptsz, stream, params, extra,
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
          unsigned int block_x, unsigned int block_y, unsigned int block_z,
          unsigned int shared_bytes, CUstream stream, void **params, void **extra),
         function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
         extra)
LAUNCHES(cuLaunchCooperativeKernel, stream, params, NULL,
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
          unsigned int block_x, unsigned int block_y, unsigned int block_z,
          unsigned int shared_bytes, CUstream stream, void **params),
         function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params)
LAUNCHES(cuLaunchCooperativeKernel_ptsz, stream, params, NULL,
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
          unsigned int block_x, unsigned int block_y, unsigned int block_z,
          unsigned int shared_bytes, CUstream stream, void **params),
         function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params)
LAUNCHES(cuLaunchKernelEx, config ? config->hStream : NULL, params, extra,
         (const CUlaunchConfig *config, CUfunction function, void **params, void **extra), config,
         function, params, extra)
LAUNCHES(cuLaunchKernelEx_ptsz, config ? config->hStream : NULL, params, extra,
         (const CUlaunchConfig *config, CUfunction function, void **params, void **extra), config,
         function, params, extra)
