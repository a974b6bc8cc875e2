/* The report at exit: what happened, as text or JSON. Makes no driver call. */
#ifndef AG_REPORT_H
#define AG_REPORT_H

#include <stdbool.h>

#include "options.h"

/* Writes the report where options->stats says. */
void ag_report_write(const struct ag_options *options);
/* From now on this is a forked child: a file without %p in its name gets the process id appended. */
void ag_report_in_child(void);
/* Does this process have a GPU's device file open? */
bool ag_report_gpu_is_open(void);

#endif
