/* html_flame.h: who held memory in a process, as a card of the report's page. */
#ifndef TOOLS_HTML_FLAME_H
#define TOOLS_HTML_FLAME_H

#include <stdbool.h>

#include "tools/report/process.h"

/* Adds a card with a flame graph, by stack, of memory at the peak, never freed, and allocated, and
 * a table of the stacks that held most. False, with nothing added, if the process took no
 * stacks. */
bool html_add_flame(struct ag_text *text, const struct process *process);

#endif
