/* Times kernels that use memory on the host: see toll.h.
 *
 * A launch is timed by an event before it, and one after it, which is recorded when the next work
 * of that stream comes. Where the kernel has ended by then, it may have taken less, so only a price
 * that is next to nothing counts; and whatever the driver refuses, there is no measurement. The
 * program may be far ahead of the device: so many launches are under way, but one for each operand,
 * and where that is its first, its price is not known but high.
 *
 * Most kernels use all that they are given, but one that sets the edge of a field takes a hundredth
 * of the time that the field takes to cross the bus. A kernel that never took longer than that is
 * believed to use so little of all that it is given.
 *
 * And PyTorch's steps for many tensors at once are given those of the launch before, too, and use a
 * quarter. Of kernels that are given so many addresses each use costs what all of them cost in the
 * mean, even if some measurements are of launches that may have taken less. Not of others: had the
 * bus been slow when it was measured, all kernels would seem to use a part, nothing would move any
 * more, and the bus not be measured again. */
#include "policy/paging/plan/toll.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/driver/driver.h"
#include "policy/paging/moment.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/ranges.h"

#define PLACES      4096u             /* of two that share a place, the later one has it */
#define TIMED       3u                /* launches of each; the quickest counts */
#define LEAST_BYTES ((size_t)4 << 20) /* what takes less may take longer for another reason */
#define MOST        5000u
#define USUAL       100u
#define LITTLE      5u   /* less is a small part of what the kernel is given */
#define HIGH        400u /* more than a move takes */
#define MEAN_OF     8u   /* measurements */
#define AGAIN       16u  /* launches, of which one is timed */
#define MANY        8u   /* addresses; a kernel that is given more may use a part */

struct toll {
    uint64_t operand;
    unsigned price; /* the least that was measured */
    unsigned timed;
    unsigned launches; /* that could be timed */
    bool is_timed_now;
    bool is_taken; /* the driver has not refused its last launch */
};

struct kernel {
    uint64_t kernel;
    unsigned price; /* the greatest that was measured, of all its operands; 0: none was */
    bool is_taken;  /* likewise */
    float mean;     /* of what was measured last, where it was given many addresses */
    unsigned timed; /* launches, of those; up to MEAN_OF */
};

/* The operand of the thread's last launch that used enough memory of the host; and the kernel of
 * its last launch, if that was looked at. */
static _Thread_local uint64_t last_operand, last_kernel;

static struct toll tolls[PLACES];     /* under the lock of the ranges */
static struct kernel kernels[PLACES]; /* likewise */

#define TIMINGS 32u

/* A launch that is timed. */
struct timing {
    enum { FREE, RUNS, ENDS } stage; /* RUNS: it may; ENDS: the event after it is recorded */
    CUevent before, after;
    CUstream stream;
    const void *thread; /* whose stream of that name it is; NULL: there is one */
    uint64_t kernel, operand;
    size_t bytes;
    bool is_given_many;
    bool is_bound; /* the kernel had ended when the event after it was recorded */
};

static struct {
    struct ag_paging_moment moment; /* whoever has it changes what follows */
    _Atomic unsigned n_busy;        /* timings that are not free; relaxed where it is asked early */
    unsigned n_made, next;          /* timings with events; the one that is looked at next */
    struct timing *running;         /* the one that may run */
    struct timing timings[TIMINGS];
} self = {.moment = AG_PAGING_MOMENT_INIT};

static const void *thread_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? &last_kernel : NULL;
}

/* --- prices --- */

static struct toll *place_of(uint64_t operand)
{
    return &tolls[ag_hash_entry(operand, PLACES)];
}

static struct kernel *place_of_kernel(uint64_t kernel)
{
    return &kernels[ag_hash_entry(kernel, PLACES)];
}

/* What launches of the kernel take in the mean, up to the usual; that where nothing is known. */
static unsigned mean_of(uint64_t kernel)
{
    const struct kernel *place = place_of_kernel(kernel);

    return kernel && place->kernel == kernel && place->timed && place->mean < USUAL
               ? (unsigned)place->mean
               : USUAL;
}

unsigned ag_toll_of(uint64_t kernel, uint64_t operand)
{
    const struct toll *toll = place_of(operand);
    unsigned price = operand && toll->operand == operand && toll->timed ? toll->price : USUAL;

    return price > USUAL ? price : mean_of(kernel);
}

unsigned ag_toll_now(uint64_t kernel, uint64_t operand)
{
    const struct toll *toll = place_of(operand);
    bool is_first_time = operand && toll->operand == operand && !toll->timed && toll->is_timed_now;
    unsigned price = ag_toll_of(kernel, operand);

    return is_first_time && price >= USUAL ? HIGH : price;
}

bool ag_toll_is_known(uint64_t operand)
{
    const struct toll *toll = place_of(operand);

    return operand && toll->operand == operand && toll->timed;
}

