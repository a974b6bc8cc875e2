/* Allocates for whoever asks: the caller is this library. */
#include "tests/common/rules_module.h"

CUresult module_allocate(CUdeviceptr *ret_p, size_t bytes)
{
    volatile CUresult result = cuMemAlloc(ret_p, bytes); /* no tail call: then we were not there */

    return result;
}
