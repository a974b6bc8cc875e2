/* The parser, the matcher and the printer of rules: see rules.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/settings/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "interpose/core/base/text.h"

#define LONGEST_TOKEN 64u /* with its NUL; no number, word or name is longer */

/* Libraries that hand memory to other processes or devices: CUDA IPC and RDMA need the driver's
 * own. */
static const char *const exporters[] = {
    "libnccl*", "libucs*", "libuct*", "libmpi*", "libnvshmem*", "libcufile*",
};

const char *ag_rules_exporter(size_t i)
{
    return i < sizeof(exporters) / sizeof(exporters[0]) ? exporters[i] : NULL;
}

/* A piece of the text. */
struct slice {
    const char *begin, *end;
};

/* What is being parsed, and where the first error goes. */
struct parser {
    const char *text;
    size_t first_column;
    char *why;
    size_t why_size;
};

enum condition { C_SIZE, C_DEVICE, C_FROM, C_NTH, C_THREAD, C_CALL, C_ANY };

/* The words, in the order of enum condition, of enum ag_call, and of enum ag_says. */
static const char condition_words[] = "size|device|from|nth|thread|call|*";
static const char conditions_allowed[] = "size, device, from, nth, thread, call, *";
static const char call_words[] = "device|async|managed|virtual|host|pool|graph";
static const char calls_allowed[] =
    "device, async, managed, virtual, host, pool, graph, several with | between, or any";
static const char actions_allowed[] =
    "auto, pool, native, managed, backend=, prefer=, access=, prefetch=, read_mostly, async=, "
    "host=, fail, and with it every=, after=, over=, chance=, seed=";

static const struct {
    const char *name, *values;
} actions[] = {
    [AG_SAYS_POLICY] = {"", "auto|pool|native|managed"},
    [AG_SAYS_BACKEND] = {"backend", "auto|plain|pool"},
    [AG_SAYS_PREFER] = {"prefer", "device|host|numa:N|none"},
    [AG_SAYS_ACCESS] = {"access", "device|peers|none"},
    [AG_SAYS_PREFETCH] = {"prefetch", "alloc|launch|off"},
    [AG_SAYS_READ_MOSTLY] = {"read_mostly", "0|1"},
    [AG_SAYS_ASYNC] = {"async", "pass|managed|page"},
    [AG_SAYS_HOST] = {"host", "native|cache|fast"},
    [AG_SAYS_FAIL] = {"fail", "no value"},
    [AG_SAYS_EVERY] = {"every", "N, from 1"},
    [AG_SAYS_AFTER] = {"after", "N, from 1"},
    [AG_SAYS_OVER] = {"over", "bytes such as 4096, 64KiB or 1.5GiB"},
    [AG_SAYS_CHANCE] = {"chance", "a share above 0 such as 0.05 or 5%, to the millionth"},
    [AG_SAYS_SEED] = {"seed", "N, from 0"},
};

#define N_ACTIONS (sizeof(actions) / sizeof(actions[0]))
_Static_assert(N_ACTIONS == AG_N_SAYS, "each has a row");

/* What concerns managed memory only. */
#define SAYS_OF_MANAGED                                                    \
    (1u << AG_SAYS_BACKEND | 1u << AG_SAYS_PREFER | 1u << AG_SAYS_ACCESS | \
     1u << AG_SAYS_PREFETCH | 1u << AG_SAYS_READ_MOSTLY)
/* What concerns calls that fail only, and all that does. */
#define SAYS_WHICH_FAIL                                                                      \
    (1u << AG_SAYS_EVERY | 1u << AG_SAYS_AFTER | 1u << AG_SAYS_OVER | 1u << AG_SAYS_CHANCE | \
     1u << AG_SAYS_SEED)
#define SAYS_OF_FAIL (1u << AG_SAYS_FAIL | SAYS_WHICH_FAIL)

/* The calls that a rule is for which names none: memory of the device, and of the host where it
 * says what becomes of that. */
static unsigned usual_calls(unsigned says)
{
    const unsigned host = 1u << AG_CALL_HOST;
    const bool says_more = (says & ~(SAYS_OF_FAIL | 1u << AG_SAYS_HOST)) != 0;

    if (!(says & 1u << AG_SAYS_HOST))
        return AG_CALLS_OF_MEMORY;
    return says_more ? AG_CALLS_OF_MEMORY | host : host;
}

