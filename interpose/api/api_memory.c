/* Memory that can move (ALLOGRAFT_OOM=page): where the program wants it. */
#include <errno.h>

#include "interpose/api/api.h"
#include "interpose/hooks/entry.h"
#include "policy/paging/place.h"

static allograft_status explain(int result, const void *memory)
{
    switch (result) {
    case 0:
        return ALLOGRAFT_OK;
    case -EPERM:
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED,
                           "memory_place: %p stays where it is: a graph, SYNC_MEMOPS or a handle "
                           "of it hold it there",
                           memory);
    case -ERANGE:
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "memory_place: the bytes go past the end of their block");
    default:
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED,
                           "memory_place: %p is no memory that can move: that is what cudaMalloc "
                           "gives of 1 MiB and more under ALLOGRAFT_OOM=page",
                           memory);
    }
}

allograft_status ag_api_memory_place(const void *memory, size_t bytes, allograft_place place)
{
    static const enum ag_placed places[] = {
        [ALLOGRAFT_PLACE_AUTO] = AG_PLACED_AUTO,
        [ALLOGRAFT_PLACE_DEVICE] = AG_PLACED_ON_DEVICE,
        [ALLOGRAFT_PLACE_HOST] = AG_PLACED_ON_HOST,
    };
    allograft_status status = ag_api_enter();

    if (status != ALLOGRAFT_OK)
        return status;
    if (!bytes || (unsigned)place > ALLOGRAFT_PLACE_HOST)
        return ag_api_fail(ALLOGRAFT_INVALID, "memory_place: no bytes, or no such place");
    return explain(ag_place_set((uintptr_t)memory, bytes, places[place]), memory);
}
