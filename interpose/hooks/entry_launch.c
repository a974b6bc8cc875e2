/* Hooks of kernel launches: substituted only where a launch may be short of memory that we keep, or
 * some setting watches launches (AG_HOOK_IF), to prefetch what they use
 * (policy/managed/prefetch.c) or to record them (graph/replayer.h).
 *
 * Most programs hold these symbols. So a launch before which no fence is due is a few loads,
 * comparisons and a jump: nothing is entered or counted, and the function is noted in the thread's
 * ring (report/errors/last_launches.h), which takes less than 1 ns. Once we keep memory it is a
 * call, since its result is looked at: 1.7 ns more, of some 2 us. The work for the others is in
 * functions of their own, or the compiler would save registers here. */
#include "graph/record/op.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/slot.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/errors/last_launches.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/entry_retry.h"
#include "policy/cache.h"
#include "policy/managed/kernel_params.h"
#include "policy/managed/prefetch.h"
#include "policy/order/early.h"
#include "policy/paging/use.h"

/* What becomes of the launch. Unless it is passed, the thread is marked as inside. */
static inline int enter_launch(enum ag_hook hook)
{
    int launches = atomic_load_explicit(&ag_entry_launches, memory_order_acquire);

    if (ag_entry_inside())
        return AG_LAUNCHES_PASSED;
    if (AG_UNLIKELY(launches == AG_LAUNCHES_NEW)) {
        (void)ag_entry_start();
        launches = atomic_load_explicit(&ag_entry_launches, memory_order_acquire);
    }
    if (launches <= AG_LAUNCHES_CHECKED)
        return AG_LAUNCHES_PASSED;
    ag_stats_hit(hook);
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    ag_users_note();
    return launches;
}

static inline struct ag_launch launch_made_of(const struct ag_kernel_call *call, CUstream stream,
                                              bool per_thread)
{
    return (struct ag_launch){
        .function = call->function,
        .stream = stream,
        .per_thread = per_thread,
        .params = call->params,
        .extra = call->extra,
    };
}

__attribute__((noinline)) static void prefetch_params(const struct ag_kernel_call *call,
                                                      CUstream stream, bool per_thread)
{
    const struct ag_launch launch = launch_made_of(call, stream, per_thread);

    ag_prefetch_before(&launch);
}

/* What the launch uses comes to the device, managed memory where a setting asks for that, and then
 * nothing moves until the latch is left. */
__attribute__((noinline)) static void bring_and_enter(const struct ag_kernel_call *call,
                                                      CUstream stream, bool per_thread)
{
    struct ag_launch launch = launch_made_of(call, stream, per_thread);

    launch.config = ag_launch_config(call->grid, call->block, call->shared_bytes);
    ag_watch_work(stream, per_thread);
    ag_use_before_launch(&launch);
    ag_prefetch_before(&launch);
    (void)ag_entry_leave(CUDA_SUCCESS);
    ag_latch_enter();
}

/* Gives the state back. True: withheld. */
static inline bool record_launch(struct ag_stream *state, const struct ag_kernel_call *call)
{
    struct ag_op *op = ag_replay_op(state);
    const struct ag_layout *layout = call->function ? ag_params_of(call->function) : NULL;

    /* Without a layout nobody knows which kind of handle it is. */
    if (!op || !layout || !ag_op_kernel(op, call, layout))
        return ag_replay_pass(state, AG_FLUSH_UNRECORDED);
    return ag_replay_take(state);
}

/* Before the driver's launch. True: it is withheld. *ret_state: the stream's, NULL when it is not
 * replayed. */
static inline __attribute__((always_inline)) bool withhold_launch(int launches,
                                                                  const struct ag_kernel_call *call,
                                                                  CUstream stream, bool per_thread,
                                                                  struct ag_stream **ret_state)
{
    if (launches == AG_LAUNCHES_WATCHED)
        prefetch_params(call, stream, per_thread);
    *ret_state = ag_entry_passes() ? NULL : ag_replay_enter(stream, per_thread);
    return *ret_state && record_launch(*ret_state, call);
}

static inline bool passes(void)
{
    return atomic_load_explicit(&ag_entry_launches, memory_order_acquire) == AG_LAUNCHES_PASSED;
}

/* Is the stream the one that the thread used last? Otherwise the launch is not left alone. */
static inline bool is_used_last(CUstream stream, bool per_thread)
{
    return ag_fast_path.stream == ag_replay_stream(stream, per_thread);
}

