/* Counts and measures the program's own executable graphs: see app_graphs.h.
 *
 * Threads may instantiate at the same time, and no lock of ours is held while they do. So what is
 * measured is no call, but the time from when the first of them begins on a device until no other
 * goes on: each says that it begins, and then asks for free memory; asks again when it is done, and
 * then says that it ends. The first whose call takes memory has asked before any did, and the last
 * one asks after all did: the memory taken is the largest answer before less the smallest answer
 * after. What else the program allocates in such a time counts as well, and what it frees hides as
 * much. */
#include "policy/app/app_graphs.h"

#include "interpose/core/base/map.h"
#include "interpose/core/base/threads/helper.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/order/capture.h"

_Atomic unsigned ag_app_graphs_unlaunched;

static struct {
    bool measures;
    struct ag_lock lock; /* guards the rest, and what is told of it, relaxed */
    struct gauge {
        unsigned open;        /* calls that go on */
        bool unknown;         /* the driver did not answer one of them */
        uint64_t most, least; /* free before, and after, until now */
    } gauges[AG_STATS_DEVICES];
    struct ag_map unlaunched; /* handles */
} self = {.lock = AG_LOCK_INIT(AG_RANK_APP_GRAPHS)};

void ag_app_graphs_configure(bool measures)
{
    self.measures = measures;
}

/* Free memory of the current device, which captures of every mode allow to ask for. */
static bool ask_free_bytes(uint64_t *ret_bytes)
{
    size_t free_bytes = 0, total;
    CUresult result = ag_cu.cuMemGetInfo_v2(&free_bytes, &total);

    *ret_bytes = free_bytes;
    return result == CUDA_SUCCESS;
}

/* Asks for free memory before a call, and lets the gauge know. */
static void ask_before(int device)
{
    struct gauge *gauge = &self.gauges[device];
    uint64_t bytes;
    bool known = ask_free_bytes(&bytes);

    ag_lock_take(&self.lock);
    gauge->unknown |= !known;
    if (bytes > gauge->most)
        gauge->most = bytes;
    ag_lock_release(&self.lock);
}

/* The row of the current device, or -1. */
static int current_row(void)
{
    CUdevice device;

    if (ag_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 ||
        device >= (int)AG_STATS_DEVICES)
        return -1;
    return device;
}

static void begin_span(struct ag_app_graphs_span *span)
{
    struct gauge *gauge;

    span->device = current_row();
    if (span->device < 0)
        return;
    gauge = &self.gauges[span->device];
    ag_lock_take(&self.lock);
    if (!gauge->open++)
        *gauge = (struct gauge){.open = 1, .least = UINT64_MAX};
    ag_lock_release(&self.lock);
    ask_before(span->device);
}

static void end_span(const struct ag_app_graphs_span *span, enum ag_own_graph_bytes what)
{
    struct ag_own_graph_stats *told = &ag_stats.own_graph_devices[span->device];
    struct gauge *gauge = &self.gauges[span->device];
    uint64_t bytes;
    bool known = ask_free_bytes(&bytes);

    ag_lock_take(&self.lock);
    gauge->unknown |= !known;
    if (bytes < gauge->least)
        gauge->least = bytes;
    if (!--gauge->open && !gauge->unknown) {
        atomic_store_explicit(&told->is_measured, true, memory_order_relaxed);
        if (gauge->most > gauge->least)
            atomic_fetch_add_explicit(&told->bytes[what], gauge->most - gauge->least,
                                      memory_order_relaxed);
    }
    ag_lock_release(&self.lock);
}

/* --- instantiations --- */

void ag_app_graphs_begin(struct ag_app_graphs_span *span)
{
    *span = (struct ag_app_graphs_span){.device = -1};
    if (self.measures)
        begin_span(span);
}

void ag_app_graphs_relieved(const struct ag_app_graphs_span *span)
{
    if (span->device >= 0)
        ask_before(span->device);
}

static void expect_launch(CUgraphExec exec)
{
    ag_lock_take(&self.lock);
    if (ag_map_put(&self.unlaunched, (uintptr_t)exec, exec))
        atomic_store_explicit(&ag_app_graphs_unlaunched, (unsigned)self.unlaunched.count,
                              memory_order_relaxed);
    ag_lock_release(&self.lock);
}

