/* Brings a report to its destination: see deliver.h.
 *
 * Delicate, because it happens while the process ends, and the program does not know about it. The
 * rules of this file:
 * - it never waits without a bound for somebody who may never come: to open a FIFO, to read from a
 *   pipe, to release a lock;
 * - a file is written under another name beside its own, and renamed when it is whole. So a full
 *   disk, a signal, or another process at the same moment leaves one whole report, old or new;
 * - two processes with the same file name take turns by a lock of the folder. The second one finds
 *   another file than it found when it began, and takes a name of its own. Without such a lock, or
 *   when it comes too late, one report may replace the other, but each is whole;
 * - the numbers of descriptors are shared with the program: none stays open. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/deliver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/log.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/settings/pattern.h"

#define LOCK_TRIES    200u /* of LOCK_PAUSE_NS */
#define LOCK_PAUSE_NS (5 * 1000 * 1000)
#define OWN_NAMES     1000u

/* Which file lies under a name, in which state. */
struct identity {
    bool exists;
    dev_t device;
    ino_t inode;
    struct timespec modified;
    off_t size;
};

static struct {
    char path[PATH_MAX];
    struct identity found; /* there when the process began, or when it last wrote itself */
} expected;

static struct identity identify(const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return (struct identity){0};
    return (struct identity){true, st.st_dev, st.st_ino, st.st_mtim, st.st_size};
}

static bool is_same_file(const struct identity *a, const struct identity *b)
{
    return a->exists == b->exists && a->device == b->device && a->inode == b->inode &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           a->size == b->size;
}

/* What does not fit, or lies in no folder any more, stays relative. */
static void make_absolute(const char *path, char absolute[PATH_MAX])
{
    char folder[PATH_MAX];

    if (*path == '/' || !getcwd(folder, sizeof(folder)) ||
        snprintf(absolute, PATH_MAX, "%s/%s", folder, path) >= PATH_MAX)
        snprintf(absolute, PATH_MAX, "%s", path);
}

void ag_deliver_expect(const char *path)
{
    make_absolute(path, expected.path);
    expected.found = identify(expected.path);
}

const char *ag_deliver_expected(void)
{
    return expected.path;
}

static int explain_error(int error, char *why, size_t capacity)
{
    snprintf(why, capacity, "%s",
             error == -ETIMEDOUT ? "nobody reads it"
             : error == -ENXIO   ? "nobody has it open for reading"
                                 : strerror(-error));
    return error;
}

/* --- descriptors, pipes and devices --- */

/* A pipe is opened anew, since only then it can be written to without a risk of waiting. */
static int write_to_descriptor(const struct ag_text *text, int fd)
{
    char name[32];
    struct stat st;
    int own = -1, result;

    if (!fstat(fd, &st) && S_ISFIFO(st.st_mode)) {
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        own = open(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    result = ag_text_write_within(own < 0 ? fd : own, text->data, text->length, AG_LOG_TIMEOUT_MS);
    if (own >= 0)
        close(own);
    return result;
}

int ag_deliver_to_stderr(const struct ag_text *text, char *why, size_t capacity)
{
    const char *trouble = ag_log_stderr_trouble();
    int result;

    if (trouble) {
        snprintf(why, capacity, "%s", trouble);
        return -EBADF;
    }
    result = write_to_descriptor(text, STDERR_FILENO);
    return result ? explain_error(result, why, capacity) : 0;
}

/* What such a name opens is the file that the descriptor has, but at its beginning: the program's
 * own output would be written over. -1: it is no such name. */
static int descriptor_named(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};

    if (!strcmp(path, "/dev/stdout"))
        return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr"))
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        size_t length = strlen(folders[i]);
        const char *number = path + length;

        if (!strncmp(path, folders[i], length) && *number &&
            strspn(number, "0123456789") == strlen(number) && strlen(number) < 9)
            return atoi(number);
    }
    return -1;
}

/* Writes into what lies there: a FIFO or a device, or a file where none can be made beside it. */
static int write_in_place(const struct ag_text *text, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    int result;

    if (fd < 0)
        return -errno;
    result = ag_text_write_within(fd, text->data, text->length, AG_LOG_TIMEOUT_MS);
    if (close(fd) && !result)
        result = -errno;
    return result;
}

/* --- files --- */

