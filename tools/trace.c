/* `allograft trace`: what ALLOGRAFT_TRACE wrote, as text, for Perfetto, or for RMM's replay. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
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
    "OUT may be - for stdout. A file that a killed process left, or one that still grows, is read "
    "as far\n"
    "as it goes.\n";

struct request {
    const char *file, *perfetto;
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
        request->perfetto = value;
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
        } else if (!strcmp(word, "--perfetto") || !strcmp(word, "--csv") ||
                   !strcmp(word, "--device") || !strcmp(word, "--slow")) {
            if (take_option(request, word, argv[i + 1]))
                return STATUS_USAGE;
            i++;
        } else if (*word == '-' || request->file) {
            command_complain("trace: no argument '%s'; there are: FILE, --summary, --perfetto OUT, "
                             "--csv rmm, --device N, --slow MICROS, --help",
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
    request->summary = request->summary || (!request->perfetto && !request->csv);
    return STATUS_OK;
}

static bool write_perfetto(const struct trace *trace, const struct request *request)
{
    bool to_stdout = !strcmp(request->perfetto, "-"), good;
    FILE *out = to_stdout ? stdout : fopen(request->perfetto, "we");

    if (!out) {
        command_complain("cannot write %s: %s", request->perfetto, strerror(errno));
        return false;
    }
    good = trace_write_perfetto(trace, request->device, request->slow_ns, out);
    if (!good)
        command_complain("trace: %s", strerror(ENOMEM));
    if (to_stdout)
        return good;
    if (ferror(out) | fclose(out)) {
        command_complain("cannot write %s", request->perfetto);
        return false;
    }
    return good;
}

int command_trace(int argc, char **argv)
{
    struct request request = {.device = AG_TRACE_NO_DEVICE, .slow_ns = 10000};
    struct trace *trace;
    char why[256];
    bool good = true;

    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (parse(argc, argv, &request))
        return STATUS_USAGE;
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
    if (good && request.perfetto)
        good = write_perfetto(trace, &request);
    trace_close(trace);
    return good ? STATUS_OK : STATUS_FAILED;
}
