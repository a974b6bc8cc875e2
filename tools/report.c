/* `allograft report`: the report of a process that runs or was killed, out of its counters' file.
 */
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "record.h"
#include "render.h"
#include "stats.h"

static const char help_text[] =
    "allograft report [options] [PID | FILE | DIR]\n"
    "\n"
    "Prints the report of processes that were killed, or still run. A process that ends by itself\n"
    "has written its own report, and left no counters.\n"
    "\n"
    "  PID        of this process, newest first where an id was used again\n"
    "  FILE       of this file of counters\n"
    "  DIR        of all dead processes with counters in this folder, newest first\n"
    "  (nothing)  of all dead processes of yours: in the folder of ALLOGRAFT_COUNTERS, by default\n"
    "             /dev/shm/allograft-UID\n"
    "\n"
    "  --all      with DIR or nothing: of running processes too\n"
    "  --json     JSON as of ALLOGRAFT_STATS=x.json; a list of it unless FILE is given\n"
    "  --clean    afterwards, remove the counters of the dead processes that were shown\n"
    "  --help     this text\n"
    "\n"
    "Exit status 1: nothing was found, or a file could not be read.\n";

struct wishes {
    bool all, json, clean;
    const char *what;
};

/* Files to show, newest first. */
struct files {
    int folder;
    char (*names)[AG_RECORD_NAME_MAX];
    size_t n, capacity;
};

/* ---- one file ------------------------------------------------------------------------------ */

/* What is there for people to see must not steer their terminal. */
static void make_printable(char *text, size_t capacity)
{
    text[capacity - 1] = '\0';
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
    }
}

static void make_texts_safe(struct ag_stats *stats)
{
    struct ag_stats_head *head = &stats->head;

    make_printable(head->version, sizeof(head->version));
    make_printable(head->program, sizeof(head->program));
    make_printable(head->host, sizeof(head->host));
    make_printable(head->boot, sizeof(head->boot));
    make_printable(head->driver, sizeof(head->driver));
    make_printable(head->trouble, sizeof(head->trouble));
    make_printable(head->ended_by, sizeof(head->ended_by));
    for (unsigned i = 0; i < AG_STATS_DEVICES_MET; i++)
        make_printable(stats->devices[i].name, sizeof(stats->devices[i].name));
    for (unsigned i = 0; i < AG_MAX_RULES; i++)
        make_printable(head->rules[i], sizeof(head->rules[i]));
    for (unsigned i = 0; i < AG_STATS_BYPASSING; i++)
        make_printable(stats->bypassing[i], sizeof(stats->bypassing[i]));
    for (size_t i = 0; i < sizeof(head->settings); i++) {
        if (head->settings[i] &&
            ((unsigned char)head->settings[i] < 0x20 || head->settings[i] == 0x7f))
            head->settings[i] = '?';
    }
}

