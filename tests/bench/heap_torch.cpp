/* PyTorch's caching allocator, without its interpreter. */
#include "tests/bench/heap.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

struct torch_heap : heap {
    torch_heap()
    {
        c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
    }
    void *allocate(size_t bytes, cudaStream_t stream) override
    {
        try {
            return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
        } catch (const c10::OutOfMemoryError &) {
            return nullptr;
        }
    }
    void release(void *block, size_t, cudaStream_t) override
    {
        c10::cuda::CUDACachingAllocator::raw_delete(block);
    }
};

static const add_heap added("torch", []() -> std::unique_ptr<heap> {
    return std::make_unique<torch_heap>();
});
