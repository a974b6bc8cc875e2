/* run.c: `allograft run` checks every setting and executes a program with the library preloaded. */
#include "interpose/core/report/audit/audit_memory.h"
#include "interpose/core/report/errors/errors_file.h"
#include "interpose/core/report/unused.h"
#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/base/output.h"
#include "tools/line/command_line.h"
#include "tools/run/child.h"
#include "tools/run/environment.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options ------------------------------------------------------------------------------- */

/* Checks one setting and adds it to the environment that the program inherits. */
static int set_option(const char *key, size_t key_length, const char *value)
{
    char name[128], why[512];

    if (settings_full_name(key, key_length, name, sizeof(name))) {
        command_complain("--set %.*s: no setting has a name that long", 40, key);
        return STATUS_USAGE;
    }
    if (ag_option_check(name, value, why, sizeof(why))) {
        command_complain("%s", why);
        return STATUS_USAGE;
    }
    if (setenv(name, value, 1)) {
        command_complain("cannot set %s: %s", name, strerror(errno));
        return STATUS_FAILED;
    }
    return STATUS_OK;
}

/* Joins the rules that are given one by one. The first one replaces the value of RULES. */
static int join_rule(const char *rule)
{
    static char *joined;
    char *longer, why[700];
    int status;

    if (ag_option_check("ALLOGRAFT_RULES", rule, why, sizeof(why))) {
        const char *column = strstr(why, "column ");

        command_complain("--rule: %s", column ? column : why);
        if (column)
            settings_point_at(rule, strtoul(column + strlen("column "), NULL, 10));
        return STATUS_USAGE;
    }
    if (asprintf(&longer, "%s%s%s", joined ? joined : "", joined ? "; " : "", rule) < 0)
        return STATUS_FAILED;
    free(joined);
    joined = longer;
    status = setenv("ALLOGRAFT_RULES", joined, 1);
    return status ? STATUS_FAILED : STATUS_OK;
}

int run_set_pair(const char *pair)
{
    const char *equals = strchr(pair, '=');

    if (!equals || equals == pair) {
        command_complain("--set %s: expected KEY=VALUE, for example --set POLICY=native", pair);
        return STATUS_USAGE;
    }
    return set_option(pair, (size_t)(equals - pair), equals + 1);
}

static int parse_exitcode(const char *value, struct run_extras *ret_extras)
{
    uint64_t number;

    if (ag_number_in_range_parse(value, "1..255", false, &number)) {
        command_complain("run: --error-exitcode=%s is not allowed; allowed: 1..255", value);
        return STATUS_USAGE;
    }
    ret_extras->error_exitcode = (int)number;
    return STATUS_OK;
}

/* Applies the options in the order they were given. */
static int apply_options(const struct command_line *line, struct run_extras *ret_extras)
{
    int status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < line->n_given; i++) {
        const struct given *given = &line->given[i];

        if (given->option == OPTION_run_audit)
            ret_extras->audit = true;
        else if (given->option == OPTION_run_no_audit)
            ret_extras->may_audit = false;
        else if (given->option == OPTION_run_simulate)
            ret_extras->simulate = true;
        else if (given->option == OPTION_run_error_exitcode)
            status = parse_exitcode(given->value, ret_extras);
        else if (given->option == OPTION_run_rule)
            status = join_rule(given->value);
        else if (given->option == OPTION_run_set)
            status = run_set_pair(given->value);
        else /* a setting by its name */
            status = set_option(given->name, strlen(given->name), given->value);
    }
    return status;
}

/* The library reads the file at the first CUDA call; the program, or one that it starts, may have
 * changed its working directory by then. */
static int make_config_absolute(void)
{
    const char *path = getenv("ALLOGRAFT_CONFIG");
    char absolute[PATH_MAX];

    if (!path || !settings_name_file() || *path == '/')
        return STATUS_OK;
    if (!realpath(path, absolute) || setenv("ALLOGRAFT_CONFIG", absolute, 1)) {
        command_complain("ALLOGRAFT_CONFIG=%s: %s", path, strerror(errno));
        return STATUS_FAILED;
    }
    return STATUS_OK;
}

