/* frame_text.h: what a page says of the frames of stacks. */
#ifndef TOOLS_FRAME_TEXT_H
#define TOOLS_FRAME_TEXT_H

#include "interpose/core/report/holders/render_frames.h"

#define FRAME_INLINED 16u

struct frame_text {
    char name[256], place[600];
};

/* The names of a frame, innermost first: several where functions were inlined. At least one. */
unsigned frame_texts(const struct ag_holders_view *view, uint64_t frame,
                     struct frame_text ret[FRAME_INLINED]);
/* Is its code in a library, as those are that readers of a page may hide? */
bool frame_is_of_library(const struct ag_holders *holders, uint64_t frame);

/* Is there a stack of memory in that row, with the call site in it? That tells whether it is the
 * one meant: tables of another process that has the same number, or that ran at another time, have
 * other addresses there. */
bool frames_have_site(const struct ag_holders *holders, uint32_t row, uint64_t caller);
/* Adds members of JSON, and a comma: "frames": [[1 if of a library, name, place, and those of what
 * it was inlined into]...], "stacks": of each row the numbers of its frames, innermost first, and
 * after them -1 where there are more. */
void frames_add_stacks(struct ag_text *text, const struct ag_holders_view *view,
                       const uint32_t *rows, size_t n);

#endif
