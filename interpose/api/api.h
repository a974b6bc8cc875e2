/* The control API inside the library: what its files share. See allograft.h for what each function
 * does.
 *
 * The API is a client of the driver like the program is: it calls the same doors, that is, our own
 * hooks where the library is preloaded, and the driver where it was only opened. So what its calls
 * mean for memory, captures and withheld work is settled where it is for everybody's. */
#ifndef AG_API_H
#define AG_API_H

#include <stdbool.h>

#include "interpose/api/allograft.h"
#include "interpose/base/lock.h"
#include "interpose/driver/abi.h"

/* The driver as a program finds it. Names without which the API does not work first; the others may
 * be NULL. */
#define AG_API_NEEDS(X)                  \
    X(cuInit)                            \
    X(cuDriverGetVersion)                \
    X(cuGetErrorName)                    \
    X(cuDeviceGetCount)                  \
    X(cuDeviceGetAttribute)              \
    X(cuDevicePrimaryCtxRetain)          \
    X(cuDevicePrimaryCtxRelease_v2)      \
    X(cuCtxGetCurrent)                   \
    X(cuCtxGetDevice)                    \
    X(cuCtxPushCurrent_v2)               \
    X(cuCtxPopCurrent_v2)                \
    X(cuMemAlloc_v2)                     \
    X(cuMemFree_v2)                      \
    X(cuMemAllocManaged)                 \
    X(cuMemHostAlloc)                    \
    X(cuMemFreeHost)                     \
    X(cuMemHostRegister_v2)              \
    X(cuMemHostUnregister)               \
    X(cuMemGetInfo_v2)                   \
    X(cuPointerGetAttribute)             \
    X(cuMemcpyAsync)                     \
    X(cuMemcpyHtoDAsync_v2)              \
    X(cuStreamCreate)                    \
    X(cuStreamDestroy_v2)                \
    X(cuStreamSynchronize)               \
    X(cuStreamWaitEvent)                 \
    X(cuStreamIsCapturing)               \
    X(cuStreamEndCapture)                \
    X(cuThreadExchangeStreamCaptureMode) \
    X(cuGraphLaunch)                     \
    X(cuGraphExecDestroy)                \
    X(cuGraphDestroy)                    \
    X(cuEventCreate)                     \
    X(cuEventRecord)                     \
    X(cuEventQuery)                      \
    X(cuEventSynchronize)                \
    X(cuEventElapsedTime)                \
    X(cuEventDestroy_v2)
#define AG_API_WANTS(X)            \
    X(cuStreamBeginCapture_v2)     \
    X(cuGraphInstantiateWithFlags) \
    X(cuGraphDebugDotPrint)        \
    X(cuMemPrefetchAsync)          \
    X(cuMemPrefetchAsync_v2)       \
    X(cuMemAdvise)                 \
    X(cuMemAdvise_v2)

struct ag_api_doors {
#define AG_API_DOOR(symbol) __typeof__(&symbol) symbol;
    AG_API_NEEDS(AG_API_DOOR)
    AG_API_WANTS(AG_API_DOOR)
#undef AG_API_DOOR
};
extern struct ag_api_doors ag_api_cu;

/* Finds the doors, once. ALLOGRAFT_OK, or why the API cannot work here. Every function calls it
 * first. */
allograft_status ag_api_enter(void);
/* Is the library in front of the program's own calls, and working? */
bool ag_api_intercepts(void);

/* Sets the calling thread's last error. */
void ag_api_explain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same; `status` is its value, as linters can see. */
#define ag_api_fail(status, ...) (ag_api_explain(__VA_ARGS__), (status))
/* The calling thread's last error, or "". */
const char *ag_api_last_error(void);
/* What a driver's answer to `call` means; the text is set unless it is ALLOGRAFT_OK. */
allograft_status ag_api_answer(CUresult result, const char *call);
#define AG_API_DO(call, ...) ag_api_answer(ag_api_cu.call(__VA_ARGS__), #call)

/* ALLOGRAFT_OK when there is a device of that number, or, with `host_too`, when it is
 * ALLOGRAFT_HOST. */
allograft_status ag_api_check_device(int device, bool host_too);
/* Around calls for `device`: a context of it is current, its primary one unless another was. That
 * is retained then, for good, as the runtime does with devices it uses. */
allograft_status ag_api_enter_device(int device, bool *ret_pushed);
/* Around calls for what belongs to a context. */
allograft_status ag_api_enter_context(CUcontext context, bool *ret_pushed);
void ag_api_leave(bool pushed);

