/* Hooks of memory that processes share by legacy IPC handles (policy/ipc/ipc.h). */
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/ipc/ipc.h"

AG_ENTRY CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    AG_ENTER(cuIpcGetMemHandle, handle, dptr);
    return ag_entry_leave(ag_ipc_get(handle, dptr));
}

AG_ENTRY CUresult cuIpcOpenMemHandle(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)
{
    AG_ENTER(cuIpcOpenMemHandle, dptr, handle, flags);
    return ag_entry_leave(ag_ipc_open(dptr, &handle, flags, ag_cu.cuIpcOpenMemHandle));
}

AG_ENTRY CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle handle,
                                        unsigned int flags)
{
    AG_ENTER(cuIpcOpenMemHandle_v2, dptr, handle, flags);
    return ag_entry_leave(ag_ipc_open(dptr, &handle, flags, ag_cu.cuIpcOpenMemHandle_v2));
}

AG_ENTRY CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    AG_ENTER(cuIpcCloseMemHandle, dptr);
    return ag_entry_leave(ag_ipc_close(dptr));
}