bool ag_toll_is_little(uint64_t kernel)
{
    const struct kernel *place = place_of_kernel(kernel);

    return place->kernel == kernel && place->price && place->price < LITTLE;
}

unsigned ag_toll_at_most(uint64_t operand)
{
    return ag_toll_is_known(operand) ? place_of(operand)->price : MOST;
}

/* Called with the lock held. What is named may lie on the host where what is used of it does not:
 * of a kernel that seems not to use all, launches are timed again and again. */
static bool wants_time(struct toll *toll, uint64_t kernel)
{
    unsigned n = ++toll->launches;

    return toll->timed < TIMED || (ag_toll_is_little(kernel) && !(n & (n - 1))) ||
           (mean_of(kernel) < USUAL && !(n % AGAIN));
}

/* Is another launch with the operand to be timed? It is from now on. The driver has taken one: an
 * event before one that it refuses would be all that is in the stream. */
static bool begin_operand(uint64_t kernel, uint64_t operand)
{
    struct toll *toll = place_of(operand);
    bool wanted;

    (void)ag_ranges_lock();
    if (toll->operand != operand)
        *toll = (struct toll){.operand = operand, .price = MOST};
    wanted = toll->is_taken && !toll->is_timed_now && wants_time(toll, kernel);
    toll->is_taken = true;
    toll->is_timed_now |= wanted;
    ag_ranges_unlock();
    return wanted;
}

/* Called with the lock held. */
static struct kernel *kernel_at_its_place(uint64_t kernel)
{
    struct kernel *place = place_of_kernel(kernel);

    if (place->kernel != kernel)
        *place = (struct kernel){.kernel = kernel};
    return place;
}

/* Has the driver taken a launch of the kernel before? It is taken to take this one. */
static bool was_taken(uint64_t kernel)
{
    struct kernel *place;
    bool was;

    (void)ag_ranges_lock();
    place = kernel_at_its_place(kernel);
    was = place->is_taken;
    place->is_taken = true;
    ag_ranges_unlock();
    last_kernel = kernel;
    return was;
}

/* `price` is 0 where there was no measurement. */
static void end_operand(uint64_t operand, unsigned price)
{
    struct toll *toll = place_of(operand);

    (void)ag_ranges_lock();
    if (toll->operand == operand) {
        toll->is_timed_now = false;
        toll->timed += price != 0;
        if (price && price < toll->price)
            toll->price = price < USUAL ? USUAL : price;
    }
    ag_ranges_unlock();
}

static void note_kernel(const struct timing *timing, unsigned price)
{
    unsigned counts = price < HIGH ? price : HIGH; /* whatever held it up */
    struct kernel *place;

    (void)ag_ranges_lock();
    place = kernel_at_its_place(timing->kernel);
    if (price > place->price)
        place->price = price;
    if (timing->is_given_many) {
        place->timed += place->timed < MEAN_OF;
        place->mean += ((float)counts - place->mean) / (float)place->timed;
    }
    ag_ranges_unlock();
}

static unsigned crossings_of(uint64_t ns, size_t bytes)
{
    uint64_t crossing = ag_prices_crossing_ns(bytes), price = 100 * ns / (crossing ? crossing : 1);

    return price < 1 ? 1 : price < MOST ? (unsigned)price : MOST;
}

/* --- launches that are timed; in the moment --- */

static void end_timing(struct timing *timing, unsigned price)
{
    end_operand(timing->operand, price);
    timing->stage = FREE;
    if (timing == self.running)
        self.running = NULL;
    atomic_fetch_sub_explicit(&self.n_busy, 1, memory_order_relaxed);
}

static void end_lost(void)
{
    if (!ag_paging_moment_lost_events(&self.moment))
        return;
    for (unsigned i = 0; i < self.n_made; i++)
        if (self.timings[i].stage != FREE)
            end_timing(&self.timings[i], 0);
    self.n_made = 0;
}

/* One with events that is free; NULL: there is none. */
static struct timing *free_timing(void)
{
    struct timing *timing = self.timings;

    while (timing < self.timings + self.n_made && timing->stage != FREE)
        timing++;
    if (timing < self.timings + self.n_made)
        return timing;
    if (self.n_made == TIMINGS || !ag_cu.cuEventElapsedTime ||
        ag_cu.cuEventCreate(&timing->before, 0) != CUDA_SUCCESS)
        return NULL;
    if (ag_cu.cuEventCreate(&timing->after, 0) != CUDA_SUCCESS) {
        (void)ag_cu.cuEventDestroy_v2(timing->before);
        return NULL;
    }
    self.n_made++;
    return timing;
}

static void look_whether_ended(struct timing *timing)
{
    CUresult result = ag_cu.cuEventQuery(timing->after);
    unsigned price = 0;
    float ms;

    if (result == CUDA_ERROR_NOT_READY)
        return;
    if (result == CUDA_SUCCESS &&
        ag_cu.cuEventElapsedTime(&ms, timing->before, timing->after) == CUDA_SUCCESS && ms > 0)
        price = crossings_of((uint64_t)((double)ms * 1e6), timing->bytes);
    if (price)
        note_kernel(timing, price);
    if (timing->is_bound && price >= LITTLE)
        price = 0;
    end_timing(timing, price);
}

