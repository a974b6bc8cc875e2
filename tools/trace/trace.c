/* trace.c: `allograft trace` shows what ALLOGRAFT_TRACE wrote, or converts it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/complain.h"
#include "tools/base/output.h"
#include "tools/line/command_line.h"
#include "tools/trace/trace_out.h"

struct request {
    const char *file;
    struct output perfetto; /* its path is NULL unless it was asked for */
    bool summary, csv;
    int device;
    uint64_t slow_ns;
};

/* The values have been checked against commands.def. */
static void take_words(const struct command_line *line, struct request *request)
{
    request->file = line->words[0];
    for (size_t i = 0; i < line->n_given; i++) {
        const char *value = line->given[i].value;

        switch (line->given[i].option) {
        case OPTION_trace_summary:
            request->summary = true;
            break;
        case OPTION_trace_perfetto:
            request->perfetto.path = value;
            break;
        case OPTION_trace_force:
            request->perfetto.force = true;
            break;
        case OPTION_trace_csv:
            request->csv = true;
            break;
        case OPTION_trace_device:
            request->device = atoi(value);
            break;
        default:
            request->slow_ns = strtoull(value, NULL, 10) * 1000;
        }
    }
    request->summary = request->summary || (!request->perfetto.path && !request->csv);
}

/* Output made from a file that was truncated meanwhile is worthless. */
static bool is_torn(const struct trace *trace, const struct request *request)
{
    if (!trace_is_torn(trace))
        return false;
    command_complain("trace: %s: it was truncated while it was read", request->file);
    return true;
}

static bool write_perfetto(const struct trace *trace, struct request *request)
{
    bool good;

    if (output_open(&request->perfetto))
        return false;
    good = trace_write_perfetto(trace, request->device, request->slow_ns, request->perfetto.file);
    if (!good)
        command_complain("trace: %s", strerror(ENOMEM));
    good = good && !is_torn(trace, request);
    return !output_close(&request->perfetto, good);
}

int command_trace(const struct command_line *line)
{
    struct request request = {
        .device = AG_TRACE_NO_DEVICE,
        .slow_ns = 10000,
        .perfetto = {.command = "trace", .option = "--perfetto", .kind = OUTPUT_PERFETTO}};
    struct trace *trace;
    char why[256];
    bool good = true;

    take_words(line, &request);
    output_keep_path(request.file);
    if (request.perfetto.path && output_check(&request.perfetto))
        return STATUS_FAILED;
    trace = trace_open(request.file, why, sizeof(why));
    if (!trace) {
        command_complain("trace: %s: %s", request.file, why);
        return STATUS_FAILED;
    }
    if (request.summary)
        good = trace_write_summary(trace, request.device, stdout);
    if (good && request.csv)
        good = trace_write_rmm(trace, request.device, stdout);
    if (!good)
        command_complain("trace: %s", strerror(ENOMEM));
    if (good && request.perfetto.path)
        good = write_perfetto(trace, &request);
    else if (good)
        good = !is_torn(trace, &request);
    trace_close(trace);
    return good ? STATUS_OK : STATUS_FAILED;
}
