/* metrics.h: `allograft top --prometheus`: the counters of running processes in the text format of
 * OpenMetrics 1.0, in a file or over HTTP on the loopback interface. */
#ifndef TOOLS_METRICS_H
#define TOOLS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/base/text.h"

/* Renders the processes that run and have their counters in `folder` (-1: nobody has any). False if
 * memory runs out or the folder cannot be read. */
bool metrics_render(int folder, struct ag_text *text);

/* Opens the folder, which may come into being later: *ret is -1 then. Returns an exit status. */
typedef int (*metrics_open)(void *data, int *ret);

struct metrics {
    metrics_open open;
    void *data;
    const char *where; /* a file, "-", or a port */
    double interval;   /* seconds between two versions of the file */
    bool once;
};

/* Exports until a signal ends it; once to standard output, or if asked. Returns an exit status. */
int metrics_export(const struct metrics *metrics);

/* ---- metrics_http.c ------------------------------------------------------------------------ */

/* Serves http://127.0.0.1:PORT/metrics until a signal ends it; port 0 takes one that is free.
 * Returns an exit status. */
int metrics_serve(const struct metrics *metrics, uint16_t port);

#endif
