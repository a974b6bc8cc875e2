/* diff.h: a random valid CUDA program: what it is made of, and what it may rely on.
 *
 * A program is drawn from a seed while it runs. "Valid" means that every access is ordered by what
 * CUDA guarantees natively, which includes that cuMemFree waits for the context that owns the
 * memory. To choose valid accesses only, a program keeps track of what is known to come before
 * what: the operations of a stream are numbered, and a clock says up to which number of every
 * stream things are known to be over. No answer of the driver is used for that but
 * return codes, so a seed draws the same program whatever lies between it and the driver. */
#ifndef DIFF_H
#define DIFF_H

/* All versions of all calls, under their full names. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- driver/lookups.c: the way to the driver ---- */

enum lookup { LOOKUP_LINKED, LOOKUP_DLSYM, LOOKUP_GET_PROC, N_LOOKUPS };

#define PLAIN(symbol, base, version)                    __typeof__(symbol) *symbol;
#define TWIN(symbol, base, version, twin, twin_version) __typeof__(symbol) *symbol;
struct diff_driver {
#include "driver/lookups.def"
};
#undef PLAIN
#undef TWIN

extern struct diff_driver cu;
/* per_thread: stream arguments of 0 mean the per-thread default stream. Ends the process (98) when
 * a call cannot be found. */
void lookups_open(enum lookup lookup, bool per_thread);

/* ---- what a seed decides at once ---- */

struct traits {
    uint64_t seed;
    enum lookup lookup;
    bool per_thread;         /* built with per-thread default streams */
    bool visible;            /* the host looks at memory that the device writes meanwhile */
    unsigned visible_at;     /* from that operation on */
    unsigned nonblocking_at; /* likewise: the first non-blocking stream may appear */
    bool second_context, second_device, peers, captures, resets, pools, holds, ipc;
    bool forks, greens;
    bool hungry; /* holds as much memory as it may */
    enum { END_CLEAN, END_RESET, END_EXIT, END_QUICK_EXIT, END_EXEC, N_ENDINGS } ending;
    bool faults; /* before it ends, a kernel does what breaks the context */
    unsigned n_ops, n_threads;
    bool iterations; /* much of it comes again and again (iterations.c) */
    bool persists;   /* kernels wait for work of other streams */
    bool late;       /* and of streams that are made only then */
    bool narrow;     /* most work goes to one stream, which seldom changes */
    bool divided;    /* every other thread only allocates and frees, beside those that submit */
    bool replaced; /* threads end, just after they have submitted work, and others go on for them */
    bool relay;    /* of those that are divided: one submits, all others allocate and free */
    bool polls;    /* the host waits for memory without any call of the driver */
    bool maps;     /* one in ten: memory of cuMemMap and of code, limits (memory/op_map.c) */
    bool shares;   /* others get at its memory (memory/op_share.c) */
    bool batches;  /* copies by batches; the host looks by those alone, or for the most part */
    bool idles;    /* pauses, and kernels, that are longer than anything waits (op_idle) */
    bool pageable; /* copies from and to the host's memory of every kind (op_host.c) */
    bool boxes;    /* copies of rectangles and boxes, and what the driver refuses (op_box.c) */
    bool deep;     /* launches that need memory of the card (memory/op_map.c) */
    bool ends;     /* contexts may, before the program does */
    bool pins;     /* pinned memory that comes and goes, with work under way (op_pin) */
    bool large;    /* blocks of some MiB, and kernels that follow pointers (op_follow.c) */
    bool graphs;   /* graphs that are built by hand (graphs/op_graph.c) */
    bool recopies; /* copies in executable graphs come to be of other memory */
    bool arrays;   /* arrays, and batches of stream operations (memory/op_array.c) */
    bool places;   /* what pools keep, and where managed memory is to lie (memory/op_pool.c) */
    bool by_nodes; /* the host sees work by host functions in these graphs alone */
    unsigned n_bystanders; /* streams that are created at the start and never used */
};

