/* sim_internal.h: the types and functions that the files of the simulated driver share.
 *
 * The CUDA handle types (CUstream, CUevent, ...) are pointers to structs that cuda.h leaves open;
 * here they are given their contents, so no handle is ever cast.
 *
 * One lock guards everything. A driver call takes it in sim_enter and gives it back in sim_leave;
 * only waiting (sim_wait) and host functions let go of it in between. Kernels run with it held. */
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* memfd_create, fallocate, process_vm_readv */
#endif

#define __CUDA_API_VERSION_INTERNAL        1
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim.h"

/* As in cudaProfiler.h, which only toolkits have. */
SIM_EXPORT CUresult CUDAAPI cuProfilerStart(void);
SIM_EXPORT CUresult CUDAAPI cuProfilerStop(void);

#define SIM_MAX_DEVICES 16

/* ---- settings (settings.c) ---- */

enum sim_sched {
    SIM_SCHED_ADVERSARIAL,
    SIM_SCHED_EAGER,
    SIM_SCHED_THREAD,
    SIM_SCHED_LAZY,
    SIM_SCHED_RELUCTANT
};
enum sim_on_violation { SIM_VIOLATION_EXIT, SIM_VIOLATION_ABORT, SIM_VIOLATION_COUNT };

struct sim_settings {
    uint64_t seed;
    int n_devices;
    size_t memory_bytes;
    enum sim_sched sched;
    enum sim_on_violation on_violation;
    int driver_version;
    size_t upload_bytes;  /* of the card, for each node of a graph that is launched at all */
    size_t lazy_bytes;    /* likewise, for each function that is launched at all */
    size_t context_bytes; /* likewise, for each context */
    unsigned
        idle_ms;    /* with no driver call for so long, pending work goes on by itself; 0: never */
    unsigned stall; /* one call in so many is late, or comes back late; 0: none */
    bool log;
};

const struct sim_settings *sim_settings(void);
/* SIM_ATTRIBUTES="119=0,88=1" overrides device attributes; returns false when it does not. */
bool sim_settings_attribute(int attribute, int *ret_value);

/* ---- driver.c: life of the driver, and the way into every call ---- */

enum sim_needs {
    SIM_NEEDS_NOTHING,
    SIM_NEEDS_INIT,
    SIM_USES_CONTEXT,               /* goes without one, but not in one that is faulted */
    SIM_NEEDS_CONTEXT_EVEN_FAULTED, /* for questions about the context itself */
    SIM_NEEDS_CONTEXT,
};

struct sim_call {
    CUresult refused;     /* not CUDA_SUCCESS: return this at once */
    CUcontext ctx;        /* the current one, where it is needed */
    bool locked, records; /* an event */
};

void sim_enter(struct sim_call *call, const char *symbol, enum sim_needs needs);
void sim_leave(struct sim_call *call);
/* A per-thread-default-stream twin: counts and fails under its own name, then forwards. */
CUresult sim_enter_twin(const char *symbol);

#define SIM_ENTER(needs)                                      \
    struct sim_call call __attribute__((cleanup(sim_leave))); \
    sim_enter(&call, __func__, needs);                        \
    if (call.refused != CUDA_SUCCESS)                         \
    return call.refused

void sim_lock(void);
void sim_unlock(void);
/* Lets go of the lock until something has completed or `ms` have passed (0: no limit). */
void sim_sleep_for_change(unsigned ms);
/* Lets go of the lock until the caller's own signal comes. */
void sim_sleep_for(pthread_cond_t *signal);
/* Lets go of the lock for a moment. */
void sim_let_others_in(void);
void sim_wake_all(void);
/* The driver has ended: nothing enqueued runs any more. */
bool sim_gone(void);
enum sim_callback { SIM_IN_NOTHING, SIM_IN_KERNEL, SIM_IN_HOST_FUNCTION };
/* What the calling thread runs for the driver: that decides which calls it may make. */
void sim_in_callback(enum sim_callback what);
bool sim_in_host_function(void);
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line for the user of `allograft run --simulate`: what cannot run here, and why. */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int sim_thread_number(void);

/* ---- fault.c ---- */

/* SIM_FAIL: the error that this call of `symbol` must return, or CUDA_SUCCESS. */
CUresult sim_fault(const char *symbol);

