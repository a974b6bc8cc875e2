/* metrics_read.c: reads the processes whose counters are exported, and numbers those that labels
 * alone cannot tell apart: see metrics.h. */
#include "tools/top/metrics.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/base/list.h"

/* ---- slots ---------------------------------------------------------------------------------- */

/* The processes of the last look: a process keeps its slot for as long as it lives, since a series
 * that went over to another process would count down, and look like one that began anew. */
static struct seats {
    struct seat {
        int32_t pid;
        uint64_t pid_namespace, process_start;
        unsigned slot;
    } *list;
    size_t n;
} seats;

static bool is_alike(const struct metrics_process *a, const struct metrics_process *b)
{
    const struct ag_stats_head *one = &a->process.stats->head, *other = &b->process.stats->head;

    return a->uid == b->uid && one->rank == other->rank && !strcmp(one->program, other->program);
}

static bool claim_seat(struct metrics_process *process)
{
    const struct ag_stats_head *head = &process->process.stats->head;

    for (size_t i = 0; i < seats.n; i++) {
        const struct seat *seat = &seats.list[i];

        if (seat->pid == head->pid && seat->pid_namespace == head->pid_namespace &&
            seat->process_start == head->process_start) {
            process->slot = seat->slot;
            return true;
        }
    }
    return false;
}

/* The lowest number that no process like it has; `taken` is room for one of each process. */
static unsigned free_slot(const struct metrics_processes *processes, const bool *has_slot,
                          const struct metrics_process *process, bool *taken)
{
    unsigned slot = 0;

    memset(taken, 0, processes->n * sizeof(*taken));
    for (size_t i = 0; i < processes->n; i++) {
        const struct metrics_process *other = &processes->list[i];

        if (has_slot[i] && other->slot < processes->n && is_alike(other, process))
            taken[other->slot] = true;
    }
    while (slot < processes->n && taken[slot])
        slot++;
    return slot;
}

static void remember_seats(const struct metrics_processes *processes)
{
    struct seat *list = calloc(processes->n + 1, sizeof(*list));

    for (size_t i = 0; list && i < processes->n; i++) {
        const struct ag_stats_head *head = &processes->list[i].process.stats->head;

        list[i] = (struct seat){head->pid, head->pid_namespace, head->process_start,
                                processes->list[i].slot};
    }
    free(seats.list);
    seats = (struct seats){list, list ? processes->n : 0};
}

static bool number_processes(struct metrics_processes *processes)
{
    bool *has_slot = calloc(processes->n + 1, sizeof(*has_slot));
    bool *taken = calloc(processes->n + 1, sizeof(*taken));
    bool good = has_slot && taken;

    for (size_t i = 0; good && i < processes->n; i++)
        has_slot[i] = claim_seat(&processes->list[i]);
    for (size_t i = processes->n; good && i-- > 0;) { /* the oldest first */
        if (has_slot[i])
            continue;
        processes->list[i].slot = free_slot(processes, has_slot, &processes->list[i], taken);
        has_slot[i] = true;
    }
    if (good)
        remember_seats(processes);
    free(has_slot);
    free(taken);
    return good;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Is the process listed already? A file that a dead one of that number left may look as if it ran
 * elsewhere. */
static bool is_listed(const struct metrics_processes *processes, const struct ag_stats_head *head)
{
    for (size_t i = 0; i < processes->n; i++) {
        const struct ag_stats_head *other = &processes->list[i].process.stats->head;

        if (other->pid == head->pid && other->pid_namespace == head->pid_namespace)
            return true;
    }
    return false;
}

static bool read_next_process(int folder, const char *name, struct metrics_processes *processes)
{
    struct metrics_process *list =
        list_grow(processes->list, processes->n, &processes->capacity, sizeof(*list));
    struct metrics_process *next = list ? &list[processes->n] : NULL;
    struct stat st;

    if (!list)
        return false;
    processes->list = list;
    *next = (struct metrics_process){.uid = 0};
    /* Other users' folders hold what they like: no link of theirs leads root anywhere. */
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
        process_read(folder, name, &next->process))
        return true; /* gone meanwhile, of another build, or somebody else's */
    if (next->process.state == AG_RECORD_DEAD || is_listed(processes, &next->process.stats->head)) {
        process_finish(&next->process);
        return true;
    }
    process_make_plain(&next->process);
    next->uid = st.st_uid;
    processes->n++;
    return true;
}

static bool read_folder(int folder, struct metrics_processes *processes)
{
    struct folder_files files = {.folder = folder};
    bool good = folder_list(&files, 0, true) == STATUS_OK;

    for (size_t i = 0; good && i < files.n; i++)
        good = read_next_process(folder, files.names[i], processes);
    free(files.names);
    return good;
}

bool metrics_read(const struct folders *folders, struct metrics_processes *ret)
{
    bool good = true;

    *ret = (struct metrics_processes){.n = 0};
    for (size_t i = 0; good && i < folders->n; i++)
        good = read_folder(folders->list[i], ret);
    return good && number_processes(ret);
}

void metrics_finish(struct metrics_processes *processes)
{
    for (size_t i = 0; i < processes->n; i++)
        process_finish(&processes->list[i].process);
    free(processes->list);
    *processes = (struct metrics_processes){.n = 0};
}
