/* holders_view.c: names what a process says of its stacks: see holders_view.h. */
#include "tools/report/holders_view.h"

#include <string.h>

#include "tools/trace/frame_names.h"

struct ag_holders_view holders_view(const struct process *process)
{
    struct ag_holders_view view = {.holders = process->holders};

    if (view.holders)
        view.namer = frame_namer_new();
    view.names = view.namer ? frame_names : NULL;
    view.is_running = !strcmp(process->stats->head.ended_by, "running");
    return view;
}

void holders_view_finish(struct ag_holders_view *view)
{
    frame_namer_free(view->namer);
    view->namer = NULL;
}
