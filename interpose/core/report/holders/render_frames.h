/* The frames of a stack, as text or JSON, with names where somebody knows them. Pure. */
#ifndef AG_RENDER_FRAMES_H
#define AG_RENDER_FRAMES_H

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/holders/format.h"

/* What is known of a frame of native code. */
struct ag_frame_name {
    char function[256]; /* "": not known */
    char file[512];     /* of the source; "": not known */
    uint32_t line;
    char note[64]; /* why a name or line is not known, or "" */
};

/* Names a native frame: the function, and before it those inlined there, innermost first. How many
 * of `most`; 0: nothing is known. */
typedef unsigned ag_frame_names(void *namer, const struct ag_holders *holders, uint64_t frame,
                                struct ag_frame_name *ret, unsigned most);

struct ag_holders_view {
    const struct ag_holders *holders; /* NULL: stacks were not asked for, and nothing is rendered */
    ag_frame_names *names;            /* NULL: no names */
    void *namer;
    bool is_running; /* what is live is no leak yet */
    bool is_own;     /* of the process that renders, which knows few names */
};

/* A line for each frame. */
void ag_render_frames_text(struct ag_text *text, const struct ag_holders_view *view,
                           const struct ag_held_stack *stack);
/* How to have the names that the process itself does not know, where it has told of stacks. */
void ag_render_names_advice_text(struct ag_text *text, const struct ag_holders_view *view);
/* Members `cut` and `frames` of the object that is open. */
void ag_render_frames_json(struct ag_emitter *json, const struct ag_holders_view *view,
                           const struct ag_held_stack *stack);
/* A member `modules`, whose numbers frames have. */
void ag_render_modules_json(struct ag_emitter *json, const struct ag_holders *holders);

#endif
