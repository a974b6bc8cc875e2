/* Blocks of pinned memory in a table by address, and those that are kept in lists: see blocks.h. */
#include "policy/pinned/blocks.h"

#include "interpose/core/base/arena.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/map.h"
#include "interpose/core/base/raise.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/report/stats.h"
#include "policy/ledger.h"

#define KINDS     256u /* lists of kept blocks: each of one kind, most often */
#define MOST_SEEN 64u  /* blocks of such a list that are looked at */

#define PAGE_BYTES ((size_t)4096)

struct list {
    struct ag_pinned_block *newest, *oldest;
};

static struct {
    struct ag_lock lock; /* guards all below, and blocks */
    struct ag_map map;   /* by address: those that are LIVE or KEPT, and BUSY until they leave */
    struct list kept;
    struct list away; /* BUSY, and out of the table */
    struct list made; /* of the table, those that we made */
    struct list kinds[KINDS];
    uint64_t kept_bytes;
    size_t n_kept;
} table = {.lock = AG_LOCK_INIT(AG_RANK_PINNED)};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_pinned_block);

/* Relaxed: hints, and bounds that who has an address of a block has seen. */
static _Atomic size_t n_kept;
static _Atomic uint64_t kept_bytes;
static _Atomic bool any_made; /* ever */
static _Atomic uint64_t lowest = UINT64_MAX, highest;

/* --- lists --- */

#define LIST(name, links)                                                                     \
    static void add_to_##name(struct list *list, struct ag_pinned_block *it, bool as_oldest)  \
    {                                                                                         \
        it->links = (struct ag_pinned_links){as_oldest ? list->oldest : NULL,                 \
                                             as_oldest ? NULL : list->newest};                \
        *(it->links.newer ? &it->links.newer->links.older : &list->newest) = it;              \
        *(it->links.older ? &it->links.older->links.newer : &list->oldest) = it;              \
    }                                                                                         \
    static void take_from_##name(struct list *list, struct ag_pinned_block *it)               \
    {                                                                                         \
        *(it->links.newer ? &it->links.newer->links.older : &list->newest) = it->links.older; \
        *(it->links.older ? &it->links.older->links.newer : &list->oldest) = it->links.newer; \
    }

LIST(age, by_age)
LIST(kind, by_kind)
LIST(made, by_made)

/* Sizes of one class differ by an eighth at most, so that a kept block wastes no more. */
static unsigned class_of(size_t bytes)
{
    unsigned log2 = 63u - (unsigned)__builtin_clzll(bytes | 8);

    return log2 * 8 + (unsigned)(bytes >> (log2 - 3) & 7);
}

/* The number of the list. */
static unsigned kind_of(const struct ag_context *context, unsigned how, size_t bytes)
{
    return (unsigned)(ag_hash_word(ag_hash_word((uintptr_t)context, how), class_of(bytes)) >> 56);
}

/* --- with the lock held --- */

/* What is told of that without the lock. */
static void show_kept(void)
{
    atomic_store_explicit(&n_kept, table.n_kept, memory_order_relaxed);
    atomic_store_explicit(&kept_bytes, table.kept_bytes, memory_order_relaxed);
    ag_level_set(&ag_stats.pinned_bytes, table.kept_bytes);
}

static void set_kept(struct ag_pinned_block *block, bool as_oldest)
{
    block->state = AG_PINNED_KEPT;
    add_to_age(&table.kept, block, as_oldest);
    add_to_kind(&table.kinds[block->kind], block, as_oldest);
    table.kept_bytes += block->size;
    table.n_kept++;
    show_kept();
}

/* A KEPT block becomes BUSY. */
static void take_kept(struct ag_pinned_block *block)
{
    block->state = AG_PINNED_BUSY;
    take_from_age(&table.kept, block);
    take_from_kind(&table.kinds[block->kind], block);
    table.kept_bytes -= block->size;
    table.n_kept--;
    show_kept();
}

/* A BUSY block becomes the program's. */
static void set_live(struct ag_pinned_block *block, const struct ag_pinned_request *request)
{
    block->state = AG_PINNED_LIVE;
    block->requested = request->bytes;
    block->mode = request->mode;
    block->buffer_id = ag_ledger_new_buffer_id();
}

