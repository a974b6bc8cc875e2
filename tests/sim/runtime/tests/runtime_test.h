/* runtime_test.h: what the runtime's test programs share. */
#ifndef RUNTIME_TEST_H
#define RUNTIME_TEST_H

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "tests/common/check.h"

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
