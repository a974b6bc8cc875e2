/* top.h: the rows of `allograft top`, and the screen that shows them. */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/report/job.h"

/* What a process had counted at some time. */
struct top_counts {
    uint64_t ns; /* that time */
    uint64_t allocs, frees, bytes, operations, replayed;
};

struct top_row {
    char file[AG_RECORD_NAME_MAX];
    int pid, rank;
    char program[256], host[72], ended_by[16];
    enum ag_record_state state;
    uint64_t elapsed_ns; /* 0: not known, as of a killed process */
    uint64_t current[AG_N_PLACEMENTS], peak[AG_N_PLACEMENTS];
    uint64_t peak_all;            /* of all placements together, each device at its own time */
    uint64_t pinned_kept;         /* bytes */
    uint64_t moved_in, moved_out; /* bytes, to the device and to the host (ALLOGRAFT_OOM=page) */
    uint64_t cache_hits, cache_misses;
    bool replay_on, simulated;
    struct top_counts now, before; /* rates are averages over the time between them */
};

struct top_table {
    struct top_row *rows;
    size_t n;
    unsigned n_others; /* files written by other builds */
};

/* Reads every file of the folder. `before` is the table that was read last, or NULL; a row that is
 * not in it gets the start of its process for `before`. False when memory runs out or the folder
 * cannot be read. */
bool top_look(int folder, const struct top_table *before, struct top_table *ret);
void top_finish(struct top_table *table);

/* The memory of all placements together. */
uint64_t top_memory(const struct top_row *row);
/* How much a count grew per second; 0 if no time passed or it is not known. */
double top_rate(const struct top_row *row, uint64_t now, uint64_t before);

/* ---- top_view.c ---------------------------------------------------------------------------- */

/* Renders the table in lines of at most `columns` characters; columns that do not fit are left out,
 * the least important first. At most `lines` lines; 0: all. `line_end` ends each line. */
void top_render(struct ag_text *text, const struct top_table *table, unsigned columns,
                unsigned lines, const char *line_end);
void top_render_json(struct ag_text *text, const struct top_table *table);

/* ---- screen.c ------------------------------------------------------------------------------ */

enum screen_event { SCREEN_TIME, SCREEN_RESIZED, SCREEN_QUIT };

/* Switches the terminal to the alternate screen, without a cursor, and reads keys unbuffered. False
 * if stdin or stdout is not a terminal. */
bool screen_begin(void);
/* Restores the terminal. Signals that stop or end the command do so, too. */
void screen_end(void);
void screen_size(unsigned *ret_columns, unsigned *ret_lines);
/* Replaces what is shown by these lines, each ending with screen_line_end. */
bool screen_show(const struct ag_text *text);
extern const char screen_line_end[];
/* Waits for a key, a signal, or until the time is over. */
enum screen_event screen_wait(double seconds);

#endif
