/* The parts that several forms and chapters of a report are made of. Pure. */
#ifndef AG_RENDER_PARTS_H
#define AG_RENDER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

/* When a report is made. */
struct ag_moment {
    uint64_t ns,
        ticks;  /* both clocks read together; zero where they are not those of the counters */
    bool alive; /* the process ran until then */
};

/* The counters of a group as members of the object that is open. */
void ag_render_group_json(struct ag_emitter *json, const struct ag_stats *stats, const char *group);
/* The counters of a group as an object `key` of their own, on a line of its own. */
void ag_render_object_json(struct ag_emitter *json, const struct ag_stats *stats, unsigned indent,
                           const char *key, const char *group);
/* The next of the texts that the settings are kept as; *at goes on after it. "" after the last.
 */
const char *ag_render_next_text(const struct ag_stats *stats, size_t *at);
/* The value of the setting in that row (enum ag_option_row), "" if it is not known; it lies in
 * the counters. */
const char *ag_render_setting(const struct ag_stats *stats, unsigned row);
/* Nanoseconds for ticks of the counters' clock; 0 where nobody can tell. */
double ag_render_ticks(const struct ag_stats *stats, const struct ag_moment *moment,
                       uint64_t ticks);
/* Whole nanoseconds for ticks of the counters' clock. */
double ag_render_ns(const struct ag_stats *stats, const struct ag_moment *moment, uint64_t ticks);

#endif
