/* `allograft run`: checks every setting, then becomes the program with the library preloaded. */
#include "command.h"
#include "options.h"
#include "output.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help_text[] =
    "allograft run [options] [--] program [args]\n"
    "\n"
    "  --policy P         where cudaMalloc's memory comes from; the same as --set POLICY=P\n"
    "  --stats WHERE      where the report goes at exit; the same as --set STATS=WHERE\n"
    "  --rule RULE        what is to hold for some allocations only, for example nth=17:native; "
    "may be\n"
    "                     given several times, the first that applies decides\n"
    "  --graph STREAMS    streams whose repeated work is launched as graphs; the same as --set "
    "GRAPH=STREAMS\n"
    "  --config FILE      a file of settings; the same as --set CONFIG=FILE\n"
    "  --set KEY=VALUE    any setting of `allograft options`, with or without ALLOGRAFT_ in front\n"
    "  --audit            catch the calls of libraries opened with RTLD_DEEPBIND too (rtld-audit)\n"
    "  --simulate         on the simulated driver, in place of a GPU's: times mean nothing, and\n"
    "                     device code and programs with NVIDIA's CUDA runtime do not run\n"
    "  --help             this text\n"
    "\n"
    "An option goes before the environment. Every setting is checked first: if one is unknown or\n"
    "has a value that is not allowed, the program is not started and the exit status is 2. The\n"
    "program takes the command's place, so its exit status and signals are its own; 126 means it\n"
    "could not be executed, 127 that it was not found. Existing LD_PRELOAD entries stay, behind\n"
    "ours. ALLOGRAFT_LIBRARY names the library to use instead of the one found beside the "
    "command.\n";

/* ---- options ------------------------------------------------------------------------------- */

/* Checks one setting and puts it into the environment that the program inherits. */
static int set_option(const char *key, size_t key_length, const char *value)
{
    char name[128], why[512];

    if (settings_full_name(key, key_length, name, sizeof(name))) {
        command_complain("--set %.*s: no setting has so long a name", 40, key);
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

/* Joins the rules given one by one; the first of them takes the place of what RULES was. */
static int add_rule(const char *rule)
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

static int set_pair(const char *pair)
{
    const char *equals = strchr(pair, '=');

    if (!equals || equals == pair) {
        command_complain("--set %s: it takes KEY=VALUE, for example --set POLICY=native", pair);
        return STATUS_USAGE;
    }
    return set_option(pair, (size_t)(equals - pair), equals + 1);
}

static int apply_flag(const char *flag, const char *value)
{
    if (!strcmp(flag, "--policy"))
        return set_option("POLICY", 6, value);
    if (!strcmp(flag, "--stats"))
        return set_option("STATS", 5, value);
    if (!strcmp(flag, "--graph"))
        return set_option("GRAPH", 5, value);
    if (!strcmp(flag, "--config"))
        return set_option("CONFIG", 6, value);
    if (!strcmp(flag, "--rule"))
        return add_rule(value);
    return set_pair(value);
}

/* The flag of ours that `word` is, with its value in *ret_value when it is glued on by '='. */
static const char *match_flag(const char *word, const char **ret_value)
{
    static const char *const flags[] = {"--policy", "--stats",  "--rule",
                                        "--graph",  "--config", "--set"};

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        size_t length = strlen(flags[i]);

        if (strncmp(word, flags[i], length) || (word[length] && word[length] != '='))
            continue;
        *ret_value = word[length] ? word + length + 1 : NULL;
        return flags[i];
    }
    return NULL;
}

static bool is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

static bool audit;    /* --audit was given */
static bool simulate; /* --simulate was given */

/* Applies the options in front of the program. *ret_first is where the program's name stands, or
 * where help was asked for. */
static int parse_options(int argc, char **argv, int *ret_first)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        const char *value = NULL, *flag;
        int status;

        if (is_help(argv[i]))
            break;
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "--audit")) {
            audit = true;
            i++;
            continue;
        }
        if (!strcmp(argv[i], "--simulate")) {
            simulate = true;
            i++;
            continue;
        }
        flag = match_flag(argv[i], &value);
        if (!flag) {
            command_complain("run: no option '%s'; there are: --policy, --stats, --rule, --graph, "
                             "--config, --set, --audit, --simulate, --help",
                             argv[i]);
            return STATUS_USAGE;
        }
        if (!value && ++i < argc)
            value = argv[i];
        if (!value) {
            command_complain("run: %s takes a value", flag);
            return STATUS_USAGE;
        }
        status = apply_flag(flag, value);
        if (status)
            return status;
        i++;
    }
    *ret_first = i;
    return STATUS_OK;
}

/* The library reads the file at the program's first CUDA call, wherever the program, or one that it
 * starts, has gone to by then. */
static int make_config_absolute(void)
{
    const char *path = getenv("ALLOGRAFT_CONFIG");
    char absolute[PATH_MAX];

    if (!path || !*path || *path == '/' || !strcasecmp(path, "off"))
        return STATUS_OK;
    if (!realpath(path, absolute) || setenv("ALLOGRAFT_CONFIG", absolute, 1)) {
        command_complain("ALLOGRAFT_CONFIG=%s: %s", path, strerror(errno));
        return STATUS_FAILED;
    }
    return STATUS_OK;
}

