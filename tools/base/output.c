/* output.c: writes a temporary file beside the target and renames it into place: see output.h.
 *
 * A device, a pipe or an open descriptor (/dev/fd/3) cannot be replaced by a rename and holds
 * nothing that could be lost: it is opened and written directly. */
#include "tools/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace_format.h"
#include "tools/base/complain.h"
#include "tools/base/list.h"

#define HEAD_BYTES 4096u /* of a file, by which its kind is recognised */
#define MOST_LINKS 40    /* followed one after the other; the kernel's limit, too */
#define MOST_NAMES 100   /* tried for the temporary file */

/* ---- files that are read ------------------------------------------------------------------- */

struct identity {
    dev_t device;
    ino_t inode;
};

static struct {
    struct identity *list;
    size_t n, capacity;
} kept;

static bool is_kept_file(const struct stat *st)
{
    for (size_t i = 0; i < kept.n; i++) {
        if (kept.list[i].device == st->st_dev && kept.list[i].inode == st->st_ino)
            return true;
    }
    return false;
}

static void add_kept(const struct stat *st)
{
    void *list;

    if (!S_ISREG(st->st_mode) || is_kept_file(st))
        return;
    list = list_grow(kept.list, kept.n, &kept.capacity, sizeof(*kept.list));
    if (!list) { /* a file that is not on the list could be overwritten */
        command_complain("%s", strerror(ENOMEM));
        exit(STATUS_FAILED);
    }
    kept.list = list;
    kept.list[kept.n++] = (struct identity){st->st_dev, st->st_ino};
}

void output_keep_path(const char *path)
{
    struct stat st;

    if (!stat(path, &st))
        add_kept(&st);
}

bool output_is_kept(const char *path)
{
    struct stat st;

    return !stat(path, &st) && is_kept_file(&st);
}

void output_keep(int fd)
{
    struct stat st;

    if (!fstat(fd, &st))
        add_kept(&st);
}

/* ---- kinds of files ------------------------------------------------------------------------ */

static const struct {
    const char *name, *begins, *contains;
} kinds[] = {
    [OUTPUT_PAGE] = {"a page of Allograft", "<!doctype html>",
                     "<meta name=\"generator\" content=\"allograft\">"},
    [OUTPUT_PERFETTO] = {"a trace for Perfetto", "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"pr",
                         ""},
    [OUTPUT_SETTINGS] = {"a file of settings of `allograft tune`",
                         "# Best of `allograft tune`:", ""},
    [OUTPUT_METRICS] = {"a file of metrics", "# TYPE allograft_", ""},
    [OUTPUT_TORCH] = {"a snapshot for memory_viz", "\x80\x04}(\x8c\tallograft", ""},
    /* Other kinds that a message can name. */
    {"a report", "{", "\"allograft-"},
    {"a trace", AG_TRACE_MAGIC, ""},
    {"a file of counters", AG_STATS_MAGIC, ""},
};

/* The file's kind as an index into `kinds`, or -1. */
static int kind_by_head(const char *head)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!strncmp(head, kinds[i].begins, strlen(kinds[i].begins)) &&
            strstr(head, kinds[i].contains))
            return (int)i;
    }
    return -1;
}

