/* The control API: what a program says to Allograft when it can be changed.
 *
 * Nothing needs to be linked. Every function here finds the library in the process (preloaded, or
 * opened by allograft_load()) and calls it; where there is none it does nothing and returns
 * ALLOGRAFT_NOT_LOADED. (C libraries older than glibc 2.34 want -ldl.) C11 and C++17.
 *
 *     allograft_graph *graph;
 *     allograft_graph_create(0, &graph);
 *     allograft_graph_capture_begin(graph, stream, ALLOGRAFT_NEW_POOL, ALLOGRAFT_CAPTURE_GLOBAL);
 *     work_on(stream);
 *     allograft_graph_capture_end(graph);
 *     for (...)
 *         allograft_graph_replay(graph, stream);
 *
 * Streams are `cudaStream_t` or `CUstream`, device memory is what cudaMalloc gives. Sizes are
 * bytes. Devices are ordinals as the process sees them. Functions that take a device may be called
 * in any context (where it is not of that device, the device's primary one is used and retained
 * until the process ends); the others use the calling thread's current context, and return
 * ALLOGRAFT_DRIVER where there is none.
 *
 * Threads: functions may be called by any thread at once, but those of one graph, stage or ring by
 * one thread at a time. A capture is ended by the thread that began it. NULL for a stream is the
 * legacy default stream. Graphs, stages and rings belong to the context they were made in: they are
 * destroyed or closed before it is.
 *
 * Every function sets the calling thread's allograft_last_error() when it fails. What a failed
 * function says nothing about is unchanged, results included. */
#ifndef ALLOGRAFT_H
#define ALLOGRAFT_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The layout of struct allograft_api. Functions are only ever added, at its end; another number
 * means that something that was there has changed. */
#define ALLOGRAFT_API_VERSION 1u

typedef enum allograft_status {
    ALLOGRAFT_OK = 0,
    ALLOGRAFT_NOT_LOADED = 1, /* no library in the process, or one that lacks the function */
    ALLOGRAFT_INVALID = 2,    /* an argument that makes no sense */
    /* the device, the driver or this way of loading the library cannot do it */
    ALLOGRAFT_UNSUPPORTED = 3,
    ALLOGRAFT_CAPTURING = 4, /* not while a stream is being captured */
    ALLOGRAFT_NO_MEMORY = 5,
    ALLOGRAFT_NOT_READY = 6,
    ALLOGRAFT_STATE = 7,  /* calls in an order that makes no sense; nothing was changed */
    ALLOGRAFT_DRIVER = 8, /* another error of the driver */
} allograft_status;

/* ---- types ---- */

#define ALLOGRAFT_HOST (-1) /* where a device is asked for: the host's memory */

struct allograft_range {
    const void *address;
    size_t bytes;
};

typedef struct allograft_graph allograft_graph;
typedef struct allograft_stage allograft_stage;
typedef struct allograft_ring allograft_ring;

/* A private pool of device memory for captures. */
typedef uint64_t allograft_pool;
#define ALLOGRAFT_NEW_POOL ((allograft_pool)0)

/* The modes of a capture, as cudaStreamCaptureMode has them. */
typedef enum allograft_capture_mode {
    ALLOGRAFT_CAPTURE_GLOBAL = 0,
    ALLOGRAFT_CAPTURE_THREAD_LOCAL = 1,
    ALLOGRAFT_CAPTURE_RELAXED = 2,
} allograft_capture_mode;

typedef enum allograft_action {
    ALLOGRAFT_RUN = 0, /* run the body */
    /* run the body: it is recorded, and its work is done by allograft_stage_end() */
    ALLOGRAFT_RECORD = 1,
    ALLOGRAFT_SKIP = 2, /* do not run the body: allograft_stage_end() does its work */
} allograft_action;

/* The body runs in every iteration; only its beginning is told. */
#define ALLOGRAFT_STAGE_TRANSPARENT 1u
/* One pool for all stages of the device that have this flag. */
#define ALLOGRAFT_STAGE_SINGLE_POOL 2u

struct allograft_stage_options {
    size_t bytes;     /* sizeof(struct allograft_stage_options) */
    const char *name; /* "training"; copied, at most 63 characters */
    unsigned warmup;  /* iterations that run before one is recorded */
    unsigned flags;   /* ALLOGRAFT_STAGE_... */
    allograft_capture_mode mode;
};