/* ---- LD_AUDIT ------------------------------------------------------------------------------ */

/* Before glibc 2.35 the loader did not report bindings that are made at load time. */
static bool loader_reports_all(void)
{
    unsigned major = 0, minor = 0;

    return sscanf(gnu_get_libc_version(), "%u.%u", &major, &minor) == 2 &&
           (major > 2 || (major == 2 && minor >= 35));
}

/* Says why the audit library cannot be used; in a build folder it may only have to be built. */
static void complain_of_audit(const char *path, int error)
{
    const char *slash = strrchr(path, '/');
    int length = (int)(slash - path);
    char build[PATH_MAX + 48];

    snprintf(build, sizeof(build), "%.*s/build.ninja", length, path);
    if (error == ENOENT && !access(build, F_OK))
        command_complain("run: --audit: %s was not built: `ninja -C %.*s %s` builds it", path,
                         length, path, slash + 1);
    else
        command_complain("run: --audit: %s: %s", path, strerror(error));
}

#define AUDIT_PATH_SIZE (PATH_MAX + 32)

/* `library` is an absolute path. */
static void audit_beside(const char *library, char *path)
{
    snprintf(path, AUDIT_PATH_SIZE, "%.*s/liballograft-audit.so",
             (int)(strrchr(library, '/') - library), library);
}

/* Makes the loader report every binding to the audit library beside `library`. */
static int add_audit(const char *library)
{
    const char *old = getenv("LD_AUDIT");
    char path[AUDIT_PATH_SIZE], *joined;
    int failed;

    if (!loader_reports_all()) {
        command_complain("run: --audit needs glibc 2.35 or later; this is %s",
                         gnu_get_libc_version());
        return STATUS_FAILED;
    }
    audit_beside(library, path);
    if (access(path, R_OK)) {
        complain_of_audit(path, errno);
        return STATUS_FAILED;
    }
    if (!old || !*old)
        return setenv("LD_AUDIT", path, 1) ? STATUS_FAILED : STATUS_OK;
    if (asprintf(&joined, "%s:%s", path, old) < 0)
        return STATUS_FAILED;
    failed = setenv("LD_AUDIT", joined, 1);
    free(joined);
    return failed ? STATUS_FAILED : STATUS_OK;
}

/* Uses the audit where it is known to be needed, and is there. */
static int add_audit_if_needed(char **argv, const char *library)
{
    char path[AUDIT_PATH_SIZE];

    if (!loader_reports_all() || !run_choose_audit(argv))
        return STATUS_OK;
    audit_beside(library, path);
    if (access(path, R_OK))
        return STATUS_OK;
    command_complain("run: calls of %s went past Allograft before (RTLD_DEEPBIND): --audit is on; "
                     "--no-audit leaves it off",
                     argv[0]);
    return add_audit(library);
}

/* ---- NVTX ---------------------------------------------------------------------------------- */

/* Makes NVTX report ranges and names to the library, if the settings ask for them. NVTX reports to
 * one library only: a tool that is set already stays, and the library then says so. */
static int add_nvtx(const char *library)
{
    if (!settings_ask_for_nvtx())
        return STATUS_OK;
    return setenv("NVTX_INJECTION64_PATH", library, 0) ? STATUS_FAILED : STATUS_OK;
}

/* ---- programs without CUDA ----------------------------------------------------------------- */

/* Makes the library say at the end that the program did not use CUDA, and somebody say where a
 * signal ended it. If that fails, the program is started all the same. */
static void mark_program(char **argv)
{
    const char *counters = settings_watched_counters();
    char mark[AG_TEXT_MAX + 100];

    (void)unsetenv(AG_UNUSED_VARIABLE); /* of another `allograft run` around this one */
    if (counters && !ag_unused_mark(last_word_start(argv, counters), counters, mark, sizeof(mark)))
        (void)setenv(AG_UNUSED_VARIABLE, mark, 1);
}

