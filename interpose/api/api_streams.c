/* The streams that the control API shares in each context, and what goes with a context. */
#include <stdlib.h>

#include "interpose/api/api.h"

static struct ag_api_stream *shared_streams; /* under ag_api_lock */

/* Takes the context's out of the list, or returns NULL. With the lock held. */
static struct ag_api_stream *unlink_shared(CUcontext context)
{
    struct ag_api_stream **place = &shared_streams, *found;

    while (*place && (*place)->context != context)
        place = &(*place)->next;
    found = *place;
    if (found)
        *place = found->next;
    return found;
}

CUstream ag_api_stream_share(CUcontext context, unsigned long long id,
                             struct ag_api_stream *offered)
{
    struct ag_api_stream *known, *kept;
    CUstream found;

    ag_lock_take(&ag_api_lock);
    known = unlink_shared(context);
    /* with another id, it went with an earlier context of that handle */
    kept = known && (!id || !known->id || known->id == id) ? known : offered;
    if (kept) {
        kept->next = shared_streams;
        shared_streams = kept;
    }
    found = kept ? kept->stream : NULL;
    ag_lock_release(&ag_api_lock);
    if (known != kept)
        free(known);
    return found;
}

void ag_api_context_dying(CUcontext context)
{
    struct ag_api_stream *gone;

    ag_lock_take(&ag_api_lock);
    gone = unlink_shared(context);
    ag_lock_release(&ag_api_lock);
    free(gone);
    ag_api_owned_context_dying(context);
}