typedef enum allograft_ring_backend {
    ALLOGRAFT_RING_AUTO = 0,
    ALLOGRAFT_RING_PINNED = 1, /* the host slots themselves are pinned, also in shared memory */
    ALLOGRAFT_RING_BOUNCE = 2, /* submit copies the slot to pinned memory of the ring first */
    /* the driver copies out of pageable memory; submit waits for that */
    ALLOGRAFT_RING_PAGEABLE = 3,
} allograft_ring_backend;

#define ALLOGRAFT_RING_TIMING 1u /* copies are timed by events */

struct allograft_ring_options {
    size_t bytes; /* sizeof(struct allograft_ring_options) */
    int device;
    unsigned depth; /* slots, 1 to 1024 */
    /* of each slot; 0: none of its own, for allograft_ring_copy() */
    size_t slot_bytes;
    unsigned flags;                 /* ALLOGRAFT_RING_TIMING */
    allograft_ring_backend backend; /* the best that is allowed; AUTO allows all */
};

/* How one slot's bytes travel. */
struct allograft_ring_properties {
    allograft_ring_backend backend;
    int pinned;       /* the copy engine reads pinned memory */
    int async_submit; /* submit returns before the bytes are read */
    int timing;       /* copies are timed */
};

struct allograft_ring_record {
    uint64_t sequence;  /* of the submit, from 1 */
    uint64_t submit_ns; /* CLOCK_MONOTONIC as submit was called */
    uint64_t bytes;
    float copy_ms; /* on the device; negative while it runs, or without timing */
    unsigned slot;
};

enum {
    ALLOGRAFT_NATIVE,
    ALLOGRAFT_POOLED,
    ALLOGRAFT_MANAGED,
    ALLOGRAFT_ON_HOST,
    ALLOGRAFT_SPILLED,
    ALLOGRAFT_PLACES
};

/* Sums over all devices since the process began. */
struct allograft_snapshot {
    /* sizeof(struct allograft_snapshot), set by the caller: fields beyond it stay untouched */
    size_t bytes;
    uint64_t allocations[ALLOGRAFT_PLACES], frees[ALLOGRAFT_PLACES];
    /* MANAGED: also what allograft_managed_alloc() gave, until it is freed; by cudaFree only where
     * the library is preloaded. Its peak is added to that of the rest. */
    uint64_t current_bytes[ALLOGRAFT_PLACES], peak_bytes[ALLOGRAFT_PLACES];
    uint64_t refused; /* allocations that failed */
    uint64_t replay_operations, replay_withheld, replay_replayed, replay_launches;
    uint64_t api_captures, api_replays;    /* of allograft_graph and allograft_stage */
    uint64_t api_copies, api_copied_bytes; /* of allograft_ring and stage inputs */
};

/* Where memory that can move is to lie. */
typedef enum allograft_place {
    ALLOGRAFT_PLACE_AUTO = 0, /* where its use suggests */
    ALLOGRAFT_PLACE_DEVICE = 1,
    ALLOGRAFT_PLACE_HOST = 2, /* in pinned memory, which kernels read and write over the bus */
} allograft_place;

