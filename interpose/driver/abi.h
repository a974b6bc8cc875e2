/* The only place that includes CUDA's headers: with every ABI of a name visible under its own
 * symbol. */
#ifndef AG_ABI_H
#define AG_ABI_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>

#endif
