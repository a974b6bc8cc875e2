/* rules_module.h: a library with the name of one that exports memory, and a call of its own. */
#ifndef RULES_MODULE_H
#define RULES_MODULE_H

#include <cuda.h>

/* cuMemAlloc, called from that library. */
CUresult module_allocate(CUdeviceptr *ret_p, size_t bytes);

#endif
