/* unseen.h: what a library does that no hook sees. */
#ifndef UNSEEN_H
#define UNSEEN_H

#include <cuda.h>
#include <stdint.h>

typedef int unseen_fill_function(CUfunction kernel, CUstream stream, CUdeviceptr p, uint32_t n,
                                 uint32_t value);
typedef int unseen_read_function(void *to, CUdeviceptr from, size_t bytes);

unseen_fill_function unseen_fill;
unseen_read_function unseen_read;

#endif
