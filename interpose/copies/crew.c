/* The crew: see crew.h.
 *
 * A thread of ours enters by counting itself in, and then looks whether a job is open. The owner
 * closes the job and then waits until nobody is in. So whoever is late finds no job, and nobody
 * touches a job that is closed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/crew.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "interpose/copies/processors.h"
#include "interpose/core/base/threads/futex.h"
#include "interpose/core/base/threads/thread.h"
#include "interpose/core/base/threads/wait.h"

#define MOST_BY_ITSELF 8u /* more gain nothing: the bus is full (H100, PCIe 5) */
/* Where the kernel has to clear pages they copy 16 GB/s instead of 11, and through the shared cache
 * 51 instead of 41. */
#define MOST_LARGE  12u
#define STACK_BYTES ((size_t)64 << 10)
#define TURNS_AWAKE 4000u    /* until the next piece is ready; some 200 us */
#define SLEEP_NS    2000000u /* the owner wakes sleepers: this is for one that it missed */

static struct {
    _Atomic bool claimed;
    _Atomic(struct ag_crew_job *) job;
    _Atomic uint32_t opened; /* counts jobs: what the threads sleep on */
    _Atomic int places;      /* how many more may take part in this one */
    _Atomic uint32_t inside;
    uint32_t started; /* the claimer's */
    uint32_t size;    /* likewise, but for ag_crew_configure() */
    uint32_t large;   /* likewise */
    uint32_t usable;  /* processors */
    bool is_ordered;  /* the size: it was asked for */
} crew;

/* --- how many --- */

static uint32_t smaller_of(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

static void set_sizes(uint32_t processors, uint32_t most)
{
    uint32_t half = processors < 2 ? 1 : processors / 2;

    crew.size = smaller_of(half, smaller_of(most, MOST_BY_ITSELF));
    crew.large = smaller_of(processors - processors / 4, smaller_of(most, MOST_LARGE));
}

void ag_crew_configure(uint32_t wanted)
{
    crew.is_ordered = wanted != 0;
    crew.size = crew.large = smaller_of(wanted, AG_CREW_MOST);
    if (crew.is_ordered)
        return;
    crew.usable = ag_processors_usable();
    set_sizes(crew.usable, UINT32_MAX);
}

void ag_crew_look_around(void)
{
    uint32_t idle;

    if (crew.is_ordered)
        return;
    idle = ag_processors_idle();
    /* The caller has one. */
    set_sizes(smaller_of(ag_processors_allowed(), crew.usable),
              idle < UINT32_MAX ? idle + 1 : idle);
}

uint32_t ag_crew_size(void)
{
    return crew.size;
}

uint32_t ag_crew_size_large(void)
{
    return crew.large;
}

bool ag_crew_claim(void)
{
    return !atomic_exchange_explicit(&crew.claimed, true, memory_order_acquire);
}

void ag_crew_release(void)
{
    atomic_store_explicit(&crew.claimed, false, memory_order_release);
}

/* --- moving --- */

static void move(struct ag_crew_job *job, uint32_t piece)
{
    bool moved = job->move(job, piece);

    /* Release: what was moved is there for the owner, who acquires it in ag_crew_piece_of(). */
    atomic_store_explicit(&job->moved[piece % AG_CREW_SLOTS], 2 * piece + 2 + !moved,
                          memory_order_release);
}

bool ag_crew_move_one(struct ag_crew_job *job)
{
    uint32_t piece = atomic_load_explicit(&job->next, memory_order_relaxed);

    /* Relaxed: a number is taken once, whatever else is seen. Acquire of `ready`: the slot is free,
     * or full, as whoever made it ready saw. */
    while (piece < atomic_load_explicit(&job->ready, memory_order_acquire) && piece < job->end) {
        if (atomic_compare_exchange_weak_explicit(&job->next, &piece, piece + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            move(job, piece);
            return true;
        }
    }
    return false;
}

enum ag_crew_piece ag_crew_piece_of(const struct ag_crew_job *job, uint32_t piece)
{
    uint32_t moved = atomic_load_explicit(&job->moved[piece % AG_CREW_SLOTS], memory_order_acquire);

    if (moved / 2 != piece + 1)
        return AG_CREW_UNDER_WAY;
    return moved % 2 ? AG_CREW_LEFT : AG_CREW_MOVED;
}

void ag_crew_ready(struct ag_crew_job *job, uint32_t ready)
{
    if (ready == atomic_load_explicit(&job->ready, memory_order_relaxed)) /* the owner's own */
        return;
    /* In one order with the count of sleepers: whoever is not seen there sees this. */
    atomic_store(&job->ready, ready);
    if (atomic_load(&job->sleepers))
        ag_futex_wake(&job->ready);
}

/* --- the threads --- */

/* Waits until more is ready than that, for a while. */
static void await_more(struct ag_crew_job *job, uint32_t ready, struct ag_wait *wait)
{
    if (wait->turns < TURNS_AWAKE) {
        ag_wait_pause_awake(wait);
        return;
    }
    atomic_fetch_add(&job->sleepers, 1);
    ag_futex_wait(&job->ready, ready, SLEEP_NS);
    atomic_fetch_sub(&job->sleepers, 1);
}

static void take_part(struct ag_crew_job *job)
{
    struct ag_wait wait = {0};

    for (;;) {
        uint32_t ready = atomic_load(&job->ready);

        if (atomic_load(&job->next) >= job->end)
            return;
        if (ag_crew_move_one(job))
            wait = (struct ag_wait){0};
        else
            await_more(job, ready, &wait);
    }
}

/* A page that went between a look at it and its use: the program's handler has it, if there is
 * one. */
static void take_faults(void)
{
    sigset_t faults;

    (void)sigemptyset(&faults);
    (void)sigaddset(&faults, SIGSEGV);
    (void)sigaddset(&faults, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

static void *attend(void *unused)
{
    uint32_t seen = 0; /* a job may be open already */

    (void)pthread_setname_np(pthread_self(), "allograft-copy");
    take_faults();
    for (;;) {
        struct ag_crew_job *job;

        while (atomic_load(&crew.opened) == seen)
            ag_futex_wait(&crew.opened, seen, AG_FUTEX_FOR_EVER);
        seen = atomic_load(&crew.opened);
        atomic_fetch_add(&crew.inside, 1);
        job = atomic_load(&crew.job);
        if (job && atomic_fetch_sub(&crew.places, 1) > 0)
            take_part(job);
        atomic_fetch_sub(&crew.inside, 1);
    }
    return unused;
}

uint32_t ag_crew_open(struct ag_crew_job *job, uint32_t n)
{
    n = smaller_of(n, crew.large);
    while (crew.started + 1 < n && !ag_thread_start(attend, STACK_BYTES))
        crew.started++;
    n = n - 1 < crew.started ? n - 1 : crew.started;
    if (!n)
        return 0;
    atomic_store(&crew.places, (int)n);
    atomic_store(&crew.job, job);
    atomic_fetch_add(&crew.opened, 1);
    ag_futex_wake_some(&crew.opened, (int)n);
    return n;
}

void ag_crew_close(struct ag_crew_job *job)
{
    struct ag_wait wait = {0};

    atomic_store(&crew.job, NULL);
    atomic_store(&job->next, job->end);
    ag_crew_ready(job, job->end);
    while (atomic_load(&crew.inside))
        ag_wait_pause(&wait);
}

void ag_crew_begin_child(void)
{
    crew.started = 0;
    atomic_store(&crew.claimed, false);
    atomic_store(&crew.job, NULL);
    atomic_store(&crew.inside, 0);
}
