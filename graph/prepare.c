/* Allocates ahead of time what the first operations of a program would otherwise wait for: memory
 * of the first streams, the tables of kernel parameters, the watchdog's thread. Done as the first
 * context is created, which takes some hundred times as long. */
#include "graph/replay/watchdog.h"
#include "graph/stream.h"
#include "interpose/base/pages.h"
#include "policy/managed/kernel_params.h"

void ag_replay_prepare(void)
{
    if (!ag_replay_on())
        return;
    ag_params_prepare();
    for (unsigned i = 0; i < AG_FREELIST_BLOCKS; i++)
        ag_stream_prepare();
    ag_watchdog_start();
}
