/* The devices and contexts of the process, and what we keep for each: the pools of a device; the
 * cache, the private streams and the fences of a context. */
#ifndef AG_POLICY_CONTEXT_H
#define AG_POLICY_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/threads/once.h"
#include "interpose/core/driver/abi.h"
#include "policy/budget.h"
#include "policy/cache.h"
#include "policy/churn.h"
#include "policy/order/fence.h"
#include "policy/slab.h"

#define AG_MAX_CONTEXTS 64u
#define AG_MAX_DEVICES  64u

struct ag_device {
    int ordinal;
    char name[128];
    uint64_t total_bytes;
    bool has_pools, has_managed, has_fences;
    bool is_integrated;   /* its memory is the host's */
    bool uses_host_pages; /* it finds pageable memory by the host's page tables */
    /* Contexts that the driver is about to end, and threads that give back what was kept: they have
     * memory that is in no cache, and not free yet. */
    _Atomic unsigned n_returning;
    /* Threads whose cudaFree gives back what the cache has no room for. Natively an allocation
     * waits for such a free, and a question does not. */
    _Atomic unsigned n_evicting;
    CUcontext primary; /* handle of the primary context, once retained; under the table's lock */
    struct ag_churn churn; /* does the program free and allocate in turns: is a pool worth it? */
    /* Our pool, created on first use: see backend_pool.c. */
    _Atomic int pool_state;
    CUmemoryPool pool;
    bool pool_is_shareable; /* with other processes */
    /* Its managed pool, or why the driver refused it: see managed_pool.c. */
    _Atomic int managed_state;
    CUmemoryPool managed_pool;
    CUresult managed_refusal;
    uint64_t limit;               /* bytes the program may have; UINT64_MAX for no limit */
    _Atomic uint64_t cache_limit; /* bytes the cache of a context may hold now */
    _Atomic uint64_t moved;       /* bytes to or from the driver since it was asked what is free */
    _Atomic bool is_tight;        /* it is nearly full: see pressure.h */
    _Atomic uint64_t taken;       /* bytes that we have of the driver: see budget.h */
    _Atomic uint64_t pooled;      /* of them, of our pool */
    _Atomic uint64_t pool_reserved; /* what that held when the driver was asked: see given.h */
    _Atomic uint64_t pool_high;     /* and the most that it had ever held then */
    struct ag_bound bound;          /* of blocks that are kept */
    _Atomic uint64_t small_native;  /* bytes of native blocks smaller than AG_NATIVE_PAGE */
    _Atomic uint64_t guard_kept;    /* freed blocks that guards keep: natively they would be free */
    /* Freed managed memory that the driver keeps for its own: see backend_managed.c. */
    _Atomic uint64_t managed_kept;
    /* Row pitch is a multiple of this; 0 not yet asked, SIZE_MAX no such rule. */
    _Atomic size_t pitch_granule;
};

/* One context of the program. The memory is used again for another context, and for nothing else: a
 * thread that still has a pointer to one that is gone sees a context all the same, whose counters
 * only grow and whose locks are locks. */
struct ag_context {
    _Atomic(CUcontext) handle;
    struct ag_device *device;
    struct ag_context *next_free; /* this and `forgotten`: under the table's lock */
    bool forgotten;
    _Atomic unsigned visitors;           /* threads that are at it, as by ag_context_each() */
    _Atomic bool leaving;                /* nobody visits it any more */
    _Atomic bool has_nonblocking_stream; /* ever: work of a destroyed stream may still run */
    _Atomic unsigned attached;           /* by cuCtxAttach, and not detached since */
    _Atomic bool entering;               /* others' work is yet to be waited for */
    _Atomic unsigned born;               /* ag_context_generation when it came into the table */
    unsigned primary_references;         /* of a primary context; under the table's lock */
    bool unreferenced;                   /* the last one is being given back; likewise */

    /* Made on first need by ag_context_init_resources(), with the fences' events: */
    _Atomic int resources_state;
    CUevent alloc_event;
    CUstream alloc_stream, free_stream; /* private, non-blocking */

    struct ag_fence barrier;      /* of ordered frees */
    struct ag_fence host_fence;   /* of draining frees */
    _Atomic uint64_t too_large;   /* bytes of blocks in use beyond their requests: see budget.h */
    _Atomic uint64_t host_waited; /* requests of the barrier that the host has waited for */

    struct ag_cache cache;
    struct ag_slabs slabs;
};

/* The context of that handle, or NULL. */
struct ag_context *ag_context_find(CUcontext handle);
/* Goes up when a context dies, so that threads drop what they remember. */
extern _Atomic unsigned ag_context_generation;
/* Is the context of that handle there, and was it in that generation? Not told of green ones. */
bool ag_context_lives_since(CUcontext handle, unsigned generation);
/* A handle is not what it was: threads look again. */
void ag_context_changed(void);