/* What the library offers. `bytes` tells how much of it there is. */
struct allograft_api {
    uint32_t version, bytes;
    const char *(*last_error)(void);
    allograft_status (*managed_support)(int);
    allograft_status (*managed_alloc)(void **, size_t, int, void *);
    allograft_status (*managed_free)(void *, size_t, int, void *);
    allograft_status (*prefetch)(const struct allograft_range *, size_t, int, void *, size_t *);
    allograft_status (*advise_preferred_location)(const struct allograft_range *, size_t, int,
                                                  size_t *);
    allograft_status (*advise_accessed_by)(const struct allograft_range *, size_t, int, size_t *);
    allograft_status (*pool_new)(allograft_pool *);
    allograft_status (*pool_shared)(int, allograft_pool *);
    allograft_status (*capture_stream)(int, void **);
    allograft_status (*graph_create)(int, allograft_graph **);
    allograft_status (*graph_enable_debug_mode)(allograft_graph *);
    allograft_status (*graph_capture_begin)(allograft_graph *, void *, allograft_pool,
                                            allograft_capture_mode);
    allograft_status (*graph_capture_end)(allograft_graph *);
    allograft_status (*graph_instantiate)(allograft_graph *);
    allograft_status (*graph_replay)(allograft_graph *, void *);
    allograft_status (*graph_reset)(allograft_graph *);
    allograft_status (*graph_destroy)(allograft_graph *);
    allograft_status (*graph_debug_dump)(allograft_graph *, const char *);
    allograft_status (*graph_raw)(allograft_graph *, void **);
    allograft_status (*graph_pool)(allograft_graph *, allograft_pool *);
    allograft_status (*stage_open)(const struct allograft_stage_options *, allograft_stage **);
    allograft_status (*stage_begin)(allograft_stage *, void *, allograft_action *);
    allograft_status (*stage_end)(allograft_stage *);
    allograft_status (*stage_iteration)(allograft_stage *, uint64_t *, uint64_t *);
    allograft_status (*stage_input)(allograft_stage *, unsigned, unsigned, size_t, void **);
    allograft_status (*stage_load)(allograft_stage *, unsigned, unsigned, const void *, size_t,
                                   void *);
    allograft_status (*stage_reset)(allograft_stage *);
    allograft_status (*stage_close)(allograft_stage *);
    allograft_status (*ring_open)(const struct allograft_ring_options *, allograft_ring **);
    allograft_status (*ring_register)(allograft_ring *, unsigned, void *, size_t);
    allograft_status (*ring_device_slot)(allograft_ring *, unsigned, void **);
    allograft_status (*ring_submit)(allograft_ring *, unsigned, size_t);
    allograft_status (*ring_clear)(allograft_ring *, unsigned);
    allograft_status (*ring_query)(allograft_ring *, unsigned, int *);
    allograft_status (*ring_wait_host)(allograft_ring *, unsigned);
    allograft_status (*ring_wait_stream)(allograft_ring *, unsigned, void *);
    allograft_status (*ring_reader)(allograft_ring *, unsigned, void *);
    allograft_status (*ring_properties)(allograft_ring *, unsigned,
                                        struct allograft_ring_properties *);
    allograft_status (*ring_trace)(allograft_ring *, struct allograft_ring_record *, size_t,
                                   size_t *);
    allograft_status (*ring_close)(allograft_ring *);
    allograft_status (*snapshot)(struct allograft_snapshot *);
    allograft_status (*dump)(const char *);
    allograft_status (*mark)(const char *);
    allograft_status (*ring_pin)(allograft_ring *, void *, size_t);
    allograft_status (*ring_copy)(allograft_ring *, unsigned, void *, const void *, size_t);
    allograft_status (*ring_stream)(allograft_ring *, void **);
    allograft_status (*memory_place)(const void *, size_t, allograft_place);
};

/* ---- finding the library ---- */

/* What allograft_load() opened: one for all files of a program or library that include this. */
__attribute__((weak, visibility("hidden"))) const struct allograft_api *allograft_loaded_api;

static inline const struct allograft_api *allograft_ask(void *handle)
{
    const struct allograft_api *(*get)(uint32_t);
    void *symbol = handle ? dlsym(handle, "allograft_get_api") : NULL;

    if (!symbol)
        return NULL;
    /* ISO C converts no pointer to an object into one to a function. */
    __builtin_memcpy(&get, &symbol, sizeof(get));
    return get(ALLOGRAFT_API_VERSION);
}

/* The library's functions, or NULL. Cheap once it is found; while there is none it is looked for
 * again. */
static inline const struct allograft_api *allograft_find(void)
{
    const struct allograft_api *api = __atomic_load_n(&allograft_loaded_api, __ATOMIC_ACQUIRE);

    if (!api) {
        api = allograft_ask(dlopen(NULL, RTLD_LAZY));
        if (api)
            __atomic_store_n(&allograft_loaded_api, api, __ATOMIC_RELEASE);
    }
    return api;
}

/* Opens the library at `path` ("liballograft.so" is looked for as any library is) where it is not
 * preloaded. Then this API works, but the program's own calls are not intercepted: no redirection,
 * no replay of marked streams, and cudaMalloc during a capture is the driver's. With a preloaded
 * library it changes nothing. The library stays until the process ends. ALLOGRAFT_NOT_LOADED when
 * it cannot be opened, or is of another version. */
