/* Physical memory of the device and of the host that pieces of ranges are mapped to, and what of it
 * is kept: making a GiB of the host's takes a quarter of a second.
 *
 * Memory of the device counts on the budget from when it is made until the driver has it back. */
#ifndef AG_PAGING_HANDLES_H
#define AG_PAGING_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

struct ag_device;

struct ag_handle {
    CUmemGenericAllocationHandle memory;
    size_t size;
    struct ag_device *device; /* which it is of, or made for */
    bool on_device;
    CUdeviceptr alias; /* where else it is mapped, for as long as it is there; 0: nowhere */
    struct ag_handle *next;
};

/* Memory of that size, the caller's; NULL where there is no room for it: under ALLOGRAFT_LIMIT or
 * on the card, of which some is left for other things, or on the host. A context of the device is
 * current. */
struct ag_handle *ag_handle_get(struct ag_device *device, size_t size, bool on_device);
/* Is there room for as much, as far as ALLOGRAFT_LIMIT and the host say: on the device, or, with
 * `anywhere`, on both together? Before much is made in vain. */
bool ag_handles_may_get(struct ag_device *device, size_t size, bool anywhere);
/* Is there room for as much more on the device, what is kept aside, and on the card? A context of
 * it is current. */
bool ag_handles_has_room(struct ag_device *device, size_t size);
/* Has any memory of the host been made? */
bool ag_handles_any_on_host(void);
/* It is mapped nowhere but under its alias: it is kept, or goes back where enough is. */
void ag_handle_put(struct ag_handle *handle);
/* What is kept of the device's memory goes back, or with `all` the host's as well. False: nothing
 * was. */
bool ag_handles_give_back(struct ag_device *device, bool all);
/* Bytes of the device that are kept, and of the host for it. */
uint64_t ag_handles_kept(const struct ag_device *device);
uint64_t ag_handles_kept_on_host(const struct ag_device *device);

/* Is a fifth of the device left at most, to this process or to all, as the last memory was made?
 * Not any more once the driver has half of it back. Calls no driver. */
bool ag_handles_are_scarce(const struct ag_device *device);
/* Makes memory of the host that is kept; false where there is no room. Without a context. */
bool ag_handle_make_ahead(struct ag_device *device, size_t size);
/* Some of the host's goes back: its bytes, or 0 where none is kept. Without a context. */
size_t ag_handle_give_one_back(struct ag_device *device);

/* Has the memory mapped at an address of its own, for the device: handle->alias. */
CUresult ag_handle_map_alias(struct ag_handle *handle);

/* A forked child has none. */
void ag_handles_begin_child(void);

#endif
