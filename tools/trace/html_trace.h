/* html_trace.h: a trace as a card of the report's page. */
#ifndef TOOLS_HTML_TRACE_H
#define TOOLS_HTML_TRACE_H

#include <stdbool.h>

#include "interpose/core/report/holders/render_frames.h"
#include "tools/base/html.h"
#include "tools/trace/trace_file.h"

/* Adds a card with the contents of the trace: some 30 KiB, however long the trace is, and the
 * stacks of its largest blocks. `stacks`: of its process, or NULL. `place`: see html_fold_begin().
 * False when memory runs out. */
bool html_add_trace(struct ag_text *text, const struct trace *trace,
                    const struct ag_holders_view *stacks, unsigned place);

#endif
