/* process.c: reads what a process counted, from a file of counters or a JSON report: see
 * process.h. */
#include "tools/report/process.h"

#include "tools/base/complain.h"
#include "tools/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGEST_REPORT (256u << 20) /* bytes; a report has some thousand, or 2 KiB per stack */

/* ---- texts that are safe to show ----------------------------------------------------------- */

/* Control characters are those of ASCII, and U+0080 to U+009F, which have two bytes. */
static void make_byte_printable(char *text, size_t at)
{
    unsigned char byte = (unsigned char)text[at];

    if (byte && (byte < 0x20 || byte == 0x7f))
        text[at] = '?';
    if (at && byte >= 0x80 && byte < 0xa0 && (unsigned char)text[at - 1] == 0xc2)
        text[at] = text[at - 1] = '?';
}

void process_make_printable(char *text, size_t capacity)
{
    text[capacity - 1] = '\0';
    for (size_t i = 0; text[i]; i++)
        make_byte_printable(text, i);
}

void process_make_texts_safe(struct ag_stats *stats)
{
    struct ag_stats_head *head = &stats->head;

    process_make_printable(head->version, sizeof(head->version));
    process_make_printable(head->program, sizeof(head->program));
    process_make_printable(head->host, sizeof(head->host));
    process_make_printable(head->boot, sizeof(head->boot));
    process_make_printable(head->driver, sizeof(head->driver));
    process_make_printable(head->trouble, sizeof(head->trouble));
    process_make_printable(head->kept_because, sizeof(head->kept_because));
    process_make_printable(head->replay, sizeof(head->replay));
    process_make_printable(head->ended_by, sizeof(head->ended_by));
    for (unsigned i = 0; i < AG_STATS_DEVICES_MET; i++)
        process_make_printable(stats->devices[i].name, sizeof(stats->devices[i].name));
    for (unsigned i = 0; i < AG_MAX_RULES; i++)
        process_make_printable(head->rules[i], sizeof(head->rules[i]));
    for (unsigned i = 0; i < AG_STATS_BYPASSING; i++)
        process_make_printable(stats->bypassing[i], sizeof(stats->bypassing[i]));
    for (unsigned i = 0; i < AG_STATS_UNSEEN; i++)
        process_make_printable(stats->unseen[i], sizeof(stats->unseen[i]));
    process_make_printable(stats->first_error.call, sizeof(stats->first_error.call));
    for (unsigned i = 0; i < AG_LAUNCHED; i++)
        process_make_printable(stats->first_error.launched[i].name,
                               sizeof(stats->first_error.launched[i].name));
    for (unsigned i = 0; i < AG_MARKS; i++)
        process_make_printable(stats->marks[i].name, sizeof(stats->marks[i].name));
    for (size_t i = 0; i < sizeof(head->settings); i++)
        make_byte_printable(head->settings, i);
}

/* NULs end texts, and stay. */
void process_make_holders_safe(struct ag_holders *holders)
{
    for (uint32_t i = 0; i < holders->n_text; i++)
        make_byte_printable(holders->text, i);
}

/* ---- files --------------------------------------------------------------------------------- */

