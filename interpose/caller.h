/* Who called: the library behind a return address. */
#ifndef AG_CALLER_H
#define AG_CALLER_H

#include <stdbool.h>

/* Is `address` in one of CUDA's own math and communication libraries (libcublas, libcudnn, ...)? */
bool ag_caller_is_cuda_library(const void *address);

#endif
