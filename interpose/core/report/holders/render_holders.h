/* Who holds memory, as text or JSON, out of tables that may be this process's or another's. Pure.
 */
#ifndef AG_RENDER_HOLDERS_H
#define AG_RENDER_HOLDERS_H

#include "interpose/core/report/holders/render_frames.h"

/* What is live becomes `when` of each stack of the group; of AG_HELD_PEAK, the group's at_peak is
 * their sum. One thread at a time. */
void ag_holders_copy(struct ag_holders *holders, unsigned group, enum ag_held_when when);
/* Where more is live than at the last copy of the peak, that is the peak. Before rendering. */
void ag_holders_complete(struct ag_holders *holders);
/* May the tables be rendered? They may be anything. */
bool ag_holders_are_sound(const struct ag_holders *holders);

void ag_render_holders_text(struct ag_text *text, const struct ag_holders_view *view);
/* A member `holders` of the object that is open. */
void ag_render_holders_json(struct ag_emitter *json, const struct ag_holders_view *view);
/* The last allocation that failed, and who held most then; `before` goes before the first line. */
void ag_render_failure_text(struct ag_text *text, const char *before,
                            const struct ag_holders *holders, ag_frame_names *names, void *namer);

#endif
