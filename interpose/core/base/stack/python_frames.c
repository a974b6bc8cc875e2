/* Reads CPython's frames: see python_frames.h.
 *
 * Delicate, because it reads another program's structures. The rules of this file:
 * - the version is what the interpreter says; the header of objects must be the usual one, which a
 *   type object shows; every code object must be one by its type;
 * - an interpreter that is ending is left alone, since it frees the states of other threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/stack/python_frames.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/base/loaded.h"
#include "interpose/core/base/stack/frame_rule.h"
#include "interpose/core/base/threads/lock.h"

/* --- where things lie --- */

enum lines { LINES_3_9, LINES_3_10, LINES_3_11 };
enum loops { LOOPS_ALL, LOOPS_MARKED, LOOPS_BETWEEN }; /* which frames begin a loop */

/* Offsets of members, of 64-bit builds. */
struct layout {
    unsigned minor; /* of version 3 */
    enum lines lines;
    enum loops loops;
    unsigned state_frames;       /* of a thread state: its innermost frame, or where that stands */
    int frames_first;            /* there; -1: it is the frame itself */
    unsigned previous, code, at; /* of a frame */
    unsigned mark;               /* a byte: begins a loop (MARKED), owner (BETWEEN) */
    unsigned first_line, file, name, table, instructions; /* of a code object */
    unsigned text_ascii, text_other;                      /* of a text: its characters */
};

#define OWNED_BY_NONE 3 /* this and more: no function's, but what called the loop */

static const struct layout layouts[] = {
    {9, LINES_3_9, LOOPS_ALL, 24, -1, 24, 32, 104, 0, 40, 104, 112, 120, 0, 48, 72},
    {10, LINES_3_10, LOOPS_ALL, 24, -1, 24, 32, 96, 0, 40, 104, 112, 120, 0, 48, 72},
    {11, LINES_3_11, LOOPS_MARKED, 56, 8, 48, 32, 56, 68, 72, 112, 128, 136, 184, 48, 72},
    {12, LINES_3_11, LOOPS_BETWEEN, 56, 0, 8, 0, 56, 70, 68, 112, 128, 136, 192, 40, 56},
};

/* From 3.13 on the interpreter tells where most things lie, to debuggers, in a table at the start
 * of its state: words of 64 bits, among which those of a version stand at the same places. */
static const struct table_of_offsets {
    unsigned minor;
    unsigned state_frames; /* which word: of a thread state, its innermost frame */
    unsigned frame, code;  /* where the words of a frame and of a code object begin */
} tables[] = {{13, 23, 28, 34}, {14, 26, 31, 39}};

#define TABLE_COOKIE  "xdebugpy"
#define TABLE_VERSION 1
#define TABLE_NO_LOCK 2
#define TABLE_WORDS   49
#define MOST_OFFSET   4096u

/* Offsets that all versions have in common. A frame's code may have tags in its lowest bits, as
 * references on the interpreter's stack have since 3.14. */
#define TAGS                   3u
#define OBJECT_TYPE            8
#define BYTES_LENGTH           16
#define BYTES_DATA             32
#define TEXT_LENGTH            16
#define TEXT_STATE             32
#define TEXT_KIND(state)       ((state) >> 2 & 7)
#define TEXT_IS_COMPACT(state) ((state) >> 5 & 1)
#define TEXT_IS_ASCII(state)   ((state) >> 6 & 1)

static const void *pointer_at(const void *object, unsigned offset)
{
    const void *value;

    memcpy(&value, (const char *)object + offset, sizeof(value));
    return value;
}

static int32_t number_at(const void *object, unsigned offset)
{
    int32_t value;

    memcpy(&value, (const char *)object + offset, sizeof(value));
    return value;
}

static uint8_t byte_at(const void *object, unsigned offset)
{
    return ((const uint8_t *)object)[offset];
}

static size_t size_at(const void *object, unsigned offset)
{
    size_t value;

    memcpy(&value, (const char *)object + offset, sizeof(value));
    return value;
}

/* --- the interpreter --- */

struct interpreter {
    struct layout layout;       /* its `minor` is 0: there is none that we know */
    const void *(*state)(void); /* of the calling thread, or NULL */
    int (*is_ending)(void);
    const void *code_type;
};

static struct {
    struct ag_lock lock; /* guards the next */
    struct interpreter interpreter;
    _Atomic uint64_t changes; /* plus 1, when it was looked for; 0: not yet */
    struct {
        _Atomic uintptr_t begins, ends;
    } loop[2]; /* and the part of it that the compiler put elsewhere */
} python = {.lock = AG_LOCK_INIT(AG_RANK_PYTHON)};

