/* Takes stacks down, each once: see stacks.h.
 *
 * Rows are found by a hash in an index of this process's own, whose entries only ever come. A new
 * row is written under the lock, and entered when it is whole. */
#include "interpose/core/report/holders/stacks.h"

#include <string.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/stack/python_frames.h"
#include "interpose/core/base/stack/walk.h"
#include "interpose/core/base/threads/lock.h"

#define INDEX_BITS      15 /* four times as many as there are stacks */
#define INDEX           (1u << INDEX_BITS)
#define MOST_PATH       1024u
#define TIMED_EVERY     16u /* stacks, so that reading the clock costs a few nanoseconds */
#define IS_IN_INDEX(at) ((at) & (INDEX - 1))

_Static_assert(AG_HOLDERS_STACKS * 4 == INDEX, "mostly empty");
_Static_assert(AG_HOLDERS_MODULES == AG_FRAME_MODULES, "numbers of modules are rows");

static struct {
    struct ag_lock lock; /* guards what is added: who has it loads relaxed */
    struct ag_holders *holders;
    unsigned most;
    unsigned own_module;
    /* 1 + row of a stack, and where a text stands. */
    _Atomic uint32_t *stacks, *texts;
    unsigned n_texts, n_waits;
    bool is_python[AG_HOLDERS_MODULES]; /* modules of the interpreter */
} table = {.lock = AG_LOCK_INIT(AG_RANK_STACKS)};

/* --- texts --- */

/* Room for `n` bytes; 0 when there is none. With the lock. */
static uint32_t store_text(const char *bytes, size_t n)
{
    struct ag_holders *holders = table.holders;
    uint32_t at = atomic_load_explicit(&holders->n_text, memory_order_relaxed);

    if (n > AG_HOLDERS_TEXT - at)
        return 0;
    memcpy(holders->text + at, bytes, n);
    atomic_store_explicit(&holders->n_text, at + (uint32_t)n, memory_order_release);
    return at;
}

/* Where in the index the text is, or would be. */
static uint32_t seek_text(const char *bytes, size_t n, uint64_t hash, uint32_t *ret_text)
{
    uint32_t at = (uint32_t)(hash >> (64 - INDEX_BITS));

    for (;; at = IS_IN_INDEX(at + 1)) {
        *ret_text = atomic_load_explicit(&table.texts[at], memory_order_acquire);
        if (!*ret_text || (n <= AG_HOLDERS_TEXT - *ret_text &&
                           !memcmp(table.holders->text + *ret_text, bytes, n)))
            return at;
    }
}

/* Eight bytes at a time: each function of Python is looked up for each stack. */
static uint64_t hash_text(const char *bytes, size_t n)
{
    uint64_t hash = n;

    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
        uint64_t word = 0;

        memcpy(&word, bytes + at, n - at < sizeof(word) ? n - at : sizeof(word));
        hash = ag_hash_word(hash ^ hash >> 32, word);
    }
    return hash;
}

/* Where the text, with its NULs, stands; 0 when there is no room. */
static uint32_t intern_text(const char *bytes, size_t n)
{
    uint64_t hash = hash_text(bytes, n);
    uint32_t text, at;

    (void)seek_text(bytes, n, hash, &text);
    if (text)
        return text;
    ag_lock_take(&table.lock);
    at = seek_text(bytes, n, hash, &text);
    if (!text && table.n_texts < INDEX / 2) {
        text = store_text(bytes, n);
        if (text)
            atomic_store_explicit(&table.texts[at], text, memory_order_release);
        table.n_texts += text != 0;
    }
    ag_lock_release(&table.lock);
    return text;
}

/* --- modules --- */

/* Is the file CPython's own: the interpreter, or its library? */
static bool is_python_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return !strncmp(name, "python", 6) || !strncmp(name, "libpython", 9);
}

/* The number of that module among those known; 0. */
static uint32_t find_known_module(uint64_t base, const char *path, const char *build_id)
{
    const struct ag_holders *holders = table.holders;
    uint32_t n = atomic_load_explicit(&holders->n_modules, memory_order_acquire);

    for (uint32_t i = 1; i < n; i++) {
        const struct ag_held_module *module = &holders->modules[i];

        if (module->base == base && !strcmp(holders->text + module->path, path) &&
            !strcmp(holders->text + module->build_id, build_id))
            return i;
    }
    return 0;
}

static uint32_t add_module(uint64_t base, const char *path, size_t path_n, const char *build_id,
                           size_t id_n)
{
    struct ag_holders *holders = table.holders;
    uint32_t n = atomic_load_explicit(&holders->n_modules, memory_order_relaxed);
    uint32_t text = n < AG_HOLDERS_MODULES ? store_text(path, path_n + 1) : 0;

    if (!text)
        return 0;
    holders->modules[n] = (struct ag_held_module){
        .base = base, .path = text, .build_id = id_n ? store_text(build_id, id_n + 1) : 0};
    table.is_python[n] = is_python_file(path);
    atomic_store_explicit(&holders->n_modules, n + 1, memory_order_release);
    return n;
}

