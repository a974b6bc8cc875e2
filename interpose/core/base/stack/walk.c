/* Walks stacks: see walk.h.
 *
 * Delicate, because it reads memory that it knows only by its address. The rules of this file:
 * - whatever is read of a stack lies between the stack pointer and the end of the thread's stack,
 *   which are mapped as long as the thread runs there. On any other stack (a coroutine's, a signal
 *   handler's) the walk ends after its first frame;
 * - each step goes towards the end, so that a walk ends;
 * - what is known of an address is one pair of words, of which the first is the address mixed with
 *   the second: threads may read a pair while others write it, and half of one pair with half of
 *   another is no address that anybody asks for. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/stack/walk.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/stack/frame_rule.h"

#define UNWATCHED __attribute__((no_sanitize("address", "thread", "undefined")))

/* --- the calling thread's stack --- */

static _Thread_local uintptr_t stack_low, stack_high; /* 0: not asked yet */

/* Gets memory, once for each thread; the main thread's is read from a file of /proc. */
static __attribute__((noinline)) void find_stack(void)
{
    pthread_attr_t attributes;
    size_t bytes;
    void *low;

    stack_low = stack_high = 1;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return;
    if (!pthread_attr_getstack(&attributes, &low, &bytes)) {
        stack_low = (uintptr_t)low;
        stack_high = stack_low + bytes;
    }
    (void)pthread_attr_destroy(&attributes);
}

/* --- what is known of an address --- */

#define KNOWN_BITS 12
#define KNOWN      (1u << KNOWN_BITS)

/* A rule and a module in one word. Offsets are multiples of 8, but for those of the CFA. */
#define CFA_BITS 22
#define AT_BITS  13
#define KIND_BAD 7u /* no rule can tell */

struct place {
    struct ag_frame_rule rule;
    bool is_bad;
    unsigned module;
};

static struct {
    _Atomic uint64_t keys[KNOWN], values[KNOWN];
    _Atomic uint64_t changes; /* of the loader's count, plus 1, when this began to hold */
    _Atomic uintptr_t bases[AG_FRAME_MODULES]; /* of modules; 0 of those that have no number */
    unsigned (*number_of)(const struct ag_loaded *loaded);
} known;

static bool fits_signed(int64_t value, unsigned bits)
{
    int64_t most = (int64_t)1 << (bits - 1);

    return value >= -most && value < most;
}

static uint64_t field(int64_t value, unsigned bits)
{
    return (uint64_t)value & ((1ull << bits) - 1);
}

static int32_t signed_field(uint64_t word, unsigned shift, unsigned bits)
{
    return (int32_t)((int64_t)(word << (64 - shift - bits)) >> (64 - bits));
}

/* 3 bits of the kind, 2 of what is saved, 10 of the module, then the offsets. */
static uint64_t pack_place(const struct place *place)
{
    const struct ag_frame_rule *rule = &place->rule;
    bool is_bad = place->is_bad || !fits_signed(rule->cfa_offset, CFA_BITS) ||
                  !fits_signed(rule->saved_at / 8, AT_BITS) ||
                  !fits_signed(rule->return_at / 8, AT_BITS) || rule->saved_at % 8 ||
                  rule->return_at % 8;

    return (uint64_t)(is_bad ? KIND_BAD : (unsigned)rule->cfa) | (uint64_t)rule->saved << 3 |
           (uint64_t)place->module << 5 | field(rule->cfa_offset, CFA_BITS) << 15 |
           field(rule->saved_at / 8, AT_BITS) << 37 | field(rule->return_at / 8, AT_BITS) << 50;
}
_Static_assert(50 + AT_BITS < 64 && 15 + CFA_BITS == 37 && 37 + AT_BITS == 50, "they fit");
_Static_assert(AG_FRAME_MODULES <= 1u << 10, "10 bits");

