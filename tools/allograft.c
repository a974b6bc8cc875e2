/* The command `allograft`: reads the first word and calls the command that it names. */
#include "tools/base/complain.h"
#include "tools/commit.h"
#include "tools/line/command_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only this file names the functions of the commands: what they call knows none of them. */
static int (*const functions[N_COMMANDS])(const struct command_line *line) = {
#define COMMAND(name, ...) command_##name,
#define ARGUMENT(...)
#define OPTION(...)
#include "tools/line/commands.def"
};

/* argv[1] is the name of the command. */
static int run_command(const struct command *command, int argc, char **argv)
{
    struct command_line line;
    int status = command_line_read(command, argc - 1, argv + 1, &line);

    if (status == STATUS_OK && line.n_given && line.given[line.n_given - 1].option == OPTION_help)
        command_help(command);
    else if (status == STATUS_OK)
        status = functions[command->id](&line);
    free(line.given);
    return status;
}

static int dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    const struct command *command = word ? command_find(word) : NULL;

    if (command)
        return run_command(command, argc, argv);
    if (!word) {
        command_help_all(stderr);
        return STATUS_USAGE;
    }
    if (!strcmp(word, "--complete"))
        return command_complete(argc - 2, argv + 2);
    if (!strcmp(word, "--version")) {
        const char *commit = ALLOGRAFT_COMMIT;

        printf("allograft " ALLOGRAFT_VERSION "%s%s%s\n", *commit ? " (commit " : "", commit,
               *commit ? ")" : "");
        return STATUS_OK;
    }
    if (strcmp(word, "--help") != 0 && strcmp(word, "-h") != 0 && strcmp(word, "help") != 0) {
        command_complain_of(word);
        return STATUS_USAGE;
    }
    command = argc > 2 ? command_find(argv[2]) : NULL;
    if (argc > 2 && !command) {
        command_complain_of(argv[2]);
        return STATUS_USAGE;
    }
    if (command)
        command_help(command);
    else
        command_help_all(stdout);
    return STATUS_OK;
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
