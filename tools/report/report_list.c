/* report_list.c: lists files of counters with their processes: see report_list.h. */
#include "tools/report/report_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "interpose/core/base/clock.h"
#include "tools/report/job.h"
#include "tools/report/process.h"

/* Writes when the process began, in local time. After a reboot its own clock means nothing; the
 * file's time is close. */
static void began_text(char *buffer, size_t size, int folder, const char *name,
                       const struct process *process)
{
    uint64_t now = ag_clock_ns();
    struct ag_record_owner owner = {0};
    time_t when = time(NULL);
    struct stat st;
    struct tm local;

    (void)ag_record_parse_name(name, &owner);
    if (process ? process->moment.ns != 0 : owner.started_ns < now)
        when -= (time_t)((now - owner.started_ns) / 1000000000u);
    else if (!fstatat(folder, name, &st, 0))
        when = st.st_mtime;
    if (!localtime_r(&when, &local) || !strftime(buffer, size, "%Y-%m-%d %H:%M:%S", &local))
        snprintf(buffer, size, "-");
}

/* How a process ended, or why that is not known; most have a note below the table. */
enum ending { KILLED, BY_ITSELF, CUT_SHORT, OTHER_BUILD, UNREADABLE, N_ENDINGS };

static const char *const notes[N_ENDINGS] = {
    [BY_ITSELF] = "exit: it ended normally, but its report could not be written\n",
    [CUT_SHORT] =
        ("cut short: killed, or the disk was full, before its counters were written; they cannot\n"
         "  be read, and `allograft report --all --clean` removes them\n"),
    [OTHER_BUILD] = "other build: the command that belongs to that build can read it\n",
    [UNREADABLE] = "unreadable: `allograft report --all` says why\n",
};

static enum ending ending_of(const char *fault, const struct process *process)
{
    if (fault == process_cut_short)
        return CUT_SHORT;
    if (fault)
        return fault == process_of_other_build ? OTHER_BUILD : UNREADABLE;
    return strcmp(process->stats->head.ended_by, "killed") != 0 ? BY_ITSELF : KILLED;
}

static const char *ended_text(enum ending ending, const struct process *process)
{
    static const char *const words[N_ENDINGS] = {
        [CUT_SHORT] = "cut short", [OTHER_BUILD] = "other build", [UNREADABLE] = "unreadable"};

    return words[ending] ? words[ending] : process->stats->head.ended_by;
}

/* Fills in the figures of a process that could be read. */
static void figures_text(struct process *process, char allocs[32], char peak[32])
{
    double value;

    process_make_plain(process);
    if (figure_of(process, FIGURE_ALLOCS, &value))
        (void)unit_text(allocs, 32, UNIT_COUNT, value);
    if (figure_of(process, FIGURE_PEAK, &value))
        (void)unit_text(peak, 32, UNIT_BYTES, value);
}

static enum ending add_file_line(struct ag_text *text, int folder, const char *name)
{
    char began[32], allocs[32] = "-", peak[32] = "-";
    struct ag_record_owner owner = {0};
    struct process process = {.stats = NULL};
    const char *fault = process_read(folder, name, &process);
    enum ending ending = ending_of(fault, &process);

    (void)ag_record_parse_name(name, &owner);
    began_text(began, sizeof(began), folder, name, fault ? NULL : &process);
    if (!fault)
        figures_text(&process, allocs, peak);
    ag_text_add(text, "  %8d  %-19s  %-16s  %-11s %6s %10s\n", owner.pid, began,
                fault ? "-" : process.stats->head.program, ended_text(ending, &process), allocs,
                peak);
    process_finish(&process);
    return ending;
}

void report_list(struct ag_text *text, const struct folder_files *files, const char *path,
                 size_t *ret_newest)
{
    bool met[N_ENDINGS] = {false};

    ag_text_add(text, "Dead processes that left counters in %s, newest last:\n", path);
    ag_text_add(text, "  %8s  %-19s  %-16s  %-11s %6s %10s\n", "process", "began", "program",
                "ended", "allocs", "peak");
    *ret_newest = files->n;
    for (size_t i = files->n; i-- > 0;) {
        enum ending ending = add_file_line(text, files->folder, files->names[i]);

        met[ending] = true;
        if (ending == KILLED || ending == BY_ITSELF)
            *ret_newest = i;
    }
    for (unsigned i = 0; i < N_ENDINGS; i++)
        ag_text_add(text, "%s", met[i] && notes[i] ? notes[i] : "");
    ag_text_add(
        text, "To report another one: allograft report PROCESS or PROGRAM; to report all: --all\n");
}

void report_list_keep(struct folder_files *files, const char *program)
{
    size_t n = 0;

    for (size_t i = 0; i < files->n; i++) {
        struct process process;

        if (process_read(files->folder, files->names[i], &process))
            continue;
        if (!strcmp(process.stats->head.program, program) && n++ != i)
            memcpy(files->names[n - 1], files->names[i], sizeof(files->names[i]));
        process_finish(&process);
    }
    files->n = n;
}
