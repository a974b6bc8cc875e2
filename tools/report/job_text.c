/* job_text.c: renders a job as text and as JSON: a table of ranks, then their sum as a report. */
#include "tools/report/job.h"

#include <stdio.h>
#include <string.h>

/* ---- text ---------------------------------------------------------------------------------- */

static void add_title(struct ag_text *text, const struct job *job)
{
    const struct ag_stats_head *head = &job->total.stats->head;
    char elapsed[32];

    ag_text_add(text, "allograft %s: %zu processes of %s, host %s", head->version, job->n,
                head->program, head->host);
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

static void add_table(struct ag_text *text, const struct job *job)
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

    add_title(text, job);
    add_table(text, job);
    ag_text_add(text, "  all together (devices of one model share a row; a peak is the sum of the "
                      "processes' peaks)\n");
    ag_render_text(&sum, job->total.stats, &job->total.moment);
    rest = sum.data ? strchr(sum.data, '\n') : NULL; /* skips the title */
    ag_text_add(text, "%s", rest ? rest + 1 : "");
    text->truncated |= sum.truncated;
    ag_text_finish(&sum);
    overview_text(text, &job->total, job->elapsed_ns);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void add_number(struct ag_text *text, enum unit unit, bool known, double value)
{
    if (!known)
        ag_text_add(text, "null");
    else
        ag_text_add(text, unit == UNIT_PERCENT ? "%.3f" : "%.0f", value);
}

static void add_process(struct ag_text *text, const struct job *job, const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;
    bool first = true;

    ag_text_add(text, " {\"rank\":");
    add_number(text, UNIT_COUNT, head->rank >= 0, head->rank);
    ag_text_add(text, ",\"pid\":%d,\"host\":", head->pid);
    ag_text_add_json(text, head->host);
    ag_text_add(text, ",\"program\":");
    ag_text_add_json(text, head->program);
    ag_text_add(text, ",\"ended_by\":");
    ag_text_add_json(text, head->ended_by);
    ag_text_add(text, ",\"simulated\":%s", head->simulated ? "true" : "false");
    for (unsigned i = 0; i < N_FIGURES; i++) {
        double value = 0;
        bool known = figure_of(process, i, &value);

        ag_text_add(text, ",\"%s\":", figure_rows[i].key);
        add_number(text, figure_rows[i].unit, known, value);
    }
    ag_text_add(text, ",\"outliers\":[");
    for (unsigned i = 0; i < N_FIGURES; i++) {
        if (!figure_is_outlier(job, process, i))
            continue;
        ag_text_add(text, "%s\"%s\"", first ? "" : ",", figure_rows[i].key);
        first = false;
    }
    ag_text_add(text, "]}");
}

void job_render_json(struct ag_text *text, const struct job *job)
{
    ag_text_add(text,
                "{\"schema\":\"allograft-job/1\",\n\"outlier_rule\":\"%s\",\n\"processes\":[\n",
                outlier_rule);
    for (size_t i = 0; i < job->n; i++) {
        add_process(text, job, &job->processes[i]);
        ag_text_add(text, i + 1 < job->n ? ",\n" : "],\n");
    }
    ag_text_add(text, "\"medians\":{");
    for (unsigned i = 0; i < N_FIGURES; i++) {
        ag_text_add(text, "%s\"%s\":", i ? "," : "", figure_rows[i].key);
        add_number(text, figure_rows[i].unit, job->medians[i].known, job->medians[i].value);
    }
    ag_text_add(text, "},\n\"total\":");
    ag_render_json(text, job->total.stats, &job->total.moment);
    ag_text_add(text, "}\n");
}