bool ag_api_is_default_stream(void *stream);
/* ALLOGRAFT_OK when nothing is being captured on the stream, else ALLOGRAFT_CAPTURING. */
allograft_status ag_api_not_capturing(void *stream, const char *what);
/* The calling thread has a capture of an allograft_graph open (api_graph.c). */
bool ag_api_thread_captures(void);

/* What several threads look up: named stages, shared streams. Not held across a call of the
 * driver. */
extern struct ag_lock ag_api_lock;

/* A forked child: nobody holds the lock. */
void ag_api_begin_child(void);
/* The context is about to go: streams that are shared in it too. */
void ag_api_context_dying(CUcontext context);

/* The functions, in the order of struct allograft_api. */
allograft_status ag_api_managed_support(int device);
allograft_status ag_api_managed_alloc(void **ret, size_t bytes, int device, void *stream);
allograft_status ag_api_managed_free(void *memory, size_t bytes, int device, void *stream);
allograft_status ag_api_prefetch(const struct allograft_range *ranges, size_t n, int device,
                                 void *stream, size_t *ret_bytes);
allograft_status ag_api_advise_preferred_location(const struct allograft_range *ranges, size_t n,
                                                  int device, size_t *ret_bytes);
allograft_status ag_api_advise_accessed_by(const struct allograft_range *ranges, size_t n,
                                           int device, size_t *ret_bytes);
allograft_status ag_api_pool_new(allograft_pool *ret);
allograft_status ag_api_pool_shared(int device, allograft_pool *ret);
allograft_status ag_api_capture_stream(int device, void **ret);
allograft_status ag_api_graph_create(int keep_graph, allograft_graph **ret);
allograft_status ag_api_graph_enable_debug_mode(allograft_graph *graph);
allograft_status ag_api_graph_capture_begin(allograft_graph *graph, void *stream,
                                            allograft_pool pool, allograft_capture_mode mode);
allograft_status ag_api_graph_capture_end(allograft_graph *graph);
allograft_status ag_api_graph_instantiate(allograft_graph *graph);
allograft_status ag_api_graph_replay(allograft_graph *graph, void *stream);
allograft_status ag_api_graph_reset(allograft_graph *graph);
allograft_status ag_api_graph_destroy(allograft_graph *graph);
allograft_status ag_api_graph_debug_dump(allograft_graph *graph, const char *path);
allograft_status ag_api_graph_raw(allograft_graph *graph, void **ret);
allograft_status ag_api_graph_pool(allograft_graph *graph, allograft_pool *ret);
allograft_status ag_api_stage_open(const struct allograft_stage_options *options,
                                   allograft_stage **ret);
allograft_status ag_api_stage_begin(allograft_stage *stage, void *stream, allograft_action *ret);
allograft_status ag_api_stage_end(allograft_stage *stage);
allograft_status ag_api_stage_iteration(allograft_stage *stage, uint64_t *ret_current,
                                        uint64_t *ret_next);
allograft_status ag_api_stage_input(allograft_stage *stage, unsigned micro_batch, unsigned input,
                                    size_t bytes, void **ret);
allograft_status ag_api_stage_load(allograft_stage *stage, unsigned micro_batch, unsigned input,
                                   const void *source, size_t bytes, void *stream);
allograft_status ag_api_stage_reset(allograft_stage *stage);
allograft_status ag_api_stage_close(allograft_stage *stage);
allograft_status ag_api_ring_open(const struct allograft_ring_options *options,
                                  allograft_ring **ret);
allograft_status ag_api_ring_register(allograft_ring *ring, unsigned slot, void *memory,
                                      size_t bytes);
allograft_status ag_api_ring_device_slot(allograft_ring *ring, unsigned slot, void **ret);
allograft_status ag_api_ring_submit(allograft_ring *ring, unsigned slot, size_t bytes);
allograft_status ag_api_ring_clear(allograft_ring *ring, unsigned slot);
allograft_status ag_api_ring_query(allograft_ring *ring, unsigned slot, int *ret_ready);
allograft_status ag_api_ring_wait_host(allograft_ring *ring, unsigned slot);
allograft_status ag_api_ring_wait_stream(allograft_ring *ring, unsigned slot, void *stream);
allograft_status ag_api_ring_reader(allograft_ring *ring, unsigned slot, void *stream);
allograft_status ag_api_ring_properties(allograft_ring *ring, unsigned slot,
                                        struct allograft_ring_properties *ret);
allograft_status ag_api_ring_trace(allograft_ring *ring, struct allograft_ring_record *records,
                                   size_t capacity, size_t *ret_n);
allograft_status ag_api_ring_close(allograft_ring *ring);
allograft_status ag_api_snapshot(struct allograft_snapshot *ret);
allograft_status ag_api_dump(const char *path);
allograft_status ag_api_mark(const char *name);

#endif
