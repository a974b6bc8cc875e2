/* CUDA's own allocators: cudaMalloc, which is Allograft's where that is preloaded, and the pool of
 * cudaMallocAsync, which keeps its memory. */
#include "tests/bench/heap.h"

#include <cstdint>

#include "tests/common/check.h"

const add_heap *heaps;

add_heap::add_heap(const char *its_name, make_heap its_make)
    : name(its_name), make(its_make), next(heaps)
{
    heaps = this;
}

static void *unless_refused(cudaError_t result, void *block)
{
    if (result == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return nullptr;
    }
    OK(result);
    return block;
}

struct plain_heap : heap {
    void *allocate(size_t bytes, cudaStream_t) override
    {
        void *block = nullptr;
        cudaError_t result = cudaMalloc(&block, bytes);
        return unless_refused(result, block);
    }
    void release(void *block, size_t, cudaStream_t) override
    {
        OK(cudaFree(block));
    }
};

struct async_heap : heap {
    async_heap()
    {
        cudaMemPool_t pool;
        uint64_t keep = UINT64_MAX;
        OK(cudaDeviceGetDefaultMemPool(&pool, 0));
        OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    }
    void *allocate(size_t bytes, cudaStream_t stream) override
    {
        void *block = nullptr;
        cudaError_t result = cudaMallocAsync(&block, bytes, stream);
        return unless_refused(result, block);
    }
    void release(void *block, size_t, cudaStream_t stream) override
    {
        OK(cudaFreeAsync(block, stream));
    }
};

static const add_heap plain("cudamalloc", []() -> std::unique_ptr<heap> {
    return std::make_unique<plain_heap>();
});
static const add_heap async("async", []() -> std::unique_ptr<heap> {
    return std::make_unique<async_heap>();
});
