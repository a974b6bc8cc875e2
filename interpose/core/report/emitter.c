/* Commas, quotes and brackets of JSON: see emitter.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/emitter.h"

#include <stdarg.h>
#include <stdio.h>

void ag_emit_key(struct ag_emitter *json, const char *key)
{
    uint32_t bit = 1u << json->depth;

    ag_text_add(json->text, "%s%s%*s", json->has_members & bit ? "," : "",
                json->at_line ? "\n" : "", json->at_line ? (int)json->indent : 0, "");
    if (key)
        ag_text_add(json->text, "\"%s\":", key);
    if (json->depth)
        json->has_members |= bit;
    json->at_line = false;
}

static void open_level(struct ag_emitter *json, const char *key, bool is_array)
{
    uint32_t bit;

    ag_emit_key(json, key);
    ag_text_add(json->text, is_array ? "[" : "{");
    json->depth++;
    bit = 1u << json->depth;
    json->has_members &= ~bit;
    json->is_array = is_array ? json->is_array | bit : json->is_array & ~bit;
}

void ag_emit_object(struct ag_emitter *json, const char *key)
{
    open_level(json, key, false);
}

void ag_emit_array(struct ag_emitter *json, const char *key)
{
    open_level(json, key, true);
}

void ag_emit_end(struct ag_emitter *json)
{
    ag_text_add(json->text, json->is_array & 1u << json->depth ? "]" : "}");
    json->depth--;
    json->at_line = false;
}

void ag_emit_line(struct ag_emitter *json, unsigned indent)
{
    json->at_line = true;
    json->indent = indent;
}

void ag_emit_number(struct ag_emitter *json, const char *key, uint64_t value)
{
    ag_emit_key(json, key);
    ag_text_add(json->text, "%llu", (unsigned long long)value);
}

void ag_emit_bool(struct ag_emitter *json, const char *key, bool value)
{
    ag_emit_key(json, key);
    ag_text_add(json->text, value ? "true" : "false");
}

void ag_emit_string(struct ag_emitter *json, const char *key, const char *value)
{
    ag_emit_key(json, key);
    ag_text_add_json(json->text, value);
}

void ag_emit_raw(struct ag_emitter *json, const char *key, const char *format, ...)
{
    va_list args;

    ag_emit_key(json, key);
    va_start(args, format);
    ag_text_add_args(json->text, format, args);
    va_end(args);
}
