/* metrics.h: `allograft top --prometheus`: the counters of running processes in the text format of
 * OpenMetrics 1.0, in a file or over HTTP. */
#ifndef TOOLS_METRICS_H
#define TOOLS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/text.h"
#include "tools/base/folder.h"
#include "tools/report/process.h"

/* Renders the processes that run and have their counters in these folders. False if memory runs out
 * or a folder cannot be read. */
bool metrics_render(const struct folders *folders, struct ag_text *text);

/* Opens the folders, which may come into being later. Returns an exit status; the caller closes
 * what there is. */
typedef int (*metrics_open)(void *data, struct folders *ret);

struct metrics {
    metrics_open open;
    void *data;
    const char *where; /* a file, "-", a port, or ADDRESS:PORT */
    double interval;   /* seconds between two versions of the file */
    bool once;
};

/* Exports until a signal ends it; once to standard output, or if asked. Returns an exit status. */
int metrics_export(const struct metrics *metrics);

/* ---- metrics_read.c ------------------------------------------------------------------------ */

struct metrics_process {
    struct process process; /* plain */
    unsigned uid;           /* of its file */
    unsigned slot;          /* 0, 1, ...: among those of its user, program and rank */
};

struct metrics_processes {
    struct metrics_process *list;
    size_t n, capacity;
};

/* Reads the processes that run. False if memory runs out or a folder cannot be read; finished
 * either way. Keeps the slots of the last time: of one thread at a time. */
bool metrics_read(const struct folders *folders, struct metrics_processes *ret);
void metrics_finish(struct metrics_processes *processes);

/* ---- metrics_http.c ------------------------------------------------------------------------ */

/* Where to listen: "127.0.0.1", "0.0.0.0", "[::]" ... */
struct metrics_address {
    char text[64];
    bool is_v6;
    uint8_t bytes[16]; /* in the order of the network */
    uint16_t port;     /* 0: one that is free */
};

/* Serves http://ADDRESS:PORT/metrics until a signal ends it. Returns an exit status. */
int metrics_serve(const struct metrics *metrics, const struct metrics_address *address);

#endif
