/* The out-of-memory ladder and the bounds: see pressure.h. */
#include "pressure.h"

#include "backend.h"
#include "context.h"
#include "order.h"

static struct ag_size cache_limit, pending_limit;

void ag_pressure_configure(struct ag_size cache, struct ag_size pending)
{
    cache_limit = cache;
    pending_limit = pending;
}

uint64_t ag_pressure_cache_limit(const struct ag_device *device)
{
    return ag_size_bytes(cache_limit, device->total_bytes);
}

void ag_pressure_pending(size_t bytes)
{
    ag_level_add(&ag_stats.pending_bytes, bytes);
}

static void wait_released(struct ag_context *context, void *unused)
{
    (void)unused;
    (void)ag_order_wait_released(context);
}

/* All frees so far have taken effect. */
static void settle_pending(enum ag_stat why)
{
    uint64_t pending = ag_level_current(&ag_stats.pending_bytes);

    ag_context_each(wait_released, NULL);
    ag_level_subtract(&ag_stats.pending_bytes, pending);
    ag_stats_add(why, 1);
}

void ag_pressure_bound_pending(const struct ag_device *device)
{
    if (ag_level_current(&ag_stats.pending_bytes) > ag_size_bytes(pending_limit, device->total_bytes))
        settle_pending(AG_STAT_PAID_PENDING);
}

void ag_pressure_settle(void)
{
    if (ag_level_current(&ag_stats.pending_bytes))
        settle_pending(AG_STAT_PAID_PENDING);
}

static void empty_cache(struct ag_context *context, void *device)
{
    struct ag_block *blocks;

    if (context->device != device)
        return;
    blocks = ag_pool_release(context, ag_cache_empty(&context->cache));
    while (blocks) { /* a capture opened meanwhile: they wait where they were */
        struct ag_block *next = blocks->next;

        (void)ag_cache_keep(&context->cache, blocks, UINT64_MAX);
        blocks = next;
    }
}

bool ag_pressure_relieve(struct ag_device *device)
{
    if (ag_order_capture_open())
        return false;
    ag_context_each(empty_cache, device);
    settle_pending(AG_STAT_PAID_PRESSURE);
    ag_pool_trim(device);
    return true;
}

bool ag_pressure_relieve_current(void)
{
    struct ag_context *context = ag_context_current();

    return context && ag_pressure_relieve(context->device);
}
