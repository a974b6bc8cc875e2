/* The one file that includes CUDA's headers, so that each ABI of a function is visible under the
 * name of its own symbol. */
#ifndef AG_ABI_H
#define AG_ABI_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>

#endif