static inline allograft_status allograft_load(const char *path)
{
    const struct allograft_api *api = allograft_find();

    if (!api) {
        api = allograft_ask(dlopen(path, RTLD_NOW | RTLD_LOCAL));
        if (api)
            __atomic_store_n(&allograft_loaded_api, api, __ATOMIC_RELEASE);
    }
    return api ? ALLOGRAFT_OK : ALLOGRAFT_NOT_LOADED;
}

/* 1 when there is a library to call. */
static inline int allograft_is_loaded(void)
{
    return allograft_find() != NULL;
}

/* Calls a function of the library, if there is one and it has it. */
#define ALLOGRAFT_CALL(name, ...)                                                            \
    const struct allograft_api *api = allograft_find();                                      \
    return api && api->bytes > offsetof(struct allograft_api, name) ? api->name(__VA_ARGS__) \
                                                                    : ALLOGRAFT_NOT_LOADED

/* One line about the calling thread's last call that failed; "" when none did. Valid until its next
 * call. */
static inline const char *allograft_last_error(void)
{
    const struct allograft_api *api = allograft_find();

    return api ? api->last_error() : "Allograft is not in this process";
}

/* ---- managed memory ----
 *
 * Memory that lies on the host or on a device, and moves. Addresses never change, so that moving
 * memory does no harm to graphs that were recorded with it. What cudaMalloc gives under
 * ALLOGRAFT_POLICY=managed is such memory too.
 *
 * With CUDAPluggableAllocator of PyTorch the library itself serves, under two names of its own:
 * CUDAPluggableAllocator("liballograft.so", "allograft_torch_alloc", "allograft_torch_free"). */

/* Can `device` have managed memory that host and device use at once? ALLOGRAFT_UNSUPPORTED if not:
 * allograft_last_error() says why. */
static inline allograft_status allograft_managed_support(int device)
{
    ALLOGRAFT_CALL(managed_support, device);
}

/* `bytes` of managed memory that prefers to lie on `device`. *ret is the caller's, who gives it
 * back by allograft_managed_free() or cudaFree. From 2 MiB on it is brought to the device in the
 * order of `stream`, if there is room. ALLOGRAFT_CAPTURING when `stream` is being captured. 0
 * bytes: *ret is NULL. */
static inline allograft_status allograft_managed_alloc(void **ret, size_t bytes, int device,
                                                       void *stream)
{
    ALLOGRAFT_CALL(managed_alloc, ret, bytes, device, stream);
}

/* Waits for the device as cudaFree does. `bytes`, `device` and `stream` as they were given for it.
 * NULL: nothing. */
static inline allograft_status allograft_managed_free(void *memory, size_t bytes, int device,
                                                      void *stream)
{
    ALLOGRAFT_CALL(managed_free, memory, bytes, device, stream);
}

/* Moves each range to `device`, or to the host (ALLOGRAFT_HOST), in the order of `stream`. Ranges
 * that are not managed memory are passed over. *ret_bytes (may be NULL): the sum of the bytes of
 * the others, as given; the driver moves whole pages. ALLOGRAFT_CAPTURING when `stream` is being
 * captured. On an error of the driver, *ret_bytes tells how far it came. */
static inline allograft_status allograft_prefetch_ranges(const struct allograft_range *ranges,
                                                         size_t n, int device, void *stream,
                                                         size_t *ret_bytes)
{
    ALLOGRAFT_CALL(prefetch, ranges, n, device, stream, ret_bytes);
}

/* One range, which must be managed memory (ALLOGRAFT_INVALID). */
static inline allograft_status allograft_prefetch(const void *memory, size_t bytes, int device,
                                                  void *stream)
{
    struct allograft_range range = {memory, bytes};
    size_t covered = 0;
    allograft_status status = allograft_prefetch_ranges(&range, 1, device, stream, &covered);

    return status == ALLOGRAFT_OK && covered < bytes ? ALLOGRAFT_INVALID : status;
}

