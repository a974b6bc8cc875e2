/* top.h: what `allograft top` has of each process, and how it is shown. */
#ifndef TOOLS_TOP_H
#define TOOLS_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/report/job.h"

/* What was counted until some moment. */
struct top_counts {
    uint64_t ns; /* of that moment */
    uint64_t allocs, frees, bytes, operations, replayed;
};

struct top_row {
    char file[AG_RECORD_NAME_MAX];
    int pid, rank;
    char program[256], host[72], ended_by[16];
    enum ag_record_state state;
    uint64_t elapsed_ns; /* 0: nobody saw it end */
    uint64_t current[AG_N_PLACEMENTS], peak[AG_N_PLACEMENTS];
    uint64_t cache_hits, cache_misses;
    bool replay_on, simulated;
    struct top_counts now,
        before; /* rates are of what lies between; before: a last look, or the start */
};

struct top_table {
    struct top_row *rows;
    size_t n;
    unsigned n_others; /* files that another build wrote */
};

/* Looks at every file of the folder; `before` is what was seen last, or NULL. A row's counts before
 * are zero where it is not in there. False: no memory, or the folder cannot be read. */
bool top_look(int folder, const struct top_table *before, struct top_table *ret);
void top_finish(struct top_table *table);

/* A second's share of a count; 0 where no time passed, or nobody knows how much. */
double top_rate(const struct top_row *row, uint64_t now, uint64_t before);

/* ---- top_view.c ---------------------------------------------------------------------------- */

/* The table in lines no wider than `columns`: columns that have no room are left out, the least
 * important first. At most `lines` lines, 0: all. `line_end` stands behind each. */
void top_render(struct ag_text *text, const struct top_table *table, unsigned columns,
                unsigned lines, const char *line_end);
void top_render_json(struct ag_text *text, const struct top_table *table);

/* ---- screen.c ------------------------------------------------------------------------------ */

enum screen_event { SCREEN_TIME, SCREEN_RESIZED, SCREEN_QUIT };

/* Takes the terminal over: another page, no cursor, keys at once. False where stdin or stdout is
 * none. */
bool screen_begin(void);
/* Leaves it as it was, also when stopped or ended by a signal in between. */
void screen_end(void);
void screen_size(unsigned *ret_columns, unsigned *ret_lines);
/* Puts lines (which end with screen_line_end) in the place of those that are there. */
bool screen_show(const struct ag_text *text);
extern const char screen_line_end[];
/* Waits for a key, a signal, or so long. */
enum screen_event screen_wait(double seconds);

#endif
