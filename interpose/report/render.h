/* A report as text or JSON, out of counters that may be this process's or another's. Pure. */
#ifndef AG_RENDER_H
#define AG_RENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/base/text.h"
#include "interpose/report/emitter.h"
#include "interpose/report/holders/render_holders.h"
#include "interpose/report/stats.h"

/* When a report is made. */
struct ag_moment {
    uint64_t ns,
        ticks;  /* both clocks read together; zero where they are not those of the counters */
    bool alive; /* the process ran until then */
};

/* Text for people: what the counts come to, then all of them. holders: who held memory, or NULL. */
void ag_render_text(struct ag_text *text, const struct ag_stats *stats,
                    const struct ag_moment *moment, const struct ag_holders_view *holders);
/* The same without the counts: the verdict, warnings, and what was asked for by guards and stacks.
 */
void ag_render_short(struct ag_text *text, const struct ag_stats *stats,
                     const struct ag_moment *moment, const struct ag_holders_view *holders);
/* One JSON object, as allograft-stats.schema.json has it. */
void ag_render_json(struct ag_text *text, const struct ag_stats *stats,
                    const struct ag_moment *moment, const struct ag_holders_view *holders);
/* The counters of a group as members of the object that is open. */
void ag_render_group_json(struct ag_emitter *json, const struct ag_stats *stats, const char *group);
/* The same as an object `key` of its own, on a line of its own. */
void ag_render_object_json(struct ag_emitter *json, const struct ag_stats *stats, unsigned indent,
                           const char *key, const char *group);
/* The i-th warning of a report, or NULL behind the last; memory of the function. */
const char *ag_render_warning(const struct ag_stats *stats, unsigned i);
/* The value of the setting in that row (enum ag_option_row), "" if it is not known; it lies in
 * the counters. */
const char *ag_render_setting(const struct ag_stats *stats, unsigned row);
/* Whole nanoseconds for ticks of the counters' clock; 0 where nobody can tell. */
double ag_render_ns(const struct ag_stats *stats, const struct ag_moment *moment, uint64_t ticks);

#endif
