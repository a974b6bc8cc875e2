/* The command `allograft`: takes the first word apart and hands on to the command it names. */
#include "command.h"

#include <stdarg.h>
#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", command_run},       {"options", command_options}, {"report", command_report},
    {"diff", command_diff},     {"top", command_top},         {"trace", command_trace},
    {"doctor", command_doctor}, {"tune", command_tune},
};

static const char help_text[] =
    "Runs CUDA programs on a stream-ordered memory pool, without changing them.\n"
    "\n"
    "  allograft run [options] [--] program [args]   run a program under Allograft\n"
    "  allograft options                             every setting, its default and its meaning\n"
    "  allograft options --check                     the settings in force here, and their source\n"
    "  allograft report [PID | FILE... | DIR]        reports of processes, as text, JSON or a "
    "page\n"
    "  allograft diff A B                            what two reports have different\n"
    "  allograft top                                 the running processes, again and again\n"
    "  allograft trace FILE                          a trace as text, for Perfetto or RMM's "
    "replay\n"
    "  allograft doctor                              what this machine can do, and a self-test\n"
    "  allograft tune -- program [args]              which settings are best for a program\n"
    "  allograft --version                           the version\n"
    "  allograft --help                              this text; `allograft run --help` for run's\n"
    "\n"
    "Without the command: LD_PRELOAD=/path/to/liballograft.so program [args]\n";

void command_complain(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("allograft: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static void complain_of_word(const char *word)
{
    char names[256] = "";

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s, ", commands[i].name);
    command_complain("no command '%s'; there are: %s--version, --help", word, names);
}

static int dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;

    if (!word) {
        fputs(help_text, stderr);
        return STATUS_USAGE;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (!strcmp(word, "--version")) {
        puts("allograft " ALLOGRAFT_VERSION);
        return STATUS_OK;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (!strcmp(word, commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    }
    complain_of_word(word);
    return STATUS_USAGE;
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);

    /* A listing that did not reach a full disk or a closed pipe is no success. */
    if (fflush(stdout) || ferror(stdout)) {
        command_complain("cannot write to standard output");
        return status ? status : STATUS_FAILED;
    }
    return status;
}
