/* The counters' file of a process: the pages of a file in the place of ag_stats, so that the counts
 * survive when the process is killed. `allograft report` reads it. Knows no CUDA.
 *
 * Why pages under the static struct, and not a pointer to a mapping: every thread counts at
 * constant addresses, and a pointer would cost a load on each count. So when the first context is
 * created, the file is filled with what was counted so far, mapped somewhere, and moved over the
 * struct. After that nothing has to be done: the kernel keeps the pages.
 *
 * Why /dev/shm, and not $XDG_RUNTIME_DIR: that folder is removed when its user logs out, even while
 * a job runs that the user has started, and is not set for jobs of cron or Slurm, or in a
 * container. */
#ifndef AG_RECORD_H
#define AG_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who counts, as the file's name says it. */
struct ag_record_owner {
    uint64_t started_ns; /* monotonic; orders the files of one boot */
    int pid;
    uint64_t process_start; /* in clock ticks since boot: with the pid, one process; 0 not known */
    uint64_t pid_namespace; /* inode number; 0 not known */
    bool is_unlocked;       /* its file could not be locked */
};

enum ag_record_state {
    AG_RECORD_RUNNING,
    AG_RECORD_DEAD,
    /* in another container, where process ids mean something else; or unknown */
    AG_RECORD_ELSEWHERE,
};

#define AG_RECORD_NAME_MAX 112u

/* This process. */
void ag_record_describe_self(struct ag_record_owner *ret);
void ag_record_name(const struct ag_record_owner *owner, char name[AG_RECORD_NAME_MAX]);
/* False when `name` is not exactly what ag_record_name() makes. */
bool ag_record_parse_name(const char *name, struct ag_record_owner *ret);
/* The state of the process, as far as process ids tell. */
enum ag_record_state ag_record_state(const struct ag_record_owner *owner);
/* The state of the process that `path` in `folder` names. Whether it lives is told by the lock of
 * the file; only where that tells nothing, by process ids, which mean something else in another
 * container. */
enum ag_record_state ag_record_file_state(int folder, const char *path);

/* The folder that ALLOGRAFT_COUNTERS=`setting` means; false when it means none, or a long one. */
bool ag_record_folder(const char *setting, char *path, size_t capacity);
/* An open folder, made first with `make`; or -errno. The one of `auto` must be this user's alone.
 */
int ag_record_open_folder(const char *setting, bool make);

/* Puts a file of this process under ag_stats, whose head is filled. When that cannot be done, for
 * whatever reason, counting goes on in plain memory. */
void ag_record_begin(const char *setting);
/* In a forked child: memory of its own in the place of the parent's file, all zero. False when
 * there is none, and the parent's counters must be left alone. */
bool ag_record_begin_child(void);
/* `bytes` more, all zero, in the file after the counters; NULL where they lie in no file, or there
 * is no room. Once for each file. */
void *ag_record_extend(size_t bytes);
/* Do the counters lie in a file? */
bool ag_record_exists(void);
/* Removes the file at a normal end: nobody needs it any more. Counting may go on, and a file be
 * begun again. */
void ag_record_end(void);

#endif
