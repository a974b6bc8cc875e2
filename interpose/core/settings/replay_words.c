/* The parsers of replay's settings: see replay_words.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/settings/replay_words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/text.h"

static const char stream_forms[] =
    "off, or of " AG_STREAM_WORDS " one or more, separated by commas";

/* What stands before the colon, in the order of the enumeration; the first ones stand alone. */
static const char lone_words[] = "all|legacy|per-thread|nonblocking";
static const struct {
    const char *prefix;
    enum ag_stream_word_kind kind;
} prefixes[] = {
    {"priority:", AG_STREAMS_PRIORITY},
    {"nth:", AG_STREAMS_NTH},
    {"name:", AG_STREAMS_NAME},
};

#define LONGEST_WORD (AG_GLOB_MAX + 16)

/* ---- numbers ------------------------------------------------------------------------------- */

bool ag_number_parse(const char *text, uint64_t *ret)
{
    uint64_t number = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return false;
    }
    *ret = number;
    return true;
}

/* A number, or a size in bytes: no percentage, no "max". */
static bool number_or_size(const char *text, bool sizes, uint64_t *ret)
{
    uint64_t value;
    bool percent;

    if (!sizes)
        return ag_number_parse(text, ret);
    if (ag_text_parse_size(text, &value, &percent) || percent || value == UINT64_MAX)
        return false;
    *ret = value;
    return true;
}

int ag_number_in_range_parse(const char *text, const char *range, bool sizes, uint64_t *ret)
{
    const char *dots = strstr(range, "..");
    uint64_t first, last, number;
    char low[32];

    if (!dots || (size_t)(dots - range) >= sizeof(low))
        return -EINVAL;
    memcpy(low, range, (size_t)(dots - range));
    low[dots - range] = '\0';
    if (!number_or_size(low, sizes, &first) || !number_or_size(dots + 2, sizes, &last) ||
        !number_or_size(text, sizes, &number) || number < first || number > last)
        return -EINVAL;
    *ret = number;
    return 0;
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Numbers as CUDA has them: priorities are small and mostly negative; streams are counted from 1.
 */
static bool parse_word_number(struct ag_stream_word *word, const char *digits)
{
    bool negative = word->kind == AG_STREAMS_PRIORITY && *digits == '-';
    uint64_t number, last = word->kind == AG_STREAMS_PRIORITY ? 1000 : UINT32_MAX;

    if (!ag_number_parse(digits + negative, &number) || number > last ||
        (word->kind == AG_STREAMS_NTH && !number))
        return false;
    word->number = negative ? -(int64_t)number : (int64_t)number;
    return true;
}

/* One word without blanks around it; false when it is none. */
static bool parse_stream_word(const char *text, struct ag_stream_word *ret)
{
    int lone = ag_text_choice(text, lone_words);

    *ret = (struct ag_stream_word){.kind = AG_STREAMS_ALL};
    if (lone >= 0) {
        ret->kind = (enum ag_stream_word_kind)lone;
        return true;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (!ag_text_begins(text, prefixes[i].prefix))
            continue;
        ret->kind = prefixes[i].kind;
        text += strlen(prefixes[i].prefix);
        if (ret->kind != AG_STREAMS_NAME)
            return parse_word_number(ret, text);
        if (!*text || strlen(text) >= sizeof(ret->name))
            return false;
        memcpy(ret->name, text, strlen(text) + 1);
        return true;
    }
    return false;
}

static int refuse_stream_word(const char *word, size_t length, size_t column, const char *allowed,
                              char *why, size_t why_size)
{
    char token[LONGEST_WORD], likely[80];

    snprintf(token, sizeof(token), "%.*s", length < LONGEST_WORD ? (int)length : 0, word);
    snprintf(why, why_size, "column %zu: \"%.*s\" is not allowed; allowed: %s%s", column,
             length > 200 ? 200 : (int)length, word, allowed,
             ag_text_suggest(likely, sizeof(likely), token, AG_STREAM_WORDS));
    return -EINVAL;
}

int ag_stream_words_parse(const char *text, size_t first_column, struct ag_stream_words *ret,
                          char *why, size_t why_size)
{
    struct ag_stream_words words = {.n = 0};
    char token[LONGEST_WORD];

    if (!*text || ag_text_same(text, "off")) {
        *ret = words;
        return 0;
    }
    for (const char *at = text;; at++) {
        const char *begin = at + strspn(at, " \t"), *comma = at + strcspn(at, ",");
        const char *end = comma;

        while (end > begin && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        if (begin > end)
            begin = end;
        if (words.n == AG_MAX_STREAM_WORDS)
            return refuse_stream_word(begin, (size_t)(end - begin),
                                      first_column + (size_t)(begin - text), "up to 16 words", why,
                                      why_size);
        snprintf(token, sizeof(token), "%.*s", (int)(end - begin), begin);
        if ((size_t)(end - begin) >= sizeof(token) ||
            !parse_stream_word(token, &words.word[words.n]))
            return refuse_stream_word(begin, (size_t)(end - begin),
                                      first_column + (size_t)(begin - text), stream_forms, why,
                                      why_size);
        words.n++;
        at = comma;
        if (!*at)
            break;
    }
    *ret = words;
    return 0;
}

/* ---- iterations and segments --------------------------------------------------------------- */

int ag_iteration_parse(const char *text, struct ag_iteration *ret)
{
    struct ag_iteration iteration = {.kind = AG_ITERATION_NVTX, .domain = "*"};
    int lone = ag_text_choice(text, "auto|sync");
    const char *name = text + strlen("nvtx:"), *at;
    size_t length;

    if (lone >= 0) {
        *ret = (struct ag_iteration){.kind = (enum ag_iteration_kind)lone};
        return 0;
    }
    if (!ag_text_begins(text, "nvtx:"))
        return -EINVAL;
    at = strrchr(name, '@');
    length = at ? (size_t)(at - name) : strlen(name);
    if (!length || length >= sizeof(iteration.name) ||
        (at && strlen(at + 1) >= sizeof(iteration.domain)))
        return -EINVAL;
    memcpy(iteration.name, name, length);
    if (at)
        snprintf(iteration.domain, sizeof(iteration.domain), "%s", at + 1);
    *ret = iteration;
    return 0;
}

int ag_segment_parse(const char *text, struct ag_segment_length *ret)
{
    int lone = ag_text_choice(text, "growing");
    uint64_t n = 0;

    if (lone < 0 &&
        (!ag_number_parse(text, &n) || n < AG_SEGMENT_SHORTEST || n > AG_SEGMENT_LONGEST))
        return -EINVAL;
    *ret = (struct ag_segment_length){
        .kind = lone < 0 ? AG_SEGMENT_FIXED : (enum ag_segment_kind)lone,
        .n = (uint32_t)n,
    };
    return 0;
}
