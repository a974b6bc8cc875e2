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
    struct output perfetto, torch; /* their paths are NULL unless they were asked for */
    bool summary, csv;
    int device;
    uint64_t slow_ns;
};

/* The values have been checked against commands.def. */
static void read_trace_words(const struct command_line *line, struct request *request)
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
        case OPTION_trace_torch_snapshot:
            request->torch.path = value;
            break;
        case OPTION_trace_force:
            request->perfetto.force = request->torch.force = true;
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
    request->summary =
        request->summary || (!request->perfetto.path && !request->torch.path && !request->csv);
}

/* Nothing of what is written may lie within something else. */
static int check_trace_outputs(struct request *request)
{
    const char *printed = request->csv ? "--csv" : request->summary ? "--summary" : NULL;
    int status;

    if ((request->perfetto.path && output_check(&request->perfetto)) ||
        (request->torch.path && output_check(&request->torch)))
        return STATUS_FAILED;
    if (request->csv && request->summary) {
        command_complain("trace: give --summary or --csv, not both");
        return STATUS_USAGE;
    }
    status = output_check_apart(&request->torch, &request->perfetto);
    if (!status && printed)
        status = output_check_alone(&request->perfetto, printed);
    if (!status && printed)
        status = output_check_alone(&request->torch, printed);
    return status;
}

/* Output made from a file that was truncated meanwhile is worthless. */
static bool is_torn(const struct trace *trace, const struct request *request)
{
    if (!trace_is_torn(trace))
        return false;
    command_complain("trace: %s: it was truncated while it was read", request->file);
    return true;
}

static bool write_output(const struct trace *trace, struct request *request, struct output *output)
{
    bool good;

    if (!output->path)
        return true;
    if (output_open(output))
        return false;
    good = output->kind == OUTPUT_TORCH
               ? trace_write_torch(trace, request->device, output->file)
               : trace_write_perfetto(trace, request->device, request->slow_ns, output->file);
    if (!good)
        command_complain("trace: %s", strerror(ENOMEM));
    good = good && !is_torn(trace, request);
    return !output_close(output, good);
}

int command_trace(const struct command_line *line)
{
    struct request request = {
        .device = AG_TRACE_NO_DEVICE,
        .slow_ns = 10000,
        .perfetto = {.command = "trace", .option = "--perfetto", .kind = OUTPUT_PERFETTO},
        .torch = {.command = "trace", .option = "--torch-snapshot", .kind = OUTPUT_TORCH}};
    struct trace *trace;
    char why[256];
    bool good = true;
    int status;

    read_trace_words(line, &request);
    output_keep_path(request.file);
    status = check_trace_outputs(&request);
    if (status)
        return status;
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
    if (good && (request.perfetto.path || request.torch.path))
        good = write_output(trace, &request, &request.perfetto) &&
               write_output(trace, &request, &request.torch);
    else if (good)
        good = !is_torn(trace, &request);
    trace_close(trace);
    return good ? STATUS_OK : STATUS_FAILED;
}
