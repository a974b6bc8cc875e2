/* Reads call frame information: see frame_rule.h.
 *
 * The program of a place, a few bytes, is run up to it. Of the registers only the stack pointer,
 * the frame pointer and the return address count, since nobody asks for the others. What compilers
 * write as an expression is known by its bytes: gcc's way of aligning a stack. Any other leaves the
 * rule unknown to us. */
#include "interpose/core/base/stack/frame_rule.h"

#include <stddef.h>
#include <string.h>

#ifdef __x86_64__
enum { REGISTER_FRAME = 6, REGISTER_STACK = 7, REGISTER_RETURN = 16 };
#define BREG_FRAME 0x76 /* DW_OP_breg6 */
#else
enum { REGISTER_FRAME = 29, REGISTER_STACK = 31, REGISTER_RETURN = 30 };
#define BREG_FRAME 0x8d /* DW_OP_breg29 */
#endif
#define OP_DEREF 0x06

#define MOST_REMEMBERED 4u

struct reader {
    const unsigned char *at, *end;
    bool bad; /* it went past the end, or met what it does not know */
};

/* --- numbers --- */

static uint64_t read_fixed(struct reader *reader, unsigned bytes)
{
    uint64_t value = 0;

    if ((size_t)(reader->end - reader->at) < bytes) {
        reader->bad = true;
        reader->at = reader->end;
        return 0;
    }
    memcpy(&value, reader->at, bytes);
    reader->at += bytes;
    return value;
}

static uint64_t read_leb(struct reader *reader, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;

    do {
        byte = (uint8_t)read_fixed(reader, 1);
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (is_signed && byte & 0x40 && shift < 64)
        value |= ~0ull << shift;
    return value;
}

static uint64_t read_unsigned(struct reader *reader)
{
    return read_leb(reader, false);
}

static int64_t read_signed(struct reader *reader)
{
    return (int64_t)read_leb(reader, true);
}

/* A pointer in one of the encodings DW_EH_PE_*; `base` is what those relative to data mean. */
static uintptr_t read_pointer(struct reader *reader, uint8_t encoding, const void *base)
{
    uintptr_t here = (uintptr_t)reader->at;
    uint64_t value;

    switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c:
        value = read_fixed(reader, 8);
        break;
    case 0x02:
        value = read_fixed(reader, 2);
        break;
    case 0x03:
        value = read_fixed(reader, 4);
        break;
    case 0x0a:
        value = (uint64_t)(int16_t)read_fixed(reader, 2);
        break;
    case 0x0b:
        value = (uint64_t)(int32_t)read_fixed(reader, 4);
        break;
    default:
        reader->bad = true;
        return 0;
    }
    switch (encoding & 0x70) {
    case 0x00:
        return value;
    case 0x10:
        return here + value;
    case 0x30:
        return (uintptr_t)base + value;
    default:
        reader->bad = true;
        return 0;
    }
}

/* --- the table of places --- */

struct place_row {
    int32_t begins, description; /* relative to the header */
};

