/* Makes, maps and removes the counters' file: see record.h.
 *
 * Delicate, because a program must not notice: rules of this file
 * - no descriptor stays open, no memory is asked of malloc, errno is the caller's business;
 * - all pages of the file exist before it is mapped, else a full file system would be a SIGBUS in a
 *   counter; no more is taken than a small part of what is free there (NCCL and others need it
 * too);
 * - a limit on file sizes is looked at first: the kernel's answer to passing it is a signal;
 * - /dev/shm belongs to everybody: no link is followed, the folder must be the user's and closed to
 *   others, and the file is one that did not exist before.
 * Files of killed processes stay until somebody looks at them, but no more than KEPT of them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "stats.h"

#define KEPT      32u   /* files in a folder, beside those of running processes */
#define MAX_FILES 1024u /* in a folder, of whatever process */
#define SHARE     32u   /* of what is free in the file system, one part */
#define SUFFIX    ".counters"

static char file_path[PATH_MAX]; /* of this process's file, "" for none */
static bool is_shared;           /* ag_stats lies in a file */

/* --- names --- */

/* Of `pid`; 0 when it is gone, a zombie, or /proc is not there. */
static uint64_t process_start(int pid)
{
    char path[32], text[1024];
    const char *field;
    char *end;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    field = strrchr(text, ')'); /* behind the name, which may hold anything */
    if (!field || strlen(field) < 3 || field[2] == 'Z' || field[2] == 'X')
        return 0;
    for (unsigned i = 0; field && i < 20; i++) /* from the 2nd field to the 22nd */
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, &end, 10) : 0;
}

static uint64_t own_pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
}

void ag_record_describe_self(struct ag_record_owner *ret)
{
    *ret = (struct ag_record_owner){.started_ns = ag_clock_ns(), .pid = getpid()};
    ret->process_start = process_start(ret->pid);
    ret->pid_namespace = own_pid_namespace();
}

void ag_record_name(const struct ag_record_owner *owner, char name[AG_RECORD_NAME_MAX])
{
    snprintf(name, AG_RECORD_NAME_MAX, "%016llx-%d-%llu-%llu" SUFFIX,
             (unsigned long long)owner->started_ns, owner->pid,
             (unsigned long long)owner->process_start, (unsigned long long)owner->pid_namespace);
}

bool ag_record_parse_name(const char *name, struct ag_record_owner *ret)
{
    unsigned long long started, start, space;
    char again[AG_RECORD_NAME_MAX];
    int pid;

    if (strlen(name) >= AG_RECORD_NAME_MAX ||
        sscanf(name, "%16llx-%9d-%20llu-%20llu" SUFFIX, &started, &pid, &start, &space) != 4)
        return false;
    *ret = (struct ag_record_owner){started, pid, start, space};
    ag_record_name(ret, again);
    return pid > 0 && !strcmp(name, again);
}

enum ag_record_state ag_record_state(const struct ag_record_owner *owner)
{
    uint64_t here = own_pid_namespace(), start;

    if (owner->pid_namespace && here && owner->pid_namespace != here)
        return AG_RECORD_ELSEWHERE;
    start = process_start(owner->pid);
    if (!start)
        return access("/proc/self/stat", F_OK) ? AG_RECORD_ELSEWHERE : AG_RECORD_DEAD;
    return !owner->process_start || start == owner->process_start ? AG_RECORD_RUNNING
                                                                  : AG_RECORD_DEAD;
}

/* --- the folder --- */

bool ag_record_folder(const char *setting, char *path, size_t capacity)
{
    int length;

    if (!strcmp(setting, "off"))
        return false;
    if (strcmp(setting, "auto"))
        length = snprintf(path, capacity, "%s", setting);
    else
        length = snprintf(path, capacity, "/dev/shm/allograft-%u", (unsigned)geteuid());
    return length > 0 && (size_t)length < capacity;
}

int ag_record_open_folder(const char *setting, bool make)
{
    bool is_auto = !strcmp(setting, "auto");
    char path[PATH_MAX];
    struct stat st;
    int fd;

    if (!ag_record_folder(setting, path, sizeof(path)))
        return -ENOENT;
    if (make && is_auto)
        (void)mkdir(path, 0700);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_auto ? O_NOFOLLOW : 0));
    if (fd < 0)
        return -errno;
    if (is_auto && (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 077))) {
        close(fd);
        return -EPERM;
    }
    return fd;
}

struct census {
    unsigned n;
    char oldest_dead[AG_RECORD_NAME_MAX]; /* "" for none */
};