/* May what is at the path be replaced? */
static int check_kind(const struct output *output, const struct stat *st)
{
    char head[HEAD_BYTES + 1];
    int fd, kind;
    ssize_t n;

    if (output->force || !st->st_size)
        return STATUS_OK;
    fd = open(output->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    n = fd < 0 ? -1 : pread(fd, head, sizeof(head) - 1, 0);
    if (fd >= 0)
        close(fd);
    head[n > 0 ? n : 0] = '\0';
    kind = kind_by_head(head);
    if (kind == (int)output->kind)
        return STATUS_OK;
    /* Metrics, which are written again and again, have no --force. */
    command_complain(
        "%s: %s %s: this is %s, not %s, and would be overwritten: %s takes the name of the "
        "output file (%s)",
        output->command, output->option, output->path,
        kind < 0 ? "another kind of file" : kinds[kind].name, kinds[output->kind].name,
        output->option,
        output->kind == OUTPUT_METRICS ? "remove it first if it is that" : "--force overwrites it");
    return STATUS_FAILED;
}

/* ---- the target ---------------------------------------------------------------------------- */

static int complain(const struct output *output, int error)
{
    command_complain("%s: %s %s: %s", output->command, output->option, output->path,
                     strerror(error));
    return STATUS_FAILED;
}

/* The file cannot be replaced, though it might be writable: a redirection in the shell works. */
static int complain_of_place(const struct output *output, int error)
{
    command_complain("%s: %s %s: it cannot be replaced by a new file beside it (%s); `%s - > FILE` "
                     "writes into the file itself",
                     output->command, output->option, output->path, strerror(error),
                     output->option);
    return STATUS_FAILED;
}

/* The open descriptor that the path names, or -1. Opening the path again would start at the
 * beginning of the file. */
static int descriptor_in(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    char *end;
    long fd;

    if (!strcmp(path, "-") || !strcmp(path, "/dev/stdout"))
        return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr"))
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        size_t length = strlen(folders[i]);

        if (strncmp(path, folders[i], length) != 0 || path[length] < '0' || path[length] > '9')
            continue;
        fd = strtol(path + length, &end, 10);
        return *end || fd > INT_MAX ? -1 : (int)fd;
    }
    return -1;
}

/* Writes to output->target where the symbolic links at the path end; nothing need exist there. The
 * caller's stat() has checked that they may be followed. */
static int follow_links(struct output *output)
{
    char *target = output->target;

    if (snprintf(target, PATH_MAX, "%s", output->path) >= PATH_MAX)
        return complain(output, ENAMETOOLONG);
    for (int i = 0; i < MOST_LINKS; i++) {
        char text[PATH_MAX], joined[2 * PATH_MAX];
        const char *slash = strrchr(target, '/');
        ssize_t n = descriptor_in(target) >= 0 ? -1 : readlink(target, text, sizeof(text) - 1);
        int folder = slash && n > 0 && *text != '/' ? (int)(slash - target) + 1 : 0;

        if (n < 0)
            return STATUS_OK;
        text[n] = '\0';
        snprintf(joined, sizeof(joined), "%.*s%s", folder, target, text);
        if (snprintf(target, PATH_MAX, "%s", joined) >= PATH_MAX)
            return complain(output, ENAMETOOLONG);
    }
    return complain(output, ELOOP);
}

/* Finds out what the path names. *ret_there is false where nothing exists. */
static int look_at_path(struct output *output, struct stat *st, bool *ret_there)
{
    int error = 0;

    output->descriptor = descriptor_in(output->path);
    if (output->descriptor < 0) {
        error = stat(output->path, st) ? errno : 0;
        if ((error && error != ENOENT) || !*output->path)
            return complain(output, error);
        if (follow_links(output))
            return STATUS_FAILED;
        output->descriptor = descriptor_in(output->target);
    }
    if (output->descriptor >= 0 && fstat(output->descriptor, st))
        return complain(output, errno);
    *ret_there = output->descriptor >= 0 || !error;
    output->in_place = output->descriptor >= 0 || (*ret_there && !S_ISREG(st->st_mode));
    return STATUS_OK;
}

/* May a file be created beside the target? */
static int check_folder(const struct output *output, bool there)
{
    const char *slash = strrchr(output->target, '/');
    char folder[PATH_MAX] = ".";

    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - output->target) + 1, output->target);
    if (!faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS))
        return STATUS_OK;
    return there ? complain_of_place(output, errno) : complain(output, errno);
}