static struct place unpack(uint64_t word)
{
    return (struct place){
        .rule = {.cfa = (enum ag_frame_cfa)(word & 7),
                 .saved = (enum ag_frame_saved)(word >> 3 & 3),
                 .cfa_offset = signed_field(word, 15, CFA_BITS),
                 .saved_at = signed_field(word, 37, AT_BITS) * 8,
                 .return_at = signed_field(word, 50, AT_BITS) * 8},
        .is_bad = (word & 7) == KIND_BAD,
        .module = (unsigned)(word >> 5) & (AG_FRAME_MODULES - 1),
    };
}

#define VALID (1ull << 63) /* no word of an address that was looked up is 0 */

static __attribute__((noinline)) uint64_t look_up_place(uintptr_t address)
{
    struct ag_loaded loaded;
    struct place place = {.rule = {.cfa = AG_CFA_UNKNOWN}};
    const ElfW(Phdr) * header;

    if (ag_loaded_find((const void *)(address - 1), &loaded)) {
        place.module = known.number_of(&loaded);
        if (place.module) /* relaxed: seen by who sees the value, which known_place() releases */
            atomic_store_explicit(&known.bases[place.module], (uintptr_t)loaded.base,
                                  memory_order_relaxed);
        header = ag_loaded_header(&loaded, PT_GNU_EH_FRAME);
        if (header)
            place.is_bad = !ag_frame_rule_find((const void *)(loaded.map->l_addr + header->p_vaddr),
                                               address - 1, &place.rule);
    }
    return pack_place(&place) | VALID;
}

static struct place known_place(uintptr_t address)
{
    unsigned at = (unsigned)(ag_hash_spread(address) >> (64 - KNOWN_BITS));
    /* With the value, its module's row and base are visible. The key needs no order: it fits to no
     * other value. */
    uint64_t value = atomic_load_explicit(&known.values[at], memory_order_acquire);
    uint64_t key = atomic_load_explicit(&known.keys[at], memory_order_relaxed);

    if (!(value & VALID) || (key ^ value) != address) {
        value = look_up_place(address);
        atomic_store_explicit(&known.values[at], value, memory_order_release);
        atomic_store_explicit(&known.keys[at], address ^ value, memory_order_relaxed);
    }
    return unpack(value);
}

static void forget_places(void)
{
    for (unsigned i = 0; i < KNOWN; i++)
        atomic_store_explicit(&known.values[i], 0, memory_order_relaxed);
}

/* A library whose code is on this stack stays while we walk it. So what others know of it holds,
 * and what was known before it came is forgotten here, if nobody has done so yet. */
static uint64_t keep_up_with_loader(void)
{
    uint64_t now = ag_loaded_changes();

    if (atomic_load_explicit(&known.changes, memory_order_acquire) != now + 1) {
        forget_places();
        atomic_store_explicit(&known.changes, now + 1, memory_order_release);
    }
    return now;
}

void ag_walk_begin(unsigned (*number_of)(const struct ag_loaded *loaded))
{
    forget_places();
    known.number_of = number_of;
    stack_low = stack_high = 0; /* of a forked child's only thread */
}

/* --- steps --- */

struct walker {
    uintptr_t place, stack, frame;
    uintptr_t low, high;
};

/* A word of the stack that is not below `stack`. */
static UNWATCHED bool read_word(const struct walker *walker, uintptr_t address, uintptr_t *ret)
{
    if (address < walker->stack || address % sizeof(*ret) || address < walker->low ||
        walker->high - sizeof(*ret) < address)
        return false;
    *ret = *(const uintptr_t *)address;
    return true;
}

/* Steps by the frame pointer: what it points to is the caller's, and the return address lies after
 * that. */
static bool step_by_frame(struct walker *walker)
{
    uintptr_t at = walker->frame, frame, place;

    if (!read_word(walker, at, &frame) || !read_word(walker, at + sizeof(at), &place))
        return false;
    walker->frame = frame;
    walker->place = place;
    walker->stack = at + 2 * sizeof(at);
    return true;
}

