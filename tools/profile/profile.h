/* profile.h: the parts of `allograft profile`: the run, and the files that it leaves. */
#ifndef TOOLS_PROFILE_H
#define TOOLS_PROFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/line/command_line.h"
#include "tools/report/job.h"

/* Where the processes of the program write; removed at the end. */
struct profile_folder {
    char path[PATH_MAX];          /* reports and traces */
    char counters[PATH_MAX + 16]; /* of processes that did not end by themselves */
};

/* Runs the program to its end, as the options say. Signals that end a program are the program's:
 * those of a terminal reach it by themselves, others are passed on. Returns its exit status as
 * shells have it. *ret_started: the program began; if not, a line on stderr has said why. */
int profile_run(const struct command_line *line, const struct profile_folder *folder,
                bool *ret_started);

/* Makes the folder; removes it with all that is in it. */
bool profile_folder_make(struct profile_folder *ret);
void profile_folder_remove(const struct profile_folder *folder);
/* Leaves the folder, where no page could be made of what is in it, and says so on stderr. */
void profile_folder_keep(const struct profile_folder *folder);

/* Names of traces, which must outlive the job. */
struct profile_traces {
    char **paths;
    size_t n, capacity;
};

/* Adds the reports, counters and traces in the folder to the job. Returns how many of them could
 * not be read, each after a line on stderr. */
unsigned profile_add(const struct profile_folder *folder, struct job *job,
                     struct profile_traces *traces);
void profile_traces_free(struct profile_traces *traces);

#endif
