/* process.h: what one process counted, as the commands have it, whatever file it was read from. */
#ifndef TOOLS_PROCESS_H
#define TOOLS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/report/counters_file.h"
#include "interpose/report/render.h"
#include "interpose/report/stats.h"

struct process {
    struct ag_stats *stats; /* own memory; no text in it holds a control character */
    struct ag_moment moment;
    enum ag_record_state state; /* of counters */
    bool is_plain;              /* see process_make_plain() */
};

/* Counters that are all zero; of pages that nobody touches, most of them. NULL: no memory. */
struct ag_stats *process_new_stats(void);
/* Reads the counters or the JSON report at `path` in `folder` (AT_FDCWD for any path). Returns
 * NULL, or why not, of static memory; *ret is untouched then. */
const char *process_read(int folder, const char *path, struct process *ret);
/* The answer of process_read() for counters that another build wrote. */
extern const char process_of_other_build[];
/* Of one that is the begin of a file of counters, and of an empty one. */
extern const char process_cut_short[];
/* The same with a line on stderr; *ret is untouched then, too. */
bool process_read_or_say(int folder, const char *path, struct process *ret);
void process_complain(const char *name, const char *fault);
void process_finish(struct process *process);

/* All counts into the first slot, all ticks into nanoseconds, so that processes can be added up.
 * What is rendered stays the same. */
void process_make_plain(struct process *process);

/* Of a plain process. */
uint64_t process_counter(const struct process *process, enum ag_stat id);
uint64_t process_elapsed_ns(const struct process *process); /* 0: not known */

/* Memory of a device's row and a placement, of a plain process. */
static inline const struct ag_place_stats *process_place(const struct process *process,
                                                         unsigned row, unsigned place)
{
    return &process->stats->slots[0].places[row][place];
}

/* Control characters into '?': what a file says must not steer a terminal. */
void process_make_printable(char *text, size_t capacity);
void process_make_texts_safe(struct ag_stats *stats);

/* ---- counters.c ---------------------------------------------------------------------------- */

/* "native", "pool", ... */
extern const char *const place_names[AG_N_PLACEMENTS];

/* Reads a file of counters; why not, or NULL. */
const char *counters_read(int fd, struct ag_stats *stats);
/* Running, dead, or of another machine or container? They were read at `path` in `folder`. */
enum ag_record_state counters_state(const struct ag_stats_head *head, int folder, const char *path);
/* When it is now by the clock of the counters, and how the process ended, which goes into the
 * head. */
struct ag_moment counters_moment(struct ag_stats *stats, enum ag_record_state state);

/* ---- stats_json.c -------------------------------------------------------------------------- */

/* Reads a report as tools/allograft-stats.schema.json has it into counters that are all zero; they
 * are plain then. False, with the reason in `why`, when it is none. Fields that this build does not
 * know are passed over. */
bool stats_from_json(const char *text, size_t length, struct ag_stats *stats,
                     struct ag_moment *ret_moment, char *why, size_t why_size);

#endif