/* From now on the ranges have best lie on `device`, or on the host: they are moved there when it
 * touches them, and stay. Nothing moves now. Results as allograft_prefetch_ranges().
 * ALLOGRAFT_CAPTURING while the calling thread captures.
 *
 * The driver takes no advice on blocks of its managed pool, from which ALLOGRAFT_POLICY=managed has
 * small ones. They prefer the device they were allocated on, which has them mapped: that advice is
 * ALLOGRAFT_OK, other advice ALLOGRAFT_UNSUPPORTED, as all advice on managed pools of the program's
 * own. After the first call of this function or the
 * next, with or without ranges, no more of them are allocated, unless
 * ALLOGRAFT_MANAGED_BACKEND=pool; with ALLOGRAFT_MANAGED_BACKEND=plain there are none. */
static inline allograft_status allograft_advise_preferred_location(
    const struct allograft_range *ranges, size_t n, int device, size_t *ret_bytes)
{
    ALLOGRAFT_CALL(advise_preferred_location, ranges, n, device, ret_bytes);
}

/* From now on the ranges are kept mapped for `device`, or for the host, wherever they lie: it reads
 * them in place instead of moving them. Results as above. */
static inline allograft_status allograft_advise_accessed_by(const struct allograft_range *ranges,
                                                            size_t n, int device, size_t *ret_bytes)
{
    ALLOGRAFT_CALL(advise_accessed_by, ranges, n, device, ret_bytes);
}

/* ---- memory that can move ---- */

/* From now on the `bytes` at `address` lie in that place, until it is called with another, or the
 * memory is freed. That is of cudaMalloc, 1 MiB or more, under ALLOGRAFT_OOM=page, and all of one
 * block; pieces of ALLOGRAFT_PAGE_PIECE move as a whole, wherever one of the bytes lies in them.
 * Addresses and contents stay, and whatever place it has, the device and its peers find it.
 *
 * It is moved at once if the device becomes idle, and else before a later launch.
 * What is to come to a device without room for it comes with the next kernel that has a pointer to
 * it, for which other memory goes; what is placed there does not. While a stream is captured
 * nothing moves.
 *
 * Any thread, and while others launch: their work waits meanwhile. ALLOGRAFT_UNSUPPORTED, and
 * nothing is changed: it is no such memory, or it stays where it is, since a graph copies from or
 * to it, or SYNC_MEMOPS or a handle of it was asked for. ALLOGRAFT_INVALID: no bytes, an unknown
 * place, or bytes past the end of the block. */
static inline allograft_status allograft_memory_place(const void *address, size_t bytes,
                                                      allograft_place place)
{
    ALLOGRAFT_CALL(memory_place, address, bytes, place);
}

/* ---- graphs ----
 *
 * Work on a stream, captured once and replayed. With the library preloaded, cudaMalloc by the
 * capturing thread during the capture takes memory of the graph's private pool: its address stays
 * valid, and cudaFree of it takes effect only when the last graph that uses the pool is reset or
 * destroyed. What was freed is used again by later captures into the same pool, so graphs that
 * share one are replayed in the order of their captures and never at the same time. */

/* The name of a pool that no graph uses yet. */
static inline allograft_status allograft_pool_new(allograft_pool *ret)
{
    ALLOGRAFT_CALL(pool_new, ret);
}

/* The one pool of the device that all who ask share. */
static inline allograft_status allograft_pool_shared(int device, allograft_pool *ret)
{
    ALLOGRAFT_CALL(pool_shared, device, ret);
}

/* The one stream for captures of the device's current context, non-blocking; the library's, never
 * to be destroyed. */
static inline allograft_status allograft_capture_stream(int device, void **ret_stream)
{
    ALLOGRAFT_CALL(capture_stream, device, ret_stream);
}

/* A graph with nothing in it. `keep_graph`: not 0 keeps what was captured beside what is launched,
 * for allograft_graph_raw() and allograft_graph_instantiate(). The caller's until
 * allograft_graph_destroy(). */
static inline allograft_status allograft_graph_create(int keep_graph, allograft_graph **ret)
{
    ALLOGRAFT_CALL(graph_create, keep_graph, ret);
}

/* Keeps what is captured from now on until allograft_graph_debug_dump(). */
static inline allograft_status allograft_graph_enable_debug_mode(allograft_graph *graph)
{
    ALLOGRAFT_CALL(graph_enable_debug_mode, graph);
}

/* Work submitted to `stream` is recorded instead of done. `stream` is none of the default streams
 * (ALLOGRAFT_INVALID). ALLOGRAFT_STATE when the graph holds a capture already, or the calling
 * thread has a capture of this API open. */
