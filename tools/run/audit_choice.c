/* audit_choice.c: does `run` use the audit without being asked to? Where calls of the same program
 * went past us before (interpose/core/report/audit/audit_memory.h). */
#include "interpose/core/report/audit/audit_memory.h"
#include "tools/base/complain.h"
#include "tools/run/environment.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool memory_file(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length = -1;

    if (state && *state == '/')
        length = snprintf(path, size, "%s/allograft/audit", state);
    else if (home && *home == '/')
        length = snprintf(path, size, "%s/.local/state/allograft/audit", home);
    return length > 0 && (size_t)length < size && !strpbrk(path, "\t\n");
}

static bool is_interpreter(const char *program)
{
    static const char *const names[] = {"python", "pypy",    "julia", "ruby", "perl",
                                        "node",   "Rscript", "bash",  "sh",   "dash"};
    const char *slash = strrchr(program, '/');

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i]);

        if (!strncmp(slash + 1, names[i], length) &&
            !slash[1 + length + strspn(slash + 1 + length, ".0123456789")])
            return true;
    }
    return false;
}

/* "-m NAME", or the file that comes first: its path. False where there is neither. */
static bool script_of(char **arguments, char *script, size_t size)
{
    char path[PATH_MAX];
    struct stat st;

    for (; *arguments; arguments++) {
        if (!strcmp(*arguments, "-m") && arguments[1])
            return (size_t)snprintf(script, size, "-m %s", arguments[1]) < size;
        if (!strcmp(*arguments, "-c") || !strcmp(*arguments, "-"))
            return false;
        if (**arguments != '-' && !stat(*arguments, &st) && S_ISREG(st.st_mode))
            return realpath(*arguments, path) && (size_t)snprintf(script, size, "%s", path) < size;
    }
    return false;
}

/* The program's path, and that of its script. False where a line could not name it. */
static bool line_of_program(char **argv, char *line, size_t size)
{
    char found[PATH_MAX], program[PATH_MAX], script[AG_AUDIT_LINE_MOST] = "";

    if (!run_find_program(argv[0], found, sizeof(found)) || !realpath(found, program))
        return false;
    if (is_interpreter(program) && !script_of(argv + 1, script, sizeof(script)))
        return false;
    return (size_t)snprintf(line, size, "%s%s%s", program, *script ? " " : "", script) < size &&
           !strpbrk(line, "\t\n");
}

bool run_choose_audit(char **argv)
{
    char file[PATH_MAX], line[AG_AUDIT_LINE_MOST], wanted[sizeof(file) + sizeof(line)];

    if (!memory_file(file, sizeof(file)) || !line_of_program(argv, line, sizeof(line)))
        return false;
    if (ag_audit_memory_has(file, line))
        return true;
    snprintf(wanted, sizeof(wanted), "%s\t%s", file, line);
    (void)setenv(AG_AUDIT_MEMORY_VARIABLE, wanted, 1);
    return false;
}
