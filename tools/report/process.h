/* process.h: what one process counted, in one form, whatever kind of file it was read from. */
#ifndef TOOLS_PROCESS_H
#define TOOLS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/report/counters_file.h"
#include "interpose/core/report/render.h"
#include "interpose/core/report/stats.h"

struct process {
    struct ag_holders *holders; /* who held memory; ours; NULL: not known */
    struct ag_stats *stats;     /* ours; its texts hold no control characters */
    struct ag_moment moment;
    enum ag_record_state state; /* if read from a file of counters */
    bool is_plain;              /* see process_make_plain() */
};

/* Counters that are all zero, in pages that cost no memory until they are touched. NULL when memory
 * runs out. */
struct ag_stats *process_new_stats(void);
/* New, empty tables of who held memory; NULL without memory. */
struct ag_holders *process_new_holders(void);
/* Reads the counters or the JSON report at `path` in `folder` (AT_FDCWD for any path). Returns
 * NULL, or the fault as a static string; *ret is then untouched. */
const char *process_read(int folder, const char *path, struct process *ret);
/* Does the file look, by its first bytes, like a report or like counters, or can it not be read? */
bool process_is_kind_of_report(const char *path);
/* The fault of counters that another build wrote. */
extern const char process_of_other_build[];
/* The fault of a truncated or empty file of counters. */
extern const char process_cut_short[];
/* Reads a process, and prints a line on stderr for the fault. */
bool process_read_or_say(int folder, const char *path, struct process *ret);
/* Prints that line. */
void process_complain(const char *name, const char *fault);
void process_finish(struct process *process);

/* Makes the process plain: all counts in the first slot and all ticks in nanoseconds, so that
 * processes can be added up. What is rendered stays the same. */
void process_make_plain(struct process *process);

/* These take a plain process. */
uint64_t process_counter(const struct process *process, enum ag_stat id);
uint64_t process_elapsed_ns(const struct process *process); /* 0: not known */

/* Counts of a device's row and a placement, of a plain process. */
static inline const struct ag_place_stats *process_place(const struct process *process,
                                                         unsigned row, unsigned place)
{
    return &process->stats->slots[0].places[row][place];
}

/* Replace control characters by '?': texts of a file must not control the terminal. */
void process_make_printable(char *text, size_t capacity);
void process_make_texts_safe(struct ag_stats *stats);
void process_make_holders_safe(struct ag_holders *holders);

/* ---- counters.c ---------------------------------------------------------------------------- */

/* Reads a file of counters. Returns NULL, or the fault. */
const char *counters_read(int fd, struct ag_stats *stats);
/* Who held memory: false if the file does not tell. */
bool counters_read_holders(int fd, struct ag_holders *ret);
/* Is the process running, dead, or on another machine or in another container? The counters were
 * read at `path` in `folder`. */
enum ag_record_state counters_state(const struct ag_stats_head *head, int folder, const char *path);
/* The current time by the clock of the counters. Also writes to the head how the process ended. */
struct ag_moment counters_moment(struct ag_stats *stats, enum ag_record_state state);

/* ---- stats_json.c -------------------------------------------------------------------------- */

/* Parses a report (allograft-stats.schema.json) into the process, whose counters are all
 * zero; they are then plain. Who held memory goes to its holders, if it has any, all zero, too.
 * Fields that this build does not know are ignored. False, with the reason in `why`, if it is not a
 * report. */
bool stats_from_json(const char *text, size_t length, struct process *process, char *why,
                     size_t why_size);

#endif
