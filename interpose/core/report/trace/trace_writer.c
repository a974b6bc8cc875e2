/* Writes the trace: see trace_writer.h and trace_format.h.
 *
 * Delicate, because a program must not notice. The rules of this file:
 * - The program's own thread opens the file, and its descriptor has a high number: one that came
 *   and went in another thread could be the one that the program expects of its next open. Since
 *   programs close descriptors that they did not open, it is checked before each portion is
 *   written.
 * - The thread takes no signal and calls no malloc. It polls the rings, since waking it would cost
 *   the program a system call, and polls less and less often while nothing comes.
 * - Only one thread writes at a time: ours, or the one that ends the process, which waits for ours
 *   within a bound. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/trace/trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/base/log.h"
#include "interpose/core/base/text.h"
#include "interpose/core/base/threads/thread.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/settings/pattern.h"
#include "interpose/version.h"

#define MS          1000000u
#define SOONEST_NS  MS
#define LATEST_NS   (50u * MS)
#define TIMEOUT_NS  (10000ull * MS) /* that the end of a process takes */
#define PORTION     1024u           /* units written at once */
#define STACK_BYTES (128u * 1024u)
#define HIGH_FD     512

static struct {
    _Atomic bool busy; /* somebody writes; guards all below */
    _Atomic bool over; /* nobody is to write any more */
    int fd;
    struct stat identity;
    unsigned n_texts; /* written */
    uint64_t dropped_told;
    struct ag_trace_event portion[PORTION];
} writer = {.fd = -1};

/* --- the file --- */

static bool is_our_file(void)
{
    struct stat now;

    return !fstat(writer.fd, &now) && now.st_ino == writer.identity.st_ino &&
           now.st_dev == writer.identity.st_dev;
}

/* False, and it is over, when not all could be written. */
static bool write_all(const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n && !atomic_load(&writer.over)) {
        ssize_t written = ag_text_write_bytes(writer.fd, at, n);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            atomic_store(&ag_trace_active, false);
            atomic_store(&writer.over, true);
            ag_log_error("the trace ends here: %s",
                         written ? strerror(errno) : "nothing is written");
            return false;
        }
        at += written;
        n -= (size_t)written;
    }
    return !n;
}

static bool write_text(const struct ag_trace_named *named)
{
    struct ag_trace_event head = {
        .kind = AG_TRACE_TEXT,
        .ticks = ag_clock_ticks(),
        .address = named->number,
        .size = named->length,
        .caller = named->base,
        .device = AG_TRACE_NO_DEVICE,
        .code = (uint16_t)named->space,
    };
    size_t units = (named->length + AG_TRACE_UNIT - 1) / AG_TRACE_UNIT;
    char text[AG_TRACE_TEXT_MAX] = {0};

    memcpy(text, named->text, named->length);
    return write_all(&head, sizeof(head)) && write_all(text, units * AG_TRACE_UNIT);
}

/* Events of the portion, and first the texts that they may refer to. */
static bool write_portion(size_t n)
{
    unsigned slot = ag_slot_of_nobody(); /* those of threads are the program's */
    const struct ag_trace_named *named;

    while ((named = ag_trace_named(writer.n_texts))) {
        if (!write_text(named))
            return false;
        writer.n_texts++;
    }
    if (!write_all(writer.portion, n * sizeof(writer.portion[0])))
        return false;
    ag_stats_count(slot, &ag_stats.slots[slot].counters[AG_STAT_TRACE_WRITTEN], n);
    return true;
}

static bool write_own(enum ag_trace_kind kind, uint64_t address, uint64_t size, uint16_t code)
{
    const struct ag_trace_event event = {
        .kind = (uint8_t)kind,
        .ticks = ag_clock_ticks(),
        .address = address,
        .size = size,
        .device = AG_TRACE_NO_DEVICE,
        .code = code,
    };

    return write_all(&event, sizeof(event));
}

/* --- portions --- */

