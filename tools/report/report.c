/* report.c: `allograft report` shows what processes counted, from files of counters or JSON
 * reports. */
#include "tools/base/complain.h"
#include "tools/line/command_line.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/folder.h"
#include "tools/base/output.h"
#include "tools/report/holders_view.h"
#include "tools/report/job.h"
#include "tools/report/report_list.h"

struct options {
    bool all, json, clean;
    int pid;            /* report this process, or */
    const char *name;   /* this program */
    bool was_cut;       /* the last file was incomplete */
    struct output html; /* its path is NULL unless a page was asked for */
    char **what;
    int n_what;
    struct job job; /* the processes of a page or a table */
};

/* ---- one file ------------------------------------------------------------------------------ */

/* A report from JSON gets an overview, too; one from counters is what the process would have
 * written. */
static void render_process_text(struct ag_text *text, const struct process *process)
{
    struct ag_holders_view view = holders_view(process);

    ag_render_text(text, process->stats, &process->moment, &view);
    holders_view_finish(&view);
    if (process->is_plain)
        overview_text(text, process, (double)process_elapsed_ns(process));
}

static void render_process_json(struct ag_text *text, const struct process *process)
{
    struct ag_holders_view view = holders_view(process);

    ag_render_json(text, process->stats, &process->moment, &view);
    holders_view_finish(&view);
}

/* Adds the report of the file `name` in `folder` to `text`, or to the job if that is to be shown.
 * With `n_others`, files of other builds are counted there, without a message. */
static int add_report(struct ag_text *text, int folder, const char *name, struct options *options,
                      unsigned *n_others)
{
    struct process process;
    const char *fault;

    if (folder == AT_FDCWD && job_is_trace(name)) {
        if (options->html.path)
            return job_add_trace(&options->job, name) ? STATUS_OK : STATUS_FAILED;
        command_complain(
            "%s is a trace: `allograft trace` shows it, or --html together with its report", name);
        return STATUS_FAILED;
    }
    fault = process_read(folder, name, &process);
    options->was_cut = fault == process_cut_short;
    if (fault == process_of_other_build && n_others) {
        ++*n_others;
        return STATUS_OK;
    }
    if (fault) {
        process_complain(name, fault);
        return STATUS_FAILED;
    }
    if (options->html.path || options->n_what > 1)
        return job_add(&options->job, &process) ? STATUS_OK : STATUS_FAILED;
    if (options->json)
        render_process_json(text, &process);
    else
        render_process_text(text, &process);
    process_finish(&process);
    return STATUS_OK;
}

/* ---- one job ------------------------------------------------------------------------------- */

static int print_report(struct ag_text *text)
{
    if (text->truncated) {
        command_complain("out of memory for the report");
        return STATUS_FAILED;
    }
    if (text->data)
        fwrite(text->data, 1, text->length, stdout);
    return ferror(stdout) ? STATUS_FAILED : STATUS_OK;
}

static int show_job(struct options *options)
{
    struct ag_text text = {0};
    int status = STATUS_OK;

    if (!options->job.n) {
        command_complain("report: --html needs the report of a process besides traces");
        return STATUS_FAILED;
    }
    if (!job_add_up(&options->job)) {
        command_complain("out of memory for the report");
        return STATUS_FAILED;
    }
    if (options->html.path)
        job_render_html(&text, &options->job);
    else if (options->json)
        job_render_json(&text, &options->job);
    else
        job_render_text(&text, &options->job);
    if (options->html.path && job_is_torn(&options->job))
        status = STATUS_FAILED;
    else if (options->html.path && !text.truncated)
        status = output_write(&options->html, text.data, text.length);
    else
        status = print_report(&text);
    ag_text_finish(&text);
    return status;
}

/* Shows the page, if one was asked for and it would not be empty. */
static int show_page_if_asked(struct options *options)
{
    return options->html.path && (options->job.n || options->job.n_traces) ? show_job(options)
                                                                           : STATUS_OK;
}

/* ---- many ---------------------------------------------------------------------------------- */

