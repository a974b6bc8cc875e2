/* `allograft report`: what processes counted, out of their counters' files or their JSON reports.
 */
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
#include "tools/report/job.h"
#include "tools/report/report_list.h"

struct wishes {
    bool all, json, clean;
    int pid;            /* of this process, or */
    const char *name;   /* of this program */
    bool was_cut;       /* the file looked at last */
    struct output html; /* its path is NULL where no page is wanted */
    char **what;
    int n_what;
    struct job job; /* for one page, or one table, of many */
};

/* ---- one file ------------------------------------------------------------------------------ */

/* Of JSON with what only the command says; of counters as the process itself would have put it. */
static void render_text(struct ag_text *text, const struct process *process)
{
    ag_render_text(text, process->stats, &process->moment);
    if (process->is_plain)
        overview_text(text, process, (double)process_elapsed_ns(process));
}

/* Adds the report of the file `name` in `folder` to `text`, or to the job that is wished for. With
 * `n_others`, files of other builds are counted there and nothing is said. */
static int add_report(struct ag_text *text, int folder, const char *name, struct wishes *wishes,
                      unsigned *n_others)
{
    struct process process;
    const char *fault;

    if (folder == AT_FDCWD && job_is_trace(name)) {
        if (wishes->html.path)
            return job_add_trace(&wishes->job, name) ? STATUS_OK : STATUS_FAILED;
        command_complain("%s is a trace: `allograft trace` shows it, and --html with its report",
                         name);
        return STATUS_FAILED;
    }
    fault = process_read(folder, name, &process);
    wishes->was_cut = fault == process_cut_short;
    if (fault == process_of_other_build && n_others) {
        ++*n_others;
        return STATUS_OK;
    }
    if (fault) {
        process_complain(name, fault);
        return STATUS_FAILED;
    }
    if (wishes->html.path || wishes->n_what > 1)
        return job_add(&wishes->job, &process) ? STATUS_OK : STATUS_FAILED;
    if (wishes->json)
        ag_render_json(text, process.stats, &process.moment);
    else
        render_text(text, &process);
    process_finish(&process);
    return STATUS_OK;
}

/* ---- one job ------------------------------------------------------------------------------- */

static int print(struct ag_text *text)
{
    if (text->truncated) {
        command_complain("no memory for the whole report");
        return STATUS_FAILED;
    }
    if (text->data)
        fwrite(text->data, 1, text->length, stdout);
    return ferror(stdout) ? STATUS_FAILED : STATUS_OK;
}

static int show_job(struct wishes *wishes)
{
    struct ag_text text = {0};
    int status = STATUS_OK;

    if (!wishes->job.n) {
        command_complain("a page needs the report of a process beside traces");
        return STATUS_FAILED;
    }
    if (!job_add_up(&wishes->job)) {
        command_complain("no memory for the whole report");
        return STATUS_FAILED;
    }
    if (wishes->html.path)
        job_render_html(&text, &wishes->job);
    else if (wishes->json)
        job_render_json(&text, &wishes->job);
    else
        job_render_text(&text, &wishes->job);
    if (wishes->html.path && job_is_torn(&wishes->job))
        status = STATUS_FAILED;
    else if (wishes->html.path && !text.truncated)
        status = output_write(&wishes->html, text.data, text.length);
    else
        status = print(&text);
    ag_text_finish(&text);
    return status;
}

/* The page, if one is wanted and there is something on it. */
static int show_page(struct wishes *wishes)
{
    return wishes->html.path && (wishes->job.n || wishes->job.n_traces) ? show_job(wishes)
                                                                        : STATUS_OK;
}

/* ---- many ---------------------------------------------------------------------------------- */

static int show_all(struct folder_files *files, struct wishes *wishes)
{
    struct ag_text text = {0};
    unsigned n_others = 0;
    int status = STATUS_OK;
    bool first = true, is_shown;

    if (wishes->json)
        ag_text_add(&text, "[");
    for (size_t i = 0; i < files->n; i++) {
        size_t n_before = wishes->job.n;
        struct ag_text one = {0};

        if (add_report(&one, files->folder, files->names[i], wishes, &n_others))
            status = STATUS_FAILED;
        if (one.data)
            ag_text_add(&text, "%s%s", first ? "" : wishes->json ? "," : "\n", one.data);
        else if (wishes->job.n == n_before && !wishes->was_cut)
            *files->names[i] = '\0'; /* somebody may want it */
        first = first && !one.data;
        ag_text_finish(&one);
    }
    if (n_others)
        command_complain("%u more %s: the command that lies beside its library shows them",
                         n_others, process_of_other_build);
    if (wishes->json)
        ag_text_add(&text, "]\n");
    is_shown = !print(&text) && !show_page(wishes) && !fflush(stdout);
    ag_text_finish(&text);
    for (size_t i = 0; wishes->clean && is_shown && i < files->n; i++)
        folder_remove_if_dead(files->folder, files->names[i]);
    return is_shown ? status : STATUS_FAILED;
}

/* A list of them, and what the newest counted. */
static int show_newest(struct folder_files *files, const char *path, struct wishes *wishes)
{
    struct ag_text text = {0};
    size_t newest;
    int status;

    report_list(&text, files, path, &newest);
    ag_text_add(&text, "\n");
    status = wishes->html.path ? STATUS_OK : print(&text);
    ag_text_finish(&text);
    if (newest < files->n) {
        memmove(files->names[0], files->names[newest], sizeof(files->names[0]));
        files->n = 1;
    }
    return show_all(files, wishes) ? STATUS_FAILED : status;
}