static inline allograft_status allograft_graph_capture_begin(allograft_graph *graph, void *stream,
                                                             allograft_pool pool,
                                                             allograft_capture_mode mode)
{
    ALLOGRAFT_CALL(graph_capture_begin, graph, stream, pool, mode);
}

/* Ends the capture and, unless `keep_graph`, makes what is launched of it. When the driver found
 * the capture invalid, or cannot make it: ALLOGRAFT_DRIVER, and the graph is empty again, as after
 * a reset. */
static inline allograft_status allograft_graph_capture_end(allograft_graph *graph)
{
    ALLOGRAFT_CALL(graph_capture_end, graph);
}

/* Makes what is launched, again if it was made: only with `keep_graph` (ALLOGRAFT_STATE). */
static inline allograft_status allograft_graph_instantiate(allograft_graph *graph)
{
    ALLOGRAFT_CALL(graph_instantiate, graph);
}

/* Submits the whole graph to `stream`, any stream of the context it was captured in. Instantiates
 * first where that is due. ALLOGRAFT_STATE without a capture. */
static inline allograft_status allograft_graph_replay(allograft_graph *graph, void *stream)
{
    ALLOGRAFT_CALL(graph_replay, graph, stream);
}

/* Empties the graph for another capture; the pool's memory goes when no other graph uses it. The
 * device may still be at work on it: then the memory goes after that. During a capture into it:
 * ends that, in vain. */
static inline allograft_status allograft_graph_reset(allograft_graph *graph)
{
    ALLOGRAFT_CALL(graph_reset, graph);
}

/* Resets, and frees the object. NULL: nothing. */
static inline allograft_status allograft_graph_destroy(allograft_graph *graph)
{
    ALLOGRAFT_CALL(graph_destroy, graph);
}

/* Writes the captured graph to the file as DOT. Needs `keep_graph` or debug mode (ALLOGRAFT_STATE);
 * in debug mode alone what was kept goes with it, so it works once. */
static inline allograft_status allograft_graph_debug_dump(allograft_graph *graph, const char *path)
{
    ALLOGRAFT_CALL(graph_debug_dump, graph, path);
}

/* The captured cudaGraph_t. It stays the graph's: nodes may be changed before
 * allograft_graph_instantiate(). Needs `keep_graph` (ALLOGRAFT_STATE). */
static inline allograft_status allograft_graph_raw(allograft_graph *graph, void **ret_graph)
{
    ALLOGRAFT_CALL(graph_raw, graph, ret_graph);
}

/* The pool of the capture, for others to share. ALLOGRAFT_STATE without a capture. */
static inline allograft_status allograft_graph_pool(allograft_graph *graph, allograft_pool *ret)
{
    ALLOGRAFT_CALL(graph_pool, graph, ret);
}

/* ---- iterations ----
 *
 * A stage is a kind of iteration: training, validation. Of each, the first `warmup` iterations run,
 * the next one is recorded, and all further ones are replayed:
 *
 *     allograft_stage_begin(training, stream, &action);
 *     if (action != ALLOGRAFT_SKIP)
 *         body(stream);
 *     allograft_stage_end(training);
 *
 * What the body does on the host is not repeated. A transparent stage always says ALLOGRAFT_RUN:
 * its body may do what it likes, and where replay of the stream is on (ALLOGRAFT_GRAPH) its
 * iterations begin here. */

/* The stage of that name, made if there is none (the options of the first time count). Open until
 * allograft_stage_close(). */
static inline allograft_status allograft_stage_open(const struct allograft_stage_options *options,
                                                    allograft_stage **ret)
{
    ALLOGRAFT_CALL(stage_open, options, ret);
}

/* Begins an iteration. `stream`: where the body's work goes; none of the default streams, unless
 * transparent. */
static inline allograft_status allograft_stage_begin(allograft_stage *stage, void *stream,
                                                     allograft_action *ret)
{
    ALLOGRAFT_CALL(stage_begin, stage, stream, ret);
}

/* Ends it. The iteration's work is then submitted to the stream, whatever the action was. When the
 * recorded body cannot become a graph (it waited for the device, say): ALLOGRAFT_DRIVER, its work
 * was not done, the iteration does not count, and from then on all of them run. So it is where the
 * driver refuses the first launch of the graph, with that error. */