/* ---- random.c ---- */

uint32_t sim_random(uint32_t below);
bool sim_chance(unsigned of_256);

/* ---- handle.c ---- */

enum sim_handle_kind {
    SIM_CONTEXT = 1,
    SIM_STREAM,
    SIM_EVENT,
    SIM_POOL,
    SIM_MODULE,
    SIM_LIBRARY,
    SIM_FUNCTION,
    SIM_KERNEL,
    SIM_GRAPH,
    SIM_NODE,
    SIM_EXEC,
    SIM_ARRAY,
    SIM_USER_OBJECT,
    SIM_PHYSICAL,
    SIM_OBJECT,
    SIM_MIPMAPPED,
    SIM_EXTERNAL_MEMORY,
    SIM_EXTERNAL_SEMAPHORE,
    SIM_GREEN,
    SIM_RESOURCES,
};

void *sim_handle_new(enum sim_handle_kind kind, size_t bytes);
bool sim_handle_is(const void *handle, enum sim_handle_kind kind);
void sim_handle_free(void *handle);

/* ---- order.c: what is known to come before what ---- */

/* Each stream owns a slot; its operations are numbered 1, 2, 3 ... A stamp names one of them. */
struct sim_stamp {
    uint32_t slot;
    uint32_t seq;
};

/* Everything up to at[slot] in every slot comes before the owner of this order. */
struct sim_order {
    uint32_t n;
    uint32_t *at;
};

void sim_order_join(struct sim_order *order, const struct sim_order *other);
void sim_order_add(struct sim_order *order, struct sim_stamp stamp);
bool sim_order_covers(const struct sim_order *order, struct sim_stamp stamp);
void sim_order_finish(struct sim_order *order);
uint32_t sim_slot_new(void);
uint32_t sim_slot_next(uint32_t slot);
void sim_slot_retire(uint32_t slot);
/* What some host thread has seen completed. */
extern struct sim_order sim_host_order;

/* ---- work.c: one stream operation as a value; scheduler.c: as something that runs ---- */

enum sim_work_kind {
    SIM_WORK_EMPTY,
    SIM_WORK_KERNEL,
    SIM_WORK_COPY,
    SIM_WORK_SET,
    SIM_WORK_HOST,
    SIM_WORK_EVENT_RECORD,
    SIM_WORK_EVENT_WAIT,
    SIM_WORK_ALLOC,
    SIM_WORK_FREE,
    SIM_WORK_WRITE_VALUE,
    SIM_WORK_WAIT_VALUE,
    SIM_WORK_CHILD,
    SIM_WORK_PREFETCH,
};

#define SIM_MAX_PARAMS 256

struct sim_kernel_work {
    struct sim_kernel_entry *entry;
    CUfunction function; /* as the graph calls report it */
    CUkernel kernel;
    uint64_t code; /* the function's id: its handle may be given out again */
    unsigned grid[3], block[3], shared_bytes;
    unsigned char *params; /* owned; laid out as the entry's offsets say */
    bool is_early;         /* programmatic serialization; not as a node */
    size_t stack;          /* bytes each thread has, once it is known where the kernel runs */
};

/* One side of a copy: where its first byte is, and how far rows and slices are apart. */
struct sim_span {
    uint64_t address;
    size_t pitch, slice;
    bool host;    /* pageable host memory: read or written by plain address */
    bool as_host; /* the call names it as memory of the host, whatever it is */
};

struct sim_copy {
    struct sim_span dst, src;
    size_t width, height, depth;
    unsigned char *staged; /* owned: bytes of a pageable source, taken when the call was made */
    bool reads_late;       /* a pageable source is read when the copy runs */
    bool of_batch;
    bool host_waits_here; /* for a copy to pageable memory, which a fault of its thread is about */
    bool is_gone;         /* that memory was not there, or not to be written */
    CUDA_MEMCPY3D as_asked;
};

struct sim_set {
    CUdeviceptr dst;
    size_t pitch, width, height; /* width in elements */
    unsigned value, element_bytes;
};

struct sim_host_call {
    CUhostFn fn;
    CUstreamCallback callback; /* instead of fn; gets the stream and a status */
    CUstream stream;
    void *data;
};

struct sim_prefetch {
    CUdeviceptr address;
    size_t bytes;
    CUmemLocation location;
};