/* ---- pieces of text ------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_empty_slice(struct slice piece)
{
    return piece.begin == piece.end;
}

static struct slice trimmed(struct slice piece)
{
    while (piece.begin < piece.end && is_blank(*piece.begin))
        piece.begin++;
    while (piece.end > piece.begin && is_blank(piece.end[-1]))
        piece.end--;
    return piece;
}

/* Cuts `*rest` at the first `separator`: what stands before it is returned, trimmed; *rest is what
 * stands after it, and its `begin` NULL when there was none. */
static struct slice cut_at(struct slice *rest, char separator)
{
    struct slice first = *rest;
    const char *at = memchr(first.begin, separator, (size_t)(first.end - first.begin));

    if (at)
        first.end = at;
    rest->begin = at ? at + 1 : NULL;
    return trimmed(first);
}

/* A copy with a NUL after it; false when it is longer than any word or number can be. */
static bool copy_token(struct slice piece, char token[LONGEST_TOKEN])
{
    size_t length = (size_t)(piece.end - piece.begin);

    if (length >= LONGEST_TOKEN)
        return false;
    memcpy(token, piece.begin, length);
    token[length] = '\0';
    return true;
}

static bool is_word(struct slice piece, const char *word)
{
    size_t length = (size_t)(piece.end - piece.begin);

    return length == strlen(word) && ag_text_begins(piece.begin, word);
}

/* The name that `piece` begins with. */
static struct slice leading_name(struct slice piece)
{
    const char *end = piece.begin;

    while (end < piece.end && ((*end >= 'a' && *end <= 'z') || (*end >= 'A' && *end <= 'Z') ||
                               *end == '_' || (end > piece.begin && *end >= '0' && *end <= '9')))
        end++;
    return (struct slice){piece.begin, end};
}

/* ---- errors -------------------------------------------------------------------------------- */

/* Writes "column N: ..." into `why`, on one line. -EINVAL. */
__attribute__((format(printf, 3, 4))) static int fail_at(const struct parser *parser,
                                                         const char *at, const char *format, ...)
{
    va_list args;
    int length;

    if (!parser->why_size)
        return -EINVAL;
    length = snprintf(parser->why, parser->why_size,
                      "column %zu: ", parser->first_column + (size_t)(at - parser->text));
    if (length > 0 && (size_t)length < parser->why_size) {
        va_start(args, format);
        vsnprintf(parser->why + length, parser->why_size - (size_t)length, format, args);
        va_end(args);
    }
    for (char *c = parser->why; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
    return -EINVAL;
}

/* The length for "%.*s" of a piece, but not so much of it that what is allowed would be cut off. */
static int shown(struct slice piece)
{
    return piece.end - piece.begin < 40 ? (int)(piece.end - piece.begin) : 40;
}

/* "; did you mean WORD?", of a list of words. */
static const char *suggest(char *text, size_t size, struct slice piece, const char *allowed)
{
    char token[LONGEST_TOKEN];

    *text = '\0';
    if (copy_token(piece, token))
        (void)ag_text_suggest(text, size, token, allowed);
    return text;
}

static int fail_unknown(const struct parser *parser, struct slice piece, const char *what,
                        const char *allowed)
{
    char likely[80];

    if (is_empty_slice(piece))
        return fail_at(parser, piece.begin, "%s is missing; allowed: %s", what, allowed);
    return fail_at(parser, piece.begin, "unknown %s \"%.*s\"; allowed: %s%s", strchr(what, ' ') + 1,
                   shown(piece), piece.begin, allowed,
                   suggest(likely, sizeof(likely), piece, allowed));
}

static int fail_value(const struct parser *parser, const char *name, struct slice value,
                      const char *allowed)
{
    char likely[80];

    if (is_empty_slice(value))
        return fail_at(parser, value.begin, "%s has no value; allowed: %s", name, allowed);
    return fail_at(parser, value.begin, "\"%.*s\" is no value of %s; allowed: %s%s", shown(value),
                   value.begin, name, allowed,
                   strchr(allowed, '|') ? suggest(likely, sizeof(likely), value, allowed) : "");
}

/* ---- conditions ---------------------------------------------------------------------------- */

/* Bytes, neither a part of the device's memory nor "max". */
static bool parse_bytes(struct slice piece, uint64_t *ret)
{
    char token[LONGEST_TOKEN];
    bool percent;

    return copy_token(piece, token) && !ag_text_parse_size(token, ret, &percent) && !percent &&
           *ret != UINT64_MAX;
}

static bool parse_count(struct slice piece, uint64_t *ret)
{
    uint64_t value = 0;

    if (is_empty_slice(piece))
        return false;
    for (const char *digit = piece.begin; digit < piece.end; digit++) {
        if (*digit < '0' || *digit > '9')
            return false;
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*digit - '0'), &value))
            return false;
    }
    *ret = value;
    return true;
}