void traits_of(uint64_t seed, unsigned n_threads, bool ipc, struct traits *ret_traits);
/* The same program, but most of it comes in iterations. */
void traits_with_iterations(struct traits *traits);
/* Likewise, but that it copies from and to the host's memory all the time. */
void traits_with_pageable(struct traits *traits);
/* Likewise, but that many blocks are large, and that kernels find pointers in memory. */
void traits_with_large(struct traits *traits);
/* Likewise, but that it builds graphs by hand. */
void traits_with_graphs(struct traits *traits);
/* Likewise, but that it has pools and managed memory, and says how they are to be. */
void traits_with_pools(struct traits *traits);
/* Likewise, but that it has arrays, and calls that few programs make. */
void traits_with_arrays(struct traits *traits);
/* Does this seed's program rely on nothing but the order on the device? Then even frees that are
 * forced never to wait (ALLOGRAFT_FREE=ordered) may not change it. A free while a capture is open
 * keeps no order under that setting. */
bool traits_device_only(uint64_t seed);
/* Does it take cuMemFreeHost for a wait? ALLOGRAFT_HOST=fast leaves that out. */
bool traits_wait_by_host_free(uint64_t seed);

/* ---- clocks, streams ---- */

#define MAX_STREAMS  96
#define MAX_CONTEXTS 4
#define MAX_BUFFERS  40
#define MAX_PLACES   4
#define MOST_BYTES   ((size_t)24 << 20) /* of all buffers */
#define MAX_EVENTS   10
#define MAX_GRAPHS   4
#define MAX_ARRAYS   4
#define MAX_THREADS  4
#define MAX_MARKS    256
#define MAX_ASKED    2048 /* calls of a thread that take room */

struct clock {
    uint32_t at[MAX_STREAMS];
};

enum stream_kind { STREAM_LEGACY, STREAM_PER_THREAD, STREAM_BLOCKING, STREAM_NONBLOCKING };

struct stream {
    bool alive, capturing;
    bool shared; /* another thread submits to the stream too: not captured, not destroyed */
    enum stream_kind kind;
    unsigned context, seq;
    CUstream handle;
    struct clock after; /* of the last operation */
    unsigned to, from;  /* buffers that its pointers of op_follow.c lead to; none where equal */
};

enum kernel {
    KERNEL_FILL,
    KERNEL_COPY,
    KERNEL_ADD,
    KERNEL_HASH,
    KERNEL_MARK,
    KERNEL_SPIN,
    KERNEL_SHAPE,  /* what it writes depends on how it was launched */
    KERNEL_MIXED,  /* parameters of many sizes */
    KERNEL_LONG,   /* fills after LONG_NS */
    KERNEL_DEEP,   /* fills, with local memory (kernels_need_local) */
    KERNEL_FOLLOW, /* adds, by pointers that lie in memory */
    N_KERNELS
};

enum launch_how { LAUNCH_PLAIN, LAUNCH_EX, LAUNCH_EXTRA, LAUNCH_COOPERATIVE, N_LAUNCH_HOWS };

struct shape {
    unsigned grid[3], block, shared_bytes;
    enum launch_how how;
};

struct context {
    bool alive, primary;
    int device;
    size_t local_bytes; /* of the card, for the local memory of its kernels */
    CUcontext handle;
    CUmodule module;
    CUfunction kernels[N_KERNELS];
    CUdeviceptr table;           /* of pointers (op_follow.c); 0: none */
    unsigned legacy, per_thread; /* streams */
    struct clock all, blocking;  /* everything submitted; to streams that wait for the legacy one */
    struct clock foreign;        /* what other threads had submitted at the last meeting */
};

enum buffer_kind {
    BUFFER_NATIVE,
    BUFFER_PITCH,
    BUFFER_ASYNC,
    BUFFER_POOL,
    BUFFER_MANAGED,
    BUFFER_PINNED,
    BUFFER_REGISTERED,
    BUFFER_VARIABLE, /* of the host, written by host functions */
    BUFFER_PAGEABLE, /* of the host, for batches alone */
    BUFFER_MAPPED,   /* of cuMemMap */
    BUFFER_GLOBAL,   /* a variable of the context's code, and gone with it */
};