static unsigned number_of_module(const struct ag_loaded *loaded)
{
    char path[MOST_PATH], build_id[96];
    size_t path_n = ag_loaded_path(loaded, path, sizeof(path));
    size_t id_n = ag_loaded_build_id(loaded, build_id, sizeof(build_id));
    uint32_t number;

    ag_lock_take(&table.lock);
    number = find_known_module((uintptr_t)loaded->base, path, build_id);
    if (!number)
        number = add_module((uintptr_t)loaded->base, path, path_n, build_id, id_n);
    ag_lock_release(&table.lock);
    return number;
}

/* --- frames --- */

struct frames {
    uint64_t frame[2 * AG_HOLDERS_MOST];
    unsigned n;
    bool is_outermost[AG_HOLDERS_MOST]; /* of Python: in its loop */
};

static void append_frame(struct frames *frames, uint64_t frame)
{
    frames->frame[frames->n++] = frame;
}

static void add_python_frame(void *frames_, const struct ag_python_frame *frame)
{
    char text[2 * AG_PYTHON_NAME];
    size_t function_n = strlen(frame->function) + 1, file_n = strlen(frame->file) + 1;
    struct frames *frames = frames_;

    memcpy(text, frame->function, function_n);
    memcpy(text + function_n, frame->file, file_n);
    frames->is_outermost[frames->n] = frame->is_outermost;
    append_frame(frames, ag_frame_python(intern_text(text, function_n + file_n), frame->line));
}

static uint64_t frame_address(uint64_t frame)
{
    return table.holders->modules[ag_frame_module(frame)].base + ag_frame_offset(frame);
}

static bool is_loop(uint64_t frame)
{
    return ag_python_is_loop((uintptr_t)frame_address(frame));
}

/* Puts the functions of Python into the place of the loops of the interpreter that run them, and
 * leaves out what else is the interpreter's own. */
static void merge(const struct frames *native, const struct frames *python, struct frames *ret)
{
    unsigned taken = 0;

    for (unsigned i = 0; i < native->n; i++) {
        bool is_place = is_loop(native->frame[i]);

        while (is_place && taken < python->n) {
            is_place = !python->is_outermost[taken];
            append_frame(ret, python->frame[taken++]);
        }
        if (!is_loop(native->frame[i]) && !table.is_python[ag_frame_module(native->frame[i])])
            append_frame(ret, native->frame[i]);
    }
    while (taken < python->n) /* the walk did not get there */
        append_frame(ret, python->frame[taken++]);
}

/* --- stacks --- */

static uint64_t hash_stack(const struct ag_held_stack *wanted, const struct frames *frames)
{
    uint64_t hash = ag_hash_word((uint64_t)wanted->kind << 32 | (uint64_t)wanted->is_cut << 40,
                                 (uint64_t)wanted->call << 32 | (uint16_t)wanted->device);

    for (unsigned i = 0; i < frames->n; i++)
        hash = ag_hash_word(hash, frames->frame[i]);
    return hash;
}

static bool is_same_stack(const struct ag_held_stack *stack, const struct ag_held_stack *wanted,
                          const struct frames *frames)
{
    return stack->n == frames->n && stack->kind == wanted->kind &&
           stack->device == wanted->device && stack->is_cut == wanted->is_cut &&
           stack->call == wanted->call &&
           !memcmp(table.holders->frames + stack->first, frames->frame,
                   frames->n * sizeof(frames->frame[0]));
}

static uint32_t seek_stack(const struct ag_held_stack *wanted, const struct frames *frames,
                           uint64_t hash, uint32_t *ret_row)
{
    uint32_t at = (uint32_t)(hash >> (64 - INDEX_BITS)), entry;

    for (;; at = IS_IN_INDEX(at + 1)) {
        entry = atomic_load_explicit(&table.stacks[at], memory_order_acquire);
        *ret_row = entry ? entry - 1 : AG_HOLDERS_STACKS;
        if (!entry || is_same_stack(&table.holders->stacks[entry - 1], wanted, frames))
            return at;
    }
}

