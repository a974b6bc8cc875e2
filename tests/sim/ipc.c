/* ipc.c: */
#include "sim_internal.h"
void sim_import_close(struct sim_block *b)
{
    (void)b;
}
CUresult sim_import_close_async(struct sim_block *b, CUstream s)
{
    (void)b;
    (void)s;
    return CUDA_ERROR_NOT_SUPPORTED;
}
