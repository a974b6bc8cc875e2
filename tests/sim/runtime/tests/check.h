/* Expectations of the runtime's test programs: the first that fails ends the program. */
#ifndef RUNTIME_CHECK_H
#define RUNTIME_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#define RETURNS(expected, call)                                                           \
    do {                                                                                  \
        cudaError_t got_ = (call);                                                        \
        if (got_ != (expected)) {                                                         \
            fprintf(stderr, "%s:%d: %s returned %s, not %s\n", __FILE__, __LINE__, #call, \
                    cudaGetErrorName(got_), cudaGetErrorName(expected));                  \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define OK(call) RETURNS(cudaSuccess, call)

/* False, with a line that says so, on a simulated driver of before it had graphs. */
static inline int driver_has_graphs(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult answer;
    OK(cudaGetDriverEntryPointByVersion("cuGraphLaunch", &function, 12000, cudaEnableDefault,
                                        &answer));
    if (answer != cudaDriverEntryPointSuccess)
        printf("the driver has no graphs: not tested\n");
    return answer == cudaDriverEntryPointSuccess;
}

#endif
