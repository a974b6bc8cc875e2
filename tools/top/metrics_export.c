/* metrics_export.c: keeps a file of metrics up to date, or serves them: see metrics.h. */
#include "tools/top/metrics.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/base/complain.h"
#include "tools/base/output.h"

static int write_file(const struct metrics *metrics, struct output *output)
{
    struct ag_text text = {0};
    int folder, status = metrics->open(metrics->data, &folder);

    if (status != STATUS_OK)
        return status;
    if (metrics_render(folder, &text)) {
        status = output_write(output, text.data, text.length);
    } else {
        command_complain("the counters cannot be read");
        status = STATUS_FAILED;
    }
    if (folder >= 0)
        close(folder);
    ag_text_finish(&text);
    return status;
}

/* False when a signal came that asks for the end. */
static bool pause_for(double seconds, const sigset_t *ends)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    int signal;

    do
        signal = sigtimedwait(ends, NULL, &left);
    while (signal < 0 && errno == EINTR);
    return signal < 0;
}

static int keep_file(const struct metrics *metrics)
{
    struct output output = {
        .command = "top",
        .option = "--prometheus",
        .path = metrics->where,
        .kind = OUTPUT_METRICS,
    };
    bool once = metrics->once || !strcmp(metrics->where, "-");
    sigset_t ends;
    int status;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    if (!once)
        (void)sigprocmask(SIG_BLOCK, &ends, NULL);
    do
        status = write_file(metrics, &output);
    while (status == STATUS_OK && !once && pause_for(metrics->interval, &ends));
    return status;
}

/* A number is a port; a file of that name is ./NUMBER. */
static bool is_port(const char *word, unsigned long *ret)
{
    char *end;

    if (!*word || strspn(word, "0123456789") != strlen(word))
        return false;
    errno = 0;
    *ret = strtoul(word, &end, 10);
    if (errno)
        *ret = UINT64_MAX;
    return true;
}

int metrics_export(const struct metrics *metrics)
{
    unsigned long port;

    if (!is_port(metrics->where, &port))
        return keep_file(metrics);
    if (port <= UINT16_MAX)
        return metrics_serve(metrics, (uint16_t)port);
    command_complain("top: --prometheus=%s is not allowed; allowed: a port from 0 to 65535, or a "
                     "file, which is ./%s if that is its name",
                     metrics->where, metrics->where);
    return STATUS_USAGE;
}
