/* Attributes of functions as they were last set: see func_attrs.h. */
#include "graph/record/func_attrs.h"

#include "interpose/core/base/map.h"
#include "interpose/core/base/threads/lock.h"

#define MAX_NOTED 16384u

static struct {
    struct ag_lock lock; /* guards the rest */
    struct ag_map map;   /* key of what is set -> value + 1 */
} state = {.lock = AG_LOCK_INIT(AG_RANK_FUNC_ATTRS)};

/* One number for what is set; 0 where it does not fit into one. */
static uint64_t attrs_key(const struct ag_func_attrs *func_attrs)
{
    uint64_t function = (uint64_t)(uintptr_t)func_attrs->function;
    unsigned attribute = (unsigned)func_attrs->attribute, device = (unsigned)func_attrs->device + 1;

    if (function >> 48 || attribute >> 7 || device >> 7)
        return 0;
    return function << 16 | (uint64_t)func_attrs->kind << 14 | attribute << 7 | device;
}

static void *boxed(int value)
{
    return (void *)((uintptr_t)(uint32_t)value + 1);
}

bool ag_func_attrs_holds(const struct ag_func_attrs *func_attrs)
{
    uint64_t key = attrs_key(func_attrs);
    bool holds;

    if (!key)
        return false;
    ag_lock_take(&state.lock);
    holds = ag_map_get(&state.map, key) == boxed(func_attrs->value);
    ag_lock_release(&state.lock);
    return holds;
}

void ag_func_attrs_note(const struct ag_func_attrs *func_attrs)
{
    uint64_t key = attrs_key(func_attrs);

    if (!key)
        return;
    ag_lock_take(&state.lock);
    if (state.map.count >= MAX_NOTED)
        ag_map_finish(&state.map);
    /* An attribute that could not be kept must not stay as it was before. */
    if (!ag_map_put(&state.map, key, boxed(func_attrs->value)))
        (void)ag_map_take(&state.map, key);
    ag_lock_release(&state.lock);
}

void ag_func_attrs_forget(void)
{
    ag_lock_take(&state.lock);
    ag_map_finish(&state.map);
    ag_lock_release(&state.lock);
}

void ag_func_attrs_begin_child(void)
{
    ag_lock_init(&state.lock, AG_RANK_FUNC_ATTRS); /* a thread of the parent may have held it */
    ag_func_attrs_forget();
}
