/* handle.c: tells live handles from stale ones without following them. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

struct slot {
    const void *handle;
    enum sim_handle_kind kind;
};

/* Open addressing; a freed place keeps kind 0 and a handle, so that probing goes on past it. */
static struct {
    struct slot *slots;
    size_t capacity, filled;
} self;

static size_t probe(const struct slot *slots, size_t capacity, const void *handle)
{
    size_t i = ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15u % capacity;

    while (slots[i].handle && slots[i].handle != handle)
        i = (i + 1) % capacity;
    return i;
}

static void grow(void)
{
    size_t capacity = self.capacity ? self.capacity * 2 : 256, filled = 0;
    struct slot *slots = calloc(capacity, sizeof(*slots));

    if (!slots)
        abort();
    for (size_t i = 0; i < self.capacity; i++) {
        if (!self.slots[i].kind)
            continue;
        slots[probe(slots, capacity, self.slots[i].handle)] = self.slots[i];
        filled++;
    }
    free(self.slots);
    self.slots = slots;
    self.capacity = capacity;
    self.filled = filled;
}

void *sim_handle_new(enum sim_handle_kind kind, size_t bytes)
{
    void *handle = calloc(1, bytes);

    if (!handle)
        abort();
    if (self.filled * 2 >= self.capacity)
        grow();
    struct slot *slot = &self.slots[probe(self.slots, self.capacity, handle)];
    if (!slot->handle)
        self.filled++;
    slot->handle = handle;
    slot->kind = kind;
    return handle;
}

bool sim_handle_is(const void *handle, enum sim_handle_kind kind)
{
    if (!handle || !self.capacity)
        return false;
    const struct slot *slot = &self.slots[probe(self.slots, self.capacity, handle)];
    return slot->handle == handle && slot->kind == kind;
}

void sim_handle_free(void *handle)
{
    self.slots[probe(self.slots, self.capacity, handle)].kind = 0;
    free(handle);
}
