/* order.c: vector clocks, which tell what is ordered from what merely happened to run first.
 *
 * A check by what has run already would find a missing dependency only under the schedule that
 * exposes it. Comparing orders finds it under every schedule. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    uint32_t last_seq;
    bool retired;
};

static struct {
    struct slot *slots;
    uint32_t n;
} self;

struct sim_order sim_host_order;

static void reserve(struct sim_order *order, uint32_t n)
{
    if (order->n >= n)
        return;
    order->at = realloc(order->at, n * sizeof(*order->at));
    if (!order->at)
        abort();
    memset(order->at + order->n, 0, (n - order->n) * sizeof(*order->at));
    order->n = n;
}

void sim_order_join(struct sim_order *order, const struct sim_order *other)
{
    reserve(order, other->n);
    for (uint32_t i = 0; i < other->n; i++) /* without a branch, as vectors */
        order->at[i] = SIM_MAX(order->at[i], other->at[i]);
}

void sim_order_add(struct sim_order *order, struct sim_stamp stamp)
{
    reserve(order, stamp.slot + 1);
    if (order->at[stamp.slot] < stamp.seq)
        order->at[stamp.slot] = stamp.seq;
}

bool sim_order_covers(const struct sim_order *order, struct sim_stamp stamp)
{
    return stamp.slot < order->n && order->at[stamp.slot] >= stamp.seq;
}

void sim_order_finish(struct sim_order *order)
{
    free(order->at);
    order->at = NULL;
    order->n = 0;
}

uint32_t sim_slot_new(void)
{
    /* A retired slot may serve again once the host knows all that ever ran in it to be done:
     * its numbers go on, so nothing new can be mistaken for something old. */
    for (uint32_t i = 0; i < self.n; i++) {
        struct sim_stamp last = {i, self.slots[i].last_seq};
        if (self.slots[i].retired && (!last.seq || sim_order_covers(&sim_host_order, last))) {
            self.slots[i].retired = false;
            return i;
        }
    }
    self.slots = realloc(self.slots, (self.n + 1) * sizeof(*self.slots));
    if (!self.slots)
        abort();
    self.slots[self.n] = (struct slot){0, false};
    return self.n++;
}

uint32_t sim_slot_next(uint32_t slot)
{
    return ++self.slots[slot].last_seq;
}

void sim_slot_retire(uint32_t slot)
{
    self.slots[slot].retired = true;
}