/* "A..B" or one number, both ends read by `parse`. */
static bool parse_range(struct slice piece, bool (*parse)(struct slice, uint64_t *),
                        struct ag_range *ret)
{
    const char *dots = memmem(piece.begin, (size_t)(piece.end - piece.begin), "..", 2);
    struct ag_range range;

    if (!dots) {
        if (!parse(piece, &range.first))
            return false;
        range.last = range.first;
    } else if (!parse(trimmed((struct slice){piece.begin, dots}), &range.first) ||
               !parse(trimmed((struct slice){dots + 2, piece.end}), &range.last)) {
        return false;
    }
    *ret = range;
    return true;
}

static int parse_rule_size(const struct parser *parser, struct slice whole, const char *comparison,
                           struct slice value, struct ag_rule *rule)
{
    static const char allowed[] = "bytes such as 4096, 64KiB or 1.5GiB; behind = also A..B";
    struct ag_range range = {0, UINT64_MAX};
    bool exact = !strcmp(comparison, "="), down = comparison[0] == '<',
         or_equal = comparison[1] == '=';
    uint64_t bytes = 0;

    if (exact ? !parse_range(value, parse_bytes, &range) : !parse_bytes(value, &bytes))
        return fail_value(parser, "size", value, allowed);
    if (!exact && down && !or_equal && bytes == 0)
        return fail_at(parser, value.begin, "no size is less than 0; allowed: size<1 and up");
    if (!exact && down)
        range.last = or_equal ? bytes : bytes - 1;
    else if (!exact)
        range.first = or_equal ? bytes : bytes + 1;
    if (range.first > range.last)
        return fail_at(parser, value.begin,
                       "the range \"%.*s\" ends before it begins; allowed: A..B "
                       "with A at most B",
                       shown(value), value.begin);
    if (range.first > rule->size.first)
        rule->size.first = range.first;
    if (range.last < rule->size.last)
        rule->size.last = range.last;
    if (rule->size.first > rule->size.last)
        return fail_at(parser, whole.begin,
                       "\"%.*s\" and the sizes before it leave no size; allowed: "
                       "sizes that overlap",
                       shown(whole), whole.begin);
    return 0;
}

static int parse_nth(const struct parser *parser, struct slice value, struct ag_rule *rule)
{
    if (!parse_range(value, parse_count, &rule->nth) || rule->nth.first == 0)
        return fail_value(parser, "nth", value, "N or A..B, from 1");
    if (rule->nth.first > rule->nth.last)
        return fail_at(parser, value.begin,
                       "the range \"%.*s\" ends before it begins; allowed: A..B "
                       "with A at most B",
                       shown(value), value.begin);
    return 0;
}

static int parse_device(const struct parser *parser, struct slice value, struct ag_rule *rule)
{
    uint64_t device;

    if (!parse_count(value, &device) || device > INT_MAX)
        return fail_value(parser, "device", value, "a device's number, from 0");
    rule->device = (int)device;
    return 0;
}

static int parse_glob(const struct parser *parser, const char *name, struct slice value,
                      char glob[AG_GLOB_MAX])
{
    size_t length = (size_t)(value.end - value.begin);

    if (!length)
        return fail_value(parser, name, value, "a name, in it * for any characters and ? for one");
    if (length >= AG_GLOB_MAX)
        return fail_at(parser, value.begin, "\"%.*s...\" has %zu bytes; allowed: at most %u", 20,
                       value.begin, length, AG_GLOB_MAX - 1);
    memcpy(glob, value.begin, length);
    glob[length] = '\0';
    return 0;
}

static int parse_calls(const struct parser *parser, struct slice value, struct ag_rule *rule)
{
    struct slice rest = value;

    if (is_word(value, "any")) {
        rule->calls = (1u << AG_N_CALLS) - 1;
        return 0;
    }
    rule->calls = 0;
    while (rest.begin) {
        struct slice word = cut_at(&rest, '|');
        char token[LONGEST_TOKEN];
        int call = copy_token(word, token) ? ag_text_choice(token, call_words) : -1;

        if (call < 0)
            return fail_value(parser, "call", word, calls_allowed);
        rule->calls |= 1u << call;
    }
    return 0;
}

