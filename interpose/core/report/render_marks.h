/* The program's marks in a report: the named points that it passed. Pure. */
#ifndef AG_RENDER_MARKS_H
#define AG_RENDER_MARKS_H

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

/* The member "marks" of a JSON report, an array. */
void ag_render_marks_json(struct ag_emitter *json, const struct ag_stats *stats);
/* The section of a text report; nothing when there are none. */
void ag_render_marks_text(struct ag_text *text, const struct ag_stats *stats);

#endif