static bool find_cfa(const struct walker *walker, const struct ag_frame_rule *rule,
                     uintptr_t *ret_cfa)
{
    uintptr_t offset = (uintptr_t)(intptr_t)rule->cfa_offset;

    if (rule->cfa == AG_CFA_IN_FRAME)
        return read_word(walker, walker->frame + offset, ret_cfa);
    *ret_cfa = (rule->cfa == AG_CFA_STACK ? walker->stack : walker->frame) + offset;
    return true;
}

static bool step_by_rule(struct walker *walker, const struct ag_frame_rule *rule)
{
    uintptr_t cfa, frame = walker->frame, place;

    if (!find_cfa(walker, rule, &cfa) || cfa <= walker->stack || cfa > walker->high ||
        !read_word(walker, cfa + (uintptr_t)(intptr_t)rule->return_at, &place))
        return false;
    if (rule->saved == AG_SAVED_AT_CFA &&
        !read_word(walker, cfa + (uintptr_t)(intptr_t)rule->saved_at, &frame))
        return false;
    if (rule->saved == AG_SAVED_AT_FRAME && !read_word(walker, walker->frame, &frame))
        return false;
    walker->frame = frame;
    walker->place = place;
    walker->stack = cfa;
    return true;
}

/* The bits of an address: above them there may be a signature of it (aarch64). */
static uintptr_t plain_address(uintptr_t place)
{
    return place & ((1ull << AG_FRAME_OFFSET_BITS) - 1);
}

/* Steps to the caller. False where there is none, or it cannot be found: *ret_cut says which. */
static bool step(struct walker *walker, const struct place *place, bool *ret_cut)
{
    bool good;

    *ret_cut = false;
    if (!place->is_bad && place->rule.cfa == AG_CFA_OUTERMOST)
        return false;
    if (place->is_bad)
        good = false;
    else if (place->rule.cfa == AG_CFA_UNKNOWN)
        good = step_by_frame(walker);
    else
        good = step_by_rule(walker, &place->rule);
    walker->place = plain_address(walker->place);
    *ret_cut = !good;
    return good && walker->place;
}

/* Takes down one frame. False: there is no room for it. */
static bool note_frame(struct ag_walk *walk, const struct walker *walker, unsigned module,
                       uint64_t *ret_frames, unsigned most)
{
    if (walk->n == most)
        return false;
    ret_frames[walk->n++] = ag_frame(
        module, walker->place - atomic_load_explicit(&known.bases[module], memory_order_relaxed));
    return true;
}

struct ag_walk ag_walk_from(const struct ag_walk_start *start, uintptr_t low, uintptr_t high,
                            unsigned skip, uint64_t *ret_frames, unsigned most)
{
    struct walker walker = {plain_address(start->place), start->stack, start->frame, low, high};
    struct ag_walk walk = {.changes = keep_up_with_loader()};
    bool goes_on = true;

    while (goes_on) {
        struct place place = known_place(walker.place);

        if (!skip || place.module != skip) {
            skip = 0;
            if (!note_frame(&walk, &walker, place.module, ret_frames, most)) {
                walk.is_cut = true;
                break;
            }
        }
        walk.is_cut = walker.stack < low || walker.stack >= high;
        goes_on = !walk.is_cut && step(&walker, &place, &walk.is_cut);
    }
    return walk;
}

__attribute__((noinline)) struct ag_walk ag_walk(unsigned skip, uint64_t *ret_frames, unsigned most)
{
    const uintptr_t *here = __builtin_frame_address(0);
    const struct ag_walk_start start = {
        .place = (uintptr_t)__builtin_return_address(0),
        .stack = (uintptr_t)__builtin_dwarf_cfa(),
        .frame = *here,
    };

    if (!stack_high)
        find_stack();
    return ag_walk_from(&start, stack_low, stack_high, skip, ret_frames, most);
}