static bool may_keep(const struct ag_pinned_block *block, uint64_t most_bytes)
{
    return block->context && !block->is_altered && block->mode != AG_HOST_NATIVE &&
           block->size <= most_bytes;
}

static bool enter_table(struct ag_pinned_block *block)
{
    if (!ag_map_put(&table.map, block->address, block))
        return false;
    if (block->is_made)
        add_to_made(&table.made, block, false);
    return true;
}

static void leave_table(struct ag_pinned_block *block)
{
    (void)ag_map_take(&table.map, block->address);
    if (block->is_made)
        take_from_made(&table.made, block);
}

static void set_away(struct ag_pinned_block *block)
{
    leave_table(block);
    add_to_age(&table.away, block, false);
}

/* The block is nobody's memory any more. Who has it BUSY is told later, and puts the object back.
 */
static void end_block(struct ag_pinned_block *block)
{
    if (block->state == AG_PINNED_BUSY) {
        set_away(block);
        block->context = NULL;
        return;
    }
    if (block->state == AG_PINNED_KEPT)
        take_kept(block);
    leave_table(block);
    ag_arena_put(&arena, block);
}

/* A BUSY block whose context is gone is away, and ends in the hands of who has it. */
static bool ends_here(struct ag_pinned_block *block)
{
    if (block->context)
        return false;
    take_from_age(&table.away, block);
    ag_arena_put(&arena, block);
    return true;
}

/* --- what the program has --- */

static void note_bounds(uint64_t address, size_t bytes)
{
    uint64_t low = atomic_load_explicit(&lowest, memory_order_relaxed);

    while (address < low && !atomic_compare_exchange_weak_explicit(
                                &lowest, &low, address, memory_order_relaxed, memory_order_relaxed))
        ;
    ag_raise_to(&highest, address + bytes);
}

bool ag_pinned_blocks_note(uint64_t address, const struct ag_pinned_request *request,
                           struct ag_context *context, bool made)
{
    struct ag_pinned_block *block = ag_arena_get(&arena), *before;
    bool noted;

    if (!block)
        return false;
    *block =
        (struct ag_pinned_block){.address = address,
                                 .size = request->bytes,
                                 .requested = request->bytes,
                                 .mode = request->mode,
                                 .how = request->how,
                                 .kind = (uint8_t)kind_of(context, request->how, request->bytes),
                                 .is_made = made,
                                 .context = context,
                                 .state = AG_PINNED_LIVE};
    note_bounds(address, request->bytes + PAGE_BYTES);
    if (made)
        atomic_store_explicit(&any_made, true, memory_order_relaxed);
    ag_lock_take(&table.lock);
    before = ag_map_get(&table.map, address);
    if (before) /* freed past us */
        end_block(before);
    noted = enter_table(block);
    if (!noted)
        ag_arena_put(&arena, block);
    ag_lock_release(&table.lock);
    return noted;
}

struct ag_pinned_block *ag_pinned_blocks_claim(uint64_t address, uint64_t most_bytes,
                                               struct ag_pinned_claim *ret_claim)
{
    struct ag_pinned_block *block;

    ag_lock_take(&table.lock);
    block = ag_map_get(&table.map, address);
    ret_claim->is_known = block != NULL;
    if (block && block->state != AG_PINNED_LIVE)
        block = NULL;
    if (block)
        block->state = AG_PINNED_BUSY;
    ret_claim->owner = block ? block->context : NULL;
    ret_claim->may_keep = block && may_keep(block, most_bytes);
    ag_lock_release(&table.lock);
    return block;
}

/* --- what is kept --- */

bool ag_pinned_blocks_keep_at_once(uint64_t address, uint64_t most_bytes, uint64_t now_ns)
{
    struct ag_pinned_block *block;
    bool keeps;

    ag_lock_take(&table.lock);
    block = ag_map_get(&table.map, address);
    keeps = block && block->state == AG_PINNED_LIVE && may_keep(block, most_bytes);
    if (keeps) {
        block->freed_ns = now_ns;
        block->waits = false;
        set_kept(block, false);
    }
    ag_lock_release(&table.lock);
    return keeps;
}

