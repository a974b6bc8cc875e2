/* html_flame.h: who held memory in a process, and who waited, as cards of the report's page. */
#ifndef TOOLS_HTML_FLAME_H
#define TOOLS_HTML_FLAME_H

#include <stdbool.h>

#include "interpose/core/report/holders/render_frames.h"
#include "tools/base/html.h"
#include "tools/report/process.h"

/* Adds a card with a flame graph, by stack, of memory at the peak, never freed, and allocated, and
 * a table of the stacks that held most; and one of the time waited for the device. False, with
 * nothing added, if the process took no stacks. `view`: of its stacks. `place`: see
 * html_fold_begin(). */
bool html_add_flames(struct ag_text *text, const struct process *process,
                     const struct ag_holders_view *view, unsigned place);
/* Would it add some? */
bool html_has_flames(const struct process *process);

#endif