/* Puts the text into a new file in the folder of `path`, whose name goes to beside[PATH_MAX]. */
static int write_beside(const struct ag_text *text, const char *path, char *beside)
{
    const char *slash = strrchr(path, '/');
    int length =
        snprintf(beside, PATH_MAX, "%.*s.allograft-%d-%llx", slash ? (int)(slash + 1 - path) : 0,
                 path, ag_stats.head.pid, (unsigned long long)ag_clock_ns());
    int fd, result;

    if (length >= PATH_MAX)
        return -ENAMETOOLONG;
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    result = ag_text_write(text, fd);
    if (close(fd) && !result)
        result = -errno;
    if (result)
        (void)unlink(beside);
    return result;
}

/* Locks the folder of `path`; what it returns is to be closed, or -1. */
static int lock_folder(const char *path)
{
    const struct timespec pause = {0, LOCK_PAUSE_NS};
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    int fd;

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash + 1 - path) : 1,
             slash ? path : ".");
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && i < LOCK_TRIES; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        (void)nanosleep(&pause, NULL);
    }
    return fd;
}

/* A name beside `path` that nothing has: with the process id, and a number where that is not
 * enough. */
static int find_own_name(const char *path, char *own)
{
    struct stat st;

    for (unsigned i = 1; i < OWN_NAMES; i++) {
        char words[32];

        snprintf(words, sizeof(words), i == 1 ? "%d" : "%d.%u", ag_stats.head.pid, i);
        if (snprintf(own, PATH_MAX, "%s", path) >= PATH_MAX ||
            !ag_pattern_distinguish(own, PATH_MAX, words))
            return -ENAMETOOLONG;
        if (lstat(own, &st) && errno == ENOENT)
            return 0;
    }
    return -EEXIST;
}

/* Gives the file `beside` the name `path`, or one of its own. With the folder locked. */
static int rename_to(const char *beside, const char *path, bool exclusive)
{
    struct identity now = identify(path);
    char own[PATH_MAX];
    int result;

    if (!exclusive || is_same_file(&now, &expected.found))
        return rename(beside, path) ? -errno : 0;
    result = find_own_name(path, own);
    if (!result && rename(beside, own))
        result = -errno;
    if (result)
        return result;
    memcpy(expected.path, own, sizeof(own)); /* where it goes if it is written again */
    ag_log_warn("the report lies in %s: meanwhile another process wrote %s; %%p in "
                "ALLOGRAFT_STATS gives each its own name",
                own, path);
    return 0;
}

/* The file that was just written counts as found, if it is the one that is expected, and not
 * another beside one of another process. */
static void note_written(const struct identity *written)
{
    struct identity found = identify(expected.path);

    if (is_same_file(&found, written))
        expected.found = found;
}

static int replace(const struct ag_text *text, const char *path, bool exclusive)
{
    char beside[PATH_MAX];
    int result = write_beside(text, path, beside), folder;
    struct identity written;

    if (result)
        return result;
    folder = lock_folder(path);
    written = identify(beside);
    result = rename_to(beside, path, exclusive);
    if (result)
        (void)unlink(beside);
    else
        note_written(&written);
    if (folder >= 0)
        close(folder);
    return result;
}

/* May no file be made in the folder, though one that is there may be written? */
static bool forbids_files(int error)
{
    return error == -EACCES || error == -EPERM || error == -EROFS || error == -EBUSY;
}

/* Writes to what the path names, be it a file or not. */
static int write_to_path(const struct ag_text *text, const char *path, bool exclusive)
{
    char target[PATH_MAX];
    struct stat st;
    bool exists = !stat(path, &st);
    int result;

    if (exists && !S_ISREG(st.st_mode))
        return write_in_place(text, path);
    if (!lstat(path, &st) && S_ISLNK(st.st_mode)) { /* which stays one */
        if (!exists || !realpath(path, target))
            return write_in_place(text, path);
        path = target;
    }
    result = replace(text, path, exclusive);
    return forbids_files(result) ? write_in_place(text, path) : result;
}

int ag_deliver_to_file(const struct ag_text *text, const char *path, bool exclusive, char *why,
                       size_t capacity)
{
    int descriptor = descriptor_named(path), result;
    char absolute[PATH_MAX];

    if (descriptor == STDERR_FILENO)
        return ag_deliver_to_stderr(text, why, capacity);
    make_absolute(path, absolute);
    if (descriptor >= 0)
        result = write_to_descriptor(text, descriptor);
    else
        result = write_to_path(text, absolute, exclusive);
    return result ? explain_error(result, why, capacity) : 0;
}