static int show_all(struct folder_files *files, struct options *options)
{
    struct ag_text text = {0};
    unsigned n_others = 0;
    int status = STATUS_OK;
    bool first = true, is_shown;

    if (options->json)
        ag_text_add(&text, "[");
    for (size_t i = 0; i < files->n; i++) {
        size_t n_before = options->job.n;
        struct ag_text one = {0};

        if (add_report(&one, files->folder, files->names[i], options, &n_others))
            status = STATUS_FAILED;
        if (one.data)
            ag_text_add(&text, "%s%s", first ? "" : options->json ? "," : "\n", one.data);
        else if (options->job.n == n_before && !options->was_cut)
            *files->names[i] = '\0'; /* --clean keeps it */
        first = first && !one.data;
        ag_text_finish(&one);
    }
    if (n_others)
        command_complain("%u more %s: the command that belongs to that build can read them",
                         n_others, process_of_other_build);
    if (options->json)
        ag_text_add(&text, "]\n");
    is_shown = !print_report(&text) && !show_page_if_asked(options) && !fflush(stdout);
    ag_text_finish(&text);
    for (size_t i = 0; options->clean && is_shown && i < files->n; i++)
        folder_remove_if_dead(files->folder, files->names[i]);
    return is_shown ? status : STATUS_FAILED;
}

/* Shows a list of the processes and the report of the newest. */
static int show_newest(struct folder_files *files, const char *path, struct options *options)
{
    struct ag_text text = {0};
    size_t newest;
    int status;

    report_list(&text, files, path, &newest);
    ag_text_add(&text, "\n");
    status = options->html.path ? STATUS_OK : print_report(&text);
    ag_text_finish(&text);
    if (newest < files->n) {
        memmove(files->names[0], files->names[newest], sizeof(files->names[0]));
        files->n = 1;
    }
    return show_all(files, options) ? STATUS_FAILED : status;
}

static int complain_of_none(const char *path, const struct options *options)
{
    if (options->pid)
        command_complain("process %d has no counters in %s", options->pid, path);
    else if (options->name)
        command_complain("%s: %s, and no process of that program has counters in %s", options->name,
                         access(options->name, F_OK) ? "no such file"
                                                     : "the file of that name is no report",
                         path);
    else
        command_complain("no counters of %s processes in %s", options->all ? "any" : "dead", path);
    return STATUS_FAILED;
}

/* Reports processes with counters in a folder: those asked for, all, or the newest dead one. */
static int report_folder(int folder, const char *path, struct options *options)
{
    bool chosen = options->pid || options->name;
    struct folder_files files = {.folder = folder};
    int status = folder_list(&files, options->pid, options->all || options->name);

    if (!status && options->name)
        report_list_keep(&files, options->name);
    if (status)
        command_complain("%s: %s", path, strerror(errno));
    else if (!files.n && (chosen || !options->json))
        status = complain_of_none(path, options);
    else if (files.n < 2 || chosen || options->all || options->json)
        status = show_all(&files, options);
    else
        status = show_newest(&files, path, options);
    free(files.names);
    return status;
}

static int report_own_folder(struct options *options)
{
    char path[PATH_MAX];
    int folder, status;

    if (folder_open_own(&folder, path, sizeof(path)))
        return STATUS_FAILED;
    if (folder < 0 && options->name)
        return complain_of_none(path, options);
    if (folder < 0 && !options->pid && options->json) {
        puts("[]");
        return STATUS_OK;
    }
    if (folder < 0) {
        command_complain("no process has left counters: %s does not exist", path);
        return STATUS_FAILED;
    }
    status = report_folder(folder, path, options);
    close(folder);
    return status;
}

static int report_named_folder(const char *path, struct options *options)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;

    if (folder < 0) {
        command_complain("%s: %s", path, strerror(errno));
        return STATUS_FAILED;
    }
    status = report_folder(folder, path, options);
    close(folder);
    return status;
}

static void remove_file_if_dead(const char *path)
{
    if (ag_record_file_state(AT_FDCWD, path) == AG_RECORD_DEAD && unlink(path))
        command_complain("%s: %s", path, strerror(errno));
}

static int refuse_all_of(const char *path)
{
    command_complain("report: --all goes with a folder or with nothing, not with the file %s",
                     path);
    return STATUS_USAGE;
}