int output_check(struct output *output)
{
    struct stat st;
    bool there = false;

    if (look_at_path(output, &st, &there))
        return STATUS_FAILED;
    if (there && S_ISDIR(st.st_mode))
        return complain(output, EISDIR);
    if (there && is_kept_file(&st)) {
        command_complain("%s: %s %s: this command reads that file, and would overwrite it",
                         output->command, output->option, output->path);
        return STATUS_FAILED;
    }
    if (output->in_place)
        return STATUS_OK;
    if (there && check_kind(output, &st))
        return STATUS_FAILED;
    /* A rename would replace even a write-protected file. */
    if (there && faccessat(AT_FDCWD, output->path, W_OK, AT_EACCESS))
        return complain(output, errno);
    return check_folder(output, there);
}

/* ---- several outputs ----------------------------------------------------------------------- */

static bool is_one_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The last name of the path; what its folder is goes to *ret_folder. */
static const char *split_target(const char *target, struct stat *ret_folder)
{
    const char *slash = strrchr(target, '/');
    char folder[PATH_MAX] = ".";

    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - target) + 1, target);
    if (stat(folder, ret_folder))
        memset(ret_folder, 0, sizeof(*ret_folder));
    return slash ? slash + 1 : target;
}

/* A device takes what both write, one after the other. */
static bool is_same_place(const struct output *a, const struct output *b)
{
    struct stat at_a, at_b;
    const char *name;

    if (a->descriptor >= 0 || b->descriptor >= 0)
        return a->descriptor == b->descriptor;
    if (a->in_place || b->in_place)
        return false;
    if (!stat(a->target, &at_a) && !stat(b->target, &at_b))
        return is_one_file(&at_a, &at_b);
    name = split_target(a->target, &at_a);
    return !strcmp(name, split_target(b->target, &at_b)) && is_one_file(&at_a, &at_b);
}

int output_check_apart(const struct output *output, const struct output *other)
{
    if (!output->path || !other->path || !is_same_place(output, other))
        return STATUS_OK;
    command_complain("%s: %s %s: %s writes there, too; allowed: another file", output->command,
                     output->option, output->path, other->option);
    return STATUS_USAGE;
}

bool output_is_stdout(const struct output *output)
{
    return output->path && output->descriptor == STDOUT_FILENO;
}

int output_check_alone(const struct output *output, const char *printed)
{
    if (!output_is_stdout(output))
        return STATUS_OK;
    command_complain("%s: %s %s: standard output is for what %s prints; allowed: a file",
                     output->command, output->option, output->path, printed);
    return STATUS_USAGE;
}

/* ---- the temporary file -------------------------------------------------------------------- */

static const int ending_signals[] = {SIGHUP, SIGINT, SIGTERM};
static char *volatile unfinished; /* the name of a file that is not whole */

/* Removes the temporary file when the user interrupts the command. */
static void tidy_and_end(int signal)
{
    if (unfinished)
        (void)unlink(unfinished);
    (void)raise(signal); /* SA_RESETHAND: this now ends the process */
}

/* Handles signals while there is a temporary file. A limit on file sizes becomes an error. */
static void handle_signals(bool begins)
{
    struct sigaction action = {.sa_handler = tidy_and_end, .sa_flags = (int)SA_RESETHAND};
    static struct sigaction before[sizeof(ending_signals) / sizeof(ending_signals[0])], too_large;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};

    for (size_t i = 0; i < sizeof(ending_signals) / sizeof(ending_signals[0]); i++) {
        if (!begins) {
            (void)sigaction(ending_signals[i], &before[i], NULL);
            continue;
        }
        (void)sigaction(ending_signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* as under nohup */
            (void)sigaction(ending_signals[i], &action, NULL);
    }
    (void)sigaction(SIGXFSZ, begins ? &ignore : &too_large, begins ? &too_large : NULL);
}