static bool read_all(int fd, struct ag_stats *stats)
{
    size_t done = 0;

    while (done < sizeof(*stats)) {
        ssize_t n = pread(fd, (char *)stats + done, sizeof(*stats) - done, (off_t)done);

        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static const char other_build[] = "was written by another build of Allograft";

/* Why the file is not one that this command can read, or NULL. */
static const char *fault_of(int fd, struct ag_stats *stats)
{
    struct ag_stats_head *head = &stats->head;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return "is no file";
    memset(head, 0, sizeof(*head));
    n = pread(fd, head, sizeof(*head), 0);
    if (n > 0 && head->magic[0] == '{')
        return "is a report already, as JSON";
    if (n < (ssize_t)sizeof(*head) || memcmp(head->magic, AG_STATS_MAGIC, sizeof(AG_STATS_MAGIC)))
        return "holds no counters of Allograft";
    if (head->layout != AG_STATS_LAYOUT || head->bytes != sizeof(*stats) ||
        head->fingerprint != ag_stats_fingerprint())
        return other_build;
    if (st.st_size != (off_t)sizeof(*stats) || !read_all(fd, stats))
        return "is cut short";
    if (head->pid <= 0)
        return "holds no process";
    return NULL;
}

/* Are the counters' clocks those of this machine since it started? */
static bool same_clock(const struct ag_stats_head *head)
{
    char boot[sizeof(head->boot)];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof(boot) - 1);

    if (fd >= 0)
        close(fd);
    boot[n > 0 ? n : 0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
    return *boot && !strcmp(boot, head->boot);
}

static enum ag_record_state state_of(const struct ag_stats_head *head)
{
    const struct ag_record_owner owner = {head->started_ns, head->pid, head->process_start,
                                          head->pid_namespace};

    return same_clock(head) ? ag_record_state(&owner) : AG_RECORD_DEAD;
}

static void render(struct ag_text *text, struct ag_stats *stats, bool json)
{
    struct ag_moment moment = {0};
    enum ag_record_state state = state_of(&stats->head);

    if (same_clock(&stats->head)) {
        moment.ns = ag_clock_ns();
        moment.ticks = ag_clock_ticks();
    }
    moment.alive = state == AG_RECORD_RUNNING;
    /* One whose own report could not be written has said how it ended. */
    if (state == AG_RECORD_RUNNING || !*stats->head.ended_by)
        snprintf(stats->head.ended_by, sizeof(stats->head.ended_by), "%s",
                 state == AG_RECORD_RUNNING ? "running"
                 : state == AG_RECORD_DEAD  ? "killed"
                                            : "elsewhere");
    (json ? ag_render_json : ag_render_text)(text, stats, &moment);
}

/* Adds the report of the file `name` in `folder` to `text`. With `n_others`, files of other builds
 * are counted there and nothing is said. */
static int add_report(struct ag_text *text, int folder, const char *name, bool json,
                      unsigned *n_others)
{
    static struct ag_stats stats;
    const char *fault;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        command_complain("%s: %s", name, strerror(errno));
        return STATUS_FAILED;
    }
    fault = fault_of(fd, &stats);
    close(fd);
    if (fault == other_build && n_others) {
        ++*n_others;
        return STATUS_OK;
    }
    if (fault) {
        command_complain("%s %s%s", name, fault,
                         fault == other_build ? ": use the command that lies beside its library"
                                              : "");
        return STATUS_FAILED;
    }
    make_texts_safe(&stats);
    render(text, &stats, json);
    return STATUS_OK;
}

/* ---- many ---------------------------------------------------------------------------------- */

/* Is the file one of those asked for? `pid` 0: any. */
static bool is_wanted(const struct ag_record_owner *owner, int pid, bool all)
{
    if (pid)
        return owner->pid == pid;
    return all || ag_record_state(owner) == AG_RECORD_DEAD;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(b, a); /* names begin with the time in fixed width */
}

static int add_name(struct files *files, const char *name)
{
    if (files->n == files->capacity) {
        size_t capacity = files->capacity ? 2 * files->capacity : 64;
        void *names = realloc(files->names, capacity * sizeof(*files->names));

        if (!names)
            return STATUS_FAILED;
        files->names = names;
        files->capacity = capacity;
    }
    memcpy(files->names[files->n++], name, strlen(name) + 1); /* no longer than a name of ours */
    return STATUS_OK;
}

static int list_files(struct files *files, int pid, bool all)
{
    DIR *directory = fdopendir(dup(files->folder));
    const struct dirent *entry;
    int status = STATUS_OK;

    if (!directory)
        return STATUS_FAILED;
    while (status == STATUS_OK && (entry = readdir(directory))) {
        struct ag_record_owner owner;

        if (ag_record_parse_name(entry->d_name, &owner) && is_wanted(&owner, pid, all))
            status = add_name(files, entry->d_name);
    }
    closedir(directory);
    if (files->n)
        qsort(files->names, files->n, sizeof(*files->names), newest_first);
    return status;
}

static void remove_if_dead(int folder, const char *name)
{
    struct ag_record_owner owner;

    if (ag_record_parse_name(name, &owner) && ag_record_state(&owner) == AG_RECORD_DEAD &&
        unlinkat(folder, name, 0))
        command_complain("%s: %s", name, strerror(errno));
}

static int print(struct ag_text *text)
{
    if (text->truncated) {
        command_complain("no memory for the whole report");
        return STATUS_FAILED;
    }
    if (text->data)
        fwrite(text->data, 1, text->length, stdout);
    return ferror(stdout) ? STATUS_FAILED : STATUS_OK;
}

static int show_all(struct files *files, const struct wishes *wishes)
{
    struct ag_text text = {0};
    unsigned n_others = 0;
    int status = STATUS_OK;
    bool first = true;

    if (wishes->json)
        ag_text_add(&text, "[");
    for (size_t i = 0; i < files->n; i++) {
        struct ag_text one = {0};

        if (add_report(&one, files->folder, files->names[i], wishes->json, &n_others))
            status = STATUS_FAILED;
        if (one.data)
            ag_text_add(&text, "%s%s", first ? "" : wishes->json ? "," : "\n", one.data);
        else
            *files->names[i] = '\0'; /* not shown, and so not cleaned */
        first = first && !one.data;
        ag_text_finish(&one);
    }
    if (n_others)
        command_complain("%u more %s: the command that lies beside its library shows them",
                         n_others, other_build);
    if (wishes->json)
        ag_text_add(&text, "]\n");
    if (print(&text))
        status = STATUS_FAILED;
    ag_text_finish(&text);
    for (size_t i = 0; wishes->clean && !fflush(stdout) && i < files->n; i++)
        remove_if_dead(files->folder, files->names[i]);
    return status;
}

/* Processes with counters in a folder: `pid`, or all dead ones, or all. */
static int report_folder(int folder, const char *path, int pid, const struct wishes *wishes)
{
    struct files files = {.folder = folder};
    int status = list_files(&files, pid, wishes->all);

    if (status)
        command_complain("%s: %s", path, strerror(errno));
    else if (!files.n && pid) {
        command_complain("process %d has no counters in %s", pid, path);
        status = STATUS_FAILED;
    } else if (!files.n && !wishes->json) {
        fprintf(stderr, "allograft: no counters of %s processes in %s\n",
                wishes->all ? "any" : "dead", path);
        status = STATUS_FAILED;
    } else {
        status = show_all(&files, wishes);
    }
    free(files.names);
    return status;
}

static int report_own_folder(int pid, const struct wishes *wishes)
{
    const char *setting = getenv("ALLOGRAFT_COUNTERS");
    char path[PATH_MAX];
    int folder, status;

    if (!setting || !*setting || !strcmp(setting, "off"))
        setting = "auto";
    (void)ag_record_folder(setting, path, sizeof(path));
    folder = ag_record_open_folder(setting, false);
    if (folder < 0 && folder != -ENOENT) {
        command_complain("%s: %s", path,
                         folder == -EPERM ? "is not a folder of yours alone" : strerror(-folder));
        return STATUS_FAILED;
    }
    if (folder < 0 && !pid && wishes->json) {
        puts("[]");
        return STATUS_OK;
    }
    if (folder < 0) {
        command_complain("no process has left counters: there is no %s", path);
        return STATUS_FAILED;
    }
    status = report_folder(folder, path, pid, wishes);
    close(folder);
    return status;
}

static int report_named_folder(const char *path, const struct wishes *wishes)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status;

    if (folder < 0) {
        command_complain("%s: %s", path, strerror(errno));
        return STATUS_FAILED;
    }
    status = report_folder(folder, path, 0, wishes);
    close(folder);
    return status;
}