/* Launches are recorded only, and this one is of a stream that is left alone: counted, and no more.
 */
static inline __attribute__((always_inline)) bool is_left_alone(enum ag_hook hook, CUstream stream,
                                                                bool per_thread)
{
    if (atomic_load_explicit(&ag_entry_launches, memory_order_acquire) != AG_LAUNCHES_RECORDED ||
        !ag_replay_try_pass(ag_replay_stream(stream, per_thread)))
        return false;
    ag_stats_hit_again(hook);
    return true;
}

/* A launch that was refused has not run. */
static __attribute__((noinline)) CUresult launch_refused(CUresult result, const char *symbol)
{
    ag_launches_retract();
    if (ag_latch_is_on())
        ag_use_launch_refused();
    if (!ag_entry_inside())
        ag_entry_failed(result, symbol);
    return result;
}

/* False: the thread has no ring yet. Some never get one. */
static inline bool note_launch(CUfunction function, CUstream stream, bool per_thread)
{
    if (!ag_launch_ring)
        return ag_slot_of_thread > AG_OWN_SLOTS;
    ag_launches_note(ag_launch_ring, function, ag_entry_named(stream, per_thread));
    return true;
}

/* The parameters of a launch that are on the stack, as one: see LAUNCHES_BY_STACK in
 * made/kinds.c.in. */
#ifdef __x86_64__
struct on_stack {
    uint64_t block_z, shared_bytes;
    CUstream stream;
    void **params, **extra;
};
_Static_assert(sizeof(struct on_stack) == 5 * 8, "a slot of the stack for each parameter");
#endif

/* The kernel of a launch that has its grid and blocks as arguments. */
static inline struct ag_kernel_call given(CUfunction function, unsigned int grid_x,
                                          unsigned int grid_y, unsigned int grid_z,
                                          unsigned int block_x, unsigned int block_y,
                                          unsigned int block_z, unsigned int shared_bytes,
                                          void **params, void **extra, bool cooperative)
{
    return (struct ag_kernel_call){.function = function,
                                   .grid = {grid_x, grid_y, grid_z},
                                   .block = {block_x, block_y, block_z},
                                   .shared_bytes = shared_bytes,
                                   .params = params,
                                   .extra = extra,
                                   .cooperative = cooperative};
}

/* The kernel of a launch that has them in a configuration, which may be missing. */
static struct ag_kernel_call configured(const CUlaunchConfig *config, CUfunction function,
                                        void **params, void **extra)
{
    struct ag_kernel_call call = {.function = function, .params = params, .extra = extra};

    if (config) {
        call.grid[0] = config->gridDimX;
        call.grid[1] = config->gridDimY;
        call.grid[2] = config->gridDimZ;
        call.block[0] = config->blockDimX;
        call.block[1] = config->blockDimY;
        call.block[2] = config->blockDimZ;
        call.shared_bytes = config->sharedMemBytes;
        call.attributes = config->attrs;
        call.n_attributes = config->numAttrs;
    }
    return call;
}

#define STREAM_OF(config) ((config) ? (config)->hStream : NULL)

/* May it start before the kernel before it on its stream has ended? */
static inline bool starts_early(const CUlaunchConfig *config)
{
    bool early = false;

    for (unsigned i = 0; config && config->attrs && i < config->numAttrs && !early; i++)
        early = config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                config->attrs[i].value.programmaticStreamSerializationAllowed;
    return early;
}

/* More than the driver has kinds of. */
#define MOST_ATTRIBUTES 64u

/* Copies the attributes to `attributes`, as many as there are. */
static CUlaunchConfig without_early_start(const CUlaunchConfig *config,
                                          CUlaunchAttribute *attributes)
{
    CUlaunchConfig in_full = *config;

    in_full.attrs = attributes;
    in_full.numAttrs = 0;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            attributes[in_full.numAttrs++] = config->attrs[i];
    return in_full;
}

static bool must_wait(const CUlaunchConfig *config, bool per_thread, struct ag_early_launch *launch)
{
    bool wait;

    if (ag_entry_inside() || config->numAttrs > MOST_ATTRIBUTES)
        return false;
    ag_entry_depth = 1;
    ag_entry_errno = errno;
    wait = ag_early_must_wait(config->hStream, per_thread, launch);
    (void)ag_entry_leave(CUDA_SUCCESS);
    return wait;
}

#include "interpose/hooks/made/launches.h"