struct sim_value {
    CUdeviceptr address;
    uint64_t value;
    unsigned bytes, flags;
};

struct sim_work {
    enum sim_work_kind kind;
    void *shared_page; /* wait for a record of another process: where, and its number */
    uint64_t shared_number;
    union {
        struct sim_kernel_work kernel;
        struct sim_copy copy;
        struct sim_set set;
        struct sim_host_call host;
        struct sim_value value;
        struct sim_prefetch prefetch;
        CUevent event;
        struct sim_block *block;
        CUgraph child;
    } u;
};

void sim_work_finish(struct sim_work *work);
void sim_work_copy(struct sim_work *to, const struct sim_work *from);
const char *sim_work_name(const struct sim_work *work);

enum sim_op_state { SIM_OP_WAITING, SIM_OP_READY, SIM_OP_RUNNING, SIM_OP_DONE };

struct sim_op {
    uint64_t id;
    unsigned refs;
    enum sim_op_state state;
    CUcontext ctx;
    uint64_t ctx_id;
    CUstream stream; /* may be gone when the op runs: a name, not to be followed */
    uint64_t stream_id;
    int device;
    struct sim_stamp stamp;
    struct sim_order order;
    struct sim_work work;
    uint64_t done_ns; /* virtual clock at completion */
    struct sim_op **before, **after;
    unsigned n_before, n_after, n_waiting_for, cap_before, cap_after;
    unsigned mark;
    size_t ready_index;
    void *shared_event; /* a record that other processes see: where, and its number */
    uint64_t shared_number;
};

/* A list of operations with a reference on each. */
struct sim_ops {
    struct sim_op **at;
    unsigned n, cap;
};

void sim_ops_add(struct sim_ops *ops, struct sim_op *op);
void sim_ops_finish(struct sim_ops *ops);
/* Drops what is done. */
void sim_ops_prune(struct sim_ops *ops);

struct sim_op *sim_op_ref(struct sim_op *op);
void sim_op_unref(struct sim_op *op);

/* Enqueues work (owned from here on) on a stream behind what the stream's kind asks for and behind
 * `extra` (may be NULL). ret_op (may be NULL) gets a reference. Not for capturing streams. */
void sim_enqueue(CUstream stream, struct sim_work *work, const struct sim_ops *extra,
                 struct sim_op **ret_op);
/* For graph launches: an operation in ctx (NULL: the stream's) that is ordered by `before` alone.
 */
struct sim_op *sim_enqueue_inner(CUstream stream, CUcontext ctx, struct sim_work *work,
                                 struct sim_stamp stamp, const struct sim_order *order,
                                 const struct sim_ops *before);
/* Runs or waits until op is done; its order becomes known to the host. May let go of the lock. */
void sim_wait(struct sim_op *op);
/* The same without the host getting to know. */
void sim_finish_op(struct sim_op *op);
uint64_t sim_last_op_id(void);
/* What an operation enqueued now would come after. Joined into *order. */
void sim_order_of_next(CUstream stream, struct sim_order *order);
/* A query's chance to move things on. */
void sim_nudge(struct sim_op *op);
/* A driver call came by: the scheduler may run something. */
void sim_tick(void);
void sim_advance_clock(uint64_t ns);
/* What crosses the bus for a kernel takes as long as the fastest copy really took here, so that
 * whoever measures both finds the same, however busy the machine. */
void sim_note_copied(size_t bytes, uint64_t ns);
uint64_t sim_least_copy_ns(size_t bytes); /* what a card takes */
void sim_cross_bus(size_t bytes);
uint64_t sim_clock_ns(void);
void sim_scheduler_start(void);
/* Called by the thread of host functions when one has returned. */
void sim_op_done(struct sim_op *op);
extern __thread struct sim_op *sim_running;

/* hostfn.c */
void sim_hostfn_start(struct sim_op *op);

/* ---- context.c ---- */

