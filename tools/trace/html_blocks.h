/* html_blocks.h: the largest blocks of a trace, for the chart that scripts draw. */
#ifndef TOOLS_HTML_BLOCKS_H
#define TOOLS_HTML_BLOCKS_H

#include "interpose/base/text.h"
#include "tools/trace/trace_file.h"

/* Adds JSON: {"sites": [name...], "of": number of all blocks, "blocks": [[seconds of its
 * allocation, of its free or null, bytes, number of its site]...]}, in order of allocation. False
 * when memory runs out. */
bool html_add_blocks(struct ag_text *text, const struct trace *trace);

#endif
