/* external.c: memory and timeline semaphores of other APIs, given as file descriptors. Memory is
 * any file that can be mapped; a semaphore is a page whose second word counts. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct CUextMemory_st {
    int fd;
    unsigned long long size;
};

struct CUextSemaphore_st {
    int fd;
};

CUresult cuImportExternalMemory(CUexternalMemory *ret_memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct stat stat;

    if (!ret_memory || !desc || !desc->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(desc->handle.fd, &stat) || (unsigned long long)stat.st_size < desc->size)
        return CUDA_ERROR_INVALID_HANDLE;
    CUexternalMemory memory = sim_handle_new(SIM_EXTERNAL_MEMORY, sizeof(*memory));
    memory->fd = desc->handle.fd; /* the driver's from now on */
    memory->size = desc->size;
    *ret_memory = memory;
    return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ret_p, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(memory, SIM_EXTERNAL_MEMORY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret_p || !desc || !desc->size || desc->flags || desc->offset > memory->size ||
        desc->size > memory->size - desc->offset)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_block *block =
        sim_import_file(memory->fd, call.ctx, desc->offset, desc->size, "external memory");
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->freeable = true;
    *ret_p = block->base;
    return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(memory, SIM_EXTERNAL_MEMORY))
        return CUDA_ERROR_INVALID_HANDLE;
    (void)close(memory->fd);
    sim_handle_free(memory);
    return CUDA_SUCCESS;
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *ret_semaphore,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct stat stat;

    if (!ret_semaphore || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(desc->handle.fd, &stat) || stat.st_size < 4096)
        return CUDA_ERROR_INVALID_HANDLE;
    CUexternalSemaphore semaphore = sim_handle_new(SIM_EXTERNAL_SEMAPHORE, sizeof(*semaphore));
    semaphore->fd = desc->handle.fd;
    *ret_semaphore = semaphore;
    return CUDA_SUCCESS;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(semaphore, SIM_EXTERNAL_SEMAPHORE))
        return CUDA_ERROR_INVALID_HANDLE;
    (void)close(semaphore->fd);
    sim_handle_free(semaphore);
    return CUDA_SUCCESS;
}

/* Enqueues one signal (an event record that others see) or one wait. */
static CUresult enqueue(CUcontext ctx, CUstream handle, enum sim_work_kind kind,
                        CUexternalSemaphore semaphore, unsigned long long value)
{
    struct sim_work work = {.kind = kind};
    CUstream stream;
    CUresult result = sim_stream_find(ctx, handle, &stream);

    if (result == CUDA_SUCCESS)
        result = sim_capture_unsupported(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_handle_is(semaphore, SIM_EXTERNAL_SEMAPHORE))
        return CUDA_ERROR_INVALID_HANDLE;
    work.shared_page = sim_shared_page(semaphore->fd);
    work.shared_number = value;
    if (!work.shared_page)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_enqueue(stream, &work, NULL, NULL);
    return CUDA_SUCCESS;
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                         unsigned int n, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = semaphores && params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = enqueue(call.ctx, stream, SIM_WORK_EVENT_RECORD, semaphores[i],
                         params[i].params.fence.value);
    return result;
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                                       unsigned int n, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUresult result = semaphores && params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = enqueue(call.ctx, stream, SIM_WORK_EVENT_WAIT, semaphores[i],
                         params[i].params.fence.value);
    return result;
}

/* ---- graphics: nothing can be registered here, so no resource is a good one ---- */

CUresult cuGraphicsMapResources(unsigned int n, CUgraphicsResource *resources, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)stream;
    return n && resources ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphicsUnmapResources(unsigned int n, CUgraphicsResource *resources, CUstream stream)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)stream;
    return n && resources ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}