struct buffer {
    bool live, filled, shared; /* shared: another process has it open */
    bool synchronous;          /* copies of it wait for the host, and fills */
    enum buffer_kind kind;
    unsigned id, context, last_stream;
    CUdeviceptr p;
    void *host;                            /* of managed, pinned, registered memory and variables */
    CUmemGenericAllocationHandle physical; /* of mapped memory */
    size_t bytes, extent; /* extent: what the program uses of it, a multiple of 16 */
    size_t width, pitch;
    struct clock born, wrote, read;
};

struct array {
    CUarray handle;
    size_t width, rows;
    struct buffer as; /* whether it is there, and who uses it; none of the world's buffers */
};

struct event {
    CUevent handle;
    bool alive, recorded, timed, in_capture;
    unsigned id, context;
    struct clock at;
};

#define MAX_USES  24
#define MAX_NODES 10

/* A node of a graph that was built by hand (graphs/op_graph.c). */
struct node {
    enum {
        NODE_KERNEL,
        NODE_CHILD,
        NODE_MEMSET,
        NODE_COPY,
        NODE_HOST,
        NODE_TEMPORARY,
        NODE_EMPTY
    } kind;
    enum kernel kernel;
    unsigned chain, other; /* it comes after the last nodes of these chains */
    unsigned use;          /* the first of its buffers: what it writes, and what it reads */
    uint32_t value;
    CUgraphNode handle;
};

struct use {
    unsigned buffer, id, stream; /* the stream, or the chain, in which it is used */
    bool write;
};

struct graph {
    bool alive, has_memory; /* has_memory: of its own */
    unsigned id, context, n_uses, n_marks, n_nodes;
    CUgraph graph; /* NULL: the program has destroyed it */
    CUgraphExec exec;
    struct use uses[MAX_USES];    /* of the executable graph */
    struct use first[MAX_USES];   /* likewise, where it is instantiated anew */
    struct node nodes[MAX_NODES]; /* in the order in which they were added */
};

struct capture {
    bool open, dead;
    CUstreamCaptureMode mode;
    bool relaxed; /* the thread exchanged its mode */
    unsigned origin, branch, n_inside;
    bool branched;
    CUevent fork, join;
    CUgraph into; /* the program's graph that it is captured into; NULL: one of its own */
    struct graph graph;
};

/* What one host thread of the program knows and owns. */
struct world {
    const struct traits *traits;
    uint64_t random;
    unsigned op, thread, lean, n_asked;
    bool submits_nothing; /* only allocates and frees */
    /* What the thread used last before it ended (0: nothing), where, and how much that was once it
     * was freed. */
    unsigned last_id, last_stream;
    size_t last_bytes;
    _Atomic bool is_ending;       /* the thread's next call is its last */
    unsigned next_stream, n_next; /* stream_pick gives this one so many times more */
    unsigned main_stream;         /* of narrow programs */
    char *log;
    size_t log_bytes, log_capacity;
    unsigned current, n_contexts;
    struct context contexts[MAX_CONTEXTS];
    unsigned first_stream, n_streams, max_streams;
    struct stream streams[MAX_STREAMS];
    struct clock host;
    unsigned next_id, n_marks;
    struct buffer buffers[MAX_BUFFERS];
    size_t bytes_live;
    struct array arrays[MAX_ARRAYS];
    struct event events[MAX_EVENTS];
    struct graph graphs[MAX_GRAPHS];
    struct capture capture;
    CUmemoryPool pools[2];
    unsigned n_places; /* addresses for mapped memory where none is */
    CUdeviceptr places[MAX_PLACES];
    bool peer_open[2];              /* contexts 0 and 1: to each other's memory */
    struct buffer gone_open;        /* freed here while the other process has it open */
    bool has_gone_open, freed_open; /* freed_open: it has happened */
    bool any_device; /* a copy is being chosen: it needs no access to the other device */
    bool has_nonblocking;
    bool uses_pools; /* of the driver, which keep memory: how much room is left is not known */
    struct {
        struct clock stamp;
        unsigned index;
    } marks[MAX_MARKS];
};

/* ---- model.c ---- */