struct CUctx_st {
    int device;
    bool primary, alive;
    unsigned flags, api_version, retained, attached;
    unsigned long long id;
    CUresult fault;         /* sticky */
    CUstream legacy, all;   /* all: hidden stream of cuCtxRecordEvent */
    CUstream first;         /* list of all streams but `all` */
    struct sim_ops barrier; /* cuCtxWaitEvent: what new work waits for */
    struct sim_order barrier_order;
    struct sim_ops orphans[2]; /* last work of destroyed streams; [1]: of blocking ones */
    struct sim_order orphan_order[2];
    unsigned n_freeing; /* threads inside cuMemFree's wait */
    CUcontext *peers;   /* contexts whose memory this one may reach */
    unsigned n_peers;
    size_t limits[16];
    size_t local_bytes; /* of the card, for the local memory of kernels */
    unsigned cache_config, shared_config;
    CUcontext part_of; /* of a green context: the primary one, where all of its work is done, and
                          where `legacy` is its default stream */
    CUcontext next;
};

/* What a handle stands for: itself, or the primary context that it is a part of. */
CUcontext sim_context_of(CUcontext ctx);
CUcontext sim_current(void);
/* The green context that is current, or NULL. */
CUcontext sim_current_part(void);
void sim_make_current(CUcontext ctx);
CUcontext sim_contexts(void); /* first of the list of live ones */
bool sim_peers_open(CUcontext from, CUcontext to);
/* Everything submitted to the context is done afterwards. */
CUresult sim_context_drain(CUcontext ctx);
/* The same, by cuMemFree: what other threads submit to the context meanwhile waits, too (S14). */
CUresult sim_context_drain_to_free(CUcontext ctx);
/* Does the calling thread's call have to wait for such a free of another thread's? */
bool sim_context_is_held(CUcontext ctx);
/* Has the context opened itself to any context of that device? */
bool sim_peer_device_open(CUcontext from, int device);

CUresult sim_primary_retain(CUcontext *ret_ctx, CUdevice dev);
CUresult sim_primary_release(CUdevice dev);
/* green_context.c: what is part of that context ends with it. */
void sim_green_primary_gone(CUcontext primary);

/* ---- device.c ---- */

bool sim_device_ok(CUdevice device);
CUmemoryPool *sim_device_default_pool(int device);
CUmemoryPool *sim_device_current_pool(int device);

/* ---- stream.c ---- */

enum sim_stream_kind { SIM_STREAM_LEGACY, SIM_STREAM_PER_THREAD, SIM_STREAM_USER, SIM_STREAM_ALL };

/* Small uploads of pageable memory, which are in the commands themselves. */
struct sim_small_uploads {
    struct sim_op *last;
    size_t bytes;
};

struct CUstream_st {
    CUcontext ctx;
    enum sim_stream_kind kind;
    unsigned flags;
    int priority, thread;
    uint64_t id;
    uint32_t slot;
    struct sim_op *last;
    struct sim_order order;    /* of the last operation */
    struct sim_op *uploads[2]; /* asynchronous ones from pageable memory that may be under way */
    struct sim_small_uploads small_uploads[2]; /* the older ones are first */
    /* What the last kernel waits for, if only events came since: one that starts early waits for no
     * more. */
    bool is_behind_kernel;
    struct sim_ops before_kernel;
    struct sim_order order_before_kernel;
    struct sim_capture *capture;
    CUgraphNode *tail; /* while it captures: what the next node depends on */
    size_t n_tail;
    CUstream next;
    CUlaunchAttributeValue attributes[CU_LAUNCH_ATTRIBUTE_MAX];
};

/* NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a handle, in the current context. */
CUresult sim_stream_find(CUcontext ctx, CUstream handle, CUstream *ret_stream);
CUstream sim_stream_new(CUcontext ctx, enum sim_stream_kind kind, unsigned flags, int priority);
void sim_stream_delete(CUstream stream);
bool sim_stream_blocking(CUstream stream);
/* From now on the process has pool memory of the legacy stream. */
void sim_stream_pool_on_legacy(void);
/* What a wait for the stream waits for, and (joined into *order) all that is known to be done
 * after it. The wait may let others in, whose work it does not cover: so this is asked before. */
void sim_stream_pending(CUstream stream, struct sim_ops *ops, struct sim_order *order);
CUresult sim_stream_drain(CUstream stream);
/* Waits for what the stream waits for on the device: work of the legacy one, if it is blocking. */
void sim_stream_wait_for_legacy(CUstream stream);
/* Enqueue, or turn into a node while the stream captures. Takes the work over, also on failure. */
CUresult sim_submit(CUstream stream, struct sim_work *work, struct sim_op **ret_op);

