/* Hooks of calls that may fail because a cache of ours holds the memory they need: the cache is
 * given up, and the driver called again. */
#ifndef AG_ENTRY_RETRY_H
#define AG_ENTRY_RETRY_H

#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "policy/app/app_graphs.h"
#include "policy/contexts/enter.h"
#include "policy/pressure.h"

/* Gives back what we keep of the current context's device. False within our own calls. */
bool ag_entry_makes_room(struct ag_relief *relief);

/* Whatever context is current. NULL: it is no device's. */
static inline struct ag_device *ag_entry_device_at(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? ag_device_of(location->id) : NULL;
}

/* Is a call that measures a graph to be made again? */
static inline bool ag_entry_tries_graph_again(struct ag_app_graphs_span *span, CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !ag_pressure_relieve_for_call(NULL, &span->relief))
        return false;
    ag_app_graphs_relieved(span);
    return true;
}

#endif
