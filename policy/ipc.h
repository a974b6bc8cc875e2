/* Memory of our pools between processes: cuIpcGetMemHandle and what belongs to it.
 *
 * The driver gives no IPC handle for pool memory, but it lets a pool be handed over as a file
 * descriptor, and a block of it as 64 bytes of export data. Both do not fit into the handle that
 * the program carries to the other process. So the handle only names the exporting process and the
 * block; the importing process, if we are in it too, asks the exporter for the rest over a socket
 * (ipc_socket.h). Handles of other memory are the driver's in both processes. */
#ifndef AG_POLICY_IPC_H
#define AG_POLICY_IPC_H

#include <stdbool.h>

#include "abi.h"

struct ag_block;
struct ag_context;

/* cuIpcGetMemHandle. */
CUresult ag_ipc_get(CUipcMemHandle *handle, CUdeviceptr address);
/* The program frees `block`, or its context dies: who has a handle of it gets nothing any more.
 * True when there was one: the block must go back to the pool then, since a process that did not
 * close what it opened goes on looking at this memory. */
bool ag_ipc_freed(struct ag_block *block);

typedef CUresult ag_ipc_open_function(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);

/* cuIpcOpenMemHandle; `native` is the driver's of that version. */
CUresult ag_ipc_open(CUdeviceptr *ret_address, const CUipcMemHandle *handle, unsigned flags,
                     ag_ipc_open_function *native);
/* cuIpcCloseMemHandle. */
CUresult ag_ipc_close(CUdeviceptr address);
/* The program is about to destroy `context`: what it opened is closed, as natively. */
void ag_ipc_context_dying(const struct ag_context *context);
/* A context came to life: what is open is open to its device too. */
void ag_ipc_context_entered(const struct ag_context *context);

/* Is `process` this one? */
struct ag_ipc_id;
bool ag_ipc_is_us(const struct ag_ipc_id *process);

/* A forked child has neither handed out nor opened anything. */
void ag_ipc_forget_exports(void);
void ag_ipc_forget_imports(void);

#endif
