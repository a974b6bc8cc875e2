/* A library that reads by the driver; opened with RTLD_DEEPBIND, it does so past everything that
 * was preloaded. Its tables also name a function that no list knows, if it is compiled with
 * FUTURE. */
#include "sim.h"

CUresult read_past(void *to, CUdeviceptr from, size_t bytes);

CUresult read_past(void *to, CUdeviceptr from, size_t bytes)
{
#ifdef FUTURE
    double sum;

    return cuAllograftFuture(to, from, bytes, 1, 2, 3, 4, 5, 6., 7.F, 8, &sum);
#else
    return cuMemcpyDtoH(to, from, bytes);
#endif
}