/* What the interpreter's table says. False: it is none, or that of another kind of build. */
static bool read_table(const struct table_of_offsets *table, const void *runtime,
                       struct layout *ret)
{
    uint64_t words[TABLE_WORDS];
    const uint64_t *frame = words + table->frame, *code = words + table->code;

    memcpy(words, runtime, sizeof(words));
    if (memcmp(words, TABLE_COOKIE, sizeof(words[0])) != 0 || words[TABLE_NO_LOCK] ||
        words[TABLE_VERSION] >> 16 != (0x300 | table->minor))
        return false;
    for (unsigned i = table->state_frames; i < TABLE_WORDS; i++) {
        if (words[i] >= MOST_OFFSET)
            return false;
    }
    *ret = (struct layout){.minor = table->minor,
                           .lines = LINES_3_11,
                           .loops = LOOPS_BETWEEN,
                           .state_frames = (unsigned)words[table->state_frames],
                           .frames_first = -1,
                           .previous = (unsigned)frame[1],
                           .code = (unsigned)frame[2],
                           .at = (unsigned)frame[3],
                           .mark = (unsigned)frame[5],
                           .first_line = (unsigned)code[5],
                           .file = (unsigned)code[1],
                           .name = (unsigned)code[3],
                           .table = (unsigned)code[4],
                           .instructions = (unsigned)code[9],
                           .text_ascii = 40,
                           .text_other = 56};
    return true;
}

/* `runtime`: where that has its table, or NULL. */
static struct layout layout_of(const char *version, const void *runtime)
{
    unsigned minor = !strncmp(version, "3.", 2) ? (unsigned)strtoul(version + 2, NULL, 10) : 0;
    struct layout read;

    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i].minor == minor)
            return layouts[i];
    }
    for (size_t i = 0; runtime && i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (tables[i].minor == minor && read_table(&tables[i], runtime, &read))
            return read;
    }
    return (struct layout){.minor = 0};
}

static struct interpreter find_interpreter(const struct ag_exports *exports)
{
    struct interpreter found = {.layout = {.minor = 0}};
    const char *(*version)(void);
    const void *type_type, *runtime;
    size_t bytes;

    version = (const char *(*)(void))ag_exports_find(exports, "Py_GetVersion", &bytes);
    found.state =
        (const void *(*)(void))ag_exports_find(exports, "PyGILState_GetThisThreadState", &bytes);
    found.is_ending = (int (*)(void))ag_exports_find(exports, "Py_IsFinalizing", &bytes);
    if (!found.is_ending) /* before 3.13 */
        found.is_ending = (int (*)(void))ag_exports_find(exports, "_Py_IsFinalizing", &bytes);
    found.code_type = ag_exports_find(exports, "PyCode_Type", &bytes);
    type_type = ag_exports_find(exports, "PyType_Type", &bytes);
    runtime = ag_exports_find(exports, "_PyRuntime", &bytes);
    if (bytes < TABLE_WORDS * sizeof(uint64_t))
        runtime = NULL;
    if (version && found.state && found.is_ending && found.code_type && type_type &&
        pointer_at(found.code_type, OBJECT_TYPE) == type_type &&
        !ag_exports_find(exports, "_Py_NegativeRefcount", &bytes)) /* of a build for debugging */
        found.layout = layout_of(version(), runtime);
    return found;
}

struct range {
    uintptr_t begins, ends;
};

/* What a profile of the interpreter calls cold, the compiler moves out of the loop, though most
 * calls of C code may be among it; no symbol tells where to. But conditional jumps lead there, and
 * leave a function for no other reason: to where another description of code begins. */
static struct range cold_part(struct range loop)
{
#ifdef __x86_64__
    struct range found = {0, 0};
    const ElfW(Phdr) * header;
    struct ag_loaded loaded;
    const uint8_t *at = (const uint8_t *)loop.begins;
    const void *table;

    if (!ag_loaded_find(at, &loaded) || !(header = ag_loaded_header(&loaded, PT_GNU_EH_FRAME)))
        return found;
    table = (const void *)(loaded.map->l_addr + header->p_vaddr);
    for (; (uintptr_t)at + 6 <= loop.ends; at++) {
        uintptr_t target = (uintptr_t)at + 6 + (uintptr_t)(intptr_t)number_at(at, 2);

        if (at[0] == 0x0f && (at[1] & 0xf0) == 0x80 &&
            (target < loop.begins || target >= loop.ends) &&
            ag_frame_rule_range(table, target, &found.begins, &found.ends) &&
            found.begins == target)
            return found;
    }
#else
    (void)loop;
#endif
    return (struct range){0, 0};
}

