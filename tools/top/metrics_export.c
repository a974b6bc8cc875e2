/* metrics_export.c: keeps a file of metrics up to date, or serves them: see metrics.h. */
#include "tools/top/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/base/complain.h"
#include "tools/base/output.h"

static int write_file(const struct metrics *metrics, struct output *output)
{
    struct ag_text text = {0};
    struct folders folders = {0};
    int status = metrics->open(metrics->data, &folders);

    if (status == STATUS_OK && metrics_render(&folders, &text)) {
        status = output_write(output, text.data, text.length);
    } else if (status == STATUS_OK) {
        command_complain("the counters cannot be read");
        status = STATUS_FAILED;
    }
    folders_close(&folders);
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
static bool is_number(const char *word)
{
    return *word && strspn(word, "0123456789") == strlen(word);
}

/* WORD:NUMBER, which no file is that has a slash before it. */
static const char *port_of(const char *word)
{
    const char *colon = strrchr(word, ':');

    if (!colon)
        return is_number(word) ? word : NULL;
    return !strchr(word, '/') && is_number(colon + 1) ? colon + 1 : NULL;
}

/* Reads only an address in figures: that of a name may be another one tomorrow. */
static bool read_address(const char *word, const char *port, struct metrics_address *ret)
{
    char host[INET6_ADDRSTRLEN + 3] = "127.0.0.1"; /* with brackets */
    size_t length = port > word ? (size_t)(port - word) - 1 : strlen(host);

    if (length >= sizeof(host) || strlen(port) > 5 || strtoul(port, NULL, 10) > UINT16_MAX)
        return false;
    if (port > word)
        memcpy(host, word, length);
    host[length] = '\0';
    *ret = (struct metrics_address){.port = (uint16_t)strtoul(port, NULL, 10)};
    memcpy(ret->text, host, length + 1);
    if (length < 2 || *host != '[' || host[length - 1] != ']')
        return inet_pton(AF_INET, host, ret->bytes) == 1;
    host[length - 1] = '\0';
    ret->is_v6 = true;
    return inet_pton(AF_INET6, host + 1, ret->bytes) == 1;
}

int metrics_export(const struct metrics *metrics)
{
    const char *port = port_of(metrics->where);
    struct metrics_address address;

    if (!port)
        return keep_file(metrics);
    if (metrics->once) {
        command_complain("top: --once goes with a file, and --prometheus=%s is a port",
                         metrics->where);
        return STATUS_USAGE;
    }
    if (read_address(metrics->where, port, &address))
        return metrics_serve(metrics, &address);
    command_complain("top: --prometheus=%s is not allowed; allowed: a port from 0 to 65535, an "
                     "address in figures before it, as in 0.0.0.0:9400, or a file, which is ./%s "
                     "if that is its name",
                     metrics->where, metrics->where);
    return STATUS_USAGE;
}
