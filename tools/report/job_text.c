/* job_text.c: renders a job as text and as JSON: a table of ranks, then their sum as a report. */
#include "tools/report/job.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/report/emitter.h"
#include "interpose/core/report/verdict/verdict.h"

/* ---- text ---------------------------------------------------------------------------------- */

static void add_job_title(struct ag_text *text, const struct job *job)
{
    const struct ag_stats_head *head = &job->total.stats->head;
    char elapsed[32];

    ag_text_add(text, "allograft %s: %zu process%s of %s, host %s", head->version, job->n,
                job->n == 1 ? "" : "es", head->program, head->host);
    if (process_elapsed_ns(&job->total))
        ag_text_add(
            text, ", the longest %s",
            ag_text_duration(elapsed, sizeof(elapsed), (double)process_elapsed_ns(&job->total)));
    ag_text_add(text, "\n");
}

static void add_cell(struct ag_text *text, const struct job *job, const struct process *process,
                     enum figure figure)
{
    double value = job->medians[figure].value;
    char cell[32] = "-";

    if (process ? figure_of(process, figure, &value) : job->medians[figure].known)
        (void)unit_text(cell, sizeof(cell), figure_rows[figure].unit, value);
    if (process && figure_is_outlier(job, process, figure))
        snprintf(cell + strlen(cell), 2, "*");
    ag_text_add(text, " %10s", cell);
}

/* The width of the column of hosts; names are never cut. */
static int host_width(const struct job *job)
{
    size_t width = strlen("median");

    for (size_t i = 0; i < job->n; i++) {
        size_t length = strlen(job->processes[i].stats->head.host);

        width = length > width ? length : width;
    }
    return (int)width;
}

static void add_process_line(struct ag_text *text, const struct job *job,
                             const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;
    char rank[16] = "-";

    if (head->rank >= 0)
        snprintf(rank, sizeof(rank), "%d", head->rank);
    ag_text_add(text, "    %4s %-*s %8d", rank, host_width(job), head->host, head->pid);
    for (unsigned figure = 0; figure < N_FIGURES; figure++) {
        if (figure_is_shown(job, figure))
            add_cell(text, job, process, figure);
    }
    ag_text_add(text, "%s%s\n", strcmp(head->ended_by, "exit") ? "  " : "",
                strcmp(head->ended_by, "exit") ? head->ended_by : "");
}

static void add_rank_table(struct ag_text *text, const struct job *job)
{
    bool any = false;

    ag_text_add(text, "  processes\n    %4s %-*s %8s", "rank", host_width(job), "host", "process");
    for (unsigned i = 0; i < N_FIGURES; i++) {
        if (figure_is_shown(job, i))
            ag_text_add(text, " %10s", figure_rows[i].title);
    }
    ag_text_add(text, "\n");
    for (size_t i = 0; i < job->n; i++) {
        add_process_line(text, job, &job->processes[i]);
        for (unsigned figure = 0; figure < N_FIGURES; figure++)
            any = any || figure_is_outlier(job, &job->processes[i], figure);
    }
    ag_text_add(text, "    %4s %-*s %8s", "", host_width(job), "median", "");
    for (unsigned i = 0; i < N_FIGURES; i++) {
        if (figure_is_shown(job, i))
            add_cell(text, job, NULL, i);
    }
    ag_text_add(text, "\n    (in calls: time spent in allocations and frees%s)\n",
                figure_is_shown(job, FIGURE_WAITED) ? "; waits: frees that made the host wait"
                                                    : "");
    if (any)
        ag_text_add(
            text, "    (* an outlier: more than 1.5 times the median, or less than the median / "
                  "1.5; a time in\n       calls must also differ by 1 %% of the process's time, a "
                  "share by 5 points)\n");
}

void job_render_text(struct ag_text *text, const struct job *job)
{
    struct ag_text sum = {0};
    const char *rest;

    add_job_title(text, job);
    ag_verdict_text(text, job->total.stats, &job->total.moment);
    add_rank_table(text, job);
    ag_text_add(text, "  all together (devices of one model share a row; a peak is the sum of the "
                      "processes' peaks)\n");
    ag_render_text(&sum, job->total.stats, &job->total.moment, NULL);
    rest = sum.data;
    for (unsigned i = 0; i < 1 + AG_VERDICT_LINES && rest;
         i++) { /* title and verdict stand above */
        rest = strchr(rest, '\n');
        rest += rest != NULL;
    }
    ag_text_add(text, "%s", rest ? rest : "");
    text->truncated |= sum.truncated;
    ag_text_finish(&sum);
    overview_text(text, &job->total, job->elapsed_ns);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void emit_figure(struct ag_emitter *json, enum figure figure, bool known, double value)
{
    const struct figure_row *row = &figure_rows[figure];

    if (known)
        ag_emit_raw(json, row->key, row->unit == UNIT_PERCENT ? "%.3f" : "%.0f", value);
    else
        ag_emit_raw(json, row->key, "null");
}

static void emit_process(struct ag_emitter *json, const struct job *job,
                         const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;

    ag_emit_line(json, 1);
    ag_emit_object(json, NULL);
    ag_emit_raw(json, "rank", head->rank < 0 ? "null" : "%d", head->rank);
    ag_emit_raw(json, "pid", "%d", head->pid);
    ag_emit_string(json, "host", head->host);
    ag_emit_string(json, "program", head->program);
    ag_emit_string(json, "ended_by", head->ended_by);
    ag_emit_bool(json, "simulated", head->simulated);
    for (unsigned i = 0; i < N_FIGURES; i++) {
        double value = 0;
        bool known = figure_of(process, i, &value);

        emit_figure(json, i, known, value);
    }
    ag_emit_array(json, "outliers");
    for (unsigned i = 0; i < N_FIGURES; i++) {
        if (figure_is_outlier(job, process, i))
            ag_emit_string(json, NULL, figure_rows[i].key);
    }
    ag_emit_end(json);
    ag_emit_end(json);
}

void job_render_json(struct ag_text *text, const struct job *job)
{
    struct ag_emitter json = {.text = text};

    ag_emit_object(&json, NULL);
    ag_emit_string(&json, "schema", "allograft-job/1");
    ag_emit_string(&json, "outlier_rule", outlier_rule);
    ag_emit_array(&json, "processes");
    for (size_t i = 0; i < job->n; i++)
        emit_process(&json, job, &job->processes[i]);
    ag_emit_end(&json);
    ag_emit_object(&json, "medians");
    for (unsigned i = 0; i < N_FIGURES; i++)
        emit_figure(&json, i, job->medians[i].known, job->medians[i].value);
    ag_emit_end(&json);
    ag_emit_line(&json, 0);
    ag_emit_key(&json, "total");
    ag_render_json(text, job->total.stats, &job->total.moment, NULL);
    ag_emit_end(&json);
    ag_text_add(text, "\n");
}