/* ---- event.c ---- */

struct CUevent_st {
    CUcontext ctx;
    unsigned long long ctx_id; /* a primary context that was reset is another one */
    unsigned flags;
    struct sim_op *op; /* the record that counts; NULL: never recorded */
    struct sim_capture *capture;
    CUgraphNode *nodes; /* recorded in a capture: what a wait would depend on */
    size_t n_nodes;
    void *shared; /* interprocess event: the page it shares */
    int shared_fd;
};

bool sim_event_alive(CUevent event);
void sim_event_set(CUevent event, struct sim_op *op);

/* ---- arena.c: device addresses and the bytes behind them ---- */

/* Both return 0 / false when there is no room. align: a power of two. */
uint64_t sim_arena_take(int device, size_t bytes, size_t align);
void sim_arena_give(int device, uint64_t address, size_t bytes);
bool sim_arena_take_at(int device, uint64_t address, size_t bytes);
unsigned char *sim_arena_bytes(int device, uint64_t address);
bool sim_arena_has(uint64_t address, int *ret_device);
void sim_arena_zero(int device, uint64_t address, size_t bytes);
/* The bytes at the address are about to be written: huge pages for them, if they are the arena's
 * and the kernel makes some. One takes a tenth of the time of the 512 that a write gets singly. */
void sim_arena_gather(uint64_t address, unsigned char *bytes, size_t n);
/* How many of the n bytes at the address, in a row, have been written, or have not: those are 0,
 * and stay empty pages of a file as long as nobody looks at them. */
size_t sim_arena_run_of(uint64_t address, const unsigned char *bytes, size_t n, bool *ret_is_empty);
int sim_arena_fd(int device, uint64_t address, uint64_t *ret_offset);
/* Other bytes than the arena's own at addresses of device 0: those of a file, from the offset on.
 * The host may use them as the protection (of mmap) says, and may not while nothing says so. */
bool sim_arena_show(uint64_t address, size_t bytes, int fd, uint64_t offset);
void sim_arena_show_host(uint64_t address, size_t bytes, int fd, uint64_t offset, int protection);
void sim_arena_hide(uint64_t address, size_t bytes);
/* Physical memory of the card: out of what is free; or also at the cost of what pools keep unused
 * and of managed pages. */
bool sim_card_take(int device, size_t bytes);
bool sim_card_claim(int device, size_t bytes);
void sim_card_give(int device, size_t bytes);
size_t sim_card_free(int device);

/* ---- residency.c: where managed memory lies ---- */

struct sim_page {
    uint16_t on;    /* devices that hold it: several only when it is mostly read */
    bool somewhere; /* touched or prefetched once: on the host, if on no device */
    bool read_mostly, accessed_by_host;
    uint16_t accessed_by; /* devices */
    CUmemLocation preferred, prefetched;
};

/* The host, or any part of it. */
bool sim_is_host(CUmemLocation location);

struct sim_residency;
struct sim_block;
struct sim_residency *sim_residency_new(uint64_t base, size_t bytes);
void sim_residency_delete(struct sim_residency *residency);
/* Its pages leave the device, and their room is free at once. */
void sim_residency_give_back(struct sim_residency *residency, int device);
/* NULL: not managed memory. */
struct sim_residency *sim_residency_of(const struct sim_block *block);
/* The pages of a range that lies within. */
struct sim_page *sim_residency_pages(struct sim_residency *residency, uint64_t address,
                                     size_t bytes, size_t *ret_n);
/* Work of the device uses the range: pages come to it, or are used from where they are. */
void sim_residency_touch(struct sim_residency *residency, uint64_t address, size_t bytes,
                         int device, bool write);
void sim_residency_move(struct sim_residency *residency, uint64_t address, size_t bytes,
                        CUmemLocation location);
/* Managed pages leave the device until so many bytes are free; false: there was none. */
bool sim_residency_evict(int device, size_t bytes);

/* ---- block.c: every piece of memory and its life ---- */

enum sim_block_kind {
    SIM_BLOCK_NATIVE,
    SIM_BLOCK_POOL,
    SIM_BLOCK_MANAGED,
    SIM_BLOCK_HOST,
    SIM_BLOCK_REGISTERED,
    SIM_BLOCK_MAPPED,   /* cuMemMap */
    SIM_BLOCK_IMPORTED, /* memory of another process */
    SIM_BLOCK_GRAPH,    /* of a graph's allocation node */
};

