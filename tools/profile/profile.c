/* profile.c: `allograft profile` runs a program and makes a page of what its processes did. */
#include "tools/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "interpose/core/report/unused.h"
#include "interpose/core/report/verdict/verdict.h"
#include "tools/base/complain.h"
#include "tools/base/output.h"

static void read_output_word(const struct command_line *line, struct output *ret)
{
    for (size_t i = 0; i < line->n_given; i++) {
        if (line->given[i].option == OPTION_profile_output)
            ret->path = line->given[i].value;
        ret->force |= line->given[i].option == OPTION_profile_force;
    }
}

/* The page must not replace a file that the program is given. */
static void keep_inputs(char **argv)
{
    const char *config = getenv("ALLOGRAFT_CONFIG");

    for (size_t i = 0; argv[i]; i++)
        output_keep_path(argv[i]);
    if (config)
        output_keep_path(config);
}

/* The lines that would have ended the program's own output, and where the page is. */
static void say_what_came(const struct job *job, const struct output *output)
{
    struct ag_text text = {0};

    ag_verdict_text(&text, job->total.stats, &job->total.moment);
    fputs(text.data ? text.data : "", stderr);
    ag_text_finish(&text);
    command_complain("profile: the page of %zu process%s is %s", job->n, job->n == 1 ? "" : "es",
                     output->path);
}

static int write_page(struct job *job, struct output *output)
{
    struct ag_text text = {0};
    int status = STATUS_FAILED;

    if (job_add_up(job))
        job_render_html(&text, job);
    if (!text.data || text.truncated)
        command_complain("profile: out of memory for the page");
    else if (!job_is_torn(job))
        status = output_write(output, text.data, text.length);
    ag_text_finish(&text);
    if (status == STATUS_OK)
        say_what_came(job, output);
    return status;
}

/* *ret_kept: files are left in the folder that no page shows. */
static int make_page(const struct profile_folder *folder, struct output *output,
                     const char *program, bool *ret_kept)
{
    struct profile_traces traces = {0};
    struct job job = {0};
    unsigned n_failed = profile_add(folder, &job, &traces);
    int status = STATUS_FAILED;

    if (job.n)
        status = write_page(&job, output);
    else if (!n_failed)
        command_complain(
            "profile: neither %s nor what it started made a CUDA call that came through, so there "
            "is no page. " AG_UNUSED_REASONS,
            program);
    *ret_kept = status != STATUS_OK && (job.n || n_failed);
    job_finish(&job);
    profile_traces_free(&traces);
    return n_failed ? STATUS_FAILED : status;
}

int command_profile(const struct command_line *line)
{
    struct output output = {
        .command = "profile", .option = "--output", .kind = OUTPUT_PAGE, .path = "profile.html"};
    struct profile_folder folder;
    bool has_started, kept = false;
    int status, made = STATUS_OK;

    read_output_word(line, &output);
    keep_inputs(line->words);
    if (output_check(&output) != STATUS_OK || !profile_folder_make(&folder))
        return STATUS_FAILED;
    status = profile_run(line, &folder, &has_started);
    if (has_started)
        made = make_page(&folder, &output, line->words[0], &kept);
    if (kept)
        profile_folder_keep(&folder);
    else
        profile_folder_remove(&folder);
    return status ? status : made;
}