bool ag_pinned_blocks_keep(struct ag_pinned_block *block, uint64_t now_ns)
{
    bool kept;

    ag_lock_take(&table.lock);
    kept = !ends_here(block);
    if (kept) {
        block->freed_ns = now_ns;
        set_kept(block, false);
    }
    ag_lock_release(&table.lock);
    return kept;
}

void ag_pinned_blocks_put_back(struct ag_pinned_block *block)
{
    ag_lock_take(&table.lock);
    if (!ends_here(block))
        set_kept(block, true);
    ag_lock_release(&table.lock);
}

static bool serves(const struct ag_pinned_block *block, const struct ag_context *context,
                   const struct ag_pinned_request *request)
{
    return block->context == context && block->how == request->how &&
           block->size >= request->bytes && class_of(block->size) == class_of(request->bytes);
}

/* Called with the lock held. Where frees do not wait, the work of the oldest one is done, if of
 * any; the newest serves, too, where no work may use it: what is known of it is in the processor's
 * caches. */
static struct ag_pinned_block *find_kept(const struct ag_context *context,
                                         const struct ag_pinned_request *request)
{
    const struct list *kind = &table.kinds[kind_of(context, request->how, request->bytes)];
    struct ag_pinned_block *block = kind->newest;
    bool oldest = block && request->mode == AG_HOST_FAST &&
                  (block->waits || !serves(block, context, request));
    unsigned seen = 0;

    if (oldest)
        block = kind->oldest;
    while (block && !serves(block, context, request))
        block = ++seen == MOST_SEEN ? NULL : oldest ? block->by_kind.newer : block->by_kind.older;
    return block;
}

struct ag_pinned_block *ag_pinned_blocks_take(const struct ag_context *context,
                                              const struct ag_pinned_request *request,
                                              uint64_t *ret_address)
{
    struct ag_pinned_block *block;

    *ret_address = 0;
    ag_lock_take(&table.lock);
    block = find_kept(context, request);
    if (block)
        take_kept(block);
    if (block && !block->waits) {
        set_live(block, request);
        *ret_address = block->address;
        block = NULL;
    }
    ag_lock_release(&table.lock);
    return block;
}

bool ag_pinned_blocks_hand_over(struct ag_pinned_block *block,
                                const struct ag_pinned_request *request)
{
    bool handed;

    ag_lock_take(&table.lock);
    handed = !ends_here(block);
    if (handed)
        set_live(block, request);
    ag_lock_release(&table.lock);
    return handed;
}

/* --- what goes back --- */

struct ag_pinned_block *ag_pinned_blocks_evict(const struct ag_context *context,
                                               uint64_t most_bytes, uint64_t before_ns)
{
    struct ag_pinned_block *first = NULL, **end = &first, *block, *newer;

    ag_lock_take(&table.lock);
    for (block = table.kept.oldest;
         block && (table.kept_bytes > most_bytes || block->freed_ns < before_ns); block = newer) {
        newer = block->by_age.newer;
        if (context && block->context != context)
            continue;
        take_kept(block);
        set_away(block);
        block->next = NULL;
        *end = block;
        end = &block->next;
    }
    ag_lock_release(&table.lock);
    return first;
}

void ag_pinned_blocks_leave(struct ag_pinned_block *block)
{
    ag_lock_take(&table.lock);
    if (block->context) /* else it has left */
        set_away(block);
    ag_lock_release(&table.lock);
}

void ag_pinned_blocks_forget(struct ag_pinned_block *block)
{
    ag_lock_take(&table.lock);
    take_from_age(&table.away, block);
    ag_arena_put(&arena, block);
    ag_lock_release(&table.lock);
}