/* Was its first launch still to come? */
static bool remove_unlaunched(CUgraphExec exec)
{
    bool found;

    ag_lock_take(&self.lock);
    found = ag_map_take(&self.unlaunched, (uintptr_t)exec) != NULL;
    atomic_store_explicit(&ag_app_graphs_unlaunched, (unsigned)self.unlaunched.count,
                          memory_order_relaxed);
    ag_lock_release(&self.lock);
    return found;
}

void ag_app_graphs_instantiated(const struct ag_app_graphs_span *span, const CUgraphExec *exec,
                                CUresult result)
{
    if (span->device >= 0)
        end_span(span, AG_GRAPH_INSTANTIATED);
    if (result != CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_OWN_GRAPHS_FAILED, 1);
        return;
    }
    ag_stats_add(AG_STAT_OWN_GRAPHS_INSTANTIATED, 1);
    ag_level_add(&ag_stats.own_graphs, 1);
    if (span->device >= 0) {
        (void)ag_helper_start(); /* asks at the end what memory nodes hold */
        expect_launch(*exec);
    }
}

void ag_app_graphs_destroying(CUgraphExec exec)
{
    if (exec && !ag_app_graphs_pass())
        (void)remove_unlaunched(exec);
}

/* One that came past us when it was instantiated was never in the level. */
void ag_app_graphs_destroyed(CUresult result)
{
    _Atomic uint64_t *current = &ag_stats.own_graphs.current;
    uint64_t n = atomic_load_explicit(current, memory_order_relaxed);

    if (result != CUDA_SUCCESS)
        return;
    ag_stats_add(AG_STAT_OWN_GRAPHS_DESTROYED, 1);
    while (n) {
        if (atomic_compare_exchange_weak_explicit(current, &n, n - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
    }
}

/* --- launches --- */

/* While a capture is open, a launch may become a part of that instead. */
void ag_app_graphs_launching(struct ag_app_graphs_span *span, CUgraphExec exec)
{
    *span = (struct ag_app_graphs_span){.device = -1};
    if (exec && !ag_app_graphs_pass() && !ag_capture_is_open() && remove_unlaunched(exec))
        begin_span(span);
}

void ag_app_graphs_launched(const struct ag_app_graphs_span *span)
{
    if (span->device >= 0)
        end_span(span, AG_GRAPH_LAUNCHED);
}

/* --- the end --- */

static void ask_graph_levels(CUdevice device, struct ag_own_graph_stats *told)
{
    static const CUgraphMem_attribute which[AG_N_GRAPH_BYTES] = {
        [AG_GRAPH_USED] = CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
        [AG_GRAPH_USED_HIGH] = CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
        [AG_GRAPH_RESERVED] = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        [AG_GRAPH_RESERVED_HIGH] = CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
    };
    cuuint64_t levels[AG_N_GRAPH_BYTES];

    for (unsigned i = AG_GRAPH_USED; i < AG_N_GRAPH_BYTES; i++) {
        if (ag_cu.cuDeviceGetGraphMemAttribute(device, which[i], &levels[i]) != CUDA_SUCCESS)
            return;
    }
    for (unsigned i = AG_GRAPH_USED; i < AG_N_GRAPH_BYTES; i++)
        atomic_store_explicit(&told->bytes[i], levels[i], memory_order_relaxed);
    atomic_store_explicit(&told->has_levels, true, memory_order_relaxed);
}

void ag_app_graphs_exit(void)
{
    CUstreamCaptureMode previous;

    if (!ag_app_graphs_met() || !ag_cu.cuDeviceGetGraphMemAttribute)
        return;
    previous = ag_capture_relax();
    for (unsigned i = 0; i < AG_STATS_DEVICES && ag_helper_beat(); i++) {
        struct ag_own_graph_stats *told = &ag_stats.own_graph_devices[i];

        if (atomic_load_explicit(&told->is_measured, memory_order_relaxed))
            ask_graph_levels((CUdevice)i, told);
    }
    ag_capture_restore(previous);
}

bool ag_app_graphs_met(void)
{
    return self.measures && ag_stats_counter(AG_STAT_OWN_GRAPHS_INSTANTIATED) != 0;
}

void ag_app_graphs_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_APP_GRAPHS);
    for (unsigned i = 0; i < AG_STATS_DEVICES; i++)
        self.gauges[i].open = 0;
    self.unlaunched = (struct ag_map){.count = 0};
    atomic_store_explicit(&ag_app_graphs_unlaunched, 0, memory_order_relaxed);
}