static int complain_of_none(const char *path, const struct wishes *wishes)
{
    if (wishes->pid)
        command_complain("process %d has no counters in %s", wishes->pid, path);
    else if (wishes->name)
        command_complain("%s: no such file, and no process of that program has counters in %s",
                         wishes->name, path);
    else
        command_complain("no counters of %s processes in %s", wishes->all ? "any" : "dead", path);
    return STATUS_FAILED;
}

/* Processes with counters in a folder: those asked for, all, or the newest of the dead ones. */
static int report_folder(int folder, const char *path, struct wishes *wishes)
{
    bool chosen = wishes->pid || wishes->name;
    struct folder_files files = {.folder = folder};
    int status = folder_list(&files, wishes->pid, wishes->all || wishes->name);

    if (!status && wishes->name)
        report_list_keep(&files, wishes->name);
    if (status)
        command_complain("%s: %s", path, strerror(errno));
    else if (!files.n && (chosen || !wishes->json))
        status = complain_of_none(path, wishes);
    else if (files.n < 2 || chosen || wishes->all || wishes->json)
        status = show_all(&files, wishes);
    else
        status = show_newest(&files, path, wishes);
    free(files.names);
    return status;
}

static int report_own_folder(struct wishes *wishes)
{
    char path[PATH_MAX];
    int folder, status;

    if (folder_open_own(&folder, path, sizeof(path)))
        return STATUS_FAILED;
    if (folder < 0 && wishes->name)
        return complain_of_none(path, wishes);
    if (folder < 0 && !wishes->pid && wishes->json) {
        puts("[]");
        return STATUS_OK;
    }
    if (folder < 0) {
        command_complain("no process has left counters: there is no %s", path);
        return STATUS_FAILED;
    }
    status = report_folder(folder, path, wishes);
    close(folder);
    return status;
}

static int report_named_folder(const char *path, struct wishes *wishes)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;

    if (folder < 0) {
        command_complain("%s: %s", path, strerror(errno));
        return STATUS_FAILED;
    }
    status = report_folder(folder, path, wishes);
    close(folder);
    return status;
}

static void remove_file_if_dead(const char *path)
{
    if (ag_record_file_state(AT_FDCWD, path) == AG_RECORD_DEAD && unlink(path))
        command_complain("%s: %s", path, strerror(errno));
}

static int report_path(const char *path, struct wishes *wishes)
{
    struct ag_text text = {0};
    struct stat st;
    int status;

    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return report_named_folder(path, wishes);
    status = add_report(&text, AT_FDCWD, path, wishes, NULL);
    if (!status)
        status = print(&text) || show_page(wishes) ? STATUS_FAILED : STATUS_OK;
    ag_text_finish(&text);
    if (!status && wishes->clean && !fflush(stdout))
        remove_file_if_dead(path);
    return status;
}

/* All of them or none: a sum that lacks a rank looks like one that does not. */
static int report_files(struct wishes *wishes)
{
    int status = STATUS_OK;

    for (int i = 0; i < wishes->n_what; i++) {
        if (add_report(NULL, AT_FDCWD, wishes->what[i], wishes, NULL))
            status = STATUS_FAILED;
    }
    if (status == STATUS_OK)
        status = show_job(wishes);
    for (int i = 0; status == STATUS_OK && wishes->clean && !fflush(stdout) && i < wishes->n_what;
         i++)
        remove_file_if_dead(wishes->what[i]);
    return status;
}

/* ---- words --------------------------------------------------------------------------------- */

/* A number that names no file is a process. */
static int pid_in(const char *word)
{
    size_t digits = strspn(word, "0123456789");

    return digits && digits < 10 && !word[digits] && access(word, F_OK) ? atoi(word) : 0;
}

/* A word that names no file, and would not name one elsewhere. */
static bool may_be_program(const char *word)
{
    return *word && !strchr(word, '/') && access(word, F_OK);
}

static int take_words(const struct command_line *line, struct wishes *wishes)
{
    wishes->what = line->words;
    wishes->n_what = line->n_words;
    for (size_t i = 0; i < line->n_given; i++) {
        wishes->all |= line->given[i].option == OPTION_report_all;
        wishes->json |= line->given[i].option == OPTION_report_json;
        wishes->html.force |= line->given[i].option == OPTION_report_force;
        wishes->clean |= line->given[i].option == OPTION_report_clean;
        if (line->given[i].option == OPTION_report_html)
            wishes->html.path = line->given[i].value;
    }
    for (int i = 0; wishes->n_what > 1 && i < wishes->n_what; i++) {
        if (pid_in(wishes->what[i])) {
            command_complain("report: one process at a time, or several files");
            return STATUS_USAGE;
        }
    }
    if (wishes->json && wishes->html.path) {
        command_complain("report: --json or --html, not both");
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int report(struct wishes *wishes)
{
    if (wishes->n_what > 1)
        return report_files(wishes);
    if (wishes->n_what)
        wishes->pid = pid_in(wishes->what[0]);
    if (wishes->n_what && !wishes->pid && may_be_program(wishes->what[0]))
        wishes->name = wishes->what[0];
    if (!wishes->n_what || wishes->pid || wishes->name)
        return report_own_folder(wishes);
    return report_path(wishes->what[0], wishes);
}

int command_report(const struct command_line *line)
{
    struct wishes wishes = {.html = {.command = "report", .option = "--html", .kind = OUTPUT_PAGE}};
    int status;

    if (take_words(line, &wishes))
        return STATUS_USAGE;
    for (int i = 0; i < wishes.n_what; i++)
        output_keep_path(wishes.what[i]);
    if (wishes.html.path && output_check(&wishes.html))
        return STATUS_FAILED;
    status = report(&wishes);
    job_finish(&wishes.job);
    return status;
}
