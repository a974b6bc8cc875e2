/* The driver's virtual memory: which functions it takes, what physical memory is asked for, and
 * whom mapped memory is opened to. Keeps nothing. */
#ifndef AG_PAGING_VMM_H
#define AG_PAGING_VMM_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"

struct ag_device;

/* Has the driver all of them? */
bool ag_vmm_has_functions(void);

CUmemAllocationProp ag_vmm_on_device(const struct ag_device *device);
/* Memory of the host, as near to the device as the machine has some. */
CUmemAllocationProp ag_vmm_on_host(const struct ag_device *device);

/* Lets the device at what is mapped there. */
CUresult ag_vmm_open(const struct ag_device *device, CUdeviceptr address, size_t bytes);
/* Lets those at it, too, that could enable peer access to the device: cudaMalloc natively needs
 * nothing more for that. The first refusal, after all were asked. */
CUresult ag_vmm_open_to_peers(const struct ag_device *device, CUdeviceptr address, size_t bytes);

#endif
