/* A library that is not libcuda and exports names like the driver's, each with its own answer. */

#define EXPORT __attribute__((visibility("default")))

/* More than a dozen lines of prototypes would say nothing: each takes what it is given. */
#define ANSWER(name, value) \
    EXPORT int name(void);  \
    int name(void)          \
    {                       \
        return value;       \
    }

ANSWER(cuMemAlloc_v2, 4001)
ANSWER(cuMemFree_v2, 4002)
ANSWER(cuGetProcAddress, 4003)
ANSWER(cuGetProcAddress_v2, 4004)
ANSWER(cuMemGetInfo_v2, 4005)
ANSWER(cuStreamCreate, 4006)
ANSWER(cuNoDriverHasThis, 4007)
ANSWER(cublasCreate_v2, 4008)
ANSWER(cudnnCreate, 4009)
ANSWER(cufftPlan1d, 4010)
ANSWER(curl_easy_init, 4011)
ANSWER(cuda_like, 4012)
ANSWER(cu, 4013)
