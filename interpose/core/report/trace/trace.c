/* Puts events, and the texts they refer to, into rings: see trace.h. Takes no lock, since hooks of
 * every thread call it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/trace/trace.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/loaded.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic bool ag_trace_active;

#define MOST_TEXTS   4096u
#define TEXTS_BYTES  (1u << 20)
#define KNOWN        1024u /* return addresses whose module is known */
#define PROBES       8u
#define MOST_PATH    1024u
#define ADDRESS_BITS 48 /* no library lies above; an address that does is of an unknown module */
#define NUMBER_MASK  ((UINT64_C(1) << (64 - ADDRESS_BITS)) - 1)
_Static_assert(MOST_TEXTS < 1u << (64 - ADDRESS_BITS), "an address and a number are one word");

static struct {
    uint32_t positions; /* of a ring */
    _Atomic(struct ag_trace_ring *) rings[AG_SLOTS];
    _Atomic(struct ag_trace_named *) texts[MOST_TEXTS]; /* from the front, without holes */
    char *memory; /* of texts; kept through forks, since hooks may be reading there */
    _Atomic uint32_t memory_used; /* relaxed: what is written there is seen through `texts` */
    _Atomic uint64_t known[KNOWN];
} trace;

static _Thread_local uint32_t own_thread;

const struct ag_trace_named *ag_trace_named(unsigned i)
{
    return i < MOST_TEXTS ? atomic_load_explicit(&trace.texts[i], memory_order_acquire) : NULL;
}

struct ag_trace_ring *ag_trace_ring_of(unsigned i)
{
    return atomic_load_explicit(&trace.rings[i], memory_order_acquire);
}

/* --- texts --- */

/* A text of our own memory, not to be seen yet; NULL without room. */
static struct ag_trace_named *put_text(uint32_t space, uint32_t number, uint64_t base,
                                       const char *text, size_t length)
{
    uint32_t need = (uint32_t)((sizeof(struct ag_trace_named) + length + 8) & ~7u);
    uint32_t used = atomic_load_explicit(&trace.memory_used, memory_order_relaxed);
    struct ag_trace_named *named;

    do {
        if (!trace.memory || need > TEXTS_BYTES - used)
            return NULL;
    } while (!atomic_compare_exchange_weak(&trace.memory_used, &used, used + need));
    named = (struct ag_trace_named *)(void *)(trace.memory + used);
    *named = (struct ag_trace_named){space, number, base, (uint32_t)length};
    memcpy(named->text, text, length);
    return named;
}

static bool is_same_text(const struct ag_trace_named *named, uint32_t space, uint64_t base,
                         const char *text, size_t length)
{
    return named->space == space && named->base == base && named->length == length &&
           !memcmp(named->text, text, length);
}

#define OWN_NUMBER UINT32_MAX /* where it stands, plus 1 */

/* The number of a text, put down where it is new; 0 when there is no room. */
static uint32_t number_of_text(uint32_t space, uint32_t number, uint64_t base, const char *text,
                               size_t length)
{
    struct ag_trace_named *own = NULL;

    for (uint32_t i = 0; i < MOST_TEXTS; i++) {
        struct ag_trace_named *there = atomic_load_explicit(&trace.texts[i], memory_order_acquire);

        if (!there) {
            if (!own)
                own = put_text(space, number, base, text, length);
            if (!own)
                return 0;
            own->number = number == OWN_NUMBER ? i + 1 : number;
            if (atomic_compare_exchange_strong(&trace.texts[i], &there, own))
                return own->number;
        }
        if (is_same_text(there, space, base, text, length))
            return there->number;
    }
    return 0;
}

/* --- modules --- */

/* The number of the module that the address lies in. Its caller has not returned, so it is still
 * there. */
static uint32_t look_up_module(uint64_t address)
{
    char text[MOST_PATH + 96];
    struct ag_loaded loaded;
    size_t length, digits;

    if (!ag_loaded_find((const void *)(uintptr_t)address, &loaded))
        return 0;
    length = ag_loaded_path(&loaded, text, MOST_PATH);
    digits = ag_loaded_build_id(&loaded, text + length + 1, sizeof(text) - length - 1);
    return number_of_text(AG_TRACE_TEXT_MODULE, OWN_NUMBER, (uint64_t)(uintptr_t)loaded.base, text,
                          digits ? length + 1 + digits : length);
}

/* Does the module of what is known of the address still lie there? Another library may have been
 * loaded there since. Nobody unloads the program, which has no name. Before glibc 2.35 this takes a
 * lock of the loader that is held briefly. */
static bool still_lies_at(uint64_t address, uint64_t found, const _Atomic uint64_t *entry)
{
    static struct ag_loaded_notes notes = {.words = trace.known, .n = KNOWN};
    uint16_t number = (uint16_t)(found & NUMBER_MASK);
    const struct ag_trace_named *named = number ? ag_trace_named(number - 1u) : NULL;
    struct ag_loaded loaded;
    size_t length;

    if (!named)
        return true;
    if (!ag_loaded_is_lock_free())
        return ag_loaded_note_holds(&notes, entry, found);
    if (!ag_loaded_find((const void *)(uintptr_t)address, &loaded) ||
        named->base != (uint64_t)(uintptr_t)loaded.base)
        return false;
    length = strnlen(loaded.map->l_name, MOST_PATH - 1);
    return !length ||
           (named->length >= length && !memcmp(named->text, loaded.map->l_name, length) &&
            (named->length == length || !named->text[length]));
}