/* Called with the lock. */
static uint32_t enter_stack(const struct ag_held_stack *wanted, const struct frames *frames)
{
    struct ag_holders *holders = table.holders;
    uint32_t row = atomic_load_explicit(&holders->n_stacks, memory_order_relaxed);
    uint32_t first = atomic_load_explicit(&holders->n_frames, memory_order_relaxed);

    if (row == AG_HOLDERS_STACKS || frames->n > AG_HOLDERS_FRAMES - first ||
        (ag_held_is_wait(wanted) && table.n_waits == AG_HOLDERS_WAITS))
        return AG_HOLDERS_STACKS;
    table.n_waits += ag_held_is_wait(wanted);
    memcpy(holders->frames + first, frames->frame, frames->n * sizeof(frames->frame[0]));
    holders->stacks[row].first = first;
    holders->stacks[row].n = frames->n;
    holders->stacks[row].kind = wanted->kind;
    holders->stacks[row].device = wanted->device;
    holders->stacks[row].is_cut = wanted->is_cut;
    holders->stacks[row].call = wanted->call;
    atomic_store_explicit(&holders->n_frames, first + frames->n, memory_order_relaxed);
    atomic_store_explicit(&holders->n_stacks, row + 1, memory_order_release);
    return row;
}

static uint32_t keep_stack(const struct ag_held_stack *wanted, const struct frames *frames)
{
    uint64_t hash = hash_stack(wanted, frames);
    uint32_t row, at;

    (void)seek_stack(wanted, frames, hash, &row);
    if (row < AG_HOLDERS_STACKS)
        return row;
    ag_lock_take(&table.lock);
    at = seek_stack(wanted, frames, hash, &row);
    if (row == AG_HOLDERS_STACKS)
        row = enter_stack(wanted, frames);
    if (row < AG_HOLDERS_STACKS)
        atomic_store_explicit(&table.stacks[at], row + 1, memory_order_release);
    ag_lock_release(&table.lock);
    return row;
}

static __attribute__((noinline)) uint32_t record_untimed(struct ag_held_stack wanted)
{
    struct frames native = {.n = 0}, python = {.n = 0}, merged = {.n = 0};
    struct ag_walk walk = ag_walk(table.own_module, native.frame, table.most);

    native.n = walk.n;
    wanted.is_cut = walk.is_cut;
    if (!ag_python_frames(walk.changes, table.most, add_python_frame, &python))
        return keep_stack(&wanted, &native);
    merge(&native, &python, &merged);
    return keep_stack(&wanted, &merged);
}

/* Times some stacks, but not the first one, which finds the tables of unwinding. Where this is no
 * library of its own, we are in the stack: so the compiler must not make two calls of the one, for
 * stacks that are timed and for those that are not. */
static uint32_t record_stack(struct ag_held_stack wanted)
{
    struct ag_holders *holders = table.holders;
    uint64_t n = atomic_fetch_add_explicit(&holders->taken, 1, memory_order_relaxed);
    uint64_t begin = n % TIMED_EVERY == TIMED_EVERY - 1 ? ag_clock_ns() : 0;
    uint32_t row;

    __asm__ volatile("" : "+r"(begin));
    row = record_untimed(wanted);
    if (begin) {
        atomic_fetch_add_explicit(&holders->timed_ns, ag_clock_ns() - begin, memory_order_relaxed);
        atomic_fetch_add_explicit(&holders->timed, 1, memory_order_relaxed);
    }
    return row;
}

uint32_t ag_stacks_take(enum ag_held_kind kind, int device)
{
    return record_stack((struct ag_held_stack){.kind = (uint8_t)kind, .device = (int16_t)device});
}

uint32_t ag_stacks_take_wait(enum ag_wait_kind kind, const char *call)
{
    uint32_t text = intern_text(call, strlen(call) + 1);

    if (!text)
        return AG_HOLDERS_STACKS;
    return record_stack((struct ag_held_stack){
        .kind = (uint8_t)AG_HELD_WAIT, .device = (int16_t)kind, .call = text});
}

bool ag_stacks_begin(struct ag_holders *holders, unsigned most)
{
    struct ag_loaded own;

    if (!table.stacks)
        table.stacks = ag_pages_get(2 * INDEX * sizeof(*table.stacks));
    if (!table.stacks)
        return false;
    table.texts = table.stacks + INDEX;
    atomic_store(&holders->n_text, 1);
    atomic_store(&holders->n_modules, 1);
    table.holders = holders;
    table.most = most;
    ag_walk_begin(number_of_module);
    table.own_module = 0; /* of no library that it is not: a test */
    if (ag_loaded_find((const void *)(uintptr_t)ag_stacks_take, &own) &&
        strstr(own.map->l_name, "liballograft"))
        table.own_module = number_of_module(&own);
    return true;
}

void ag_stacks_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_STACKS);
    if (table.stacks)
        memset((void *)table.stacks, 0, 2 * INDEX * sizeof(*table.stacks));
    table.n_texts = table.n_waits = 0;
    ag_python_begin_child();
}