static bool claim_busy(uint64_t until_ns)
{
    const struct timespec pause = {0, MS / 2};
    bool none = false;

    while (!atomic_compare_exchange_strong(&writer.busy, &none, true)) {
        if (ag_clock_ns() > until_ns)
            return false;
        none = false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

/* Writes all that is in the rings now, but not what comes meanwhile, until it is past `until_ns`.
 * Returns how many events. */
static uint64_t drain_rings(uint64_t until_ns)
{
    uint64_t n = 0, dropped = 0;
    bool good = is_our_file();

    for (unsigned i = 0; i < AG_SLOTS && good; i++) {
        struct ag_trace_ring *ring = ag_trace_ring_of(i);
        uint64_t left = ring ? ring->mask + 1ull : 0;

        while (left && good && ag_clock_ns() < until_ns) {
            size_t taken =
                ag_trace_ring_take(ring, writer.portion, left < PORTION ? left : PORTION);

            if (!taken)
                break;
            good = write_portion(taken);
            n += taken;
            left -= taken;
        }
        /* Relaxed: a count; what is missing is told next time. */
        dropped += ring ? atomic_load_explicit(&ring->dropped, memory_order_relaxed) : 0;
    }
    if (good && dropped > writer.dropped_told)
        good = write_own(AG_TRACE_DROPPED, 0, dropped - writer.dropped_told, 0);
    writer.dropped_told = dropped;
    if (good && n)
        (void)write_own(AG_TRACE_CLOCK, ag_clock_ns(), 0, 0);
    return n;
}

static void *write_for_ever(void *unused)
{
    uint64_t pause_ns = SOONEST_NS;

    (void)pthread_setname_np(pthread_self(), "allograft-trace");
    while (!atomic_load(&writer.over)) {
        const struct timespec pause = {0, (long)pause_ns};
        uint64_t n = 0;

        (void)nanosleep(&pause, NULL);
        if (claim_busy(0)) {
            if (!atomic_load(&writer.over))
                n = drain_rings(UINT64_MAX);
            atomic_store(&writer.busy, false);
        }
        pause_ns = n ? SOONEST_NS : pause_ns * 2 < LATEST_NS ? pause_ns * 2 : LATEST_NS;
    }
    return unused;
}

/* --- beginning --- */

/* A regular file, which never keeps its writer waiting for a reader. -EWOULDBLOCK: another process
 * writes its trace there. */
static int open_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666), high, error;
    bool regular;

    if (fd < 0)
        return -errno;
    regular = !fstat(fd, &writer.identity) && S_ISREG(writer.identity.st_mode);
    if (!regular || (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)) {
        close(fd);
        return regular ? -EWOULDBLOCK : -EINVAL;
    }
    high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    if (!ftruncate(fd, 0))
        return fd;
    error = errno;
    close(fd);
    return -error;
}

static bool write_header(void)
{
    struct ag_trace_header header = {
        .magic = AG_TRACE_MAGIC,
        .version = AG_TRACE_VERSION,
        .header_bytes = sizeof(header),
        .unit_bytes = AG_TRACE_UNIT,
        .pid = ag_stats.head.pid,
        .rank = ag_stats.head.rank,
        .simulated = ag_stats.head.simulated,
        .started = {ag_stats.head.started_ticks, ag_stats.head.started_ns},
        .allograft = AG_VERSION,
    };
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    header.opened_real_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    header.opened = (struct ag_trace_moment){ag_clock_ticks(), ag_clock_ns()};
    snprintf(header.host, sizeof(header.host), "%s", ag_stats.head.host);
    snprintf(header.program, sizeof(header.program), "%s", ag_stats.head.program);
    return write_all(&header, sizeof(header));
}

/* Processes that were given the same name get one of their own, from the second on. */
static int open_own_file(const char *path)
{
    char own[PATH_MAX], pid[16];
    int fd = open_file(path);

    if (fd != -EWOULDBLOCK)
        return fd;
    snprintf(pid, sizeof(pid), "%d", ag_stats.head.pid);
    if (snprintf(own, sizeof(own), "%s", path) >= (int)sizeof(own) ||
        !ag_pattern_distinguish(own, sizeof(own), pid))
        return -ENAMETOOLONG;
    return open_file(own);
}

void ag_trace_begin(const char *path, uint64_t ring_bytes)
{
    int error;

    if (!ag_trace_prepare(ring_bytes)) {
        ag_log_error("no memory for a trace");
        return;
    }
    writer.fd = open_own_file(path);
    if (writer.fd < 0) {
        ag_log_error("no trace can be written to %s: %s", path,
                     writer.fd == -EINVAL ? "it is no regular file" : strerror(-writer.fd));
        return;
    }
    atomic_store(&writer.over, false);
    if (!write_header())
        return;
    error = ag_thread_start(write_for_ever, STACK_BYTES);
    if (error)
        ag_log_error("no trace is written: no thread for it: %s", strerror(error));
    atomic_store(&ag_trace_active, !error);
}

void ag_trace_finish(const char *ended_by)
{
    static const char *const ends[] = {
        [AG_TRACE_END_EXIT] = "exit",
        [AG_TRACE_END_QUICK] = "quick_exit",
        [AG_TRACE_END_AT_ONCE] = "_exit",
        [AG_TRACE_END_EXEC] = "exec",
    };
    uint64_t until = ag_clock_ns() + TIMEOUT_NS;
    uint16_t code = 0;

    if (!atomic_load(&ag_trace_active))
        return;
    for (size_t i = 1; i < sizeof(ends) / sizeof(ends[0]); i++)
        code = strcmp(ends[i], ended_by) ? code : (uint16_t)i;
    if (code != AG_TRACE_END_EXEC)
        atomic_store(&ag_trace_active, false);
    if (!claim_busy(until))
        return;
    (void)drain_rings(until);
    if (is_our_file())
        (void)write_own(AG_TRACE_END, 0, 0, code);
    if (code != AG_TRACE_END_EXEC)
        atomic_store(&writer.over, true);
    atomic_store(&writer.busy, false);
}

void ag_trace_begin_child(void)
{
    ag_trace_forget();
    if (writer.fd >= 0 && is_our_file())
        close(writer.fd);
    writer.fd = -1;
    writer.n_texts = 0;
    writer.dropped_told = 0;
    atomic_store(&writer.busy, false);
    atomic_store(&writer.over, true);
}
