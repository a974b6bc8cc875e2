/* The control API inside the library: what its files share. See allograft.h for what each function
 * does.
 *
 * The API is a client of the driver like the program is: it calls the entry points that the program
 * would find, that is, our own hooks where the library is preloaded, and the driver where it was
 * only opened. So the hooks decide what its calls mean for memory, captures and withheld work, as
 * they do for every other call. */
#ifndef AG_API_H
#define AG_API_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/api/allograft.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/driver/abi.h"

/* The driver as a program finds it. The API does not work without the entry points that it needs;
 * those that it wants may be NULL. */
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
    X(cuMemGetAddressRange_v2)     \
    X(cuMemAdvise_v2)              \
    X(cuCtxGetId)

struct ag_api_driver {
#define AG_API_ENTRY_POINT(symbol) __typeof__(&symbol) symbol;
    AG_API_NEEDS(AG_API_ENTRY_POINT)
    AG_API_WANTS(AG_API_ENTRY_POINT)
#undef AG_API_ENTRY_POINT
};
extern struct ag_api_driver ag_api_cu;

/* Looks the entry points up, once. ALLOGRAFT_OK, or why the API cannot work here. Every function
 * calls it first. */
allograft_status ag_api_enter(void);
/* Is the library in front of the program's own calls, and working? */
bool ag_api_intercepts(void);

/* Sets the calling thread's last error. */
void ag_api_explain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sets the last error as ag_api_explain() does; its value is `status`, as linters can see. */
#define ag_api_fail(status, ...) (ag_api_explain(__VA_ARGS__), (status))
/* What a driver's answer to `call` means; the text is set unless it is ALLOGRAFT_OK. */
allograft_status ag_api_answer(CUresult result, const char *call);
#define AG_API_DO(call, ...) ag_api_answer(ag_api_cu.call(__VA_ARGS__), #call)

/* ALLOGRAFT_OK when there is a device of that number; with `host_too`, ALLOGRAFT_HOST is one, too.
 */
allograft_status ag_api_check_device(int device, bool host_too);
/* Makes a context of `device` current for the calls that follow, until ag_api_leave(): its primary
 * one, unless another was current. The primary one is retained then, for good, as the runtime does
 * with devices it uses. */
allograft_status ag_api_enter_device(int device, bool *ret_pushed);
/* Makes `context` current for the calls that follow, until ag_api_leave(). */
allograft_status ag_api_enter_context(CUcontext context, bool *ret_pushed);
void ag_api_leave(bool pushed);

bool ag_api_is_default_stream(void *stream);
/* ALLOGRAFT_OK when nothing is being captured on the stream, else ALLOGRAFT_CAPTURING. */
allograft_status ag_api_not_capturing(void *stream, const char *what);
/* The calling thread has a capture of an allograft_graph open (api_graph.c). */
bool ag_api_thread_captures(void);

/* Counts a copy of event->size bytes to the device and, with the trace on, tells of it. */
struct ag_trace_event;
void ag_api_note_copy(uint64_t began, const struct ag_trace_event *event);

/* ---- managed memory of the API that nobody has freed yet (api_owned.c) ---- */

struct ag_api_owned;
struct ag_api_owned_counts {
    uint64_t allocations, frees, current_bytes, peak_bytes;
};

/* Is there any? Relaxed: who asks about a block got its address after it was counted. */
extern _Atomic size_t ag_api_n_owned;
static inline bool ag_api_owns(void)
{
    return atomic_load_explicit(&ag_api_n_owned, memory_order_relaxed) != 0;
}
/* Counts a block from now on; without memory for that it is not counted. */
void ag_api_owned_add(CUdeviceptr address, size_t bytes, int device, CUcontext context);
/* Takes the block at `address` out of the table, before whoever frees it does so; NULL: it is none
 * of the API's. It is then either freed, or put back when the driver refused. */
struct ag_api_owned *ag_api_owned_take(CUdeviceptr address);
void ag_api_owned_freed(struct ag_api_owned *block);
void ag_api_owned_put_back(struct ag_api_owned *block);
struct ag_api_owned_counts ag_api_owned_counts(void);
/* The driver frees what is of the context. */
void ag_api_owned_context_dying(CUcontext context);
void ag_api_owned_begin_child(void);

/* ---- streams that are shared (api_streams.c) ---- */

/* The stream of a context. It lives as long as that: whoever asked may still use it. */
struct ag_api_stream {
    struct ag_api_stream *next;
    CUcontext context;
    unsigned long long id; /* the context's: handles come again; 0: the driver told none */
    CUstream stream;
};

/* The stream that the context has; else it has the one that is offered, or NULL. The list is left
 * with `offered`, from the heap, where that was taken. */
CUstream ag_api_stream_share(CUcontext context, unsigned long long id,
                             struct ag_api_stream *offered);
/* The context is about to go: streams that are shared in it too, and managed memory of the API. */
void ag_api_context_dying(CUcontext context);

/* ---- locks (api_locks.c) ---- */

/* What several threads look up: named stages, shared streams, memory of the API. Not held across a
 * call of the driver. */
extern struct ag_lock ag_api_lock;
/* Who finds the driver for the API has it. */
extern pthread_mutex_t ag_api_look_up_mutex;
/* A forked child: nobody holds them. */
void ag_api_begin_child(void);

/* The functions of struct allograft_api, each of the type of its member. */
#define AG_API(name, stub) __typeof__(*((struct allograft_api *)NULL)->name) ag_api_##name;
#include "interpose/api/functions.def"

#endif