/* Relaxed: who asks ag_python_is_loop() has had the lock, or seen the changes, since. */
static void set_loop(unsigned i, struct range range)
{
    atomic_store_explicit(&python.loop[i].begins, range.begins, memory_order_relaxed);
    atomic_store_explicit(&python.loop[i].ends, range.ends, memory_order_relaxed);
}

/* Looks for an interpreter anew after each change of what is loaded. No lock of ours is held while
 * the loader's is taken. */
static void look_for_interpreter(uint64_t changes)
{
    struct interpreter found = {.layout = {.minor = 0}};
    struct range loop = {0, 0}, cold = {0, 0};
    struct ag_exports exports;
    size_t bytes = 0;

    if (ag_exports_of("_PyEval_EvalFrameDefault", &exports)) {
        found = find_interpreter(&exports);
        loop.begins = (uintptr_t)ag_exports_find(&exports, "_PyEval_EvalFrameDefault", &bytes);
        loop.ends = loop.begins + bytes;
        cold = cold_part(loop);
    }
    ag_lock_take(&python.lock);
    python.interpreter = found;
    set_loop(0, loop);
    set_loop(1, cold);
    atomic_store_explicit(&python.changes, changes + 1, memory_order_release);
    ag_lock_release(&python.lock);
}

static struct interpreter get_interpreter(uint64_t changes)
{
    struct interpreter interpreter;

    if (atomic_load_explicit(&python.changes, memory_order_acquire) != changes + 1)
        look_for_interpreter(changes);
    ag_lock_take(&python.lock);
    interpreter = python.interpreter;
    ag_lock_release(&python.lock);
    return interpreter;
}

bool ag_python_is_loop(uintptr_t place)
{
    for (unsigned i = 0; i < 2; i++) {
        if (place > atomic_load_explicit(&python.loop[i].begins, memory_order_relaxed) &&
            place <= atomic_load_explicit(&python.loop[i].ends, memory_order_relaxed))
            return true;
    }
    return false;
}

void ag_python_begin_child(void)
{
    ag_lock_init(&python.lock, AG_RANK_PYTHON);
}

/* --- texts --- */

