/* pickle.c: the operations of pickle, as Python's Lib/pickletools.py describes them: see pickle.h.
 */
#include "tools/base/pickle.h"

#include <string.h>

#define PORTION 1000u /* items; Python's own pickler writes as many */

static void put_byte(const struct pickle *pickle, int byte)
{
    putc(byte, pickle->out);
}

/* Little-endian. */
static void put_little_endian(const struct pickle *pickle, uint64_t number, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        put_byte(pickle, (int)(number >> 8 * i & 0xff));
}

void pickle_begin(struct pickle *pickle, FILE *out)
{
    *pickle = (struct pickle){.out = out};
    put_byte(pickle, 0x80); /* PROTO */
    put_byte(pickle, 4);
}

void pickle_end(struct pickle *pickle)
{
    put_byte(pickle, '.'); /* STOP */
}

void pickle_number(struct pickle *pickle, uint64_t number)
{
    unsigned n = 1;

    if (number < 1u << 8) {
        put_byte(pickle, 'K'); /* BININT1 */
        put_little_endian(pickle, number, 1);
    } else if (number < 1u << 16) {
        put_byte(pickle, 'M'); /* BININT2 */
        put_little_endian(pickle, number, 2);
    } else {
        /* LONG1: the highest bit is the sign, so that a number may need a byte more. */
        while (n < 8 && number >> (8 * n - 1))
            n++;
        n += n == 8 && number >> 63;
        put_byte(pickle, 0x8a);
        put_byte(pickle, (int)n);
        put_little_endian(pickle, number, n < 8 ? n : 8);
        if (n > 8)
            put_byte(pickle, 0);
    }
}

void pickle_truth(struct pickle *pickle, bool truth)
{
    put_byte(pickle, truth ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
}

/* ---- texts --------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at `text`; 0: it is none. */
static unsigned character(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    unsigned n = *byte < 0x80                    ? 1
                 : *byte >= 0xc2 && *byte < 0xe0 ? 2
                 : (*byte & 0xf0) == 0xe0        ? 3
                 : *byte >= 0xf0 && *byte < 0xf5 ? 4
                                                 : 0;

    for (unsigned i = 1; i < n; i++) {
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    }
    /* Longer than needed, half of a pair, or beyond Unicode. */
    if ((*byte == 0xe0 && byte[1] < 0xa0) || (*byte == 0xed && byte[1] > 0x9f) ||
        (*byte == 0xf0 && byte[1] < 0x90) || (*byte == 0xf4 && byte[1] > 0x8f))
        return 0;
    return n;
}

void pickle_text(struct pickle *pickle, const char *text)
{
    size_t length = strlen(text);
    unsigned n;

    put_byte(pickle, length < 256 ? 0x8c : 'X'); /* SHORT_BINUNICODE, BINUNICODE */
    put_little_endian(pickle, length, length < 256 ? 1 : 4);
    for (size_t i = 0; i < length; i += n ? n : 1) {
        n = character(text + i);
        if (n)
            (void)fwrite(text + i, 1, n, pickle->out);
        else
            put_byte(pickle, '?');
    }
}

/* ---- lists and dictionaries ---------------------------------------------------------------- */

void pickle_open_dict(struct pickle *pickle)
{
    put_byte(pickle, '}'); /* EMPTY_DICT */
    put_byte(pickle, '('); /* MARK */
}

void pickle_close_dict(struct pickle *pickle)
{
    put_byte(pickle, 'u'); /* SETITEMS */
}

void pickle_open_list(struct pickle *pickle, struct pickle_list *ret)
{
    ret->n = 0;
    put_byte(pickle, ']'); /* EMPTY_LIST */
    put_byte(pickle, '(');
}

void pickle_next(struct pickle *pickle, struct pickle_list *list)
{
    if (++list->n < PORTION)
        return;
    pickle_close_list(pickle);
    put_byte(pickle, '(');
    list->n = 0;
}

void pickle_close_list(struct pickle *pickle)
{
    put_byte(pickle, 'e'); /* APPENDS */
}

void pickle_pair(struct pickle *pickle)
{
    put_byte(pickle, 0x86); /* TUPLE2 */
}

/* ---- what was written before --------------------------------------------------------------- */

uint32_t pickle_keep(struct pickle *pickle)
{
    put_byte(pickle, 'r'); /* LONG_BINPUT */
    put_little_endian(pickle, pickle->n_kept, 4);
    return pickle->n_kept++;
}

void pickle_again(struct pickle *pickle, uint32_t number)
{
    put_byte(pickle, number < 256 ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    put_little_endian(pickle, number, number < 256 ? 1 : 4);
}