/* Only for enter.c. Memory for a context that is not in the table yet, or NULL: as good as new but
 * for the counters of its fences. */
struct ag_context *ag_context_get_memory(void);
/* Puts `fresh` into the table unless the handle is there by now, or no place is left: then it has
 * its memory back. What the table has, or NULL; with `retained`, one reference more to `fresh`. */
struct ag_context *ag_context_insert(struct ag_context *fresh, CUcontext handle, bool retained);
/* The context of that handle, with one reference more, or NULL. What another thread takes for gone,
 * though this one has retained it since, leaves the table soon: it is waited for. */
struct ag_context *ag_context_find_referred(CUcontext handle);
/* The handle of a device's primary context, which somebody holds; NULL on failure. */
CUcontext ag_context_primary_handle(int device);
/* A reference to the primary context of `device` is about to be given back, or with `all` each one.
 * If that ends the context, it is returned; else the reference is taken off at once, so that of
 * several threads that do it at the same time the last one sees that it is. */
struct ag_context *ag_context_primary_leaving(int device, bool all);
/* The driver has refused to take one off that did not end the context. */
void ag_context_primary_kept(int device);
/* The context is about to end. Other threads that visit it leave first, so that they ask the driver
 * nothing of a context that is gone. */
void ag_context_ending(struct ag_context *context);
/* The driver's call is over: what the context had is free. Once for each ag_context_ending(). */
void ag_context_ended(struct ag_context *context);
/* Is memory on its way to the device? With `evicted`, what a cudaFree gives back counts. */
static inline bool ag_device_is_returning(const struct ag_device *device, bool evicted)
{
    return atomic_load_explicit(&device->n_returning, memory_order_seq_cst) ||
           (evicted && atomic_load_explicit(&device->n_evicting, memory_order_seq_cst));
}
/* Waits until none is: false after the timeout, in slices (wait.h). A visitor of a context does not
 * wait. */
bool ag_device_wait_returned(const struct ag_device *device, bool evicted, uint64_t timeout_ns);
/* The context is gone: nobody finds it any more. */
void ag_context_forget(struct ag_context *context);
/* No stream or block of it is left either: another context may have its memory, once. */
void ag_context_recycle(struct ag_context *context);

/* Calls `visit` for every live context, without a lock held; none of them ends meanwhile. */
void ag_context_each(void (*visit)(struct ag_context *context, void *data), void *data);
/* Keeps a context of which a block is left, as a lock of the caller says, from ending until the
 * visit does. False: it is about to end, and its blocks with it. */
bool ag_context_begin_visit(struct ag_context *context);
void ag_context_end_visit(struct ag_context *context);
/* Is it so of any context? `is` reads what is atomic: the context may end meanwhile. */
bool ag_context_any(bool (*is)(struct ag_context *context));
unsigned ag_context_count(void);
/* The row of a device, or NULL; and a row made of `fresh`, unless there is one by now: NULL where
 * there is no room. */
struct ag_device *ag_device_find(int ordinal);
struct ag_device *ag_device_add(const struct ag_device *fresh);
/* Device rows for the report: i-th device met, or NULL. */
struct ag_device *ag_device_met(unsigned i);

/* Bytes of the device's memory that the caches of its contexts would give at most: with a piece of
 * a slab, all slabs. */
uint64_t ag_device_cached(struct ag_device *device);
/* The bytes that the caches would give, counting only slabs that they have whole: looks at every
 * piece. */
uint64_t ag_device_cached_now(struct ag_device *device);
/* How much of it would be free if the driver had all of those back. */
uint64_t ag_device_cached_room(struct ag_device *device);

/* Makes the context's private streams and events. CUDA_SUCCESS, or why not. Not inside a capture.
 */
CUresult ag_context_make_resources(struct ag_context *context);
static inline bool ag_context_has_resources(struct ag_context *context)
{
    return ag_once_is_done(&context->resources_state);
}
static inline CUresult ag_context_init_resources(struct ag_context *context)
{
    return ag_context_has_resources(context) ? CUDA_SUCCESS : ag_context_make_resources(context);
}

/* Makes `context` current if it is not. *ret_pushed is what ag_context_restore() has to undo. */
CUresult ag_context_make_current(struct ag_context *context, bool *ret_pushed);
void ag_context_restore(bool pushed);

/* Does every call in a context fail with that result from now on? CUDA's "sticky" errors. */
bool ag_error_is_sticky(CUresult result);
/* The sticky error of the context, which is current, or CUDA_SUCCESS. Cheap: 0.04 us (H200). */
CUresult ag_context_sticky_error_here(struct ag_context *context);
/* The sticky error of any context. Sees nothing in one whose resources were not made yet. */
static inline CUresult ag_context_sticky_error(struct ag_context *context)
{
    return ag_context_has_resources(context) ? ag_context_sticky_error_here(context) : CUDA_SUCCESS;
}

/* A forked child has no contexts. */
void ag_context_begin_child(void);

#endif