/* The comparison that `*rest` begins with, cut off it; NULL for none. */
static const char *parse_operator(struct slice *rest)
{
    static const char *const operators[] = {">=", "<=", ">", "<", "="};

    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        size_t length = strlen(operators[i]);

        if ((size_t)(rest->end - rest->begin) >= length &&
            !memcmp(rest->begin, operators[i], length)) {
            rest->begin += length;
            return operators[i];
        }
    }
    return NULL;
}

static int dispatch_condition(const struct parser *parser, struct slice whole, enum condition kind,
                              const char *comparison, struct slice value, struct ag_rule *rule)
{
    switch (kind) {
    case C_SIZE:
        return parse_rule_size(parser, whole, comparison, value, rule);
    case C_DEVICE:
        return parse_device(parser, value, rule);
    case C_FROM:
        return parse_glob(parser, "from", value, rule->from);
    case C_NTH:
        return parse_nth(parser, value, rule);
    case C_CALL:
        return parse_calls(parser, value, rule);
    default:
        return parse_glob(parser, "thread", value, rule->thread);
    }
}

/* One condition into `rule`. *seen has a bit for each kind met in this rule. */
static int parse_condition(const struct parser *parser, struct slice whole, unsigned *seen,
                           struct ag_rule *rule)
{
    struct slice name = leading_name(whole), rest;
    bool any = is_word(whole, "*");
    char word[LONGEST_TOKEN];
    int kind = copy_token(any ? whole : name, word) ? ag_text_choice(word, condition_words) : -1;
    const char *comparison;

    if (kind < 0)
        return fail_unknown(parser, is_empty_slice(name) ? whole : name, "a condition",
                            conditions_allowed);
    if (*seen & (any ? ~0u : 1u << C_ANY))
        return fail_at(parser, whole.begin, "\"%.*s\" beside another condition; allowed: * alone",
                       shown(whole), whole.begin);
    if (kind != C_SIZE && *seen & 1u << kind)
        return fail_at(parser, whole.begin, "a second \"%s\" in one rule; allowed: one", word);
    *seen |= 1u << kind;
    if (any)
        return 0;
    rest = trimmed((struct slice){name.end, whole.end});
    comparison = parse_operator(&rest);
    if (!comparison || (kind != C_SIZE && *comparison != '='))
        return fail_at(parser, comparison ? rest.begin - strlen(comparison) : rest.begin,
                       "%s is followed by \"%.*s\"; allowed: %s", word,
                       comparison ? (int)strlen(comparison) : shown(rest),
                       comparison ? comparison : rest.begin, kind == C_SIZE ? ">= <= > < =" : "=");
    return dispatch_condition(parser, whole, (enum condition)kind, comparison, trimmed(rest), rule);
}

/* ---- actions ------------------------------------------------------------------------------- */

int ag_prefer_parse(const char *text, struct ag_prefer *ret)
{
    int kind = ag_text_choice(text, actions[AG_SAYS_PREFER].values);
    const char *digits = text + strlen("numa:");
    uint64_t node;

    if (kind >= 0 && kind != AG_PREFER_NUMA) {
        *ret = (struct ag_prefer){.kind = (enum ag_prefer_kind)kind};
        return 0;
    }
    if (!ag_text_begins(text, "numa:") ||
        !parse_count((struct slice){digits, digits + strlen(digits)}, &node) || node > INT_MAX)
        return -EINVAL;
    *ret = (struct ag_prefer){.kind = AG_PREFER_NUMA, .node = (unsigned)node};
    return 0;
}

/* Writes the value of an action into *fail; false when the action has no such value. */
static bool parse_fail_value(enum ag_says says, struct slice value, struct ag_fail *which)
{
    char token[LONGEST_TOKEN];

    if (says == AG_SAYS_FAIL)
        return is_empty_slice(value);
    if (says == AG_SAYS_EVERY)
        return parse_count(value, &which->every) && which->every;
    if (says == AG_SAYS_AFTER)
        return parse_count(value, &which->after) && which->after;
    if (says == AG_SAYS_OVER)
        return parse_bytes(value, &which->over);
    if (says == AG_SAYS_SEED)
        return parse_count(value, &which->seed);
    return copy_token(value, token) && ag_chance_parse(token, &which->chance_ppm);
}

