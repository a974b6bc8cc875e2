/* outputs.c: asks before a program runs whether its report and its trace can be written, and
 * overwrite nothing. */
#include "tools/base/complain.h"
#include "tools/base/output.h"
#include "tools/run/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Can a file be made at `path`, which does not exist or may be `replaced` by one that is made
 * beside it? 0, or the error. */
static int trouble_of(const char *path, bool replaced)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    struct stat st;

    if (!stat(path, &st)) {
        if (S_ISDIR(st.st_mode))
            return EISDIR;
        if (!faccessat(AT_FDCWD, path, W_OK, AT_EACCESS))
            return 0;
        if (!replaced || !S_ISREG(st.st_mode))
            return errno;
    }
    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path) + 1, path);
    return faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) ? errno : 0;
}

/* What placeholders stand for is known in the process alone: of a name with some, its folder is
 * asked for, and of a folder with some, nothing. */
static int check_place(const char *setting, const char *pattern, bool replaced)
{
    size_t length = strcspn(pattern, "%");
    char path[PATH_MAX];
    int error;

    if (!*pattern || strchr(pattern + length, '/') || length >= PATH_MAX ||
        !strncmp(pattern, "/dev/", 5) || !strncmp(pattern, "/proc/", 6))
        return STATUS_OK; /* the program's descriptors need not be ours */
    snprintf(path, sizeof(path), "%.*s%s", (int)length, pattern, pattern[length] ? "%" : "");
    error = trouble_of(path, replaced);
    if (!error)
        return STATUS_OK;
    command_complain("%s=%s: %s", setting, pattern, strerror(error));
    return STATUS_FAILED;
}

static int refuse_own(const char *setting, const char *path)
{
    if (!*path || !output_is_kept(path))
        return STATUS_OK;
    command_complain("%s=%s: this is the program or one of its files, and would be overwritten",
                     setting, path);
    return STATUS_USAGE;
}

static void keep_program_files(char **argv)
{
    const char *config = getenv("ALLOGRAFT_CONFIG");
    char path[PATH_MAX];

    if (run_find_program(argv[0], path, sizeof(path)))
        output_keep_path(path);
    if (config)
        output_keep_path(config);
    for (size_t i = 1; argv[i]; i++)
        output_keep_path(argv[i]);
}

int outputs_check(char **argv)
{
    const char *report = settings_report_file(), *trace = settings_trace_file();

    keep_program_files(argv);
    if (refuse_own("ALLOGRAFT_STATS", report) || refuse_own("ALLOGRAFT_TRACE", trace))
        return STATUS_USAGE;
    if (*report && !strcmp(report, trace)) {
        command_complain("ALLOGRAFT_STATS and ALLOGRAFT_TRACE name one file: give the report and "
                         "the trace a file each");
        return STATUS_USAGE;
    }
    if (check_place("ALLOGRAFT_STATS", report, true) ||
        check_place("ALLOGRAFT_TRACE", trace, false))
        return STATUS_FAILED;
    return STATUS_OK;
}
