/* emitter.c: commas, brackets and lines of nested JSON. */
#include "interpose/core/report/emitter.h"

#include <string.h>

#include "tests/common/check.h"

static struct ag_text text;

static struct ag_emitter begin(void)
{
    ag_text_finish(&text);
    return (struct ag_emitter){.text = &text};
}

static void is(const char *expected)
{
    CHECK_SAID(!strcmp(text.data, expected), "%s\nexpected: %s", text.data, expected);
}

static void writes_every_kind(void)
{
    struct ag_emitter json = begin();

    ag_emit_object(&json, NULL);
    ag_emit_number(&json, "most", UINT64_MAX);
    ag_emit_raw(&json, "least", "%d", -1);
    ag_emit_raw(&json, "none", "null");
    ag_emit_raw(&json, "share", "%.1f", 12.25);
    ag_emit_bool(&json, "yes", true);
    ag_emit_bool(&json, "no", false);
    ag_emit_string(&json, "text", "a \"b\"\n\xff");
    ag_emit_key(&json, "own");
    ag_text_add(&text, "[]");
    ag_emit_end(&json);
    is("{\"most\":18446744073709551615,\"least\":-1,\"none\":null,\"share\":12.2,\"yes\":true,"
       "\"no\":false,\"text\":\"a \\\"b\\\"\\u000a\\ufffd\",\"own\":[]}");
}

/* A comma stands before each member but the first, whatever was closed just before. */
static void knows_what_is_open(void)
{
    struct ag_emitter json = begin();

    ag_emit_array(&json, NULL);
    ag_emit_object(&json, NULL);
    ag_emit_end(&json);
    ag_emit_array(&json, NULL);
    ag_emit_array(&json, NULL);
    ag_emit_end(&json);
    ag_emit_number(&json, NULL, 1);
    ag_emit_end(&json);
    ag_emit_object(&json, NULL);
    ag_emit_array(&json, "a");
    ag_emit_number(&json, NULL, 2);
    ag_emit_number(&json, NULL, 3);
    ag_emit_end(&json);
    ag_emit_object(&json, "b");
    ag_emit_number(&json, "c", 4);
    ag_emit_end(&json);
    ag_emit_number(&json, "d", 5);
    ag_emit_end(&json);
    ag_emit_end(&json);
    is("[{},[[],1],{\"a\":[2,3],\"b\":{\"c\":4},\"d\":5}]");
}

/* A line begins behind the comma or the bracket, and only once. */
static void begins_lines(void)
{
    struct ag_emitter json = begin();

    ag_emit_object(&json, NULL);
    ag_emit_line(&json, 0);
    ag_emit_number(&json, "a", 1);
    ag_emit_line(&json, 2);
    ag_emit_array(&json, "b");
    ag_emit_line(&json, 3);
    ag_emit_number(&json, NULL, 2);
    ag_emit_number(&json, NULL, 3);
    ag_emit_line(&json, 3); /* for a member that does not come */
    ag_emit_end(&json);
    ag_emit_number(&json, "c", 4);
    ag_emit_end(&json);
    is("{\n\"a\":1,\n  \"b\":[\n   2,3],\"c\":4}");
}

static void nests_deeply(void)
{
    struct ag_emitter json = begin();
    char expected[2 * AG_EMITTER_DEPTH + 1];

    memset(expected, '[', AG_EMITTER_DEPTH);
    memset(expected + AG_EMITTER_DEPTH, ']', AG_EMITTER_DEPTH);
    expected[2 * AG_EMITTER_DEPTH] = '\0';
    for (unsigned i = 0; i < AG_EMITTER_DEPTH; i++)
        ag_emit_array(&json, NULL);
    for (unsigned i = 0; i < AG_EMITTER_DEPTH; i++)
        ag_emit_end(&json);
    is(expected);
}

int main(void)
{
    writes_every_kind();
    knows_what_is_open();
    begins_lines();
    nests_deeply();
    ag_text_finish(&text);
    return 0;
}