static int report_path(const char *path, const struct wishes *wishes)
{
    const char *slash = strrchr(path, '/');
    struct ag_record_owner owner;
    struct ag_text text = {0};
    struct stat st;
    int status;

    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return report_named_folder(path, wishes);
    status = add_report(&text, AT_FDCWD, path, wishes->json, NULL);
    if (!status)
        status = print(&text);
    ag_text_finish(&text);
    if (!status && wishes->clean && !fflush(stdout) &&
        ag_record_parse_name(slash ? slash + 1 : path, &owner) &&
        ag_record_state(&owner) == AG_RECORD_DEAD && unlink(path))
        command_complain("%s: %s", path, strerror(errno));
    return status;
}

/* ---- words --------------------------------------------------------------------------------- */

static int parse_words(int argc, char **argv, struct wishes *wishes)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--all"))
            wishes->all = true;
        else if (!strcmp(argv[i], "--json"))
            wishes->json = true;
        else if (!strcmp(argv[i], "--clean"))
            wishes->clean = true;
        else if (argv[i][0] == '-') {
            command_complain("report: no option '%s'; there are: --all, --json, --clean, --help",
                             argv[i]);
            return STATUS_USAGE;
        } else if (wishes->what) {
            command_complain("report: one process, file or folder at a time");
            return STATUS_USAGE;
        } else {
            wishes->what = argv[i];
        }
    }
    return STATUS_OK;
}

/* A number that names no file is a process. */
static int pid_in(const char *word)
{
    size_t digits = strspn(word, "0123456789");

    return digits && digits < 10 && !word[digits] && access(word, F_OK) ? atoi(word) : 0;
}

int command_report(int argc, char **argv)
{
    struct wishes wishes = {0};

    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (parse_words(argc, argv, &wishes))
        return STATUS_USAGE;
    if (!wishes.what)
        return report_own_folder(0, &wishes);
    if (pid_in(wishes.what))
        return report_own_folder(pid_in(wishes.what), &wishes);
    return report_path(wishes.what, &wishes);
}
