/* Tells what should fail a job: see errors_file.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/errors/errors_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/report/errors/first_error.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/verdict/sums.h"

static char path[PATH_MAX];

void ag_errors_begin(void)
{
    const char *value = getenv(AG_ERRORS_VARIABLE);

    if (value && strlen(value) < sizeof(path))
        memcpy(path, value, strlen(value) + 1);
}

bool ag_errors_are_wanted(void)
{
    return *path != '\0';
}

static void describe_failure(struct ag_text *text)
{
    unsigned long long left = ag_sum_left(&ag_stats).blocks, found = ag_stats.n_guard_findings;
    char error[256];

    if (*ag_first_error_text(&ag_stats, error, sizeof(error)))
        ag_text_add(text, "%s", error);
    if (found)
        ag_text_add(text, "%sguards found %llu damaged block%s", text->length ? "; " : "", found,
                    found == 1 ? "" : "s");
    if (left)
        ag_text_add(text, "%s%llu block%s never freed", text->length ? "; " : "", left,
                    left == 1 ? " was" : "s were");
}

void ag_errors_tell(void)
{
    struct ag_text what = {0}, line = {0};
    int fd;

    describe_failure(&what);
    if (!what.length)
        return;
    ag_text_add(&line, "%s (process %d): %s\n", ag_stats.head.program, ag_stats.head.pid,
                what.data);
    fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        (void)ag_text_write(&line, fd);
        close(fd);
    }
    ag_text_finish(&what);
    ag_text_finish(&line);
}
