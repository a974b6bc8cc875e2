/* Hooks of calls that may fail because a cache of ours holds the memory they need: the cache is
 * given up, and the driver called once more. */
#ifndef AG_ENTRY_RETRY_H
#define AG_ENTRY_RETRY_H

#include "interpose/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/pressure.h"

/* `before`: statements before the first call; `after`: what is returned, in terms of `result`. */
#define AG_RETRIED(symbol, before, after, parameters, ...)                            \
    AG_ENTRY CUresult symbol parameters                                               \
    {                                                                                 \
        CUresult result;                                                              \
                                                                                      \
        AG_ENTER(symbol, __VA_ARGS__);                                                \
        before;                                                                       \
        result = ag_cu.symbol(__VA_ARGS__);                                           \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_for_call(NULL)) \
            result = ag_cu.symbol(__VA_ARGS__);                                       \
        return ag_entry_leave(after);                                                 \
    }

#endif