/* Where the kernel has ended already, it has taken no longer than is measured. But the event before
 * a launch that the driver refuses would be all that is in the stream then: it is safe where none
 * follows, or one that the driver is taken to take. */
static void record_after(struct timing *timing, bool is_safe)
{
    timing->is_bound = ag_cu.cuStreamQuery(timing->stream) != CUDA_ERROR_NOT_READY;
    if (timing->is_bound)
        end_operand(timing->operand, 0); /* its price is not high */
    if ((is_safe || !timing->is_bound) &&
        ag_cu.cuEventRecord(timing->after, timing->stream) == CUDA_SUCCESS)
        timing->stage = ENDS;
    else
        end_timing(timing, 0);
    self.running = NULL;
}

static void begin_timing(CUstream stream, uint64_t kernel, uint64_t operand, size_t bytes,
                         unsigned n_given)
{
    struct timing *timing;

    if (!begin_operand(kernel, operand))
        return;
    timing = free_timing();
    if (!timing || ag_cu.cuEventRecord(timing->before, stream) != CUDA_SUCCESS) {
        end_operand(operand, 0);
        return;
    }
    *timing = (struct timing){.stage = RUNS,
                              .before = timing->before,
                              .after = timing->after,
                              .stream = stream,
                              .thread = thread_of(stream),
                              .kernel = kernel,
                              .operand = operand,
                              .bytes = bytes,
                              .is_given_many = n_given > MANY};
    self.running = timing;
    atomic_fetch_add_explicit(&self.n_busy, 1, memory_order_relaxed);
}

/* One of them at a launch, so that this takes no time. */
static void look_at_next(void)
{
    struct timing *timing = &self.timings[self.next++ % self.n_made];

    if (timing->stage == ENDS)
        look_whether_ended(timing);
}

/* --- for all --- */

/* Is anything timed? A launch that sees it late is not the end of a timing, or one later. */
static bool is_busy(void)
{
    return atomic_load_explicit(&self.n_busy, memory_order_relaxed);
}

void ag_toll_go_on(CUstream stream, uint64_t kernel)
{
    last_kernel = 0;
    if (!is_busy() || !ag_paging_moment_begin(&self.moment))
        return;
    end_lost();
    if (self.running && self.running->stream == stream && self.running->thread == thread_of(stream))
        record_after(self.running, was_taken(kernel));
    if (self.n_made)
        look_at_next();
    ag_paging_moment_end(&self.moment);
}

void ag_toll_stream_ends(CUstream stream)
{
    if (!is_busy())
        return;
    if (ag_paging_moment_begin(&self.moment)) {
        end_lost();
        if (self.running && self.running->stream == stream)
            record_after(self.running, true);
        ag_paging_moment_end(&self.moment);
        return;
    }
    ag_paging_moment_lock(&self.moment);
    if (self.running && self.running->stream == stream)
        end_timing(self.running, 0);
    ag_paging_moment_unlock(&self.moment);
}

void ag_toll_before(CUstream stream, uint64_t kernel, uint64_t operand, size_t bytes,
                    unsigned n_given)
{
    last_operand = bytes < LEAST_BYTES ? 0 : operand;
    if (bytes < LEAST_BYTES || !ag_paging_moment_begin(&self.moment))
        return;
    end_lost();
    if (self.running) /* of a stream that had no work since */
        end_timing(self.running, 0);
    begin_timing(stream, kernel, operand, bytes, n_given);
    ag_paging_moment_end(&self.moment);
}

void ag_toll_refused(void)
{
    struct toll *toll = place_of(last_operand);

    (void)ag_ranges_lock();
    if (last_operand && toll->operand == last_operand)
        toll->is_taken = false;
    if (last_kernel)
        kernel_at_its_place(last_kernel)->is_taken = false;
    ag_ranges_unlock();
}

void ag_toll_at_idle(void)
{
    if (!is_busy() || !ag_paging_moment_begin(&self.moment))
        return;
    end_lost();
    for (unsigned i = 0; i < self.n_made; i++)
        if (self.timings[i].stage == ENDS)
            look_whether_ended(&self.timings[i]);
    ag_paging_moment_end(&self.moment);
}

void ag_toll_begin_child(void)
{
    for (unsigned i = 0; i < self.n_made; i++)
        self.timings[i].stage = FREE;
    for (unsigned i = 0; self.n_made && i < PLACES; i++)
        tolls[i].is_timed_now = false;
    self.n_made = 0;
    self.running = NULL;
    atomic_store(&self.n_busy, 0);
    ag_paging_moment_begin_child(&self.moment);
}