static int create_beside(struct output *output, mode_t mode)
{
    const char *slash = strrchr(output->target, '/');
    int folder = slash ? (int)(slash - output->target) + 1 : 0, fd = -1;

    errno = EEXIST;
    for (unsigned i = 0; fd < 0 && errno == EEXIST && i < MOST_NAMES; i++) {
        unsigned long long number = ag_clock_ns() + i;

        if (snprintf(output->beside, PATH_MAX, "%.*s.allograft-%llx.part", folder, output->target,
                     number) >= PATH_MAX) {
            errno = ENAMETOOLONG;
            break;
        }
        fd = open(output->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    if (fd < 0)
        *output->beside = '\0';
    return fd;
}

/* Gives the new file the old one's owner and mode. */
static bool copy_owner_and_mode(int fd, const struct stat *old)
{
    struct stat st;

    if (fstat(fd, &st))
        return false;
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
        fchown(fd, old->st_uid, old->st_gid))
        return false;
    return !fchmod(fd, old->st_mode & 07777);
}

static void drop_beside(struct output *output)
{
    int error = errno;

    if (*output->beside)
        (void)unlink(output->beside);
    *output->beside = '\0';
    unfinished = NULL;
    handle_signals(false);
    errno = error;
}

static int open_beside(struct output *output)
{
    struct stat old;
    bool there = !stat(output->target, &old);
    sigset_t all, before;
    int fd, error;

    handle_signals(true);
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    fd = create_beside(output, there ? 0600 : 0666);
    unfinished = output->beside;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (fd >= 0 && (!there || copy_owner_and_mode(fd, &old)))
        output->file = fdopen(fd, "w");
    if (output->file)
        return STATUS_OK;
    error = errno;
    drop_beside(output);
    if (fd >= 0)
        close(fd);
    return there ? complain_of_place(output, error) : complain(output, error);
}

static int open_in_place(struct output *output)
{
    int fd;

    if (output->descriptor == STDOUT_FILENO) {
        output->file = stdout;
        return STATUS_OK;
    }
    fd = output->descriptor >= 0 ? fcntl(output->descriptor, F_DUPFD_CLOEXEC, 0)
                                 : open(output->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    output->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (output->file)
        return STATUS_OK;
    if (fd >= 0)
        close(fd);
    return complain(output, errno);
}

/* ---- writing ------------------------------------------------------------------------------- */

int output_open(struct output *output)
{
    output->file = NULL;
    output->error = 0;
    *output->beside = '\0';
    if (output_check(output))
        return STATUS_FAILED;
    return output->in_place ? open_in_place(output) : open_beside(output);
}

/* Has every byte been written? Some file systems report errors only on fsync(). 0, or the error. */
static int finish_writing(struct output *output)
{
    FILE *file = output->file;
    int error;

    errno = 0;
    error = fflush(file) || ferror(file) ? errno : 0;
    if (!error && ferror(file))
        error = output->error ? output->error : EIO;
    if (!error && *output->beside && fsync(fileno(file)) && errno != EINVAL)
        error = errno;
    if (file != stdout && fclose(file) && !error)
        error = errno;
    output->file = NULL;
    return error;
}

int output_close(struct output *output, bool whole)
{
    int error = finish_writing(output);
    bool moved = true;

    if (!error && whole && *output->beside) {
        moved = !rename(output->beside, output->target);
        error = moved ? 0 : errno;
        if (moved)
            *output->beside = '\0';
    }
    if (!output->in_place)
        drop_beside(output);
    if (!moved)
        return complain_of_place(output, error);
    if (error && whole)
        return complain(output, error);
    return whole ? STATUS_OK : STATUS_FAILED;
}

int output_write(struct output *output, const char *data, size_t length)
{
    if (output_open(output))
        return STATUS_FAILED;
    errno = 0;
    /* What could not be written is forgotten, so that fflush() finds no fault any more. */
    if (fwrite(data, 1, length, output->file) < length)
        output->error = errno;
    return output_close(output, true);
}