void ag_pinned_blocks_return(struct ag_pinned_block *block, enum ag_pinned_state state)
{
    ag_lock_take(&table.lock);
    if (!ends_here(block)) {
        take_from_age(&table.away, block);
        if (!enter_table(block))
            ag_arena_put(&arena, block); /* the driver's to answer for from now on */
        else if (state == AG_PINNED_KEPT)
            set_kept(block, true);
        else
            block->state = state;
    }
    ag_lock_release(&table.lock);
}

/* --- the end of a context --- */

/* A LIVE or KEPT block that we made leaves the table. */
static void begin_end_of_made(struct ag_pinned_block *block)
{
    if (block->state == AG_PINNED_KEPT)
        take_kept(block);
    block->state = AG_PINNED_BUSY;
    set_away(block);
    block->context = NULL;
}

/* One that another thread has BUSY is that one's to end: where the driver refuses it by then, its
 * pages stay. */
struct ag_pinned_block *ag_pinned_blocks_context_dying(const struct ag_context *context)
{
    struct ag_pinned_block *first = NULL, *made = NULL, *block;

    ag_lock_take(&table.lock);
    for (block = table.away.newest; block; block = block->by_age.older) {
        if (block->context == context)
            block->context = NULL;
    }
    for (size_t i = 0; i < table.map.capacity; i++) {
        block = table.map.entries[i].value;
        if (block && block->context == context) {
            block->next = first;
            first = block;
        }
    }
    while ((block = first)) {
        first = block->next;
        if (block->is_made && block->state != AG_PINNED_BUSY) {
            begin_end_of_made(block);
            block->next = made;
            made = block;
        } else {
            end_block(block);
        }
    }
    ag_lock_release(&table.lock);
    return made;
}

/* --- questions --- */

static struct ag_pinned_seen see(const struct ag_pinned_block *block)
{
    return (struct ag_pinned_seen){.address = block->address,
                                   .size = block->size,
                                   .requested = block->requested,
                                   .buffer_id = block->buffer_id,
                                   .how = block->how,
                                   .context = block->context,
                                   .is_live = block->state == AG_PINNED_LIVE,
                                   .is_made = block->is_made};
}

bool ag_pinned_blocks_look(uint64_t address, struct ag_pinned_seen *ret_seen)
{
    const struct ag_pinned_block *block;

    ag_lock_take(&table.lock);
    block = ag_map_get(&table.map, address);
    if (block)
        *ret_seen = see(block);
    ag_lock_release(&table.lock);
    return block != NULL;
}

/* They are few: each takes milliseconds to make. */
bool ag_pinned_blocks_look_inside(uint64_t address, struct ag_pinned_seen *ret_seen)
{
    const struct ag_pinned_block *block, *found = NULL;

    if (!atomic_load_explicit(&any_made, memory_order_relaxed))
        return false;
    ag_lock_take(&table.lock);
    for (block = table.made.newest; block && !found; block = block->by_made.older) {
        if (address - block->address < (block->size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES)
            found = block;
    }
    if (found)
        *ret_seen = see(found);
    ag_lock_release(&table.lock);
    return found != NULL;
}

bool ag_pinned_blocks_may_hold(uint64_t address)
{
    return address >= atomic_load_explicit(&lowest, memory_order_relaxed) &&
           address < atomic_load_explicit(&highest, memory_order_relaxed);
}

void ag_pinned_blocks_note_altered(uint64_t address)
{
    struct ag_pinned_block *block;

    ag_lock_take(&table.lock);
    block = ag_map_get(&table.map, address);
    if (block)
        block->is_altered = true;
    ag_lock_release(&table.lock);
}

size_t ag_pinned_blocks_n_kept(void)
{
    return atomic_load_explicit(&n_kept, memory_order_relaxed);
}

uint64_t ag_pinned_blocks_kept_bytes(void)
{
    return atomic_load_explicit(&kept_bytes, memory_order_relaxed);
}

void ag_pinned_blocks_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_PINNED);
    ag_arena_begin_child(&arena);
    ag_map_finish(&table.map);
    table.kept = table.away = table.made = (struct list){0};
    for (size_t i = 0; i < KINDS; i++)
        table.kinds[i] = (struct list){0};
    table.kept_bytes = table.n_kept = 0;
    show_kept();
}
