/* Makes, maps and removes the counters' file: see counters_file.h.
 *
 * Delicate, because a program must not notice. The rules of this file:
 * - no descriptor stays open, malloc is not called, and callers keep errno;
 * - a page of the file exists before anybody counts there, since a full file system would otherwise
 *   be a SIGBUS in a counter; the file takes no more than a small part of the space that is free
 *   there, which NCCL and others need, too;
 * - on tmpfs the pages of a slot are made as a thread gets it: those of all slots, of which most
 *   processes use one, would make a start 0.7 ms slower. Nobody reads a slot that is not used;
 * - the limit on file sizes is looked at first, since the kernel answers with a signal when it is
 *   exceeded;
 * - /dev/shm belongs to everybody: no link is followed, the folder must be the user's and closed to
 *   others, and the file is one that did not exist before;
 * - processes of another container cannot be seen, but locks on files can: the file is locked for
 *   as long as the process lives. flock(2) belongs to the open file, which the mapping keeps, so
 *   that no descriptor is needed, and the kernel releases it however the process ends. A file is
 *   locked before anything is written to it, so an empty one may be about to be locked. Files of
 *   killed processes stay until somebody reads them, but no more than KEPT of them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/counters_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "interpose/core/base/advice.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/slot.h"
#include "interpose/core/report/live/live.h"
#include "interpose/core/report/stats.h"

#define KEPT      32u   /* files in a folder, beside those of running processes */
#define MAX_FILES 1024u /* in a folder, of whatever process */
#define AT_ONCE   64u   /* removed by one process */
#define SHARE     32u   /* of what is free in the file system, one part */
#define SUFFIX    ".counters"
#define UNLOCKED  "-unlocked"

static char file_path[PATH_MAX + AG_RECORD_NAME_MAX]; /* of this process's file, "" for none */
static _Atomic bool is_shared;                        /* ag_stats lies in a file */
static _Atomic bool in_pieces;                        /* its pages are made slot by slot */

/* --- names --- */

/* When the process `pid` began; 0 when it is gone, a zombie, or /proc is not there. */
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
    field = strrchr(text, ')'); /* after the name, which may hold anything */
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
    snprintf(name, AG_RECORD_NAME_MAX, "%016llx-%d-%llu-%llu%s" SUFFIX,
             (unsigned long long)owner->started_ns, owner->pid,
             (unsigned long long)owner->process_start, (unsigned long long)owner->pid_namespace,
             owner->is_unlocked ? UNLOCKED : "");
}

