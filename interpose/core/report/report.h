/* The report of this process: what it says about the process, and where it is written at the end.
 * Makes no driver call. */
#ifndef AG_REPORT_H
#define AG_REPORT_H

#include <stdbool.h>

#include "interpose/core/settings/options.h"

/* Fills the counters' head: this process and its settings. Once, at the start. */
void ag_report_describe(const struct ag_options *options);
/* The driver that was found, and why nothing is redirected, or NULL. */
void ag_report_describe_driver(const char *trouble);
/* Is there to be a report with all counts, not only with what they come to? */
bool ag_report_has_counts(const struct ag_options *options);
/* Writes the report where options->stats says; `ended_by`: "exit", "_exit", "quick_exit", "exec". A
 * forked child that called nothing of the driver writes none. 0 or -errno. */
int ag_report_write(const struct ag_options *options, const char *ended_by);
/* The report as it is now, to `where` as ALLOGRAFT_STATS has it; the process goes on. 0 or
 * -errno. */
int ag_report_write_to(const char *where);
/* From now on this is a forked child: all counters are zero, and a file without %p in its name gets
 * the process id appended. */
void ag_report_begin_child(void);
bool ag_report_is_in_child(void);
/* Is it a child of which no call came? There is nothing to tell. */
bool ag_report_is_empty(void);
/* Does this process have a GPU's device file open? */
bool ag_report_gpu_is_open(void);

#endif
