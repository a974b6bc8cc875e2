/* Who holds memory, as text or JSON, out of tables that may be this process's or another's. Pure.
 */
#ifndef AG_RENDER_HOLDERS_H
#define AG_RENDER_HOLDERS_H

#include "interpose/base/text.h"
#include "interpose/report/emitter.h"
#include "interpose/report/holders/format.h"

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
};

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
