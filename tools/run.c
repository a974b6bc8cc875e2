/* `allograft run`: checks every setting, then becomes the program with the library preloaded. */
#include "command.h"
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help_text[] =
    "allograft run [options] [--] program [args]\n"
    "\n"
    "  --policy P         where cudaMalloc's memory comes from; the same as --set POLICY=P\n"
    "  --stats WHERE      where the report goes at exit; the same as --set STATS=WHERE\n"
    "  --set KEY=VALUE    any setting of `allograft options`, with or without ALLOGRAFT_ in front\n"
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
    return set_pair(value);
}

/* The flag of ours that `word` is, with its value in *ret_value when it is glued on by '='. */
static const char *match_flag(const char *word, const char **ret_value)
{
    static const char *const flags[] = {"--policy", "--stats", "--set"};

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
        flag = match_flag(argv[i], &value);
        if (!flag) {
            command_complain("run: no option '%s'; there are: --policy, --stats, --set, --help",
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

/* ---- LD_PRELOAD ---------------------------------------------------------------------------- */

/* Puts the library in front of what is preloaded already, once. */
static int prepend_preload(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    size_t length = strlen(library);
    char *joined;
    int failed;

    if (strpbrk(library, ": ")) {
        command_complain("%s: LD_PRELOAD cannot name a path with a colon or a space in it; give "
                         "the library another place or a symbolic link's folder",
                         library);
        return STATUS_FAILED;
    }
    if (!old || !*old)
        return setenv("LD_PRELOAD", library, 1) ? STATUS_FAILED : STATUS_OK;
    if (!strncmp(old, library, length) && (!old[length] || strchr(": ", old[length])))
        return STATUS_OK;
    if (asprintf(&joined, "%s:%s", library, old) < 0)
        return STATUS_FAILED;
    failed = setenv("LD_PRELOAD", joined, 1);
    free(joined);
    return failed ? STATUS_FAILED : STATUS_OK;
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

int command_run(int argc, char **argv)
{
    char library[PATH_MAX];
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
    status = locate_library(library, sizeof(library));
    if (status)
        return status;
    status = prepend_preload(library);
    if (status)
        return status;
    return become_program(argv + first);
}