uint32_t draw(struct world *w, uint32_t below);
bool chance(struct world *w, unsigned percent);
void clock_join(struct clock *clock, const struct clock *other);
bool clock_covers(const struct clock *clock, const struct clock *other);
/* A fresh stream of the context; MAX_STREAMS when there are no more. */
unsigned stream_new(struct world *w, unsigned context, enum stream_kind kind, CUstream handle);
/* What an operation submitted to the stream now would come after. */
void stream_before(const struct world *w, unsigned stream, struct clock *ret_clock);
/* What a wait for the stream waits for. */
void stream_pending(const struct world *w, unsigned stream, struct clock *ret_clock);
/* Submits one: *ret_stamp is what comes after it knows. */
void stream_submit(struct world *w, unsigned stream, struct clock *ret_stamp);
/* A random live stream that does not capture and may be used now; MAX_STREAMS when there is
 * none. */
unsigned stream_pick(struct world *w);
/* The handle that the program passes for the stream. */
CUstream stream_handle(struct world *w, unsigned stream);
/* The host has waited. */
void host_knows(struct world *w, const struct clock *clock);
void host_knows_context(struct world *w, unsigned context);

struct buffer *buffer_new(struct world *w, enum buffer_kind kind, unsigned context, size_t bytes);
bool buffer_reachable(const struct world *w, const struct buffer *buffer, unsigned context);
/* A buffer that an operation on the stream may use now, or NULL. Never `but`. */
struct buffer *buffer_pick(struct world *w, unsigned stream, bool write, bool filled,
                           const struct buffer *but);
/* A live buffer of the kinds in the mask for which every use is known to be over to the host, or
 * will be when cuMemFree has waited for `owner_waits`; NULL when there is none. */
struct buffer *buffer_pick_idle(struct world *w, unsigned kinds, bool owner_waits);
/* May an operation on the stream use it now? */
bool buffer_is_for(const struct world *w, const struct buffer *buffer, unsigned stream, bool write);
/* Will every use be over once all work of its context is? */
bool buffer_ends_with_owner(const struct world *w, const struct buffer *buffer);
void buffer_used(struct world *w, struct buffer *buffer, unsigned stream, const struct clock *stamp,
                 bool write);
bool buffer_in_graph(const struct world *w, const struct buffer *buffer);
void buffer_gone(struct world *w, struct buffer *buffer);
bool host_may_read(const struct world *w, const struct buffer *buffer);
bool host_may_write(const struct world *w, const struct buffer *buffer);
bool may_look(const struct world *w);
void use_context(struct world *w, unsigned context);

