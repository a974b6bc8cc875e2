/* Hooks that load code and change attributes of functions: device code may let the host see
 * unfinished work (printf), loading takes memory, and a graph keeps the attributes that a function
 * had when it was built. */
#include "graph/record/func_attrs.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/entry_retry.h"
#include "interpose/hooks/image.h"
#include "interpose/resolve/trampoline.h"
#include "policy/managed/kernel_params.h"
#include "policy/order/drain.h"

/* Device printf comes out while the host waits: natively before what the host prints after
 * cudaFree. */
static void note_code(bool prints)
{
    if (ag_entry_replays_now() || ag_watch_is_on())
        ag_trampoline_look_around(); /* a library came with the code */
    ag_unseen_look();
    if (prints)
        ag_drain_note_visible(AG_VISIBLE_PRINTF);
}

#include "interpose/hooks/made/code.h"

/* --- attributes of functions --- */

/* What was withheld is launched as the function was. */
static void tuning(const struct ag_func_attrs *func_attrs)
{
    if (!ag_func_attrs_holds(func_attrs) && ag_replay_holds())
        ag_replay_flush_all(AG_FLUSH_CALL);
}

/* Graphs are dropped after the call: those that are built beside it keep the old, too. */
static CUresult took(CUresult result, const struct ag_func_attrs *func_attrs)
{
    if (result == CUDA_SUCCESS && !ag_func_attrs_holds(func_attrs)) {
        ag_replay_forget_code(AG_FLUSH_CODE, false);
        ag_func_attrs_note(func_attrs);
    }
    if (func_attrs->kind == AG_FUNC_ATTRIBUTE &&
        func_attrs->attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)
        /* what is known of the function says that it has no clusters, perhaps */
        ag_params_forget();
    return result;
}

#include "interpose/hooks/made/function_attributes.h"
