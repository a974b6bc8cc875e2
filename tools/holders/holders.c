/* holders.c: `allograft top --holders` and `allograft snapshot` look at one process. Its tables lie
 * in its file of counters, so it is neither asked nor stopped. */
#include "tools/holders/holders.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/report/waits/render_waits.h"
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/base/output.h"
#include "tools/line/command_line.h"
#include "tools/report/holders_view.h"
#include "tools/trace/torch_snapshot.h"

/* ---- one process --------------------------------------------------------------------------- */

static int pid_of(const char *word)
{
    size_t digits = strspn(word, "0123456789");

    return digits && digits < 10 && !word[digits] ? atoi(word) : 0;
}

static int read_newest(int folder, const char *path, int pid, struct process *ret)
{
    struct folder_files files = {.folder = folder};
    int status = folder_list(&files, pid, true);

    if (status)
        command_complain("%s: %s", path, strerror(errno));
    else if (!files.n)
        command_complain("process %d has no counters in %s", pid, path);
    else if (process_read_or_say(folder, files.names[0], ret)) {
        free(files.names);
        return STATUS_OK;
    }
    free(files.names);
    return STATUS_FAILED;
}

/* The folder of that name, or the one of the settings, of which *ret is -1 if it is not there. */
static int open_counters(const char *named, int *ret, char *path, size_t capacity)
{
    if (!named)
        return folder_open_own(ret, path, capacity);
    snprintf(path, capacity, "%s", named);
    *ret = open(named, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret >= 0)
        return STATUS_OK;
    command_complain("%s: %s", named, strerror(errno));
    return STATUS_FAILED;
}

/* The process of that id, the newest one if there were several. */
static int read_newest_process(const char *command, const char *word, const char *named,
                               struct process *ret)
{
    char path[PATH_MAX];
    int pid = pid_of(word), folder, status;

    if (!pid) {
        command_complain("%s: %s is no process id; allowed: a number from 1 to 999999999", command,
                         word);
        return STATUS_USAGE;
    }
    if (open_counters(named, &folder, path, sizeof(path)))
        return STATUS_FAILED;
    if (folder < 0) {
        command_complain("process %d has no counters: %s does not exist", pid, path);
        return STATUS_FAILED;
    }
    status = read_newest(folder, path, pid, ret);
    close(folder);
    return status;
}

static int print_holders(const struct ag_text *text)
{
    if (text->truncated) {
        command_complain("out of memory for the report");
        return STATUS_FAILED;
    }
    if (text->data)
        (void)fwrite(text->data, 1, text->length, stdout);
    return ferror(stdout) ? STATUS_FAILED : STATUS_OK;
}

int holders_show(const char *pid, const char *folder)
{
    struct ag_text text = {0};
    struct ag_holders_view view;
    struct process process;
    int status = read_newest_process("top", pid, folder, &process);

    if (status)
        return status;
    view = holders_view(&process);
    if (view.holders) {
        ag_text_add(&text, "%s (process %d), %s\n", process.stats->head.program,
                    process.stats->head.pid, process.stats->head.ended_by);
        ag_render_holders_text(&text, &view);
        ag_render_waits_text(&text, &view);
        status = print_holders(&text);
    } else {
        command_complain(
            "process %s takes no stacks: start it with ALLOGRAFT_STACKS=16 or ALLOGRAFT_WAITS=1",
            pid);
        status = STATUS_FAILED;
    }
    holders_view_finish(&view);
    ag_text_finish(&text);
    process_finish(&process);
    return status;
}

/* ---- snapshots ----------------------------------------------------------------------------- */

static int print_json(const struct process *process, const struct ag_holders_view *view)
{
    struct ag_text text = {0};
    int status;

    ag_render_json(&text, process->stats, &process->moment, view);
    status = print_holders(&text);
    ag_text_finish(&text);
    return status;
}

static int write_torch(const struct process *process, const struct ag_holders_view *view,
                       struct output *output)
{
    const struct ag_stats_head *head = &process->stats->head;
    char about[600];
    int status;
    bool good;

    if (!view->holders) {
        command_complain("process %d takes no stacks: start it with ALLOGRAFT_STACKS=16",
                         head->pid);
        return STATUS_FAILED;
    }
    status = output_open(output);
    if (status)
        return status;
    snprintf(about, sizeof(about), "%s (process %d), %s: live blocks by stack", head->program,
             head->pid, head->ended_by);
    good = torch_write_holders(view, about, output->file);
    if (!good)
        command_complain("snapshot: %s", strerror(ENOMEM));
    return output_close(output, good);
}

int command_snapshot(const struct command_line *line)
{
    struct output torch = {
        .command = "snapshot", .option = "--torch-snapshot", .kind = OUTPUT_TORCH};
    struct ag_holders_view view;
    struct process process;
    int status;

    for (size_t i = 0; i < line->n_given; i++) {
        if (line->given[i].option == OPTION_snapshot_force)
            torch.force = true;
        else
            torch.path = line->given[i].value;
    }
    status = torch.path ? output_check(&torch) : STATUS_OK;
    status = status ? status : read_newest_process("snapshot", line->words[0], NULL, &process);
    if (status)
        return status;
    view = holders_view(&process);
    status = torch.path ? write_torch(&process, &view, &torch) : print_json(&process, &view);
    holders_view_finish(&view);
    process_finish(&process);
    return status;
}
