/* truth.h: what the files of sim_truth share. Each has the groups of questions of one subject; a
 * group has a process of its own, and most begin with open_device(). */
#ifndef TRUTH_H
#define TRUTH_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/check.h"

/* X(name, function) for each group, in the order in which they are asked. */
#define GROUPS(X)                                                      \
    X("lookup", group_lookup)                                          \
    X("uninitialised", group_uninitialised)                            \
    X("alloc codes", group_alloc_codes)                                \
    X("free async codes", group_free_async_codes)                      \
    X("host codes", group_host_codes)                                  \
    X("sizes", group_sizes)                                            \
    X("copy codes", group_copy_codes)                                  \
    X("rectangle codes", group_rectangle_codes)                        \
    X("sync memops", group_sync_memops)                                \
    X("pinned flags", group_pinned_flags)                              \
    X("pinned codes", group_pinned_codes)                              \
    X("pinned attributes", group_pinned_attributes)                    \
    X("pinned large", group_pinned_large)                              \
    X("pinned waits", group_pinned_waits)                              \
    X("pinned contexts", group_pinned_contexts)                        \
    X("attributes", group_attributes)                                  \
    X("waits: memory", group_waits_memory)                             \
    X("waits: copies", group_waits_copies)                             \
    X("waits: host copies", group_waits_host_copies)                   \
    X("waits: streams", group_waits_streams)                           \
    X("waits: others", group_waits_others)                             \
    X("waits: contexts", group_waits_contexts)                         \
    X("order", group_order)                                            \
    X("barriers", group_barriers)                                      \
    X("sources", group_sources)                                        \
    X("host sources", group_host_sources)                              \
    X("host copy codes", group_host_copy_codes)                        \
    X("gone source", group_gone_source)                                \
    X("gone large source", group_gone_large_source)                    \
    X("gone async source", group_gone_async_source)                    \
    X("gone file", group_gone_file)                                    \
    X("gone destination", group_gone_destination)                      \
    X("shut destination", group_shut_destination)                      \
    X("late source", group_late_source)                                \
    X("late destination", group_late_destination)                      \
    X("batches", group_batches)                                        \
    X("host functions", group_host_functions)                          \
    X("event codes", group_event_codes)                                \
    X("capture: memory", group_capture_memory)                         \
    X("capture: host", group_capture_host)                             \
    X("capture: waits", group_capture_waits)                           \
    X("capture: codes", group_capture_codes)                           \
    X("capture: joins", group_capture_joins)                           \
    X("capture: frees", group_capture_frees)                           \
    X("capture: of a thread", group_capture_of_thread)                 \
    X("pool numbers", group_pool_numbers)                              \
    X("pool packing", group_pool_packing)                              \
    X("pool waits", group_pool_waits)                                  \
    X("pool trims", group_pool_trims)                                  \
    X("pool reuse", group_pool_reuse)                                  \
    X("pool managed", group_pool_managed)                              \
    X("managed advice", group_managed_advice)                          \
    X("managed room", group_managed_room)                              \
    X("graph nodes", group_graph_nodes)                                \
    X("graph edges", group_graph_edges)                                \
    X("graph updates", group_graph_updates)                            \
    X("graph places", group_graph_places)                              \
    X("graph grids", group_graph_grids)                                \
    X("graph memory", group_graph_memory)                              \
    X("graph levels", group_graph_levels)                              \
    X("functions", group_functions)                                    \
    X("stream codes", group_stream_codes)                              \
    X("contexts", group_contexts)                                      \
    X("no context", group_no_context)                                  \
    X("context codes", group_context_codes)                            \
    X("exit", group_exit)                                              \
    X("fork", group_fork)                                              \
    X("fault", group_fault)                                            \
    X("host access", group_host_access)                                \
    X("ipc", group_ipc)                                                \
    X("ipc pair", group_ipc_pair)                                      \
    X("mapping", group_mapping)                                        \
    X("piece codes", group_piece_codes)                                \
    X("piece copies", group_piece_copies)                              \
    X("piece attributes", group_piece_attributes)                      \
    X("piece others", group_piece_others)                              \
    X("piece waits", group_piece_waits)                                \
    X("piece capture", group_piece_capture)                            \
    X("piece graphs", group_piece_graphs)                              \
    X("exec copies", group_exec_copies)                                \
    X("piece contexts", group_piece_contexts)                          \
    X("piece fault: unmapped", group_piece_fault_unmapped)             \
    X("piece fault: shut", group_piece_fault_shut)                     \
    X("piece fault: read only", group_piece_fault_read_only)           \
    X("piece fault: copy shut", group_piece_fault_copy_shut)           \
    X("piece fault: set shut", group_piece_fault_set_shut)             \
    X("piece fault: copy read only", group_piece_fault_copy_read_only) \
    X("piece fault: moved", group_piece_fault_moved)                   \
    X("piece fault: released", group_piece_fault_released)             \
    X("peer copies", group_peer_copies)                                \
    X("peer kernels", group_peer_kernels)                              \
    X("peer pinned", group_peer_pinned)                                \
    X("peer pieces", group_peer_pieces)                                \
    X("peer fault", group_peer_fault)

