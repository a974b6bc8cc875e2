/* The memory resources of RMM, over cudaMalloc; pools begin with 1 GiB. */
#include "tests/bench/heap.h"

#include <rmm/aligned.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

template <class Resource> struct rmm_heap : heap {
    Resource resource;

    template <class... Arguments>
    explicit rmm_heap(Arguments &&...arguments) : resource(std::forward<Arguments>(arguments)...)
    {
    }
    void *allocate(size_t bytes, cudaStream_t stream) override
    {
        try {
            return resource.allocate(cuda::stream_ref{stream}, bytes,
                                     rmm::CUDA_ALLOCATION_ALIGNMENT);
        } catch (const std::bad_alloc &) {
            return nullptr;
        }
    }
    void release(void *block, size_t bytes, cudaStream_t stream) override
    {
        resource.deallocate(cuda::stream_ref{stream}, block, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
    }
};

static const size_t first_bytes = (size_t)1 << 30;

static const add_heap pool("rmm-pool", []() -> std::unique_ptr<heap> {
    return std::make_unique<rmm_heap<rmm::mr::pool_memory_resource>>(
        rmm::mr::cuda_memory_resource{}, first_bytes);
});
static const add_heap arena("rmm-arena", []() -> std::unique_ptr<heap> {
    return std::make_unique<rmm_heap<rmm::mr::arena_memory_resource>>(
        rmm::mr::cuda_memory_resource{});
});
static const add_heap async("rmm-async", []() -> std::unique_ptr<heap> {
    return std::make_unique<rmm_heap<rmm::mr::cuda_async_memory_resource>>();
});
/* Bins of 256 KiB to 4 MiB over a pool, as RMM's own benchmark has them. */
static const add_heap binning("rmm-binning", []() -> std::unique_ptr<heap> {
    rmm::mr::pool_memory_resource below{rmm::mr::cuda_memory_resource{}, first_bytes};
    return std::make_unique<rmm_heap<rmm::mr::binning_memory_resource>>(below, int8_t{18},
                                                                        int8_t{22});
});