/* Reads the value of any other action. */
static bool parse_value(enum ag_says says, struct slice value, struct ag_request_params *params)
{
    char token[LONGEST_TOKEN];
    int choice;

    if (!copy_token(value, token))
        return false;
    if (says == AG_SAYS_PREFER)
        return !ag_prefer_parse(token, &params->prefer);
    choice = ag_text_choice(token, actions[says].values);
    if (choice < 0)
        return false;
    if (says == AG_SAYS_POLICY)
        params->policy = (enum ag_policy)choice;
    else if (says == AG_SAYS_BACKEND)
        params->backend = (enum ag_managed_backend)choice;
    else if (says == AG_SAYS_ACCESS)
        params->access = (enum ag_access)choice;
    else if (says == AG_SAYS_PREFETCH)
        params->prefetch = (enum ag_prefetch)choice;
    else if (says == AG_SAYS_READ_MOSTLY)
        params->read_mostly = choice != 0;
    else if (says == AG_SAYS_HOST)
        params->host = (enum ag_host_mode)choice;
    else
        params->async = (enum ag_async)choice;
    return true;
}

/* The action that `name` names, or -1. */
static int find_action(struct slice name)
{
    for (int i = AG_SAYS_POLICY + 1; i < (int)N_ACTIONS; i++) {
        if (is_word(name, actions[i].name))
            return i;
    }
    return -1;
}

/* Does the rule, with the action at `whole` in it, want two things at once? */
static int refuse_contradiction(const struct parser *parser, struct slice whole,
                                const struct ag_rule *rule)
{
    if (rule->says & 1u << AG_SAYS_POLICY && rule->params.policy == AG_POLICY_NATIVE &&
        rule->says & SAYS_OF_MANAGED)
        return fail_at(parser, whole.begin,
                       "\"%.*s\": a rule cannot ask for native memory and say how "
                       "managed memory behaves; allowed: one of the two",
                       shown(whole), whole.begin);
    return 0;
}

static int parse_action(const struct parser *parser, struct slice whole, struct ag_rule *rule)
{
    static const char one[] = "1"; /* of bare read_mostly */
    struct slice rest = whole, name = cut_at(&rest, '='), value = {whole.end, whole.end};
    bool has_value = rest.begin != NULL;
    int says = find_action(name);

    if (says < 0 && !has_value && parse_value(AG_SAYS_POLICY, whole, &rule->params)) {
        if (rule->says & 1u << AG_SAYS_POLICY)
            return fail_at(parser, whole.begin, "a second placement, \"%.*s\"; allowed: one of %s",
                           shown(whole), whole.begin, actions[AG_SAYS_POLICY].values);
        rule->says |= 1u << AG_SAYS_POLICY;
        return refuse_contradiction(parser, whole, rule);
    }
    if (says < 0)
        return fail_unknown(parser, name, "an action", actions_allowed);
    if (rule->says & 1u << says)
        return fail_at(parser, whole.begin, "a second \"%s\" in one rule; allowed: one",
                       actions[says].name);
    if (has_value)
        value = trimmed(rest);
    else if (says == AG_SAYS_READ_MOSTLY)
        value = (struct slice){one, one + 1};
    if (has_value && says == AG_SAYS_FAIL)
        return fail_at(parser, rest.begin,
                       "fail takes no value; allowed: fail, and behind a comma "
                       "every=, after=, over=, chance=, seed=");
    if ((1u << says & SAYS_OF_FAIL) ? !parse_fail_value((enum ag_says)says, value, &rule->fail)
                                    : !parse_value((enum ag_says)says, value, &rule->params))
        return fail_value(parser, actions[says].name, value, actions[says].values);
    rule->says |= 1u << says;
    return refuse_contradiction(parser, whole, rule);
}

/* The name of the first action of those in `says`. */
static const char *first_name(unsigned says)
{
    return actions[__builtin_ctz(says)].name;
}

/* Does the whole rule say something of calls that fail, or of calls without a size, that means
 * nothing? */
static int refuse_incomplete(const struct parser *parser, struct slice whole, unsigned seen,
                             const struct ag_rule *rule)
{
    bool fails = rule->says & 1u << AG_SAYS_FAIL;

    if (!fails && rule->says & SAYS_WHICH_FAIL)
        return fail_at(parser, whole.begin, "\"%s=\" without fail; allowed: in rules with fail",
                       first_name(rule->says & SAYS_WHICH_FAIL));
    if (rule->says & 1u << AG_SAYS_SEED && !(rule->says & 1u << AG_SAYS_CHANCE))
        return fail_at(parser, whole.begin,
                       "\"seed=\" without chance=; allowed: in rules with both");
    if (!fails && seen & 1u << C_CALL)
        return fail_at(parser, whole.begin, "\"call=\" without fail; allowed: in rules with fail");
    if (rule->says & 1u << AG_SAYS_HOST && !(rule->calls & 1u << AG_CALL_HOST))
        return fail_at(parser, whole.begin,
                       "\"host=\" of calls that pin no memory; allowed: with call=host too");
    if (seen & 1u << C_SIZE && !(rule->calls & ~AG_CALLS_WITHOUT_SIZE))
        return fail_at(parser, whole.begin,
                       "\"size\" of calls that have none; allowed: with call= of other calls too");
    return 0;
}

