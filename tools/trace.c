/* `allograft trace`: what ALLOGRAFT_TRACE wrote, as text, for Perfetto, or for RMM's replay. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "output.h"
#include "trace_out.h"

static const char help_text[] =
    "allograft trace FILE [--summary]      what a program did, in short (ALLOGRAFT_TRACE=FILE)\n"
    "allograft trace FILE --perfetto OUT   as JSON for ui.perfetto.dev and chrome://tracing\n"
    "allograft trace FILE --csv rmm        as the log that RMM's replay benchmark reads, on "
    "stdout\n"
    "\n"
    "  --device N      of that device only\n"
    "  --slow MICROS   with --perfetto: allocations and frees that take so long are shown one by "
    "one\n"
    "                  (10; 0 for all)\n"
    "  --force         write OUT also where another kind of file is there\n"
    "OUT may be - for stdout. A file that a killed process left, or one that still grows, is read "
    "as far\n"
    "as it goes.\n";

struct request {
    const char *file;
    struct output perfetto; /* its path is NULL where it is not wanted */
    bool summary, csv;
    int device;
    uint64_t slow_ns;
};

/* A number from 0 to `most`, or -1. */
static long parse_number(const char *text, long most)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno || value > most ? -1 : value;
}

/* The option `name`, which takes a value; STATUS_OK, or STATUS_USAGE after a line on stderr. */
static int take_option(struct request *request, const char *name, const char *value)
{
    bool is_csv = !strcmp(name, "--csv"), is_device = !strcmp(name, "--device");
    long number;

    if (!value) {
        command_complain("trace: %s needs a value", name);
        return STATUS_USAGE;
    }
    if (!strcmp(name, "--perfetto")) {
        request->perfetto.path = value;
        return STATUS_OK;
    }
    number = parse_number(value, is_device ? INT16_MAX : 1000000000);
    if (is_csv ? strcmp(value, "rmm") != 0 : number < 0) {
        command_complain("trace: %s=%s: expected %s", name, value, is_csv ? "rmm" : "a number");
        return STATUS_USAGE;
    }
    if (is_csv)
        request->csv = true;
    else if (is_device)
        request->device = (int)number;
    else
        request->slow_ns = (uint64_t)number * 1000;
    return STATUS_OK;
}

static int parse(int argc, char **argv, struct request *request)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (!strcmp(word, "--summary")) {
            request->summary = true;
        } else if (!strcmp(word, "--force")) {
            request->perfetto.force = true;
        } else if (!strcmp(word, "--perfetto") || !strcmp(word, "--csv") ||
                   !strcmp(word, "--device") || !strcmp(word, "--slow")) {
            if (take_option(request, word, argv[i + 1]))
                return STATUS_USAGE;
            i++;
        } else if (*word == '-' || request->file) {
            command_complain("trace: no argument '%s'; there are: FILE, --summary, --perfetto OUT, "
                             "--force, --csv rmm, --device N, --slow MICROS, --help",
                             word);
            return STATUS_USAGE;
        } else {
            request->file = word;
        }
    }
    if (!request->file) {
        command_complain("trace: no file is named");
        return STATUS_USAGE;
    }
    request->summary = request->summary || (!request->perfetto.path && !request->csv);
    return STATUS_OK;
}

/* What is made of a file that lost its end meanwhile is worth nothing. */
static bool is_torn(const struct trace *trace, const struct request *request)
{
    if (!trace_is_torn(trace))
        return false;
    command_complain("trace: %s: it became shorter while it was read", request->file);
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

int command_trace(int argc, char **argv)
{
    struct request request = {
        .device = AG_TRACE_NO_DEVICE,
        .slow_ns = 10000,
        .perfetto = {.command = "trace", .option = "--perfetto", .kind = OUTPUT_PERFETTO}};
    struct trace *trace;
    char why[256];
    bool good = true;

    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (parse(argc, argv, &request))
        return STATUS_USAGE;
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
