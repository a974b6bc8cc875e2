/* job.h: the processes of one job (ranks of torchrun, mpirun, srun) side by side and added up. */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include "tools/base/unit.h"
#include "tools/report/process.h"

/* What is compared between ranks. */
enum figure {
    FIGURE_ELAPSED, /* nanoseconds of the process */
    FIGURE_PEAK,    /* bytes: the peaks of all placements together */
    FIGURE_ALLOCS,
    FIGURE_CALL_NS,  /* time in allocating and freeing */
    FIGURE_WAITED,   /* frees that made the host wait */
    FIGURE_CACHED,   /* percent of allocations answered by the cache */
    FIGURE_REPLAYED, /* percent of the marked streams' operations that were launched in graphs */
    N_FIGURES
};

struct trace;

#define JOB_TRACES 16u /* shown on a page */

struct job {
    struct process *processes; /* plain, in the order of rank, host and process id */
    size_t n, capacity;
    struct trace *traces[JOB_TRACES];
    const char *trace_paths[JOB_TRACES];
    size_t n_traces; /* may be more than are kept */
    /* After job_add_up(): */
    struct process total;
    double elapsed_ns; /* of all processes together */
    struct {
        bool known;
        double value;
    } medians[N_FIGURES];
};

/* Takes the process over, also where it returns false for want of memory. */
bool job_add(struct job *job, struct process *process);
/* Is there a trace at the path? */
bool job_is_trace(const char *path);
/* Opens a trace for the page; complains where that cannot be done. The path stays the caller's. */
bool job_add_trace(struct job *job, const char *path);
/* Did a trace lose its end while it was read? Complains of it. */
bool job_is_torn(const struct job *job);
/* Sorts the processes and adds them up; at least one is there. False: no memory. */
bool job_add_up(struct job *job);
void job_finish(struct job *job);

/* The source ("default", "environment", or a place in a file) and value of a setting. */
bool job_setting(const struct process *process, size_t i, const char **ret_source,
                 const char **ret_value);

struct figure_row {
    const char *key, *title;
    enum unit unit;
};

extern const struct figure_row figure_rows[N_FIGURES];
extern const char outlier_rule[]; /* in a sentence */

/* False where there is no such thing in the process: a share of nothing, a time nobody saw or that
 * means nothing, since the driver was simulated. */
bool figure_of(const struct process *process, enum figure figure, double *ret);
/* Of the job's processes that have one; with job_add_up(). */
void figure_find_medians(struct job *job);
bool figure_is_outlier(const struct job *job, const struct process *process, enum figure figure);

/* The first four always; the others where a process has more than nothing. */
bool figure_is_shown(const struct job *job, enum figure figure);

/* ---- overview: what matters, in a few lines ------------------------------------------------ */

struct overview_row {
    char label[64];
    enum unit unit;
    double part, whole;
};

#define OVERVIEW_ROWS 16u

/* Of a plain process that ran for so long, or the sum of several. Returns how many rows there
 * are. */
unsigned overview(const struct process *process, double elapsed_ns,
                  struct overview_row rows[OVERVIEW_ROWS]);
/* The same as lines of text. */
void overview_text(struct ag_text *text, const struct process *process, double elapsed_ns);

/* ---- job_text.c ---------------------------------------------------------------------------- */

void job_render_text(struct ag_text *text, const struct job *job);
void job_render_json(struct ag_text *text, const struct job *job);

/* ---- html_report.c ------------------------------------------------------------------------- */

void job_render_html(struct ag_text *text, const struct job *job);

#endif
