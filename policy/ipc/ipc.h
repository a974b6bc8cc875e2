/* Memory of our pools, and pieces of slabs, between processes: cuIpcGetMemHandle and its relatives.
 *
 * The driver has no IPC handles for pool memory. It exports a pool as a file descriptor, and a
 * block of it as 64 bytes of data; the two do not fit into the handle that the program carries
 * to the other process. So our handle only names the exporting process and the block. The
 * importing process, if it runs under Allograft too, asks the exporter for the rest over a
 * socket (ipc_socket.h). The driver's handle of a native slab does not tell where in it a block
 * is, so it travels the same way. Handles of other memory are the driver's in both processes. */
#ifndef AG_POLICY_IPC_H
#define AG_POLICY_IPC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "policy/ledger.h"

struct ag_block_seen;
struct ag_context;

/* cuIpcGetMemHandle. */
CUresult ag_ipc_get(CUipcMemHandle *handle, CUdeviceptr address);
/* The memory of `block` goes back to the driver at once: who has a handle of it gets nothing any
 * more. True when there was one. */
bool ag_ipc_freed(struct ag_block *block);
/* The memory of a block that is gone, and had that number, goes back to the driver. */
void ag_ipc_number_freed(uint64_t number);
enum ag_ipc_sharing {
    AG_IPC_NOT_SHARED,
    AG_IPC_SHARED,         /* a process we do not know of may still look at it: not for the cache */
    AG_IPC_OPEN_ELSEWHERE, /* natively the memory stays as it is until that is closed: it is kept */
};
/* Only for the functions here and in ipc_export.c. Relaxed: whether to look, under a lock. */
extern _Atomic unsigned ag_ipc_n_orphans;
enum ag_ipc_sharing ag_ipc_hold_shared(struct ag_block *block);

/* The program frees `block`: nobody opens it any more. */
static inline enum ag_ipc_sharing ag_ipc_hold(struct ag_block *block)
{
    if (__builtin_expect(!ag_block_rare(block) &&
                             !atomic_load_explicit(&ag_ipc_n_orphans, memory_order_relaxed),
                         1))
        return AG_IPC_NOT_SHARED;
    return ag_ipc_hold_shared(block);
}
/* The context of `block` is about to go. True when another process has it open: natively it stays
 * until it is closed there, and so it is freed by a later free of the program. */
bool ag_ipc_orphan(const struct ag_block *block);
/* Is it so of memory at that address, or of a piece of the slab that begins there? */
bool ag_ipc_is_orphan(CUdeviceptr address);
/* Gives kept blocks of `context` that nobody has open any more back, as ag_backend_release(). */
void ag_ipc_give_back(struct ag_context *context, uint64_t timeout_ns);
/* Kept blocks of `context` are somebody else's business now. */
void ag_ipc_forget_held(const struct ag_context *context);

typedef CUresult ag_ipc_open_function(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);

/* cuIpcOpenMemHandle; `native` is the driver's of that version. */
CUresult ag_ipc_open(CUdeviceptr *ret_address, const CUipcMemHandle *handle, unsigned flags,
                     ag_ipc_open_function *native);
/* cuIpcCloseMemHandle. */
CUresult ag_ipc_close(CUdeviceptr address);
/* Does the allocation of another process that begins at *base here have `address`, which the ledger
 * does not know? Then the entry of the block in which it lies, and in *base where that begins;
 * where nothing was lent to the program, an entry that is KEPT. */
bool ag_ipc_look_inside(CUdeviceptr address, CUdeviceptr *base, struct ag_block_seen *ret_copy);
/* The program is about to destroy `context`: what it opened is closed, as natively. */
void ag_ipc_context_dying(const struct ag_context *context);
/* A context came to life: what is open is open to its device too. */
void ag_ipc_context_entered(const struct ag_context *context);

/* A forked child has neither handed out nor opened anything. */
void ag_ipc_export_begin_child(void);
void ag_ipc_import_begin_child(void);

#endif
