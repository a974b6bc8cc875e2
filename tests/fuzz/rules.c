/* Rules: whatever the text, an error that names a place inside it, or rules that are the same again
 * when printed and read, and that apply at the ends of their own ranges. */
#include "interpose/core/settings/rules.h"

#include <errno.h>
#include <string.h>

#include "fuzz.h"

static void check_error(const char *why, size_t length)
{
    unsigned long column;
    char *end;

    FUZZ_CHECK(!strncmp(why, "column ", 7));
    column = strtoul(why + 7, &end, 10);
    FUZZ_CHECK(column >= 1 && column <= length + 1 && !strncmp(end, ": ", 2));
    FUZZ_CHECK(strstr(why, "allowed: ") && !strchr(why, '\n') && strlen(why) < 500);
}

/* "CONDITIONS:PLACEMENT,SETTINGS" of the rule; its length. */
static size_t print(const struct ag_rule *rule, char text[4 * AG_RULE_TEXT])
{
    char conditions[AG_RULE_TEXT], placement[AG_RULE_TEXT], settings[AG_RULE_TEXT];

    ag_rule_conditions(rule, conditions, sizeof(conditions));
    ag_rule_placement(rule, placement, sizeof(placement));
    ag_rule_settings(rule, settings, sizeof(settings));
    FUZZ_CHECK(strlen(conditions) + 1 < AG_RULE_TEXT && strlen(settings) + 1 < AG_RULE_TEXT);
    return (size_t)snprintf(text, 4 * AG_RULE_TEXT, "%s:%s%s%s", conditions, placement,
                            *placement && *settings ? "," : "", settings);
}

static void check_rule(const struct ag_rule *rule)
{
    struct ag_rule bare = *rule;
    static struct ag_rules again;
    char text[4 * AG_RULE_TEXT], why[600];

    FUZZ_CHECK(rule->size.first <= rule->size.last && rule->nth.first <= rule->nth.last);
    FUZZ_CHECK(rule->device >= -1 && rule->says && *rule->text);
    (void)print(rule, text);
    FUZZ_CHECK(!ag_rules_parse(text, &again, why, sizeof(why)) && again.n == 1);
    memset(bare.text, 0, sizeof(bare.text));
    memset(again.rule[0].text, 0, sizeof(again.rule[0].text));
    FUZZ_CHECK(!memcmp(&bare, &again.rule[0], sizeof(bare)));
}

/* The rule applies at both ends of its ranges, unless one before it does. */
static void check_match(const struct ag_rules *rules, unsigned i)
{
    const struct ag_rule *rule = &rules->rule[i];

    if (strpbrk(rule->from, "*?") || strpbrk(rule->thread, "*?"))
        return;
    for (unsigned end = 0; end < 2; end++) {
        struct ag_asked asked = {
            .bytes = end ? rule->size.last : rule->size.first,
            .call = (enum ag_call)__builtin_ctz(rule->calls),
            .nth = end ? rule->nth.last : rule->nth.first,
            .device = rule->device < 0 ? 0 : rule->device,
            .module = rule->from,
            .thread = rule->thread,
        };
        int match = ag_rules_match(rules, 0, &asked);

        FUZZ_CHECK(match >= 0 && match <= (int)i);
        FUZZ_CHECK(ag_rules_hidden_by(rules, i) < 0 || match < (int)i);
        asked.exporter = true;
        match = ag_rules_match(rules, 0, &asked);
        FUZZ_CHECK(match < 0 || *rules->rule[match].from);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ag_rules rules;
    char *text = malloc(size + 1), why[600];
    int result;

    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    result = ag_rules_parse(text, &rules, why, sizeof(why));
    FUZZ_CHECK(result == 0 || result == -EINVAL);
    FUZZ_CHECK(rules.n <= AG_MAX_RULES && (!result || !rules.n));
    if (result)
        check_error(why, strlen(text));
    for (unsigned i = 0; i < rules.n; i++) {
        check_rule(&rules.rule[i]);
        check_match(&rules, i);
    }
    free(text);
    return 0;
}
