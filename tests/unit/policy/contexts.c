/* A context that ends waits for who visits it, and who looks for it waits for its end, however late
 * their threads wake (contexts/context.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/contexts/context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/driver/driver.h"
#include "tests/common/check.h"

#define HANDLE ((CUcontext)0x1000)
#define HOUR_S 3600

struct ag_driver ag_cu;

/* The process is stopped for an hour before each reading that its waiting thread makes. */
static _Thread_local bool is_waiting;
static _Atomic unsigned n_stops;

int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    int result = __real_clock_gettime(clock, ret_now);

    if (is_waiting)
        ret_now->tv_sec += (time_t)HOUR_S * ++n_stops;
    return result;
}

/* Some hours later. */
static void sleep_through(void)
{
    const unsigned before = atomic_load(&n_stops);

    while (atomic_load(&n_stops) < before + 100)
        (void)usleep(100);
}

static struct ag_device *device;
static struct ag_context *context;
static atomic_bool is_inside, has_left, has_asked;

static void enter_one(void)
{
    struct ag_context *fresh = ag_context_get_memory();

    CHECK(fresh);
    fresh->device = device;
    fresh->primary_references = 0;
    fresh->unreferenced = false;
    context = ag_context_insert(fresh, HANDLE, true);
    CHECK(context == fresh);
}

static void stay_long(struct ag_context *visited, void *unused)
{
    (void)unused;
    CHECK(visited == context);
    atomic_store(&is_inside, true);
    sleep_through();
    atomic_store(&has_left, true);
}

static void *visit(void *unused)
{
    ag_context_each(stay_long, NULL);
    return unused;
}

/* Ends the context, which the other thread visits: that leaves first. */
static void test_a_visitor_is_waited_for(void)
{
    pthread_t visitor;

    enter_one();
    OK(pthread_create(&visitor, NULL, visit, NULL));
    while (!atomic_load(&is_inside))
        (void)usleep(100);
    is_waiting = true;
    ag_context_ending(context);
    is_waiting = false;
    CHECK(atomic_load(&has_left));
    OK(pthread_join(visitor, NULL));
    ag_context_forget(context);
    ag_context_ended(context);
    ag_context_recycle(context);
}

static void *forget(void *dying)
{
    sleep_through();
    ag_context_forget(dying);
    return NULL;
}

/* The primary context is given back for the last time: who finds it waits until it is gone. */
static void test_the_end_is_waited_for(void)
{
    pthread_t other;

    enter_one();
    CHECK(ag_context_primary_leaving(0, false) == context);
    OK(pthread_create(&other, NULL, forget, context));
    is_waiting = true;
    CHECK(!ag_context_find_referred(HANDLE));
    is_waiting = false;
    OK(pthread_join(other, NULL));
    ag_context_recycle(context);
}

static void *give_back(void *unused)
{
    sleep_through();
    atomic_store(&device->n_returning, 0);
    return unused;
}

static void test_memory_on_its_way_is_waited_for(void)
{
    pthread_t other;

    atomic_store(&device->n_returning, 1);
    OK(pthread_create(&other, NULL, give_back, NULL));
    is_waiting = true;
    CHECK(ag_device_wait_returned(device, false, 1000000000));
    is_waiting = false;
    OK(pthread_join(other, NULL));
}

static void wait_inside(struct ag_context *unused, void *unused_too)
{
    (void)unused, (void)unused_too;
    CHECK(ag_device_wait_returned(device, false, UINT64_MAX));
    atomic_store(&has_asked, true);
}

/* What a context that ends has on its way back comes only once nobody visits it: a visitor that
 * waited for that would be waited for. */
static void test_a_visitor_does_not_wait(void)
{
    enter_one();
    atomic_store(&device->n_returning, 1);
    ag_context_each(wait_inside, NULL);
    CHECK(atomic_load(&has_asked));
    atomic_store(&device->n_returning, 0);
}

int main(void)
{
    device = ag_device_add(&(struct ag_device){.ordinal = 0, .name = "device"});
    CHECK(device);
    test_a_visitor_is_waited_for();
    test_the_end_is_waited_for();
    test_memory_on_its_way_is_waited_for();
    test_a_visitor_does_not_wait();
    return 0;
}