struct sim_access {
    struct sim_stamp stamp;
    uint64_t op_id, stream_id;
};

struct sim_block {
    enum sim_block_kind kind;
    uint64_t base;
    size_t size;  /* as asked for */
    size_t taken; /* as taken from the card or pool */
    unsigned char *bytes;
    int device;
    CUcontext ctx; /* the one it was made in; for pool memory only a note */
    CUmemoryPool pool;
    unsigned long long id;
    unsigned flags;
    uint64_t born_after; /* the newest operation when it was made: older ones cannot mean it */
    unsigned pins;       /* enqueued operations that will look at it */
    bool freeable;       /* imported, or freed twice already, and yet cuMemFree takes it */
    bool exported;       /* another process may have it open: stays as it is when it is freed */
    bool zombie;         /* freed as far as the host can see */
    bool born_async, born, dead; /* born, dead: in stream order, by execution */
    struct sim_stamp born_at, dead_at;
    bool has_dead_at;
    struct sim_access *accesses;
    unsigned n_accesses;
    struct sim_op *free_op;
    char how_born[96], how_freed[96];
    unsigned access_mask; /* devices that cuMemSetAccess opened it to */
    unsigned read_only_mask;
    int host_protection;  /* of mapped memory, as of mmap: what the host may do */
    uint64_t file_offset; /* of mapped memory, in the file of what it maps */
    int sync_memops, sync_memops_set;
    void *extra;   /* managed: residency; imported: mapping; mapped: what of */
    CUgraph graph; /* made by a graph's allocation node */
    struct sim_block *next_zombie;
};

struct sim_block *sim_block_new(enum sim_block_kind kind, uint64_t base, size_t size, int device,
                                CUcontext ctx);
/* Names a piece of memory as no other. */
unsigned long long sim_memory_id(void);
/* The host's view: what is allocated now at this address. */
struct sim_block *sim_block_at(uint64_t address);
struct sim_block *sim_block_starting_at(uint64_t address);
struct sim_block *sim_block_overlapping(uint64_t address, size_t bytes);
struct sim_block *sim_block_next(uint64_t from); /* first with base >= from */
/* Out of the host's view; stays known for reports. */
void sim_block_bury(struct sim_block *block, const char *how);
/* The end in stream order: no access may come later; poisons. order: what came before the free. */
void sim_block_end(struct sim_block *block, const struct sim_order *order);
struct sim_block *sim_zombies(void);
void sim_block_describe(const struct sim_block *block, char *text, size_t bytes);

/* ---- check.c ---- */

/* Checks that op may touch [address, address + bytes) now. Returns the bytes, or NULL after a
 * report. A kernel needs access to memory of another device, a copy does not. */
unsigned char *sim_check(struct sim_op *op, uint64_t address, size_t bytes, bool write,
                         bool kernel);
void sim_violation(const struct sim_op *op, uint64_t address, size_t bytes,
                   const struct sim_block *block, const char *what);

/* ---- memory.c and neighbours ---- */

CUresult sim_native_alloc(CUcontext ctx, size_t bytes, struct sim_block **ret_block);
CUresult sim_native_free_async(struct sim_block *block, CUstream stream);
/* Was this address given to sim_native_free_async last? Doing it again is no error. */
bool sim_freed_async_again(CUdeviceptr p);
void sim_native_free(struct sim_block *block, const char *how);
/* Room for what is no memory of the program: code, executable graphs. */
bool sim_overhead_take(int device, size_t bytes);
void sim_overhead_give(int device, size_t bytes);
void sim_free_context_memory(CUcontext ctx);
void sim_managed_free(struct sim_block *block);
void sim_host_free(struct sim_block *block, const char *how);
/* Memory of another process: undoes the import (ipc.c). */
void sim_import_close(struct sim_block *block);
/* Gives part of a file an address on the context's device. */
struct sim_block *sim_import_file(int fd, CUcontext ctx, uint64_t offset, size_t size,
                                  const char *how);