#define DECLARE_GROUP(name, function) void function(void);
GROUPS(DECLARE_GROUP)

/* Opens libcuda, or says why it cannot. */
bool open_driver(void);
void *find(const char *name);
/* As find(); ends the group when the driver has no such symbol. */
void *symbol(const char *name);

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)
/* cuda.h's macros are expanded first, so this is the name that a linker would see. */
#define D(name) ((__typeof__(&name))symbol(STRING(name)))

/* Prints one answer. */
void row(const char *id, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Two calls, one after the other. */
#define TWO(id, name, first, second)                        \
    do {                                                    \
        CUresult one_ = (first);                            \
        CUresult two_ = (second);                           \
        row(id, name, "codes %d %d", (int)one_, (int)two_); \
    } while (0)

/* Does the call wait for a kernel that is on its way in the stream? */
#define WAITS(id, name, stream, call)                                                  \
    do {                                                                               \
        arm(stream);                                                                   \
        CUresult code_ = (call);                                                       \
        bool waited_ = *flag != 0;                                                     \
        row(id, name, "%s, code %d", waited_ ? "waits" : "does not wait", (int)code_); \
        synchronize();                                                                 \
    } while (0)

/* Every attribute of a pointer. */
void attribute_line(const char *id, const char *name, CUdeviceptr p);
const char *yes_no(bool yes);

/* Makes the primary context of device 0 current, and everything below ready. */
void open_device(void);

extern CUcontext context;
extern const char ptx[]; /* of module */
extern CUmodule module;
extern CUfunction spin_store;
extern volatile uint32_t *flag, *seen; /* pinned */
extern CUstream blocking, other_blocking, nonblocking, other_nonblocking;

/* How long a kernel takes that arm() launches. */
#define SPIN_NS 200000000ull

CUdeviceptr device_of(volatile void *pinned);
/* Stores the value `ns` after it began. */
CUresult launch_store(CUstream stream, CUdeviceptr p, uint32_t value, uint64_t ns);
CUresult launch_load(CUstream stream, CUdeviceptr to, CUdeviceptr from);
/* A kernel that will set the flag is on its way in the stream. */
void arm(CUstream stream);
void synchronize(void);

CUdeviceptr device_memory(size_t bytes);
/* Of the current pool, and of that one. */
CUdeviceptr pool_memory(size_t bytes);
CUdeviceptr from_pool(CUmemoryPool pool, size_t bytes, CUstream stream);
CUdeviceptr managed_memory(size_t bytes);
#define PIECE ((size_t)2 << 20)
/* A range whose pieces lie on the device and on the host by turns (pieces.c). */
CUdeviceptr piece_range(unsigned pieces);
uint32_t word_at(CUdeviceptr p);

#endif
