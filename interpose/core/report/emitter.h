/* Writes JSON into a text. It knows what is open, so that commas, quotes and brackets are set by
 * it:
 *
 *     struct ag_emitter json = {.text = &text};
 *
 *     ag_emit_object(&json, NULL);
 *     ag_emit_number(&json, "pid", 77);          {"pid":77,
 *     ag_emit_line(&json, 1);                     "sizes":[1,2]}
 *     ag_emit_array(&json, "sizes");
 *     ag_emit_number(&json, NULL, 1);
 *     ag_emit_number(&json, NULL, 2);
 *     ag_emit_end(&json);
 *     ag_emit_end(&json);
 *
 * `key` is of ASCII letters; NULL in an array, and for the outermost value. Pure. */
#ifndef AG_EMITTER_H
#define AG_EMITTER_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/text.h"

#define AG_EMITTER_DEPTH 31u /* most objects and arrays in each other */

struct ag_emitter {
    struct ag_text *text;
    unsigned depth;
    uint32_t has_members, is_array; /* a bit for each that is open */
    bool at_line;                   /* the next member begins a line */
    unsigned indent;                /* of that line */
};

void ag_emit_object(struct ag_emitter *json, const char *key);
void ag_emit_array(struct ag_emitter *json, const char *key);
/* Closes the object or array that was opened last. */
void ag_emit_end(struct ag_emitter *json);

/* The next member begins a line, after `indent` blanks. */
void ag_emit_line(struct ag_emitter *json, unsigned indent);

void ag_emit_number(struct ag_emitter *json, const char *key, uint64_t value);
void ag_emit_bool(struct ag_emitter *json, const char *key, bool value);
/* A string; bytes that are not UTF-8 come out as U+FFFD. */
void ag_emit_string(struct ag_emitter *json, const char *key, const char *value);
/* What the format makes: another number, or null. */
void ag_emit_raw(struct ag_emitter *json, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The key alone: the caller adds the value to the text. */
void ag_emit_key(struct ag_emitter *json, const char *key);

#endif