bool ag_record_parse_name(const char *name, struct ag_record_owner *ret)
{
    unsigned long long started, start, space;
    char again[AG_RECORD_NAME_MAX];
    int pid;

    if (strlen(name) >= AG_RECORD_NAME_MAX ||
        sscanf(name, "%16llx-%9d-%20llu-%20llu", &started, &pid, &start, &space) != 4)
        return false;
    *ret = (struct ag_record_owner){started, pid, start, space, strstr(name, UNLOCKED) != NULL};
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

enum lock { LOCK_UNKNOWN, LOCK_HELD, LOCK_FREE };

static enum lock look_at_lock(int folder, const char *path)
{
    int fd = openat(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    enum lock found = LOCK_UNKNOWN;
    struct stat st;

    if (fd < 0)
        return found;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
        if (!flock(fd, LOCK_SH | LOCK_NB))
            found = LOCK_FREE;
        else if (errno == EWOULDBLOCK)
            found = LOCK_HELD;
    }
    close(fd);
    return found;
}

enum ag_record_state ag_record_file_state(int folder, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct ag_record_owner owner;
    enum ag_record_state state;
    enum lock lock;

    if (!ag_record_parse_name(slash ? slash + 1 : path, &owner))
        return AG_RECORD_ELSEWHERE;
    state = ag_record_state(&owner);
    lock = owner.is_unlocked ? LOCK_UNKNOWN : look_at_lock(folder, path);
    if (lock == LOCK_FREE)
        return AG_RECORD_DEAD;
    return lock == LOCK_HELD && state == AG_RECORD_DEAD ? AG_RECORD_ELSEWHERE : state;
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

/* What is in a folder. Once at a time. */
static struct census {
    unsigned n, n_dead, n_oldest;
    char oldest[AT_ONCE][AG_RECORD_NAME_MAX]; /* of the dead, in order */
} census;

static void add_dead(const char *name)
{
    unsigned at = census.n_oldest;

    census.n_dead++;
    while (at && strcmp(name, census.oldest[at - 1]) < 0)
        at--;
    if (at == AT_ONCE)
        return;
    census.n_oldest += census.n_oldest < AT_ONCE;
    memmove(census.oldest[at + 1 < AT_ONCE ? at + 1 : at], census.oldest[at],
            (census.n_oldest - at - 1) * sizeof(census.oldest[0]));
    memcpy(census.oldest[at], name, strlen(name) + 1); /* no longer than a name of ours */
}

static void take_census(int folder, bool ask_state)
{
    _Alignas(struct dirent64) char entries[4096];
    struct ag_record_owner owner;
    ssize_t length;

    census.n = census.n_dead = census.n_oldest = 0;
    if (lseek(folder, 0, SEEK_SET))
        return;
    while ((length = getdents64(folder, entries, sizeof(entries))) > 0) {
        for (ssize_t at = 0; at < length;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);

            at += entry->d_reclen;
            if (!ag_record_parse_name(entry->d_name, &owner))
                continue;
            census.n++;
            if (ask_state && ag_record_file_state(folder, entry->d_name) == AG_RECORD_DEAD)
                add_dead(entry->d_name);
        }
    }
}

/* Room for one more file? Those of processes long dead go first. */
static bool make_file_room(int folder)
{
    take_census(folder, false);
    if (census.n < KEPT)
        return true;
    take_census(folder, true);
    for (unsigned i = 0; i < census.n_oldest && census.n_dead >= KEPT; i++) {
        if (unlinkat(folder, census.oldest[i], 0))
            break;
        census.n_dead--;
        census.n--;
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

/* The head first, so that whoever reads the file meanwhile sees whose it is. */
static bool write_counters(int fd)
{
    size_t done = 0;

    while (done < sizeof(ag_stats.head)) {
        ssize_t written = write(fd, (const char *)&ag_stats + done, sizeof(ag_stats.head) - done);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        done += (size_t)written;
    }
    return !ftruncate(fd, sizeof(ag_stats));
}

static bool is_tmpfs(int fd)
{
    struct statfs fs;

    return !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC;
}

static bool make_all_pages(int fd)
{
    int error;

    do
        error = posix_fallocate(fd, 0, sizeof(ag_stats));
    while (error == EINTR);
    return !error;
}

/* False where there is no space, or the kernel is older than 5.14. */
static bool make_pages(void *first, size_t bytes)
{
    return !madvise(first, bytes, MADV_POPULATE_WRITE);
}

/* Plain memory, all zero, in the place of whatever ag_stats lies in. */
static bool replace_by_memory(void)
{
    return mmap(&ag_stats, sizeof(ag_stats), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == &ag_stats;
}

/* Makes the pages of all that comes before the slots, and of `slots`. */
static bool make_pages_of(struct ag_stats *stats, uint32_t slots)
{
    bool made = make_pages(stats, offsetof(struct ag_stats, slots));

    for (unsigned i = 0; i < AG_SLOTS && made; i++) {
        if (ag_slots_have(slots, i))
            made = make_pages(&stats->slots[i], sizeof(stats->slots[i]));
    }
    return made;
}

typedef uint64_t __attribute__((may_alias)) word;

_Static_assert(offsetof(struct ag_stats, slots) % sizeof(word) == 0, "copied by words");
_Static_assert(sizeof(struct ag_stats_slot) % sizeof(word) == 0, "copied by words");

/* Other threads may count in `from` meanwhile. Relaxed: each word is a count by itself. */
static void copy_words(void *to, const void *from, size_t bytes)
{
    const word *old = from;
    word *new = to;

    for (size_t i = 0; i < bytes / sizeof(word); i++)
        new[i] = __atomic_load_n(&old[i], __ATOMIC_RELAXED);
}

static void copy_of(struct ag_stats *to, uint32_t slots)
{
    copy_words(to, &ag_stats, offsetof(struct ag_stats, slots));
    for (unsigned i = 0; i < AG_SLOTS; i++) {
        if (ag_slots_have(slots, i))
            copy_words(&to->slots[i], &ag_stats.slots[i], sizeof(to->slots[i]));
    }
}

/* A slot is given for the first time. Where no page can be made, what is counted there is not in
 * the file. */
static void make_pages_of_slot(unsigned slot)
{
    struct ag_stats_slot *own = &ag_stats.slots[slot];
    int saved_errno = errno;

    if (atomic_load(&is_shared) && atomic_load(&in_pieces) && !make_pages(own, sizeof(*own)))
        (void)mmap(own, sizeof(*own), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved_errno;
}

/* Puts `mapped` in the place of ag_stats. */
static bool move_over(struct ag_stats *mapped, uint32_t slots)
{
    if (mremap(mapped, sizeof(ag_stats), sizeof(ag_stats), MREMAP_MAYMOVE | MREMAP_FIXED,
               (void *)&ag_stats) != &ag_stats) {
        if (replace_by_memory()) /* the kernel may have left a hole there */
            memcpy(&ag_stats, mapped, sizeof(ag_stats));
        return false;
    }
    atomic_store(&is_shared, true);
    /* Slots that threads were given meanwhile, who may have found that nothing was shared. */
    if (atomic_load(&in_pieces))
        (void)make_pages_of(&ag_stats, ag_slots_given() & ~slots);
    return true;
}

/* Mapped elsewhere first: what can fail fails there. Other threads may count meanwhile; what they
 * add in between is lost. */
static bool map_over(int fd)
{
    void *mapped = mmap(NULL, sizeof(ag_stats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint32_t slots = ag_slots_given();
    bool moved = false;

    if (mapped == MAP_FAILED)
        return false;
    atomic_store(&in_pieces, is_tmpfs(fd) && make_pages_of(mapped, slots));
    if (atomic_load(&in_pieces) || make_all_pages(fd)) {
        copy_of(mapped, slots);
        moved = move_over(mapped, slots);
    }
    if (!moved)
        munmap(mapped, sizeof(ag_stats));
    return moved;
}

/* Makes the file and locks it; its descriptor, or -1. Where there are no locks, its name says so.
 */
static int make_file(int folder, struct ag_record_owner *owner, char name[AG_RECORD_NAME_MAX])
{
    for (;;) {
        int fd;

        ag_record_name(owner, name);
        fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || owner->is_unlocked || !flock(fd, LOCK_EX | LOCK_NB))
            return fd;
        (void)unlinkat(folder, name, 0);
        close(fd);
        owner->is_unlocked = true;
    }
}

static void begin_in(int folder, const char *folder_path)
{
    struct ag_record_owner owner = {ag_stats.head.started_ns, ag_stats.head.pid,
                                    ag_stats.head.process_start, ag_stats.head.pid_namespace,
                                    false};
    char name[AG_RECORD_NAME_MAX];
    int fd, length;
    bool mapped;

    *file_path = '\0';
    if (sysconf(_SC_PAGESIZE) > AG_STATS_PAGE || !has_space(folder) || !make_file_room(folder))
        return;
    fd = make_file(folder, &owner, name);
    if (fd < 0)
        return;
    mapped = write_counters(fd) && map_over(fd);
    length = snprintf(file_path, sizeof(file_path), "%s/%s", folder_path, name);
    if (!mapped || length >= PATH_MAX) {
        (void)unlinkat(folder, name, 0);
        *file_path = '\0';
    }
    close(fd);
}

void ag_record_begin(const char *setting)
{
    char path[PATH_MAX], absolute[PATH_MAX];
    int folder;

    if (!ag_record_folder(setting, path, sizeof(path)))
        return;
    ag_slots_prepare_with(make_pages_of_slot);
    folder = ag_record_open_folder(setting, true);
    if (folder < 0)
        return;
    /* The program may go elsewhere before it ends. */
    if (*path == '/' || (realpath(path, absolute) && *absolute == '/'))
        begin_in(folder, *path == '/' ? path : absolute);
    close(folder);
}

bool ag_record_begin_child(void)
{
    *file_path = '\0';
    if (replace_by_memory())
        atomic_store(&is_shared, false);
    else if (!atomic_load(&is_shared))
        ag_live_reset();
    return !atomic_load(&is_shared);
}

/* Room first, as for the counters. The lock of the file is held by their own mapping. */
static void *map_after_counters(int fd, size_t bytes)
{
    struct rlimit limit;
    struct statvfs fs;
    void *mapped;

    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < sizeof(ag_stats) + bytes ||
        fstatvfs(fd, &fs) || (uint64_t)fs.f_bavail * fs.f_frsize / SHARE <= bytes ||
        posix_fallocate(fd, sizeof(ag_stats), (off_t)bytes))
        return NULL;
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, sizeof(ag_stats));
    if (mapped != MAP_FAILED)
        return mapped;
    (void)ftruncate(fd, sizeof(ag_stats));
    return NULL;
}

void *ag_record_extend(size_t bytes)
{
    int fd = *file_path ? open(file_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? NULL : map_after_counters(fd, bytes);

    if (fd >= 0)
        close(fd);
    return mapped;
}

bool ag_record_exists(void)
{
    return *file_path != '\0';
}

void ag_record_end(void)
{
    if (*file_path)
        (void)unlink(file_path);
    *file_path = '\0';
}