/* The file's text with a NUL after it, to be freed; or NULL. */
static char *read_text(int fd, size_t size)
{
    char *text = malloc(size + 1);
    size_t done = 0;

    while (text && done < size) {
        ssize_t n = pread(fd, text + done, size - done, (off_t)done);

        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (text && done == size) {
        text[size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

/* The process took no stacks. */
static void drop_holders(struct process *process)
{
    (void)munmap(process->holders, sizeof(*process->holders));
    process->holders = NULL;
}

static const char *read_json(int fd, size_t size, struct process *process)
{
    static char why[256];
    char *text;
    bool good;

    if (size > LARGEST_REPORT)
        return "is JSON, but too large for a report";
    text = read_text(fd, size);
    if (!text)
        return "cannot be read";
    process->is_plain = true;
    process->holders = process_new_holders();
    good = stats_from_json(text, size, process, why, sizeof(why));
    if (process->holders && !*process->holders->magic)
        drop_holders(process);
    free(text);
    process_make_printable(why, sizeof(why));
    return good ? NULL : why;
}

/* Does the file begin with an object, after white space? */
static bool looks_like_json(int fd)
{
    char text[64];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return text[strspn(text, " \t\r\n")] == '{';
}

bool process_is_kind_of_report(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char head[sizeof(AG_STATS_MAGIC)] = "";
    bool is = fd < 0 || looks_like_json(fd) ||
              (pread(fd, head, sizeof(head), 0) > 0 && !memcmp(head, AG_STATS_MAGIC, sizeof(head)));

    if (fd >= 0)
        close(fd);
    return is;
}

/* Most processes take no stacks. */
static void read_process_holders(int fd, struct process *process)
{
    struct stat st;

    if (fstat(fd, &st) || st.st_size == (off_t)sizeof(*process->stats))
        return;
    process->holders = process_new_holders();
    if (process->holders && !counters_read_holders(fd, process->holders))
        drop_holders(process);
}

static const char *read_into(int fd, int folder, const char *path, struct process *process)
{
    const char *fault;
    struct stat st;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return "is not a regular file";
    if (looks_like_json(fd))
        return read_json(fd, (size_t)st.st_size, process);
    fault = counters_read(fd, process->stats);
    if (fault)
        return fault;
    process->state = counters_state(&process->stats->head, folder, path);
    process->moment = counters_moment(process->stats, process->state);
    read_process_holders(fd, process);
    return NULL;
}

static void *new_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return pages == MAP_FAILED ? NULL : pages;
}

struct ag_stats *process_new_stats(void)
{
    return new_pages(sizeof(struct ag_stats));
}

struct ag_holders *process_new_holders(void)
{
    return new_pages(sizeof(struct ag_holders));
}

const char *process_read(int folder, const char *path, struct process *ret)
{
    struct process process = {.stats = NULL};
    const char *fault;
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return strerror(errno);
    output_keep(fd);
    process.stats = process_new_stats();
    fault = process.stats ? read_into(fd, folder, path, &process) : "cannot be read: out of memory";
    close(fd);
    if (fault) {
        process_finish(&process);
        return fault;
    }
    process_make_texts_safe(process.stats);
    if (process.holders)
        process_make_holders_safe(process.holders);
    *ret = process;
    return NULL;
}

void process_complain(const char *name, const char *fault)
{
    bool is_sentence =
        !strncmp(fault, "is ", 3) || !strncmp(fault, "was ", 4) || !strncmp(fault, "cannot ", 7);

    const char *advice = "";

    if (fault == process_of_other_build)
        advice = ": use the command that belongs to that build";
    else if (fault == process_cut_short)
        advice =
            ": its process was killed, or the disk was full, before it was written, or it was not "
            "copied whole; it is of no use, so remove it";
    command_complain("%s%s %s%s", name, is_sentence ? "" : ":", fault, advice);
}

bool process_read_or_say(int folder, const char *path, struct process *ret)
{
    const char *fault = process_read(folder, path, ret);

    if (fault)
        process_complain(path, fault);
    return !fault;
}

void process_finish(struct process *process)
{
    if (process->stats)
        (void)munmap(process->stats, sizeof(*process->stats));
    if (process->holders)
        drop_holders(process);
    process->stats = NULL;
}

/* ---- plain --------------------------------------------------------------------------------- */

/* Nanoseconds per tick; 0: not known. */
static double ns_of_tick(const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;
    const struct ag_moment *moment = &process->moment;

    if (moment->ticks <= head->started_ticks || moment->ns <= head->started_ns)
        return 0;
    return (double)(moment->ns - head->started_ns) / (double)(moment->ticks - head->started_ticks);
}

static void scale(_Atomic uint64_t *ticks, double ns)
{
    double scaled = (double)*ticks * ns;

    *ticks = scaled < 1e18 ? (uint64_t)scaled : (uint64_t)1e18;
}

void process_make_plain(struct process *process)
{
    _Atomic uint64_t *sums = (_Atomic uint64_t *)(void *)&process->stats->slots[0];
    struct ag_stats_head *head = &process->stats->head;
    double ns = ns_of_tick(process);
    uint64_t elapsed = process->moment.ns - head->started_ns;

    if (process->is_plain)
        return;
    for (size_t i = 0; i < sizeof(struct ag_stats_slot) / sizeof(uint64_t); i++)
        sums[i] = ag_stats_sum_of(process->stats, i * sizeof(uint64_t));
    for (unsigned i = 1; i < AG_SLOTS; i++)
        memset(&process->stats->slots[i], 0, sizeof(process->stats->slots[i]));
    for (unsigned row = 0; row < AG_STATS_DEVICES; row++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            scale(&process->stats->slots[0].places[row][place].alloc_ticks, ns);
            scale(&process->stats->slots[0].places[row][place].free_ticks, ns);
        }
    }
    for (unsigned i = 0; i < AG_APP_POOLS; i++) {
        for (unsigned which = 0; which < AG_N_APP_COUNTS; which++) {
            process->stats->slots[0].app_pools[i][which] -=
                process->stats->app_pools[i].before[which];
            process->stats->app_pools[i].before[which] = 0;
        }
    }
    if (!process->moment.alive || process->moment.ns < head->started_ns)
        elapsed = 0;
    head->started_ns = head->started_ticks = 0;
    process->moment.alive = elapsed != 0;
    process->moment.ns = process->moment.ticks = elapsed ? elapsed : 1;
    process->is_plain = true;
}

uint64_t process_counter(const struct process *process, enum ag_stat id)
{
    return process->stats->slots[0].counters[id];
}

uint64_t process_elapsed_ns(const struct process *process)
{
    return process->moment.alive ? process->moment.ns : 0;
}