/* The page that an event or semaphore shares with others; NULL: cannot be mapped. */
void *sim_shared_page(int fd);
void sim_import_gone(struct sim_block *block);
/* Is fd a memory file of the simulation with such a name? The pattern holds one %d. */
bool sim_memory_file(int fd, const char *pattern, int *ret_number);
void sim_event_share_record(CUevent event, struct sim_op *op);
void sim_event_share_done(struct sim_op *op);
/* The number of the newest record if it is not done yet, else 0. */
uint64_t sim_event_share_pending(CUevent event);
bool sim_event_share_reached(void *page, uint64_t number);
void *sim_event_share_page(CUevent event);
void sim_event_share_finish(CUevent event);
CUresult sim_managed_alloc(CUcontext ctx, size_t bytes, unsigned flags,
                           struct sim_block **ret_block);

/* ---- vmm.c ---- */

void sim_reservation_of(CUdeviceptr p, CUdeviceptr *ret_base, size_t *ret_size);
bool sim_is_reserved(CUdeviceptr p, size_t size);
/* From an address within the block on: are there so many bytes of it, or of the mappings that stand
 * one behind the other from there on? */
bool sim_block_holds(const struct sim_block *block, CUdeviceptr p, size_t bytes);
/* May the device use all that is mapped there? Other memory is not asked about. */
bool sim_mapped_open_to(const struct sim_block *block, CUdeviceptr p, size_t bytes, int device,
                        bool to_write);
/* Was the host let in to what is mapped there, and is its own? */
bool sim_mapped_open_to_host(const struct sim_block *block);
/* Names the memory that is mapped there. */
unsigned long long sim_mapped_memory_id(const struct sim_block *block);
/* The file with its bytes, and where in it. */
int sim_mapped_fd(const struct sim_block *block, uint64_t address, uint64_t *ret_offset);

/* ---- pool.c ---- */

CUmemoryPool sim_pool_new(int device, const CUmemPoolProps *props);
void sim_pool_free_now(struct sim_block *block, const char *how);
void sim_graph_block_gone(struct sim_block *block);
/* A free operation runs, of pool or of graph memory. */
void sim_block_freed_in_order(struct sim_block *block);
/* Buries the block and enqueues its free. ret_op: with a reference, may be NULL. */
void sim_block_free_in(struct sim_block *block, CUstream stream, const char *how);
bool sim_pool_open_to(CUmemoryPool pool, int device);
bool sim_pool_managed(CUmemoryPool pool);
struct sim_residency *sim_pool_residency(const struct sim_block *block);
/* Where the default or the current pool of a location and type is kept; NULL: no such thing. */
CUmemoryPool *sim_pool_slot(const CUmemLocation *location, CUmemAllocationType type, bool current);
bool sim_pool_ok(CUmemoryPool pool);
void sim_pool_mapping(const struct sim_block *block, uint64_t *ret_base, size_t *ret_bytes);
/* The file descriptor behind an imported pool; -1: not imported. */
int sim_pool_import(CUmemoryPool pool);
/* `of`: which pool of which process; the pool that was imported as that one, or NULL. */
void sim_pool_set_import(CUmemoryPool pool, int fd, int64_t of);
CUmemoryPool sim_pool_imported(int64_t of);
/* Of the pools of this process, for good. */
int64_t sim_pool_number(CUmemoryPool pool);
int sim_pool_device(CUmemoryPool pool);
/* A synchronisation happened: give back what is above the thresholds. */
void sim_pools_waited(const struct sim_order *order);
void sim_pools_synchronised(void);
/* The card is full: give back whatever is free. Returns true when something was. */
bool sim_pools_squeeze(int device);
unsigned sim_pool_handle_types(CUmemoryPool pool);
/* Pointers can be exported once their pool has been. */
bool *sim_pool_exported(CUmemoryPool pool);

/* ---- copy.c, set.c, launch.c, host functions: execution ---- */

void sim_run_copy(struct sim_op *op);
void sim_run_set(struct sim_op *op);
/* Returns false when the kernel has to be called again. */
bool sim_run_kernel(struct sim_op *op);
void sim_run_prefetch(struct sim_op *op);
/* Returns false when the value is not there yet. */
bool sim_run_value(struct sim_op *op);