/* ---- the program --------------------------------------------------------------------------- */

static void warn_if_not_preloadable(const char *path)
{
    const char *obstacle = preload_obstacle(path);

    if (obstacle)
        command_complain(
            "warning: %s %s: no library can be preloaded, so it runs without Allograft", path,
            obstacle);
}

/* Says why the program was not started, and returns the exit status that shells use for that. */
static int explain_exec_failure(const char *program, bool exists, int error)
{
    if (error == ENOENT && exists) {
        command_complain("%s: the interpreter it names does not exist", program);
        return STATUS_NOT_EXECUTABLE;
    }
    if (error == ENOENT || error == ENOTDIR) {
        command_complain("%s: not found", program);
        return STATUS_NOT_FOUND;
    }
    command_complain("%s: %s", program, strerror(error));
    return STATUS_NOT_EXECUTABLE;
}

int run_execute(char **argv)
{
    char path[PATH_MAX];
    bool exists = run_find_program(argv[0], path, sizeof(path));

    if (exists)
        warn_if_not_preloadable(path);
    execvp(argv[0], argv);
    return explain_exec_failure(argv[0], exists, errno);
}

static int prepare_audit(char **argv, struct run_extras extras, const char *library)
{
    (void)unsetenv(AG_AUDIT_MEMORY_VARIABLE); /* of another `allograft run` around this one */
    if (extras.audit)
        return add_audit(library);
    return extras.may_audit ? add_audit_if_needed(argv, library) : STATUS_OK;
}

int run_prepare(char **argv, struct run_extras extras)
{
    char library[PATH_MAX], driver[PATH_MAX + 64];
    int status = settings_check_environment() ? STATUS_USAGE : STATUS_OK;

    if (!status)
        status = make_config_absolute();
    if (!status)
        status = outputs_check(argv);
    if (!status)
        status = locate_library(library, sizeof(library));
    if (!status)
        status = preload_library(library);
    if (!status && extras.simulate)
        status = simulate_driver(library, driver, sizeof(driver));
    if (!status)
        status = add_nvtx(library);
    if (!status)
        status = prepare_audit(argv, extras, library);
    return status;
}

/* ---- jobs that are to fail ----------------------------------------------------------------- */

static int become_program(void *line_)
{
    const struct command_line *line = line_;

    mark_program(line->words);
    return run_execute(line->words);
}

/* Shows what the processes have told; was there anything? */
static bool show_errors(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;

    while (file && getline(&line, &room, file) > 0) {
        found = true;
        line[strcspn(line, "\n")] = '\0';
        command_complain("run: %s", line);
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* Runs the program in a child, so that its exit status can be another one than the program's. */
static int run_judged(const struct command_line *line, int exitcode)
{
    char folder[PATH_MAX], path[PATH_MAX + 8];
    bool has_started;
    FILE *file = NULL;
    int status;

    if (!folder_make_temporary("run", folder, sizeof(folder))) {
        command_complain("run: no temporary folder could be made: %s", strerror(errno));
        return STATUS_FAILED;
    }
    snprintf(path, sizeof(path), "%s/errors", folder);
    file = fopen(path, "wxe");
    if (!file || setenv(AG_ERRORS_VARIABLE, path, 1)) {
        command_complain("run: %s: %s", path, strerror(errno));
        status = STATUS_FAILED;
    } else {
        status = child_run(become_program, (void *)line, "run", &has_started);
        if (has_started && show_errors(path))
            status = exitcode;
    }
    if (file)
        fclose(file);
    folder_remove(folder);
    return status;
}

int command_run(const struct command_line *line)
{
    struct run_extras extras = {.may_audit = true};
    int status = apply_options(line, &extras);

    if (!status)
        status = run_prepare(line->words, extras);
    if (status)
        return status;
    (void)unsetenv(AG_ERRORS_VARIABLE); /* of another `allograft run` around this one */
    if (extras.error_exitcode)
        return run_judged(line, extras.error_exitcode);
    return become_program((void *)line);
}