static inline allograft_status allograft_stage_end(allograft_stage *stage)
{
    ALLOGRAFT_CALL(stage_end, stage);
}

/* Iterations are counted from 0. *ret_current: the one under way, or else the last that ended
 * (UINT64_MAX: none yet); *ret_next: the one that begins next. Either may be NULL. */
static inline allograft_status allograft_stage_iteration(allograft_stage *stage,
                                                         uint64_t *ret_current, uint64_t *ret_next)
{
    ALLOGRAFT_CALL(stage_iteration, stage, ret_current, ret_next);
}

/* The device buffer that holds input number `input` of a micro-batch in every iteration: `bytes`
 * long, made when it is asked for the first time in the current context, and the same until the
 * stage is closed. The stage's. ALLOGRAFT_INVALID when it is there with fewer bytes. */
static inline allograft_status allograft_stage_input(allograft_stage *stage, unsigned micro_batch,
                                                     unsigned input, size_t bytes, void **ret)
{
    ALLOGRAFT_CALL(stage_input, stage, micro_batch, input, bytes, ret);
}

/* Fills it, from host or device memory, on a side stream: after what was submitted to `stream` so
 * far, which may read the old contents, and before all that comes after. `source` may be written
 * again when `stream` has come past this, or at once if it is pageable. Not between begin and
 * end. */
static inline allograft_status allograft_stage_load(allograft_stage *stage, unsigned micro_batch,
                                                    unsigned input, const void *source,
                                                    size_t bytes, void *stream)
{
    ALLOGRAFT_CALL(stage_load, stage, micro_batch, input, source, bytes, stream);
}

/* Forgets the recording and the count: the warm-up begins again. NULL: of all stages. Inputs
 * stay. */
static inline allograft_status allograft_stage_reset(allograft_stage *stage)
{
    ALLOGRAFT_CALL(stage_reset, stage);
}

/* Resets, waits for what is under way, and frees it with its inputs. NULL: nothing.
 * ALLOGRAFT_CAPTURING while the calling thread captures another graph: it stays open. */
static inline allograft_status allograft_stage_close(allograft_stage *stage)
{
    ALLOGRAFT_CALL(stage_close, stage);
}

/* ---- transfer ring ----
 *
 * `depth` pairs of a host slot and a device slot, and a copy stream of its own. A producer fills a
 * host slot and submits it; a consumer waits for the slot, by a stream or on the host, and says
 * which stream reads it. The next submit of the slot overwrites it only after those readers. A host
 * slot may be filled again when it has become ready, and at once where submit is not
 * asynchronous. */

/* Device slots and the copy stream are the ring's, in the device's primary context or the current
 * one if it is of that device. */
static inline allograft_status allograft_ring_open(const struct allograft_ring_options *options,
                                                   allograft_ring **ret)
{
    ALLOGRAFT_CALL(ring_open, options, ret);
}

/* `memory` is the host slot number `slot` from now on: at least the ring's slot_bytes long, the
 * caller's, and there until another is registered or the ring is closed. It is pinned in place
 * where the backend allows and the system can, mapped files and shared memory included; else it
 * travels by the next backend. */
static inline allograft_status allograft_ring_register(allograft_ring *ring, unsigned slot,
                                                       void *memory, size_t bytes)
{
    ALLOGRAFT_CALL(ring_register, ring, slot, memory, bytes);
}

/* The device slot: slot_bytes long, aligned to 256, until the ring is closed. */
static inline allograft_status allograft_ring_device_slot(allograft_ring *ring, unsigned slot,
                                                          void **ret)
{
    ALLOGRAFT_CALL(ring_device_slot, ring, slot, ret);
}

/* Copies the first `bytes` of the host slot to the device slot, after the slot's readers.
 * ALLOGRAFT_STATE when no host slot is registered. */
static inline allograft_status allograft_ring_submit(allograft_ring *ring, unsigned slot,
                                                     size_t bytes)
{
    ALLOGRAFT_CALL(ring_submit, ring, slot, bytes);
}

/* Pins the host memory in place until the ring is closed, for allograft_ring_copy(); what is pinned
 * already stays as it is. The memory is the caller's, and there until then. When the driver cannot
 * pin it: its error. */
static inline allograft_status allograft_ring_pin(allograft_ring *ring, void *memory, size_t bytes)
{
    ALLOGRAFT_CALL(ring_pin, ring, memory, bytes);
}