/* The description of the function that begins last before `place`; NULL for none. */
static const unsigned char *look_up_description(const void *header, uintptr_t place)
{
    const unsigned char *bytes = header;
    struct reader reader = {bytes + 4, bytes + 4 + 16, false};
    const struct place_row *rows;
    size_t low = 0, high;

    if (bytes[0] != 1 || bytes[3] != 0x3b)
        return NULL;
    (void)read_pointer(&reader, bytes[1], header);
    high = read_pointer(&reader, bytes[2], header);
    if (reader.bad)
        return NULL;
    rows = (const struct place_row *)(const void *)reader.at;
    while (low < high) {
        size_t middle = (low + high) / 2;

        if ((uintptr_t)header + (uintptr_t)(intptr_t)rows[middle].begins <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? bytes + rows[low - 1].description : NULL;
}

/* --- descriptions --- */

/* What a function's description (FDE) and the one that many share (CIE) say. */
struct description {
    uint64_t code_align;
    int64_t data_align;
    uint8_t encoding;
    bool has_augmentation;
    struct reader initial, program;
    uintptr_t begins, range;
};

/* The rest of a record whose length stands at `at`. */
static struct reader record_at(const unsigned char *at)
{
    struct reader reader = {at, at + 4, false};
    uint32_t length = (uint32_t)read_fixed(&reader, 4);

    reader.end = reader.at + length;
    reader.bad = !length || length == UINT32_MAX; /* the end, or of 64 bits */
    return reader;
}

/* What the letters after z announce. False for a letter that we do not know, and for frames of
 * signal handlers. */
static bool read_augmentation(struct reader *reader, const char *letters,
                              struct description *description)
{
    for (; *letters; letters++) {
        if (*letters == 'R')
            description->encoding = (uint8_t)read_fixed(reader, 1);
        else if (*letters == 'L')
            (void)read_fixed(reader, 1);
        else if (*letters == 'P') {
            uint8_t encoding = (uint8_t)read_fixed(reader, 1);

            (void)read_pointer(reader, encoding & 0x0f, NULL);
        } else if (*letters != 'B') /* a key of signed return addresses */
            return false;
    }
    return !reader->bad;
}

static bool read_common(const unsigned char *at, struct description *description)
{
    struct reader reader = record_at(at);
    const char *letters;
    uint8_t version;

    if (reader.bad || read_fixed(&reader, 4) != 0)
        return false;
    version = (uint8_t)read_fixed(&reader, 1);
    letters = (const char *)reader.at;
    reader.at += strnlen(letters, (size_t)(reader.end - reader.at)) + 1;
    description->code_align = read_unsigned(&reader);
    description->data_align = read_signed(&reader);
    if ((version == 1 ? read_fixed(&reader, 1) : read_unsigned(&reader)) != REGISTER_RETURN)
        return false;
    description->has_augmentation = *letters == 'z';
    if (*letters == 'z') {
        struct reader data = reader;
        uint64_t length = read_unsigned(&reader);

        (void)read_unsigned(&data);
        reader.at += length;
        if (!read_augmentation(&data, letters + 1, description))
            return false;
    } else if (*letters) {
        return false;
    }
    description->initial = reader;
    return !reader.bad && reader.at <= reader.end;
}

static bool read_description(const unsigned char *at, struct description *ret)
{
    struct reader reader = record_at(at);
    const unsigned char *here = reader.at;
    uint32_t back = (uint32_t)read_fixed(&reader, 4);

    *ret = (struct description){.code_align = 1};
    if (reader.bad || !back || !read_common(here - back, ret))
        return false;
    ret->begins = read_pointer(&reader, ret->encoding, NULL);
    ret->range = read_pointer(&reader, ret->encoding & 0x0f, NULL);
    if (ret->has_augmentation) {
        uint64_t length = read_unsigned(&reader);

        reader.at += length;
    }
    ret->program = reader;
    return !reader.bad && reader.at <= reader.end;
}

/* --- programs --- */

struct row {
    struct ag_frame_rule rule;
    bool known;       /* the CFA is one of those that a rule can tell */
    bool saved_known; /* likewise the frame pointer */
    bool return_known;
};

struct machine {
    const struct description *description;
    uintptr_t at, place;
    struct row row, initial, remembered[MOST_REMEMBERED];
    unsigned n_remembered;
};

static void set_cfa(struct machine *machine, uint64_t reg, int64_t offset)
{
    machine->row.known =
        (reg == REGISTER_STACK || reg == REGISTER_FRAME) && offset == (int32_t)offset;
    machine->row.rule.cfa = reg == REGISTER_STACK ? AG_CFA_STACK : AG_CFA_FRAME;
    machine->row.rule.cfa_offset = (int32_t)offset;
}

static void set_saved(struct machine *machine, uint64_t reg, int64_t factored)
{
    int64_t offset = factored * machine->description->data_align;

    if (reg == REGISTER_FRAME) {
        machine->row.rule.saved = AG_SAVED_AT_CFA;
        machine->row.rule.saved_at = (int32_t)offset;
        machine->row.saved_known = true;
    } else if (reg == REGISTER_RETURN) {
        machine->row.rule.return_at = (int32_t)offset;
        machine->row.return_known = true;
    }
}

static void restore(struct machine *machine, uint64_t reg)
{
    if (reg == REGISTER_FRAME) {
        machine->row.rule.saved = machine->initial.rule.saved;
        machine->row.rule.saved_at = machine->initial.rule.saved_at;
        machine->row.saved_known = machine->initial.saved_known;
    } else if (reg == REGISTER_RETURN) {
        machine->row.rule.return_at = machine->initial.rule.return_at;
        machine->row.return_known = machine->initial.return_known;
    }
}

/* The value is in no place that a rule can tell. */
static void lose(struct machine *machine, uint64_t reg)
{
    if (reg == REGISTER_FRAME)
        machine->row.saved_known = false;
    else if (reg == REGISTER_RETURN)
        machine->row.return_known = false;
}

/* *(frame pointer + n), as gcc writes it of functions that align their stack. */
static void set_cfa_expression(struct machine *machine, struct reader expression)
{
    bool is_ours = read_fixed(&expression, 1) == BREG_FRAME;
    int64_t offset = read_signed(&expression);

    machine->row.known = is_ours && read_fixed(&expression, 1) == OP_DEREF &&
                         expression.at == expression.end && !expression.bad;
    machine->row.rule.cfa = AG_CFA_IN_FRAME;
    machine->row.rule.cfa_offset = (int32_t)offset;
}

/* Where the frame pointer itself points: likewise. */
static void set_saved_expression(struct machine *machine, uint64_t reg, struct reader expression)
{
    bool is_ours = read_fixed(&expression, 1) == BREG_FRAME && !read_signed(&expression) &&
                   expression.at == expression.end && !expression.bad;

    lose(machine, reg);
    if (reg == REGISTER_FRAME && is_ours) {
        machine->row.rule.saved = AG_SAVED_AT_FRAME;
        machine->row.saved_known = true;
    }
}

static struct reader read_block(struct reader *program)
{
    uint64_t length = read_unsigned(program);
    struct reader block = {program->at, program->at, false};

    if (length > (uint64_t)(program->end - program->at))
        program->bad = true;
    else
        block.end = program->at += length;
    return block;
}

/* Instructions that say where the code goes on, and those without an effect. False for others. */
static bool run_other(struct machine *machine, uint8_t op, struct reader *program)
{
    uint64_t align = machine->description->code_align;

    switch (op) {
    case 0x00: /* nop */
        return true;
    case 0x02: /* advance_loc1, 2, 4 */
        machine->at += align * read_fixed(program, 1);
        return true;
    case 0x03:
        machine->at += align * read_fixed(program, 2);
        return true;
    case 0x04:
        machine->at += align * read_fixed(program, 4);
        return true;
    case 0x0a: /* remember_state */
        if (machine->n_remembered == MOST_REMEMBERED)
            return false;
        machine->remembered[machine->n_remembered++] = machine->row;
        return true;
    case 0x0b: /* restore_state */
        if (!machine->n_remembered)
            return false;
        machine->row = machine->remembered[--machine->n_remembered];
        return true;
#ifndef __x86_64__
    case 0x2d: /* negate_ra_state: the upper bits of the return address are a signature */
        return true;
#endif
    case 0x2e: /* GNU_args_size */
        (void)read_unsigned(program);
        return true;
    default:
        return false;
    }
}

/* Instructions about registers, and all others. */
static bool run_register(struct machine *machine, uint8_t op, struct reader *program)
{
    struct ag_frame_rule *rule = &machine->row.rule;
    uint64_t reg;

    switch (op) {
    case 0x05: /* offset_extended */
        reg = read_unsigned(program);
        set_saved(machine, reg, (int64_t)read_unsigned(program));
        return true;
    case 0x11: /* offset_extended_sf */
        reg = read_unsigned(program);
        set_saved(machine, reg, read_signed(program));
        return true;
    case 0x06: /* restore_extended */
        restore(machine, read_unsigned(program));
        return true;
    case 0x07: /* undefined */
        reg = read_unsigned(program);
        lose(machine, reg);
        if (reg == REGISTER_RETURN)
            rule->cfa = AG_CFA_OUTERMOST;
        return true;
    case 0x08: /* same_value */
        reg = read_unsigned(program);
        lose(machine, reg);
        if (reg == REGISTER_FRAME) {
            rule->saved = AG_SAVED_NOT;
            machine->row.saved_known = true;
        }
        return true;
    case 0x09: /* register */
        lose(machine, read_unsigned(program));
        (void)read_unsigned(program);
        return true;
    case 0x0c: /* def_cfa */
        reg = read_unsigned(program);
        set_cfa(machine, reg, (int64_t)read_unsigned(program));
        return true;
    case 0x0d: /* def_cfa_register */
        set_cfa(machine, read_unsigned(program), rule->cfa_offset);
        return true;
    case 0x0e: /* def_cfa_offset */
        rule->cfa_offset = (int32_t)read_unsigned(program);
        return true;
    case 0x0f: /* def_cfa_expression */
        set_cfa_expression(machine, read_block(program));
        return true;
    case 0x10: /* expression */
        reg = read_unsigned(program);
        set_saved_expression(machine, reg, read_block(program));
        return true;
    case 0x14: /* val_offset */
        lose(machine, read_unsigned(program));
        (void)read_unsigned(program);
        return true;
    case 0x16: /* val_expression */
        lose(machine, read_unsigned(program));
        (void)read_block(program);
        return true;
    default:
        return run_other(machine, op, program);
    }
}

/* One instruction; false for one that we do not know. */
static bool run_one(struct machine *machine, struct reader *program)
{
    uint8_t op = (uint8_t)read_fixed(program, 1), low = op & 0x3f;

    switch (op & 0xc0) {
    case 0x40: /* advance_loc */
        machine->at += machine->description->code_align * low;
        return true;
    case 0x80: /* offset */
        set_saved(machine, low, (int64_t)read_unsigned(program));
        return true;
    case 0xc0: /* restore */
        restore(machine, low);
        return true;
    default:
        return run_register(machine, op, program);
    }
}

/* Runs the instructions up to the machine's place; false: one of them is not known. */
static bool run(struct machine *machine, struct reader program)
{
    while (program.at < program.end && machine->at <= machine->place) {
        if (!run_one(machine, &program) || program.bad)
            return false;
    }
    return true;
}

bool ag_frame_rule_find(const void *header, uintptr_t place, struct ag_frame_rule *ret)
{
    const unsigned char *at = look_up_description(header, place);
    struct description description;
    struct machine machine = {.description = &description,
                              .place = place,
                              .row = {.rule = {.saved = AG_SAVED_NOT}, .saved_known = true}};

    *ret = (struct ag_frame_rule){.cfa = AG_CFA_UNKNOWN};
    if (!at)
        return true;
    if (!read_description(at, &description))
        return false;
    if (place < description.begins || place - description.begins >= description.range)
        return true;
    machine.at = place; /* what all functions share holds everywhere */
    if (!run(&machine, description.initial))
        return false;
    machine.initial = machine.row;
    machine.at = description.begins;
    if (!run(&machine, description.program))
        return false;
    *ret = machine.row.rule;
    if (ret->cfa == AG_CFA_OUTERMOST)
        return true;
    return machine.row.known && machine.row.saved_known && machine.row.return_known;
}

bool ag_frame_rule_range(const void *header, uintptr_t place, uintptr_t *ret_begins,
                         uintptr_t *ret_ends)
{
    const unsigned char *at = look_up_description(header, place);
    struct description description;

    if (!at || !read_description(at, &description) || place < description.begins ||
        place - description.begins >= description.range)
        return false;
    *ret_begins = description.begins;
    *ret_ends = description.begins + description.range;
    return true;
}