/* ---- LD_AUDIT ------------------------------------------------------------------------------ */

/* "2.35" or later: before it the loader did not tell of bindings made at load time. */
static bool loader_tells_all(void)
{
    unsigned major = 0, minor = 0;

    return sscanf(gnu_get_libc_version(), "%u.%u", &major, &minor) == 2 &&
           (major > 2 || (major == 2 && minor >= 35));
}

/* Has the loader ask the library that lies beside `library` about every binding. */
static int add_audit(const char *library)
{
    const char *old = getenv("LD_AUDIT");
    char path[PATH_MAX + 32], *joined;
    int failed;

    if (!loader_tells_all()) {
        command_complain("run: --audit needs glibc 2.35 or later; this is %s",
                         gnu_get_libc_version());
        return STATUS_FAILED;
    }
    snprintf(path, sizeof(path), "%.*s/liballograft-audit.so",
             (int)(strrchr(library, '/') - library), library); /* an absolute path */
    if (access(path, R_OK)) {
        command_complain("run: --audit: %s: %s", path, strerror(errno));
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

/* ---- NVTX ---------------------------------------------------------------------------------- */

/* Has NVTX tell the library of ranges and names, where the settings ask for them. A tool that is to
 * be told already keeps its place; the library then says so. */
static int add_nvtx(const char *library)
{
    if (!settings_ask_for_nvtx())
        return STATUS_OK;
    return setenv("NVTX_INJECTION64_PATH", library, 0) ? STATUS_FAILED : STATUS_OK;
}

/* ---- the program --------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* The file that execvp will take for `program`: the first match in PATH that may be executed, else
 * the first match at all. False when there is none. */
static bool find_program(const char *program, char *path, size_t path_size)
{
    const char *folders = getenv("PATH");
    bool found = false;

    if (strchr(program, '/')) {
        snprintf(path, path_size, "%s", program);
        return is_file(path);
    }
    if (!folders)
        folders = "/bin:/usr/bin";
    for (;;) {
        size_t length = strcspn(folders, ":");
        char candidate[PATH_MAX];

        snprintf(candidate, sizeof(candidate), "%.*s%s%s", (int)length, folders,
                 length ? "/" : "./", program);
        if (is_file(candidate) && (!found || !access(candidate, X_OK))) {
            snprintf(path, path_size, "%s", candidate);
            found = true;
            if (!access(candidate, X_OK))
                return true;
        }
        if (!folders[length])
            return found;
        folders += length + 1;
    }
}

static void warn_if_not_preloadable(const char *path)
{
    const char *obstacle = preload_obstacle(path);

    if (obstacle)
        command_complain("warning: %s %s: no library can be preloaded, it runs without Allograft",
                         path, obstacle);
}

/* Says why the program did not start and returns the status that shells give for it. */
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

static int become_program(char **argv)
{
    char path[PATH_MAX];
    bool exists = find_program(argv[0], path, sizeof(path));

    if (exists)
        warn_if_not_preloadable(path);
    execvp(argv[0], argv);
    return explain_exec_failure(argv[0], exists, errno);
}

/* The library writes where it is told when the program is done: not over the program, nor what it
 * is given. */
static int check_written(char **argv)
{
    static const char *const settings[] = {"ALLOGRAFT_STATS", "ALLOGRAFT_TRACE"};
    const char *config = getenv("ALLOGRAFT_CONFIG");
    char path[PATH_MAX];

    if (find_program(argv[0], path, sizeof(path)))
        output_keep_path(path);
    if (config)
        output_keep_path(config);
    for (size_t i = 1; argv[i]; i++)
        output_keep_path(argv[i]);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *where = getenv(settings[i]);

        if (!where || !output_is_kept(where))
            continue;
        command_complain("%s=%s: it is the program, or a file that it is given, and would be lost",
                         settings[i], where);
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

int command_run(int argc, char **argv)
{
    char library[PATH_MAX], driver[PATH_MAX + 64];
    int first, status;

    status = parse_options(argc, argv, &first);
    if (status)
        return status;
    if (first < argc && is_help(argv[first])) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (first >= argc) {
        command_complain("run: which program? allograft run [options] [--] program [args]");
        return STATUS_USAGE;
    }
    if (settings_check_environment())
        return STATUS_USAGE;
    status = make_config_absolute();
    if (status)
        return status;
    status = check_written(argv + first);
    if (status)
        return status;
    status = locate_library(library, sizeof(library));
    if (status)
        return status;
    status = preload_library(library);
    if (status)
        return status;
    if (simulate) {
        status = simulate_driver(library, driver, sizeof(driver));
        if (status)
            return status;
    }
    status = add_nvtx(library);
    if (status)
        return status;
    if (audit) {
        status = add_audit(library);
        if (status)
            return status;
    }
    return become_program(argv + first);
}
