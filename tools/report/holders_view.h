/* holders_view.h: who held memory in a process, with names, for what is rendered. */
#ifndef TOOLS_HOLDERS_VIEW_H
#define TOOLS_HOLDERS_VIEW_H

#include "tools/report/process.h"

/* Finished by holders_view_finish(), before the process is. */
struct ag_holders_view holders_view(const struct process *process);
void holders_view_finish(struct ag_holders_view *view);

#endif
