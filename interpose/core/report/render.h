/* A report as text or JSON, out of counters that may be this process's or another's. Pure. */
#ifndef AG_RENDER_H
#define AG_RENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/holders/render_holders.h"
#include "interpose/core/report/render_parts.h"
#include "interpose/core/report/stats.h"

/* Text for people: what the counts come to, then all of them. holders: who held memory, or NULL. */
void ag_render_text(struct ag_text *text, const struct ag_stats *stats,
                    const struct ag_moment *moment, const struct ag_holders_view *holders);
/* Renders the text without the counts: the verdict, warnings, and what was asked for by guards and
 * stacks. */
void ag_render_short(struct ag_text *text, const struct ag_stats *stats,
                     const struct ag_moment *moment, const struct ag_holders_view *holders);
/* One JSON object, as allograft-stats.schema.json has it. */
void ag_render_json(struct ag_text *text, const struct ag_stats *stats,
                    const struct ag_moment *moment, const struct ag_holders_view *holders);
/* The i-th warning of a report, or NULL after the last; memory of the function. */
const char *ag_render_warning(const struct ag_stats *stats, unsigned i);

#endif