/* The UTF-8 of a character; how many bytes. */
static size_t encode(uint32_t character, char bytes[4])
{
    if (character < 0x80) {
        bytes[0] = (char)character;
        return 1;
    }
    if (character < 0x800) {
        bytes[0] = (char)(0xc0 | character >> 6);
        bytes[1] = (char)(0x80 | (character & 0x3f));
        return 2;
    }
    if (character < 0x10000) {
        bytes[0] = (char)(0xe0 | character >> 12);
        bytes[1] = (char)(0x80 | (character >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (character & 0x3f));
        return 3;
    }
    bytes[0] = (char)(0xf0 | character >> 18);
    bytes[1] = (char)(0x80 | (character >> 12 & 0x3f));
    bytes[2] = (char)(0x80 | (character >> 6 & 0x3f));
    bytes[3] = (char)(0x80 | (character & 0x3f));
    return 4;
}

static void copy_characters(const char *from, size_t n, unsigned kind, char to[AG_PYTHON_NAME])
{
    size_t at = 0;

    for (size_t i = 0; i < n && at + 4 < AG_PYTHON_NAME; i++) {
        uint32_t character = 0;

        memcpy(&character, from + i * kind, kind);
        at += encode(character, to + at);
    }
    to[at] = '\0';
}

static void copy_python_text(const struct layout *layout, const void *text, char to[AG_PYTHON_NAME])
{
    size_t n = text ? size_at(text, TEXT_LENGTH) : 0;
    uint32_t state = text ? (uint32_t)number_at(text, TEXT_STATE) : 0;
    unsigned kind = TEXT_KIND(state);

    memcpy(to, "?", 2);
    if (!TEXT_IS_COMPACT(state) || (kind != 1 && kind != 2 && kind != 4))
        return;
    if (TEXT_IS_ASCII(state)) {
        n = n < AG_PYTHON_NAME ? n : AG_PYTHON_NAME - 1;
        memcpy(to, (const char *)text + layout->text_ascii, n);
        to[n] = '\0';
    } else {
        copy_characters((const char *)text + layout->text_other, n, kind, to);
    }
}

/* --- lines --- */

struct table {
    const uint8_t *at, *end;
};

static int next_byte(struct table *table)
{
    return table->at < table->end ? *table->at++ : 0;
}

static int next_signed(struct table *table)
{
    int byte = next_byte(table);

    return byte < 128 ? byte : byte - 256;
}

/* The line by the table of 3.9, which says where a line begins by what is added to address and
 * line. */
static int line_by_steps(struct table table, int line, long place)
{
    long address = 0;

    while (table.end - table.at >= 2) {
        address += next_byte(&table);
        if (address > place)
            break;
        line += next_signed(&table);
    }
    return line;
}

/* The line by the table of 3.10, which says how many bytes of code each line has by what is added
 * to the last line. */
static int line_by_ranges(struct table table, int line, long place)
{
    long end = 0;

    while (table.end - table.at >= 2) {
        int step;

        end += next_byte(&table);
        step = next_signed(&table);
        if (step != -128)
            line += step;
        if (place < end)
            break;
    }
    return line;
}

static int next_varint(struct table *table)
{
    int byte = next_byte(table), value = byte & 0x3f;

    for (unsigned shift = 6; byte & 0x40 && shift < 30; shift += 6) {
        byte = next_byte(table);
        value |= (byte & 0x3f) << shift;
    }
    return value;
}

/* The line by the table of 3.11 and later (Objects/locations.md of CPython), which has entries of a
 * kind and a length, in units of two bytes; columns are skipped. */
static int line_by_locations(struct table table, int line, long place)
{
    long end = 0;

    while (table.at < table.end) {
        int first = next_byte(&table), kind = first >> 3 & 15, step;

        end += 2 * ((first & 7) + 1);
        if (kind == 13 || kind == 14) {
            step = next_varint(&table);
            line += step & 1 ? -(step >> 1) : step >> 1;
        } else if (kind >= 10 && kind <= 12) {
            line += kind - 10;
        }
        if (place < end)
            break;
        while (table.at < table.end && !(*table.at & 0x80))
            table.at++;
    }
    return line;
}

static uint32_t line_of_frame(const struct layout *layout, const void *frame, const void *code)
{
    const void *bytes = pointer_at(code, layout->table);
    const uint8_t *data = (const uint8_t *)bytes + BYTES_DATA;
    struct table table = {data, data + size_at(bytes, BYTES_LENGTH)};
    int line = number_at(code, layout->first_line);

    if (layout->lines == LINES_3_9)
        line = line_by_steps(table, line, number_at(frame, layout->at));
    else if (layout->lines == LINES_3_10)
        line = line_by_ranges(table, line, 2L * number_at(frame, layout->at));
    else
        line = line_by_locations(table, line,
                                 (const char *)pointer_at(frame, layout->at) -
                                     ((const char *)code + layout->instructions));
    return line > 0 ? (uint32_t)line : 0;
}

/* --- frames --- */

static const void *first_frame(const struct layout *layout, const void *state)
{
    const void *frames = pointer_at(state, layout->state_frames);

    return frames && layout->frames_first >= 0 ? pointer_at(frames, (unsigned)layout->frames_first)
                                               : frames;
}

/* Does the loop that runs `frame` run none that called it? */
static bool is_outermost(const struct layout *layout, const void *frame, const void *previous)
{
    if (layout->loops == LOOPS_MARKED)
        return byte_at(frame, layout->mark);
    if (layout->loops == LOOPS_BETWEEN)
        return !previous || byte_at(previous, layout->mark) >= OWNED_BY_NONE;
    return true;
}

/* What a frame runs; NULL: it is no function's. */
static const void *code_of(const struct interpreter *interpreter, const void *frame)
{
    const struct layout *layout = &interpreter->layout;
    const void *code;

    if (layout->loops == LOOPS_BETWEEN && byte_at(frame, layout->mark) >= OWNED_BY_NONE)
        return NULL;
    code = pointer_at(frame, layout->code);
    code = (const char *)code - ((uintptr_t)code & TAGS);
    return code && pointer_at(code, OBJECT_TYPE) == interpreter->code_type ? code : NULL;
}

unsigned ag_python_frames(uint64_t changes, unsigned most, ag_python_take *take, void *taker)
{
    struct interpreter interpreter = get_interpreter(changes);
    const struct layout *layout = &interpreter.layout;
    const void *state = layout->minor && !interpreter.is_ending() ? interpreter.state() : NULL;
    const void *frame = state ? first_frame(layout, state) : NULL, *previous;
    struct ag_python_frame it;
    unsigned n = 0;

    for (; frame && n < most; frame = previous) {
        const void *code = code_of(&interpreter, frame);

        previous = pointer_at(frame, layout->previous);
        if (!code)
            continue;
        copy_python_text(layout, pointer_at(code, layout->name), it.function);
        copy_python_text(layout, pointer_at(code, layout->file), it.file);
        it.line = line_of_frame(layout, frame, code);
        it.is_outermost = is_outermost(layout, frame, previous);
        take(taker, &it);
        n++;
    }
    return n;
}