/* ---- rules --------------------------------------------------------------------------------- */

static int parse_rule(const struct parser *parser, struct slice whole, struct ag_rule *ret)
{
    struct slice actions_left = whole, conditions = cut_at(&actions_left, ':');
    size_t length = (size_t)(whole.end - whole.begin);
    unsigned seen = 0;

    *ret = (struct ag_rule){
        .size = {0, UINT64_MAX}, .nth = {0, UINT64_MAX}, .device = -1, .fail = AG_FAIL_ALL};
    while (conditions.begin) {
        int result = parse_condition(parser, cut_at(&conditions, ','), &seen, ret);

        if (result)
            return result;
    }
    if (!actions_left.begin)
        return fail_at(parser, whole.end,
                       "no ':' behind the conditions; allowed: "
                       "CONDITION[,CONDITION...]:ACTION[,ACTION...]");
    while (actions_left.begin) {
        int result = parse_action(parser, cut_at(&actions_left, ','), ret);

        if (result)
            return result;
    }
    if (!(seen & 1u << C_CALL))
        ret->calls = usual_calls(ret->says);
    if (length >= sizeof(ret->text))
        length = sizeof(ret->text) - 1;
    memcpy(ret->text, whole.begin, length);
    return refuse_incomplete(parser, whole, seen, ret);
}

static unsigned needs_of(const struct ag_rule *rule)
{
    return (*rule->from ? AG_NEED_MODULE : 0u) | (*rule->thread ? AG_NEED_THREAD : 0u) |
           (rule->nth.first || rule->nth.last != UINT64_MAX ? AG_NEED_NTH : 0u);
}

int ag_rules_add(const char *text, size_t first_column, struct ag_rules *rules, char *why,
                 size_t why_size)
{
    struct parser parser = {.text = text, .first_column = first_column, .why_size = why_size};
    struct slice rest = {text, text + strlen(text)};
    unsigned n = rules->n, needs = rules->needs;

    parser.why = why;
    while (rest.begin) {
        struct slice whole = cut_at(&rest, ';');
        int result;

        if (is_empty_slice(whole))
            continue;
        if (n == AG_MAX_RULES)
            return fail_at(&parser, whole.begin, "\"%.*s\" is one rule too many; allowed: %u rules",
                           shown(whole), whole.begin, AG_MAX_RULES);
        result = parse_rule(&parser, whole, &rules->rule[n]);
        if (result)
            return result;
        needs |= needs_of(&rules->rule[n++]);
    }
    rules->n = n;
    rules->needs = needs;
    return 0;
}

int ag_rules_parse(const char *text, struct ag_rules *ret, char *why, size_t why_size)
{
    ret->n = 0;
    ret->needs = 0;
    return ag_rules_add(text, 1, ret, why, why_size);
}

bool ag_rule_watches_launches(const struct ag_rule *rule)
{
    return rule->says & 1u << AG_SAYS_PREFETCH && rule->params.prefetch == AG_PREFETCH_LAUNCH;
}

bool ag_rule_fails(const struct ag_rule *rule)
{
    return rule->says & 1u << AG_SAYS_FAIL;
}

bool ag_rule_only_fails(const struct ag_rule *rule)
{
    return ag_rule_fails(rule) && !(rule->says & ~SAYS_OF_FAIL);
}

/* ---- matching ------------------------------------------------------------------------------ */

