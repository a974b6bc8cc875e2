/* Who waited for the device, as text or JSON, out of tables that may be this process's or
 * another's. Pure. */
#ifndef AG_RENDER_WAITS_H
#define AG_RENDER_WAITS_H

#include "interpose/core/report/holders/render_frames.h"

/* Nothing where nobody asked who waits. */
void ag_render_waits_text(struct ag_text *text, const struct ag_holders_view *view);
/* A member `waits` of the object that is open. */
void ag_render_waits_json(struct ag_emitter *json, const struct ag_holders_view *view);

/* The sums of all waits that were too short for a stack. */
struct ag_waited_short {
    uint64_t times, ns;
};
struct ag_waited_short ag_waits_short(const struct ag_holders *holders);

#endif
