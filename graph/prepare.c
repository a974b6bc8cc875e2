/* What the first operations of a program would wait for is made as its first context comes to life,
 * which takes some hundred times as long: memory of the first streams, the tables of kernels'
 * parameters, and the watchdog. */
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
