/* job.h: the processes of one job (ranks of torchrun, mpirun, srun), compared and added up. */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include "tools/base/unit.h"
#include "tools/report/process.h"

/* The numbers that are compared between ranks. */
enum figure {
    FIGURE_ELAPSED, /* nanoseconds of the process */
    FIGURE_PEAK,    /* bytes that the program had at a time */
    FIGURE_ALLOCS,
    FIGURE_CALL_NS,  /* time spent in allocations and frees */
    FIGURE_GIVEN,    /* bytes of the devices that were used or kept for later at a time */
    FIGURE_WAITED,   /* frees that made the host wait */
    FIGURE_CACHED,   /* percent of allocations that the cache answered */
    FIGURE_REPLAYED, /* percent of operations on marked streams that were launched in graphs */
    N_FIGURES
};

struct trace;

#define JOB_TRACES 16u /* at most, on a page */

struct job {
    struct process *processes; /* plain; sorted by rank, host and process id */
    size_t n, capacity;
    struct trace *traces[JOB_TRACES];
    const char *trace_paths[JOB_TRACES];
    size_t n_traces; /* may exceed JOB_TRACES */
    /* After job_add_up(): */
    struct process total;
    double elapsed_ns; /* the sum of all processes */
    struct {
        bool known;
        bool any_above_zero; /* of the processes' */
        double value;
    } medians[N_FIGURES];
};

/* Adds the process, which is then the job's, even if this returns false since memory ran out. */
bool job_add(struct job *job, struct process *process);
/* Is the file at `path` a trace? */
bool job_is_trace(const char *path);
/* Opens a trace for the page; prints a line on stderr if that fails. `path` must outlive the
 * job. */
bool job_add_trace(struct job *job, const char *path);
/* Was a trace truncated while it was read? Prints a line on stderr if so. */
bool job_is_torn(const struct job *job);
/* Sorts the processes, of which there must be one, and adds them up. False when memory runs out. */
bool job_add_up(struct job *job);
void job_finish(struct job *job);

/* The source ("default", "environment", or a place in a file) and value of setting `i`. False if it
 * is not known. */
bool job_setting(const struct process *process, size_t i, const char **ret_source,
                 const char **ret_value);

struct figure_row {
    const char *key, *title;
    enum unit unit;
};

/* The unit of a counter, which the end of its key tells: "_ns", "bytes". */
enum unit figure_unit_of_key(const char *key);

extern const struct figure_row figure_rows[N_FIGURES];
extern const char outlier_rule[]; /* defines an outlier; part of a sentence */

/* False if the process has no such number: a share of nothing, a time that is not known, or one
 * that means nothing since the driver was simulated. */
bool figure_of(const struct process *process, enum figure figure, double *ret);
/* Fills in the medians; job_add_up() calls it. */
void figure_find_medians(struct job *job);
bool figure_is_outlier(const struct job *job, const struct process *process, enum figure figure);

/* The first four are always shown; the others if a process has more than zero. */
bool figure_is_shown(const struct job *job, enum figure figure);

/* ---- overview: the most important numbers -------------------------------------------------- */

struct overview_row {
    char label[64];
    enum unit unit;
    double part, whole;
};

#define OVERVIEW_ROWS 16u

/* Fills in the rows for a plain process (or a sum of processes) that ran for `elapsed_ns`. Returns
 * their number. */
unsigned overview(const struct process *process, double elapsed_ns,
                  struct overview_row rows[OVERVIEW_ROWS]);
/* Adds them as lines of text. */
void overview_text(struct ag_text *text, const struct process *process, double elapsed_ns);

/* ---- job_text.c ---------------------------------------------------------------------------- */

void job_render_text(struct ag_text *text, const struct job *job);
void job_render_json(struct ag_text *text, const struct job *job);

/* ---- html_report.c ------------------------------------------------------------------------- */

void job_render_html(struct ag_text *text, const struct job *job);

#endif
