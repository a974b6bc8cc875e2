/* html_blocks.h: the largest blocks of a trace, for the chart that scripts draw. */
#ifndef TOOLS_HTML_BLOCKS_H
#define TOOLS_HTML_BLOCKS_H

#include "interpose/core/base/text.h"
#include "interpose/core/report/holders/render_frames.h"
#include "tools/trace/trace_file.h"

/* Adds JSON: {"sites": [name...], "of": number of all blocks, "blocks": [[seconds of its
 * allocation, of its free or null, bytes, number of its site]...]}, in order of allocation. Where
 * stacks of blocks are known, they are added (frame_text.h), and such a block has the number of its
 * stack there as a fifth item. `stacks`: of the process, NULL where it took none. False when memory
 * runs out. */
bool html_add_blocks(struct ag_text *text, const struct trace *trace,
                     const struct ag_holders_view *stacks);

#endif