bool ag_glob_match(const char *glob, const char *text)
{
    const char *star = NULL, *reached = NULL; /* the last '*' met, and what its run has reached */

    while (*text) {
        if (*glob == '*') {
            star = glob++;
            reached = text;
        } else if (*glob == '?' || *glob == *text) {
            glob++;
            text++;
        } else if (star) {
            glob = star + 1;
            text = ++reached;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return !*glob;
}

static bool in_range(struct ag_range range, uint64_t value)
{
    return value >= range.first && value <= range.last;
}

static bool applies(const struct ag_rule *rule, const struct ag_asked *asked)
{
    bool any_size = !rule->size.first && rule->size.last == UINT64_MAX;

    if (!(rule->calls & 1u << asked->call) || !in_range(rule->nth, asked->nth))
        return false;
    if ((1u << asked->call & AG_CALLS_WITHOUT_SIZE) ? !any_size
                                                    : !in_range(rule->size, asked->bytes))
        return false;
    if (rule->device >= 0 && rule->device != asked->device)
        return false;
    if (*rule->from ? !ag_glob_match(rule->from, asked->module ? asked->module : "")
                    : asked->exporter)
        return false;
    return !*rule->thread || ag_glob_match(rule->thread, asked->thread ? asked->thread : "");
}

int ag_rules_match(const struct ag_rules *rules, unsigned first, const struct ag_asked *asked)
{
    for (unsigned i = first; i < rules->n; i++) {
        if (applies(&rules->rule[i], asked))
            return (int)i;
    }
    return -1;
}

static bool covers(struct ag_range outer, struct ag_range inner)
{
    return outer.first <= inner.first && outer.last >= inner.last;
}

/* A rule without from= leaves the libraries that export memory to one with it; and one that lets
 * calls pass, and says nothing else, leaves those to any rule. */
static bool hides(const struct ag_rule *before, const struct ag_rule *rule)
{
    if (ag_rule_only_fails(before) && !ag_fail_is_all(&before->fail))
        return false;
    return !(rule->calls & ~before->calls) && covers(before->size, rule->size) &&
           covers(before->nth, rule->nth) &&
           (before->device < 0 || before->device == rule->device) &&
           (!strcmp(before->from, "*") || !strcmp(before->from, rule->from)) &&
           (!*before->thread || !strcmp(before->thread, "*") ||
            !strcmp(before->thread, rule->thread));
}

int ag_rules_hidden_by(const struct ag_rules *rules, unsigned i)
{
    for (unsigned before = 0; before < i; before++) {
        if (hides(&rules->rule[before], &rules->rule[i]))
            return (int)before;
    }
    return -1;
}

void ag_rule_apply(const struct ag_rule *rule, struct ag_request_params *params)
{
    if (rule->says & 1u << AG_SAYS_POLICY)
        params->policy = rule->params.policy;
    if (rule->says & 1u << AG_SAYS_BACKEND)
        params->backend = rule->params.backend;
    if (rule->says & 1u << AG_SAYS_PREFER)
        params->prefer = rule->params.prefer;
    if (rule->says & 1u << AG_SAYS_ACCESS)
        params->access = rule->params.access;
    if (rule->says & 1u << AG_SAYS_PREFETCH)
        params->prefetch = rule->params.prefetch;
    if (rule->says & 1u << AG_SAYS_READ_MOSTLY)
        params->read_mostly = rule->params.read_mostly;
    if (rule->says & 1u << AG_SAYS_ASYNC)
        params->async = rule->params.async;
    if (rule->says & 1u << AG_SAYS_HOST)
        params->host = rule->params.host;
}

/* ---- printing ------------------------------------------------------------------------------ */

/* Appends to a buffer of `size` bytes, a ',' in front of everything but the first. */
__attribute__((format(printf, 3, 4))) static void append_word(char *buffer, size_t size,
                                                              const char *format, ...)
{
    size_t length = strlen(buffer);
    va_list args;

    if (length && length + 1 < size) {
        buffer[length++] = ',';
        buffer[length] = '\0';
    }
    va_start(args, format);
    vsnprintf(buffer + length, size - length, format, args);
    va_end(args);
}

/* A size as it is written in a rule, exactly, in the largest unit that divides it. */
static const char *size_text(char text[32], uint64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;

    while (bytes && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, "%" PRIu64 "%s", bytes, units[unit]);
    return text;
}

/* A size of 2^63 can be written as more than 2^63-1 only. */
static void print_sizes(struct ag_range range, char *buffer, size_t size)
{
    bool at_least = range.first >> 63 == 0;
    char first[32], last[32];

    size_text(first, at_least ? range.first : range.first - 1);
    size_text(last, range.last);
    if (range.first == range.last)
        append_word(buffer, size, "size=%s", first);
    else if (range.first && range.last != UINT64_MAX)
        append_word(buffer, size, "size=%s..%s", first, last);
    else if (range.first)
        append_word(buffer, size, "size%s%s", at_least ? ">=" : ">", first);
    else if (range.last != UINT64_MAX)
        append_word(buffer, size, "size<=%s", last);
}

/* Word `i` of "a|b|c". */
static struct slice nth_word(const char *words, unsigned i)
{
    struct slice rest = {words, words + strlen(words)}, word = cut_at(&rest, '|');

    while (i-- > 0 && rest.begin)
        word = cut_at(&rest, '|');
    return word;
}

/* Nothing for those of a rule that names none. */
static void print_calls(unsigned calls, unsigned usual, char *buffer, size_t size)
{
    char text[LONGEST_TOKEN] = "";
    size_t length = 0;

    for (unsigned i = 0; i < AG_N_CALLS; i++) {
        struct slice word = nth_word(call_words, i);

        if (calls & 1u << i)
            length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%.*s",
                                       length ? "|" : "", (int)(word.end - word.begin), word.begin);
    }
    if (calls != usual)
        append_word(buffer, size, "call=%s", calls == (1u << AG_N_CALLS) - 1 ? "any" : text);
}

void ag_rule_conditions(const struct ag_rule *rule, char *buffer, size_t size)
{
    *buffer = '\0';
    print_sizes(rule->size, buffer, size);
    if (rule->device >= 0)
        append_word(buffer, size, "device=%d", rule->device);
    if (*rule->from)
        append_word(buffer, size, "from=%s", rule->from);
    if (rule->nth.first && rule->nth.first == rule->nth.last)
        append_word(buffer, size, "nth=%" PRIu64, rule->nth.first);
    else if (rule->nth.first)
        append_word(buffer, size, "nth=%" PRIu64 "..%" PRIu64, rule->nth.first, rule->nth.last);
    if (*rule->thread)
        append_word(buffer, size, "thread=%s", rule->thread);
    print_calls(rule->calls, usual_calls(rule->says), buffer, size);
    if (!*buffer)
        append_word(buffer, size, "*");
}

void ag_rule_placement(const struct ag_rule *rule, char *buffer, size_t size)
{
    struct slice word = nth_word(actions[AG_SAYS_POLICY].values, rule->params.policy);
    bool said = rule->says & 1u << AG_SAYS_POLICY;

    snprintf(buffer, size, "%.*s", said ? (int)(word.end - word.begin) : 0, word.begin);
}

static void print_fail(const struct ag_rule *rule, char *buffer, size_t size)
{
    const struct ag_fail *which = &rule->fail;
    char text[32];

    if (rule->says & 1u << AG_SAYS_FAIL)
        append_word(buffer, size, "fail");
    if (rule->says & 1u << AG_SAYS_EVERY)
        append_word(buffer, size, "every=%" PRIu64, which->every);
    if (rule->says & 1u << AG_SAYS_AFTER)
        append_word(buffer, size, "after=%" PRIu64, which->after);
    if (rule->says & 1u << AG_SAYS_OVER)
        append_word(buffer, size, "over=%s", size_text(text, which->over));
    if (rule->says & 1u << AG_SAYS_CHANCE)
        append_word(buffer, size, "chance=%s", ag_chance_print(text, which->chance_ppm));
    if (rule->says & 1u << AG_SAYS_SEED)
        append_word(buffer, size, "seed=%" PRIu64, which->seed);
}

void ag_rule_settings(const struct ag_rule *rule, char *buffer, size_t size)
{
    const struct ag_request_params *params = &rule->params;
    const unsigned chosen[] = {
        [AG_SAYS_BACKEND] = params->backend,
        [AG_SAYS_PREFER] = params->prefer.kind,
        [AG_SAYS_ACCESS] = params->access,
        [AG_SAYS_PREFETCH] = params->prefetch,
        [AG_SAYS_READ_MOSTLY] = params->read_mostly,
        [AG_SAYS_ASYNC] = params->async,
        [AG_SAYS_HOST] = params->host,
    };

    *buffer = '\0';
    for (unsigned i = AG_SAYS_POLICY + 1; i < AG_SAYS_FAIL; i++) {
        struct slice word = nth_word(actions[i].values, chosen[i]);

        if (!(rule->says & 1u << i))
            continue;
        if (i == AG_SAYS_PREFER && params->prefer.kind == AG_PREFER_NUMA)
            append_word(buffer, size, "prefer=numa:%u", params->prefer.node);
        else
            append_word(buffer, size, "%s=%.*s", actions[i].name, (int)(word.end - word.begin),
                        word.begin);
    }
    print_fail(rule, buffer, size);
}