static void count_file(const char *name, bool ask_state, struct census *census)
{
    struct ag_record_owner owner;

    if (!ag_record_parse_name(name, &owner))
        return;
    census->n++;
    if (!ask_state || (*census->oldest_dead && strcmp(name, census->oldest_dead) >= 0) ||
        ag_record_state(&owner) != AG_RECORD_DEAD)
        return;
    memcpy(census->oldest_dead, name, strlen(name) + 1); /* no longer than a name of ours */
}

static struct census take_census(int folder, bool ask_state)
{
    struct census census = {0};
    _Alignas(struct dirent64) char entries[4096];
    ssize_t length;

    if (lseek(folder, 0, SEEK_SET))
        return census;
    while ((length = getdents64(folder, entries, sizeof(entries))) > 0) {
        for (ssize_t at = 0; at < length;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);

            count_file(entry->d_name, ask_state, &census);
            at += entry->d_reclen;
        }
    }
    return census;
}

/* Room for one more file? Those of processes long dead go first. */
static bool make_room(int folder)
{
    struct census census = take_census(folder, false);

    for (unsigned removed = 0; census.n >= KEPT && removed < KEPT; removed++) {
        census = take_census(folder, true);
        if (!*census.oldest_dead || unlinkat(folder, census.oldest_dead, 0))
            break;
    }
    return census.n < MAX_FILES;
}

/* --- the file --- */

static bool has_space(int folder)
{
    struct rlimit limit;
    struct statvfs fs;

    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < sizeof(ag_stats) ||
        fstatvfs(folder, &fs))
        return false;
    return (uint64_t)fs.f_bavail * fs.f_frsize / SHARE > sizeof(ag_stats);
}

/* All of ag_stats as it is now: the pages come into being by it. */
static bool fill(int fd)
{
    size_t done = 0;

    while (done < sizeof(ag_stats)) {
        ssize_t written = write(fd, (const char *)&ag_stats + done, sizeof(ag_stats) - done);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        done += (size_t)written;
    }
    return true;
}

/* Plain memory, all zero, in the place of whatever ag_stats lies in. */
static bool replace_by_memory(void)
{
    return mmap(&ag_stats, sizeof(ag_stats), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == &ag_stats;
}

/* Mapped elsewhere first: what can fail fails there. Other threads may count meanwhile; what they
 * add in between is lost. */
static bool map_over(int fd)
{
    void *mapped = mmap(NULL, sizeof(ag_stats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (mapped == MAP_FAILED)
        return false;
    memcpy(mapped, &ag_stats, sizeof(ag_stats));
    if (mremap(mapped, sizeof(ag_stats), sizeof(ag_stats), MREMAP_MAYMOVE | MREMAP_FIXED,
               (void *)&ag_stats) == &ag_stats)
        return true;
    if (replace_by_memory()) /* the kernel may have left a hole there */
        memcpy(&ag_stats, mapped, sizeof(ag_stats));
    munmap(mapped, sizeof(ag_stats));
    return false;
}

static void begin_in(int folder, const char *folder_path)
{
    struct ag_record_owner owner = {ag_stats.head.started_ns, ag_stats.head.pid,
                                    ag_stats.head.process_start, ag_stats.head.pid_namespace};
    char name[AG_RECORD_NAME_MAX];
    int fd, length;
    bool mapped;

    ag_record_name(&owner, name);
    length = snprintf(file_path, sizeof(file_path), "%s/%s", folder_path, name);
    if (length < 0 || (size_t)length >= sizeof(file_path) ||
        sysconf(_SC_PAGESIZE) > AG_STATS_PAGE || !has_space(folder) || !make_room(folder)) {
        *file_path = '\0';
        return;
    }
    fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    mapped = fd >= 0 && fill(fd) && map_over(fd);
    is_shared = is_shared || mapped;
    if (fd >= 0 && !mapped)
        (void)unlinkat(folder, name, 0);
    if (fd >= 0)
        close(fd);
    if (!mapped)
        *file_path = '\0';
}

void ag_record_begin(const char *setting)
{
    char path[PATH_MAX], absolute[PATH_MAX];
    int folder;

    if (!ag_record_folder(setting, path, sizeof(path)))
        return;
    folder = ag_record_open_folder(setting, true);
    if (folder < 0)
        return;
    /* The program may go elsewhere before it ends. */
    if (*path == '/' || (realpath(path, absolute) && *absolute == '/'))
        begin_in(folder, *path == '/' ? path : absolute);
    close(folder);
}

bool ag_record_in_child(void)
{
    *file_path = '\0';
    if (replace_by_memory())
        is_shared = false;
    else if (!is_shared)
        ag_stats_reset();
    return !is_shared;
}

void ag_record_end(void)
{
    if (*file_path)
        (void)unlink(file_path);
    *file_path = '\0';
}