/* One line of the log; `did` adds the result and returns whether it was CUDA_SUCCESS. */
void say(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool did(struct world *w, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t hash_of(const void *bytes, size_t n);

/* ---- clock.c: a clock that runs ahead when somebody waits in vain ---- */

/* Before anything else; the other one in the process of a program. */
void clock_start(void);
void clock_restart(void);
/* So much time has passed. */
void clock_skip(uint64_t ns);
#define LONG_NS 12000000000u /* longer than anything of ours waits */

/* ---- room.c ---- */

/* again: the calls that `refused` says found no room are not made and fail. */
void room_start(volatile unsigned char *refused, bool again);
bool room_refused(struct world *w);
/* spills: is it of a kind that can be had beyond the card (DIFF_SPILL)? */
CUresult room_asked(struct world *w, CUresult result, unsigned context, size_t bytes, bool spills);

/* Of a launch for which the context has to take so much more of the card. */
CUresult room_launched(struct world *w, CUresult result, unsigned context, size_t more);

/* A call that takes so much of the card of the context. */
#define ROOM(w, context, bytes, call) \
    (room_refused(w) ? CUDA_ERROR_OUT_OF_MEMORY : room_asked(w, call, context, bytes, false))
#define ROOM_OR_HOST(w, context, bytes, call) \
    (room_refused(w) ? CUDA_ERROR_OUT_OF_MEMORY : room_asked(w, call, context, bytes, true))

#define ROOM_TO_LAUNCH(w, context, more, call) \
    (room_refused(w) ? CUDA_ERROR_OUT_OF_MEMORY : room_launched(w, call, context, more))

/* ---- driver/kernels.c ---- */

/* What KERNEL_FILL writes for a value. */
uint32_t fill_word(uint32_t value);
#define TABLE_BYTES 4096u /* of the variable "table" */
void kernels_register(volatile unsigned char *marks);
bool kernels_load(struct context *context);
CUresult launch_fill(struct world *w, unsigned stream, CUdeviceptr p, size_t bytes, uint32_t value);
/* As one that may start before the kernel before it on the stream has ended. */
CUresult launch_fill_early(struct world *w, unsigned stream, CUdeviceptr p, size_t bytes,
                           uint32_t value);
CUresult launch_two(struct world *w, unsigned stream, enum kernel kernel, CUdeviceptr dst,
                    CUdeviceptr src, size_t bytes);
CUresult launch_spin(struct world *w, unsigned stream, CUdeviceptr flag);
CUresult launch_long(struct world *w, unsigned stream, CUdeviceptr p, size_t bytes, uint32_t value);
CUresult launch_mark(struct world *w, unsigned stream, uint32_t index);
CUresult launch_as(struct world *w, unsigned stream, enum kernel kernel, void **args,
                   const struct shape *shape);
/* Kernels that run from now on report it where they have less stack than that. */
void kernels_need_stack(size_t bytes);
/* All threads of KERNEL_DEEP together have so much local memory from now on, in whole MiB. */
void kernels_need_local(size_t bytes);
/* Unloads the context's code and loads it again. */
bool kernels_reload(struct world *w, struct context *context);

/* ---- operations: false when there was nothing to do ---- */

bool op_alloc(struct world *w);
bool op_alloc_async(struct world *w);
bool op_alloc_visible(struct world *w);
bool op_free(struct world *w);
bool op_free_async(struct world *w);
bool op_free_visible(struct world *w);
bool op_pin(struct world *w);
bool free_buffer(struct world *w, struct buffer *buffer);
bool fill_new(struct world *w, struct buffer *buffer);

bool op_kernel(struct world *w);
bool op_copy(struct world *w);
bool op_copy_across(struct world *w);
bool op_memset(struct world *w);
bool op_upload(struct world *w);
bool op_read_back(struct world *w);
bool op_host_read(struct world *w);
bool op_host_write(struct world *w);
bool op_host_function(struct world *w);
bool op_mark(struct world *w);
/* Where calls without a stream argument go; MAX_STREAMS when it may not be used now. */
unsigned default_stream(struct world *w);
/* An operation on the stream has written dst and read src; either may be NULL. */
void used_both(struct world *w, unsigned stream, struct buffer *dst, struct buffer *src);
bool host_side(const struct buffer *buffer);
/* Memory that the driver does not know. */
bool host_alone(const struct buffer *buffer);
/* The function writes the variable, each time from then on. */
CUDA_HOST_NODE_PARAMS host_node_of(const struct buffer *variable, uint64_t value);
CUresult launch_host_function(struct world *w, unsigned stream, struct buffer *variable,
                              uint64_t value, void **kept);
bool read_back(struct world *w, struct buffer *buffer, unsigned stream, bool async);

bool op_stream_create(struct world *w);
bool op_stream_destroy(struct world *w);
/* The stream of a narrow program gives way to another one, which the driver may call by the same
 * handle. */
bool op_stream_replace(struct world *w);
bool op_event_create(struct world *w);
bool op_event_destroy(struct world *w);
bool op_event_record(struct world *w);
bool op_event_wait(struct world *w);
bool op_event_ask(struct world *w);
bool op_stream_ask(struct world *w);
bool op_synchronize(struct world *w);
/* A non-blocking stream of the context; MAX_STREAMS when there is none. */
unsigned pick_nonblocking(struct world *w, unsigned context, unsigned but);
/* Unless it is gone, or captures. */
void wait_for_stream(struct world *w, unsigned stream);
bool op_hold(struct world *w);
bool op_spin(struct world *w);
bool op_idle(struct world *w);

/* ---- memory/op_map.c ---- */
struct buffer *map_buffer(struct world *w, unsigned context);
void unmap_buffer(struct world *w, struct buffer *buffer);
bool op_map(struct world *w);
bool op_unmap(struct world *w);
/* The variable of the context's code, unless the program has it already. */
struct buffer *global_buffer(struct world *w, unsigned context);
bool op_limit(struct world *w);
bool op_map_any(struct world *w);
/* Most of them just after the program has had nearly all of the card, and freed it. */
bool op_deep(struct world *w);

/* ---- op_box.c ---- */
/* The first slice of a box. */
CUDA_MEMCPY2D rectangle_of(const CUDA_MEMCPY3D *box);
/* Are both large enough for a box, and of the device? */
bool box_fits(const struct buffer *dst, const struct buffer *src);
CUresult copy_box(struct world *w, unsigned stream, const struct buffer *dst,
                  const struct buffer *src, uint32_t value);
/* One of some kinds of copies, fills and launches; refused: so that it changes nothing. */
void do_refused(struct world *w, unsigned stream, struct buffer *dst, struct buffer *src,
                uint32_t kind, uint32_t value, bool refused);
bool op_box(struct world *w);
bool op_batch(struct world *w);
bool op_batch_and_free(struct world *w);
/* p: 32 bytes of the device. */
bool op_batch_in_capture(struct world *w, unsigned stream, CUdeviceptr p);

/* ---- op_host.c ---- */
enum host_way { HOST_UP, HOST_DOWN, HOST_THERE_AND_BACK };
/* One copy to the buffer, from it, or both, of everything that `value` decides. may_pin: the memory
 * of the host may be pinned, and is freed at the end, which waits. */
bool host_copy(struct world *w, unsigned stream, struct buffer *buffer, enum host_way way,
               bool async, bool may_pin, uint64_t value);
/* Of a buffer that the stream may use, but that one, by a call that waits for nothing but the
 * stream, if at all. */
bool host_copy_beside(struct world *w, unsigned stream, bool up, const struct buffer *but);
bool op_host_copy(struct world *w);

/* ---- memory/op_share.c ---- */
bool op_share(struct world *w);

/* ---- op_follow.c ---- */
/* A kernel of the stream adds src to dst, whose addresses it finds in memory. False: it does
 * not. */
bool follow(struct world *w, unsigned stream, const struct buffer *dst, const struct buffer *src,
            size_t bytes, const struct shape *shape);
bool op_follow(struct world *w);
/* Frees what the program has for that. */
void follow_end(struct world *w);

/* ---- op_persist.c ---- */
bool op_persist(struct world *w);

bool op_capture_begin(struct world *w);
bool op_capture_end(struct world *w);
/* One operation while a capture is open: into it, or beside it. */
bool op_in_capture(struct world *w);
bool op_graph_launch(struct world *w);
bool op_graph_destroy(struct world *w);
/* May the graph use the buffer in this stream or chain, beside what its others do with it? Uses
 * before number `since` come before it in any case. */
bool graph_may_use(const struct graph *graph, unsigned since, const struct buffer *buffer,
                   unsigned stream, bool write);
/* There is room for one more. */
void graph_use(struct world *w, struct graph *graph, const struct buffer *buffer, unsigned stream,
               bool write);
/* One that is not alive, or NULL. */
struct graph *graph_slot(struct world *w);
/* One that is alive, and whose context is; built: by hand. Or NULL. */
struct graph *graph_pick(struct world *w, bool built);
void graph_destroy(struct graph *graph);
/* The buffer, or NULL if it is gone. */
const struct buffer *graph_used(const struct world *w, const struct use *use);

/* ---- memory/op_array.c ---- */
bool op_array(struct world *w);
/* Destroys those that are left. */
void array_end(struct world *w);

/* ---- memory/op_pool.c ---- */
bool op_pool(struct world *w);

/* ---- graphs/op_graph.c ---- */
bool op_graph_by_hand(struct world *w);
/* Is this call one that the open capture forbids, or that waits for the stream that captures? */
bool capture_forbids_waiting(const struct world *w);
bool capture_forbids_legacy(const struct world *w);

void context_open(struct world *w, unsigned context, int device, bool primary);
bool op_context(struct world *w);
bool op_peers(struct world *w);
bool op_green(struct world *w);
bool op_push(struct world *w);

bool op_fork(struct world *w);
/* What the executed child does; its exit status. */
int process_exec_child(void);
/* Becomes that child. */
void process_exec(void);
/* A kernel uses an address without memory: every later call says so. */
void process_fault(struct world *w);

bool op_ask_pointer(struct world *w);
bool op_ask_memory(struct world *w);
bool op_mistake(struct world *w);

/* Starts the second process; before the driver is used in this one. */
void ipc_start(int n_devices);
/* What the other process keeps open, or NULL. */
struct buffer *ipc_kept(struct world *w);
/* The other process closes what it keeps open, if it may now. */
void ipc_close(struct world *w);
bool op_ipc(struct world *w);

/* ---- iterations.c: operations that come again and again ---- */

bool op_iterations(struct world *w);
/* A kernel writes what the host waits for without calling anybody. */
bool op_poll(struct world *w);

/* ---- steps.c: what one iteration is made of ---- */

#define MAX_LOOP_STREAMS 4
#define MAX_LOOP_BUFFERS 12
#define MAX_STEPS        60

enum step_kind {
    STEP_FILL,
    STEP_KERNEL, /* copy, add or hash */
    STEP_SHAPE,
    STEP_MIXED,
    STEP_UPLOAD,
    STEP_COPY,
    STEP_COPY_ROWS,
    STEP_MEMSET,
    STEP_HOST,
    STEP_BOX,
    STEP_REFUSED, /* in some iterations */
    STEP_PAGEABLE,
    STEP_ARRAY, /* array_step */
    STEP_RECORD,
    STEP_TEMPORARY, /* stream-ordered memory for the length of the step */
    STEP_NATIVE,    /* cuMemAlloc and cuMemFree */
    STEP_MARK,
    N_STEP_KINDS
};

enum vary { VARY_NEVER, VARY_ALWAYS, VARY_PAIRS, VARY_RARELY, N_VARIES };

struct step {
    enum step_kind kind;
    enum kernel kernel;
    unsigned stream, dst, src, other; /* of the loop's; other: instead of src in odd iterations */
    unsigned width;                   /* of memsets: 1, 2, 4, or 0 for rows */
    enum vary varies, grid_varies, size_varies;
    uint32_t value;
    enum launch_how how;
    void *kept;     /* what a host function gets, if always the same */
    bool is_hidden; /* a kernel finds its pointers in memory */
};

struct loop {
    unsigned context, n_streams, n_buffers, n_steps, n_records;
    unsigned streams[MAX_LOOP_STREAMS];
    struct {
        struct buffer *buffer;
        unsigned id;
    } buffers[MAX_LOOP_BUFFERS];
    struct step steps[MAX_STEPS];
    CUevent events[4];
};

void step_draw(struct world *w, const struct loop *loop, struct step *ret_step);
void step_do(struct world *w, struct loop *loop, struct step *step, unsigned iteration);
/* Makes the stream come after all that the next use of the buffer must follow. */
bool bring_behind(struct world *w, struct loop *loop, unsigned stream, const struct buffer *buffer,
                  bool write);
/* memory/op_array.c: the stream copies src, or memory of the host, to an array, and that to dst,
 * where it is not too large; or it writes words of dst. */
void array_step(struct world *w, struct loop *loop, unsigned stream, struct buffer *dst,
                struct buffer *src, uint32_t value);

/* ---- program.c ---- */

/* Any of them all. */
void one_operation(struct world *w);

/* Runs the program of the traits; its log is in `log` afterwards. Does not return for endings that
 * exit. *ret_clean: everything was given back. */
struct outcome {
    volatile uint32_t log_bytes, clean, n_marks_due, finished;
    volatile uint32_t log_part[MAX_THREADS];
    volatile unsigned char marks[MAX_THREADS * MAX_MARKS];
    volatile unsigned char due[MAX_THREADS * MAX_MARKS];
    volatile uint32_t n_ops;
    volatile unsigned char refused[MAX_THREADS * MAX_ASKED]; /* see room.c */
    bool again;
};

#define LOG_CAPACITY ((size_t)1 << 20) /* of each thread */

void program_run(const struct traits *traits, struct outcome *outcome, char *logs);

#endif