CUresult sim_copy_submit(CUstream handle, CUcontext ctx, struct sim_copy *copy, bool async);
/* A node keeps plain addresses: tells host from device ones, checks nothing. */
void sim_copy_for_node(struct sim_copy *copy);
CUresult sim_value_work(const CUstreamBatchMemOpParams *ask, struct sim_work *work);
CUresult sim_copy_from_3d(const CUDA_MEMCPY3D *ask, struct sim_copy *copy);

/* ---- array.c ---- */

CUresult sim_array_new(CUcontext ctx, CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *desc);
/* Waits for the array's context. */
CUresult sim_array_delete(CUarray array);
/* Where an array's bytes are and how its rows and slices lie. */
bool sim_array_place(CUarray array, uint64_t *ret_address, size_t *ret_pitch, size_t *ret_height);
/* 0 where it is no array. */
size_t sim_array_element_bytes(CUarray array);

/* ---- module.c ---- */

struct sim_kernel_entry {
    char *name;
    sim_kernel_fn fn;
    unsigned n_params;
    size_t *sizes, *offsets, params_bytes;
    size_t local_bytes; /* of each thread */
    struct sim_kernel_entry *next;
};

struct CUfunc_st {
    struct sim_kernel_entry *entry;
    uint64_t id; /* never the same again */
    CUmodule module;
    CUfunction next;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    CUkernel kernel;
    bool loaded; /* it has been launched, and its code has its place on the card */
};

struct CUkern_st {
    struct sim_kernel_entry *entry;
    uint64_t id;
    CUlibrary library;
    CUkernel next;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

CUresult sim_kernel_work_init(struct sim_work *work, CUfunction handle, const unsigned grid[3],
                              const unsigned block[3], unsigned shared_bytes, void **params,
                              void **extra);
/* Is the code that the work was made for still loaded? */
bool sim_code_loaded(const struct sim_kernel_work *kernel);
/* May it read textures or surfaces by reference? */
bool sim_code_has_references(const struct sim_kernel_work *kernel);
void sim_free_context_modules(CUcontext ctx);
bool sim_function_in(CUfunction function, CUcontext ctx);
CUcontext sim_function_context(CUfunction function);
/* Its code is loaded with the first launch; false: there is no room for it. */
bool sim_function_load(CUfunction function);
/* Local memory for a launch in the context, which keeps it; false: there is no room for it. */
bool sim_local_take(CUcontext ctx, const struct sim_kernel_entry *entry);
/* A CUfunction, or a CUkernel cast to one, as launches accept it. */
struct sim_kernel_entry *sim_entry_of(CUfunction handle);
/* Is the grid made of whole clusters, if the kernel has a size for them? */
bool sim_grid_fits(CUfunction handle, const unsigned grid[3]);

/* ---- capture.c ---- */

/* What kind of call this is for the rules of stream capture. */
enum sim_capture_rule {
    SIM_CAPTURE_UNSAFE,      /* allocates or waits: forbidden to threads that a capture binds */
    SIM_CAPTURE_CONTEXT_WIDE /* touches every stream of the context: kills its captures */
};

CUresult sim_capture_check(CUcontext ctx, enum sim_capture_rule rule);
/* Work for the legacy stream while a blocking stream captures. */
CUresult sim_capture_check_legacy(CUstream stream);
/* A call that a capturing stream cannot answer: a wait or query of the stream itself. */
CUresult sim_capture_check_stream(CUstream stream);
/* A call that no capture can hold: ends the capture of the stream with an error. */
CUresult sim_capture_unsupported(CUstream stream);
/* A synchronous copy or memset on a stream that captures. */
CUresult sim_capture_check_sync(CUstream stream);
CUresult sim_capture_alloc(CUstream stream, CUdeviceptr *ret_p, size_t bytes, CUmemoryPool pool);
CUresult sim_capture_free(CUstream stream, CUdeviceptr p);
CUresult sim_capture_check_event(CUevent event);
void sim_capture_forget_stream(CUstream stream);
CUresult sim_capture_record(CUstream stream, CUevent event, unsigned flags);
CUresult sim_capture_wait(CUstream stream, CUevent event, unsigned flags);
CUresult sim_capture_add(CUstream stream, struct sim_work *work, CUgraphNode *ret_node);

/* Stable text of an address for reports. */
#define SIM_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define SIM_MAX(a, b)    ((a) > (b) ? (a) : (b))
#define SIM_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