static uint16_t module_number(uint64_t address)
{
    unsigned first = (unsigned)(ag_hash_spread(address) >> 54), at;
    uint64_t known = 0;

    if (!address || address >> ADDRESS_BITS)
        return 0;
    for (unsigned i = 0; i < PROBES; i++) {
        at = (first + i) % KNOWN;
        known = atomic_load_explicit(&trace.known[at], memory_order_acquire);
        if (known >> (64 - ADDRESS_BITS) == address &&
            still_lies_at(address, known, &trace.known[at]))
            return (uint16_t)(known & NUMBER_MASK);
        if (!known || known >> (64 - ADDRESS_BITS) == address)
            break;
    }
    if (known && known >> (64 - ADDRESS_BITS) != address) /* all are taken */
        at = first;
    known = address << (64 - ADDRESS_BITS) | look_up_module(address);
    /* Who reads this and tells of an event has the text before it, as the writer must find it. */
    atomic_store_explicit(&trace.known[at], known, memory_order_release);
    return (uint16_t)(known & NUMBER_MASK);
}

/* --- events --- */

static __attribute__((noinline)) struct ag_trace_ring *make_ring(unsigned slot)
{
    size_t bytes = sizeof(struct ag_trace_ring) + trace.positions * sizeof(struct ag_trace_event);
    struct ag_trace_ring *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct ag_trace_ring *there = NULL;

    if (ring == MAP_FAILED)
        return NULL;
    ring->mask = trace.positions - 1;
    if (atomic_compare_exchange_strong(&trace.rings[slot], &there, ring))
        return ring;
    (void)munmap(ring, bytes); /* of a shared slot: another thread was first */
    return there;
}

void ag_trace_add(const struct ag_trace_event *event)
{
    uint16_t module = module_number(event->caller);
    unsigned slot = ag_slot();
    struct ag_trace_ring *ring = ag_trace_ring_of(slot);

    if (!own_thread)
        own_thread = (uint32_t)syscall(SYS_gettid);
    if (!ring)
        ring = make_ring(slot);
    if (!ring || !ag_trace_ring_put(ring, slot >= AG_OWN_SLOTS, event, own_thread, module))
        ag_stats_add(AG_STAT_TRACE_DROPPED, 1);
}

void ag_trace_add_step(enum ag_stat step, int device, uint64_t bytes)
{
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_STEP,
        .ticks = ag_clock_ticks(),
        .device = (int16_t)device,
        .size = bytes,
        .code = (uint16_t)step,
    });
}

/* A call that began before the trace did has no duration. */
void ag_trace_add_call(uint64_t began, struct ag_trace_event event)
{
    uint64_t now = ag_clock_ticks();

    event.ticks = began ? began : now;
    event.duration = now - event.ticks;
    ag_trace_add(&event);
}

void ag_trace_mark(const char *name)
{
    uint32_t number;

    if (!ag_trace_on())
        return;
    number = number_of_text(AG_TRACE_TEXT_MARK, OWN_NUMBER, 0, name, strnlen(name, 255));
    ag_trace_add(&(struct ag_trace_event){
        .kind = AG_TRACE_MARK,
        .ticks = ag_clock_ticks(),
        .device = AG_TRACE_NO_DEVICE,
        .code = (uint16_t)number,
    });
}

void ag_trace_add_wait(uint64_t began, const char *call)
{
    uint32_t number = number_of_text(AG_TRACE_TEXT_WAIT, OWN_NUMBER, 0, call, strnlen(call, 255));

    ag_trace_add_call(began, (struct ag_trace_event){.kind = AG_TRACE_WAIT,
                                                     .device = AG_TRACE_NO_DEVICE,
                                                     .code = (uint16_t)number});
}

/* --- beginning and end --- */

static bool name_numbers(void)
{
    bool all = true;

    for (uint32_t i = 0; i < AG_N_PLACEMENTS; i++)
        all = all && number_of_text(AG_TRACE_TEXT_PLACEMENT, i, 0, ag_placement_names[i],
                                    strlen(ag_placement_names[i])) == i;
    (void)number_of_text(AG_TRACE_TEXT_PLACEMENT, AG_TRACE_PLACE_APP_POOL, 0, "own pool", 8);
    for (uint32_t i = 0; i < AG_N_STATS; i++) {
        const struct ag_stat_row *row = &ag_stat_rows[i];
        uint32_t space = !strcmp(row->group, "pressure")  ? AG_TRACE_TEXT_STEP
                         : !strcmp(row->group, "flushes") ? AG_TRACE_TEXT_FLUSH
                                                          : 0;

        if (space)
            all = all && number_of_text(space, i, 0, row->key, strlen(row->key)) == i;
    }
    return all;
}

bool ag_trace_prepare(uint64_t ring_bytes)
{
    uint64_t positions = ring_bytes / sizeof(struct ag_trace_event);

    trace.positions = 1u << (63 - __builtin_clzll(positions | 1));
    if (!trace.memory) {
        void *memory = mmap(NULL, TEXTS_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        trace.memory = memory == MAP_FAILED ? NULL : memory;
    }
    return trace.memory && name_numbers();
}

void ag_trace_forget(void)
{
    atomic_store(&ag_trace_active, false);
    own_thread = 0;
    for (unsigned i = 0; i < AG_SLOTS; i++) {
        struct ag_trace_ring *ring = atomic_exchange(&trace.rings[i], NULL);

        if (ring)
            (void)munmap(ring, sizeof(*ring) + (ring->mask + 1ull) * sizeof(struct ag_trace_event));
    }
}
