/* counters.c: reads the files in which running and killed processes have their counters. */
#include "tools/report/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"

const char process_of_other_build[] = "was written by another build of Allograft";
const char process_cut_short[] = "is cut short";

static bool read_whole_stats(int fd, struct ag_stats *stats)
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

const char *counters_read(int fd, struct ag_stats *stats)
{
    struct ag_stats_head *head = &stats->head;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st))
        return "is not a regular file";
    memset(head, 0, sizeof(*head));
    n = pread(fd, stats, sizeof(*head), 0); /* the head comes first */
    if (n < 0 || memcmp(head->magic, AG_STATS_MAGIC,
                        n < (ssize_t)sizeof(AG_STATS_MAGIC) ? (size_t)n : sizeof(AG_STATS_MAGIC)))
        return "is neither a JSON report, as ALLOGRAFT_STATS=x.json writes, nor a file of counters";
    if (n < (ssize_t)sizeof(*head))
        return process_cut_short;
    if (head->layout != AG_STATS_LAYOUT || head->bytes != sizeof(*stats) ||
        head->fingerprint != ag_stats_fingerprint())
        return process_of_other_build;
    if (st.st_size > (off_t)sizeof(*stats) &&
        st.st_size != (off_t)(sizeof(*stats) + sizeof(struct ag_holders)))
        return "is longer than its counters: something else wrote to it";
    if (st.st_size < (off_t)sizeof(*stats) || !read_whole_stats(fd, stats))
        return process_cut_short;
    if (head->pid <= 0)
        return "is damaged: it names no process";
    return NULL;
}

#define TRIES 5u /* its process may add to it meanwhile */

static bool read_whole_holders(int fd, struct ag_holders *ret)
{
    size_t done = 0;
    ssize_t n = 1;

    while (done < sizeof(*ret) && n > 0) {
        n = pread(fd, (char *)ret + done, sizeof(*ret) - done,
                  (off_t)(sizeof(struct ag_stats) + done));
        done += n > 0 ? (size_t)n : 0;
    }
    return done == sizeof(*ret) && ag_holders_are_sound(ret);
}

bool counters_read_holders(int fd, struct ag_holders *ret)
{
    bool good = false;

    for (unsigned i = 0; i < TRIES && !good; i++)
        good = read_whole_holders(fd, ret);
    if (good)
        ag_holders_complete(ret);
    return good;
}

/* Do the counters' times come from this machine since it booted? */
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

enum ag_record_state counters_state(const struct ag_stats_head *head, int folder, const char *path)
{
    const struct ag_record_owner owner = {head->started_ns, head->pid, head->process_start,
                                          head->pid_namespace, false};
    enum ag_record_state state = same_clock(head) ? ag_record_state(&owner) : AG_RECORD_DEAD;

    return state == AG_RECORD_ELSEWHERE ? ag_record_file_state(folder, path) : state;
}

struct ag_moment counters_moment(struct ag_stats *stats, enum ag_record_state state)
{
    struct ag_moment moment = {0};

    if (same_clock(&stats->head)) {
        moment.ns = ag_clock_ns();
        moment.ticks = ag_clock_ticks();
    }
    moment.alive = state == AG_RECORD_RUNNING;
    /* A process whose own report could not be written has noted how it ended. */
    if (state == AG_RECORD_RUNNING || !*stats->head.ended_by)
        snprintf(stats->head.ended_by, sizeof(stats->head.ended_by), "%s",
                 state == AG_RECORD_RUNNING ? "running"
                 : state == AG_RECORD_DEAD  ? "killed"
                                            : "elsewhere");
    return moment;
}
