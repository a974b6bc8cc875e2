/* heap.h: the allocators that the bench compares, behind one interface.
 *
 * A file adds its heaps by constants of type add_heap, so that those of a library that is not there
 * are just not linked. What a heap may assume is what its documentation asks of a caller: a block
 * is released on the stream that used it last. */
#ifndef BENCH_HEAP_H
#define BENCH_HEAP_H

#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>

struct heap {
    virtual ~heap() = default;
    /* NULL when memory has run out. Thread-safe, as release() is. */
    virtual void *allocate(size_t bytes, cudaStream_t stream) = 0;
    virtual void release(void *block, size_t bytes, cudaStream_t stream) = 0;
};

typedef std::unique_ptr<heap> (*make_heap)();

struct add_heap {
    const char *name;
    make_heap make;
    const add_heap *next;

    add_heap(const char *its_name, make_heap its_make);
};
/* The first of a list. */
extern const add_heap *heaps;

#endif