/* Does what a submit does, between memory of the caller's: from any host memory to any memory of
 * the ring's device, so that host and device slots may be of any number and size. It comes after
 * the slot's readers, and the slot is ready when it has come through. From pinned memory it is
 * asynchronous: the memory may be written again when the slot is ready. 0 bytes: nothing is copied,
 * and the slot is ready when all that was submitted to the ring's stream so far is done. */
static inline allograft_status allograft_ring_copy(allograft_ring *ring, unsigned slot,
                                                   void *device, const void *host, size_t bytes)
{
    ALLOGRAFT_CALL(ring_copy, ring, slot, device, host, bytes);
}

/* The ring's copy stream: the ring's, until it is closed. */
static inline allograft_status allograft_ring_get_stream(allograft_ring *ring, void **ret_stream)
{
    ALLOGRAFT_CALL(ring_stream, ring, ret_stream);
}

/* The slot is not ready, until the next submit has come through. Its copy, if one is under way,
 * goes on. */
static inline allograft_status allograft_ring_clear(allograft_ring *ring, unsigned slot)
{
    ALLOGRAFT_CALL(ring_clear, ring, slot);
}

/* *ret_ready: 1 when the last submit has come through, else 0. */
static inline allograft_status allograft_ring_query(allograft_ring *ring, unsigned slot,
                                                    int *ret_ready)
{
    ALLOGRAFT_CALL(ring_query, ring, slot, ret_ready);
}

/* Waits until the slot is ready. ALLOGRAFT_STATE when nothing was submitted since it was
 * cleared. */
static inline allograft_status allograft_ring_wait_host(allograft_ring *ring, unsigned slot)
{
    ALLOGRAFT_CALL(ring_wait_host, ring, slot);
}

/* What is submitted to `stream` from now on runs when the slot is ready. The host does not wait. */
static inline allograft_status allograft_ring_wait_stream(allograft_ring *ring, unsigned slot,
                                                          void *stream)
{
    ALLOGRAFT_CALL(ring_wait_stream, ring, slot, stream);
}

/* What was submitted to `stream` so far reads the device slot: the next submit of the slot waits
 * for it, on the device. Several streams may read a slot. */
static inline allograft_status allograft_ring_reader(allograft_ring *ring, unsigned slot,
                                                     void *stream)
{
    ALLOGRAFT_CALL(ring_reader, ring, slot, stream);
}

/* How the slot's bytes travel, as it was decided when its host slot was registered. */
static inline allograft_status allograft_ring_get_properties(allograft_ring *ring, unsigned slot,
                                                             struct allograft_ring_properties *ret)
{
    ALLOGRAFT_CALL(ring_properties, ring, slot, ret);
}

/* The last submits, oldest first: *ret_n of them, at most `capacity` and at most 256. */
static inline allograft_status allograft_ring_trace(allograft_ring *ring,
                                                    struct allograft_ring_record *records,
                                                    size_t capacity, size_t *ret_n)
{
    ALLOGRAFT_CALL(ring_trace, ring, records, capacity, ret_n);
}

/* Waits for copies and readers, unpins what the ring pinned, and frees it. NULL: nothing.
 * ALLOGRAFT_CAPTURING while the calling thread captures a graph: it stays open. */
static inline allograft_status allograft_ring_close(allograft_ring *ring)
{
    ALLOGRAFT_CALL(ring_close, ring);
}

/* ---- statistics ---- */

/* The counters as they are now. ret->bytes is set by the caller to what it has room for. */
static inline allograft_status allograft_snapshot(struct allograft_snapshot *ret)
{
    ALLOGRAFT_CALL(snapshot, ret);
}

/* Writes the report as it is now: JSON if `path` ends in .json, else text; "full" is the text on
 * stderr, NULL its first lines there. %p %h %n %r as in ALLOGRAFT_STATS. */
static inline allograft_status allograft_dump(const char *path)
{
    ALLOGRAFT_CALL(dump, path);
}

/* A point in the program with a name, at most 47 characters: the report tells how often it was
 * passed, when first and last, and how much memory there was then. 64 names are kept. */
static inline allograft_status allograft_mark(const char *name)
{
    ALLOGRAFT_CALL(mark, name);
}

#ifdef __cplusplus
}
#endif

#endif