static int report_path(const char *path, struct options *options)
{
    struct ag_text text = {0};
    struct stat st;
    int status;

    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return report_named_folder(path, options);
    if (options->all)
        return refuse_all_of(path);
    status = add_report(&text, AT_FDCWD, path, options, NULL);
    if (!status)
        status = print_report(&text) || show_page_if_asked(options) ? STATUS_FAILED : STATUS_OK;
    ag_text_finish(&text);
    if (!status && options->clean && !fflush(stdout))
        remove_file_if_dead(path);
    return status;
}

/* Is word `i` a file that one before it names, too, perhaps by another path? */
static bool is_given_before(const struct options *options, int i)
{
    struct stat st, before;

    if (stat(options->what[i], &st))
        return false;
    for (int k = 0; k < i; k++) {
        if (!stat(options->what[k], &before) && st.st_dev == before.st_dev &&
            st.st_ino == before.st_ino)
            return true;
    }
    return false;
}

/* Reports all files or none: a sum without one of the ranks would look complete. Patterns of a
 * shell overlap: a file counts once. */
static int report_files(struct options *options)
{
    int status = STATUS_OK;

    if (options->all)
        return refuse_all_of(options->what[0]);
    for (int i = 0; i < options->n_what; i++) {
        if (is_given_before(options, i))
            command_complain("%s: given twice, counted once", options->what[i]);
        else if (add_report(NULL, AT_FDCWD, options->what[i], options, NULL))
            status = STATUS_FAILED;
    }
    if (status == STATUS_OK)
        status = show_job(options);
    for (int i = 0; status == STATUS_OK && options->clean && !fflush(stdout) && i < options->n_what;
         i++)
        remove_file_if_dead(options->what[i]);
    return status;
}

/* ---- options ------------------------------------------------------------------------------- */

/* Does the word name what can be reported? The program itself often lies in the current folder. */
static bool is_reportable(const char *word)
{
    struct stat st;

    return !stat(word, &st) &&
           (!S_ISREG(st.st_mode) || job_is_trace(word) || process_is_kind_of_report(word));
}

/* A number is a process id, unless a report has that name. */
static int pid_in(const char *word)
{
    size_t digits = strspn(word, "0123456789");

    return digits && digits < 10 && !word[digits] && !is_reportable(word) ? atoi(word) : 0;
}

/* A word without a slash is the name of a program, unless a report has that name. */
static bool is_program(const char *word)
{
    return *word && !strchr(word, '/') && !is_reportable(word);
}

static int read_report_words(const struct command_line *line, struct options *options)
{
    options->what = line->words;
    options->n_what = line->n_words;
    for (size_t i = 0; i < line->n_given; i++) {
        options->all |= line->given[i].option == OPTION_report_all;
        options->json |= line->given[i].option == OPTION_report_json;
        options->html.force |= line->given[i].option == OPTION_report_force;
        options->clean |= line->given[i].option == OPTION_report_clean;
        if (line->given[i].option == OPTION_report_html)
            options->html.path = line->given[i].value;
    }
    for (int i = 0; options->n_what > 1 && i < options->n_what; i++) {
        if (pid_in(options->what[i])) {
            command_complain("report: give one process, or several files");
            return STATUS_USAGE;
        }
    }
    if (options->json && options->html.path) {
        command_complain("report: give --json or --html, not both");
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int report(struct options *options)
{
    if (options->n_what > 1)
        return report_files(options);
    if (options->n_what)
        options->pid = pid_in(options->what[0]);
    if (options->n_what && !options->pid && is_program(options->what[0]))
        options->name = options->what[0];
    if (!options->n_what || options->pid || options->name)
        return report_own_folder(options);
    return report_path(options->what[0], options);
}

int command_report(const struct command_line *line)
{
    struct options options = {
        .html = {.command = "report", .option = "--html", .kind = OUTPUT_PAGE}};
    int status;

    if (read_report_words(line, &options))
        return STATUS_USAGE;
    for (int i = 0; i < options.n_what; i++)
        output_keep_path(options.what[i]);
    if (options.html.path && output_check(&options.html))
        return STATUS_FAILED;
    status = report(&options);
    job_finish(&options.job);
    return status;
}
