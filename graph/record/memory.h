/* What memory an address names, and until when that holds. */
#ifndef AG_GRAPH_MEMORY_H
#define AG_GRAPH_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

/* The most bytes of an upload from pageable memory that the driver reads into a command (H100): its
 * call waits for no work. */
#define AG_MEMORY_COMMAND_BYTES ((size_t)64 << 10)

enum ag_memory {
    AG_MEMORY_UNKNOWN, /* managed, of another device, mixed, not allocated */
    AG_MEMORY_DEVICE,  /* of the current context, inside one allocation */
    AG_MEMORY_PINNED,
    AG_MEMORY_PAGEABLE,
};

/* What is remembered of memory is valid until this changes, and so are the nodes that name it. */
extern _Atomic uint64_t ag_memory_epoch;

/* Memory is about to go, or to be other memory; what was withheld and names it was submitted. */
static inline void ag_memory_forget(void)
{
    atomic_fetch_add_explicit(&ag_memory_epoch, 1, memory_order_release);
}

/* What [address, address + bytes) is; bytes > 0. May ask the driver. Only while streams are
 * replayed: else nobody says when what is remembered does not hold any more. */
enum ag_memory ag_memory_kind(uint64_t address, uint64_t bytes);
/* What it is, asked of the driver in any case. */
enum ag_memory ag_memory_now(uint64_t address, uint64_t bytes);

/* How a copy names such memory. */
static inline CUmemorytype ag_memory_type(enum ag_memory memory)
{
    return memory == AG_MEMORY_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

#endif
