/* A table of green contexts: see green_context.h. */
#include "policy/contexts/green_context.h"

#include <stdatomic.h>

#include "interpose/core/base/threads/lock.h"

#define MAX_GREEN 256u

static struct {
    struct ag_lock lock; /* guards rows */
    struct {
        CUgreenCtx green;
        CUcontext inside; /* NULL until the program asks for it */
        int device;
    } rows[MAX_GREEN];
    _Atomic unsigned n;
} table = {.lock = AG_LOCK_INIT(AG_RANK_GREEN)};

static unsigned n_green(void)
{
    return atomic_load_explicit(&table.n, memory_order_acquire);
}

/* The row of `green`, or n_green(). Called with the lock held. */
static unsigned find_green(CUgreenCtx green)
{
    unsigned i = 0;

    while (i < n_green() && table.rows[i].green != green)
        i++;
    return i;
}

void ag_green_created(CUgreenCtx green, int device)
{
    unsigned n;

    ag_lock_take(&table.lock);
    n = n_green();
    if (n < MAX_GREEN) {
        table.rows[n].green = green;
        table.rows[n].inside = NULL;
        table.rows[n].device = device;
        atomic_store_explicit(&table.n, n + 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
}

void ag_green_converted(CUgreenCtx green, CUcontext inside)
{
    unsigned i;

    ag_lock_take(&table.lock);
    i = find_green(green);
    if (i < n_green())
        table.rows[i].inside = inside;
    ag_lock_release(&table.lock);
}

int ag_green_device(CUgreenCtx green)
{
    int device = -1;
    unsigned i;

    ag_lock_take(&table.lock);
    i = find_green(green);
    if (i < n_green())
        device = table.rows[i].device;
    ag_lock_release(&table.lock);
    return device;
}

void ag_green_destroyed(CUgreenCtx green)
{
    unsigned i;

    ag_lock_take(&table.lock);
    i = find_green(green);
    if (i < n_green()) {
        table.rows[i] = table.rows[n_green() - 1];
        atomic_store_explicit(&table.n, n_green() - 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
}

int ag_green_device_inside(CUcontext inside)
{
    int device = -1;

    if (!n_green())
        return -1;
    ag_lock_take(&table.lock);
    for (unsigned i = 0; i < n_green() && device < 0; i++) {
        if (table.rows[i].inside == inside)
            device = table.rows[i].device;
    }
    ag_lock_release(&table.lock);
    return device;
}

void ag_green_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_GREEN);
    atomic_store(&table.n, 0);
}
