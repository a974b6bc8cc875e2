/* options.c: every row of options.def, bad values, unknown names, and the words of `allowed` in the
 * order of the enumerations. */
#include "options.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "check.h"

/* What the parser told. */
static struct {
    enum ag_log_level level;
    char line[600];
} told[64];
static size_t n_told;

static void tell(enum ag_log_level level, const char *line)
{
    CHECK(n_told < N_OF(told));
    CHECK(!strchr(line, '\n'));
    told[n_told].level = level;
    snprintf(told[n_told++].line, sizeof(told[0].line), "%s", line);
}

/* Reads an environment of these variables; the result, and what was told. */
static int read_these(struct ag_options *ret, char *first, char *second)
{
    char *environment[] = {"PATH=/bin", first, second, NULL};

    n_told = 0;
    memset(ret, 0xee, sizeof(*ret)); /* nothing may stay as it was */
    return ag_options_read(environment, ret, tell);
}

static void has_defaults(void)
{
    struct ag_options options;
    char *nothing[] = {NULL};

    n_told = 0;
    memset(&options, 0xee, sizeof(options));
    CHECK(ag_options_read(nothing, &options, tell) == 0 && n_told == 0);
    CHECK(options.policy == AG_POLICY_POOL && options.free_mode == AG_FREE_AUTO);
    CHECK(!options.disable && options.log == AG_LOG_WARN && !strcmp(options.stats.text, "stderr"));
    CHECK(options.pool_keep.value == UINT64_MAX && !options.pool_keep.percent);
    CHECK(options.cache.value == 25 && options.cache.percent);
    CHECK(options.pending.value == 25 && options.pending.percent);
    CHECK(ag_options_read(NULL, &options, tell) == 0);
    CHECK(ag_options_log_level(nothing) == options.log);
}

/* Each row can be looked up, has words to say, and its default is a value it allows. */
static void rows_are_whole(void)
{
    char why[200];

    CHECK(ag_options_count() >= 8);
    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *info = ag_option_info(i);

        CHECK_SAID(!strncmp(info->name, "ALLOGRAFT_", 10) && info->name[10], "row %zu", i);
        CHECK_SAID(*info->type && *info->allowed && strlen(info->help) > 10, "%s", info->name);
        CHECK_SAID(!strchr(info->help, '\n') && strlen(info->name) < 64, "%s", info->name);
        CHECK_SAID(ag_option_check(info->name, info->default_text, why, sizeof(why)) == 0, "%s: %s",
                   info->name, why);
        for (size_t j = 0; j < i; j++)
            CHECK_SAID(strcmp(info->name, ag_option_info(j)->name), "%s is there twice", info->name);
    }
}

/* The n-th word of "a|b|c" in `word`; false behind the last. */
static bool nth_word(const char *allowed, unsigned n, char *word, size_t size)
{
    size_t length;

    for (; n > 0; n--) {
        allowed = strchr(allowed, '|');
        if (!allowed)
            return false;
        allowed++;
    }
    length = strcspn(allowed, "|");
    snprintf(word, size, "%.*s", (int)length, allowed);
    return true;
}

static const char *allowed_of(const char *name)
{
    for (size_t i = 0; i < ag_options_count(); i++) {
        if (!strcmp(ag_option_info(i)->name, name))
            return ag_option_info(i)->allowed;
    }
    CHECK_SAID(false, "no row %s", name);
    return "";
}

struct words {
    const char *name;
    const char *words[5]; /* by the value of the enumeration */
};

/* Word i of `allowed` is the enumeration's value i, in small and in capital letters. */
static void words_follow_the_enumerations(void)
{
    static const struct words expected[] = {
        {"ALLOGRAFT_POLICY",
         {[AG_POLICY_POOL] = "pool", [AG_POLICY_NATIVE] = "native", [AG_POLICY_MANAGED] = "managed"}},
        {"ALLOGRAFT_FREE",
         {[AG_FREE_AUTO] = "auto", [AG_FREE_ORDERED] = "ordered", [AG_FREE_SYNC] = "sync"}},
        {"ALLOGRAFT_LOG",
         {[AG_LOG_OFF] = "off", [AG_LOG_ERROR] = "error", [AG_LOG_WARN] = "warn",
          [AG_LOG_INFO] = "info", [AG_LOG_DEBUG] = "debug"}},
        {"ALLOGRAFT_DISABLE", {[false] = "0", [true] = "1"}},
    };

    for (size_t row = 0; row < N_OF(expected); row++) {
        for (unsigned i = 0; i < 5; i++) {
            const char *word = expected[row].words[i];
            struct ag_options options;
            char in_list[32], variable[64];
            unsigned value;

            CHECK_SAID(nth_word(allowed_of(expected[row].name), i, in_list, sizeof(in_list)) ==
                           (word != NULL), "%s has another number of words", expected[row].name);
            if (!word)
                break;
            CHECK_SAID(!strcmp(word, in_list), "%s: word %u is %s", expected[row].name, i, in_list);
            snprintf(variable, sizeof(variable), "%s=%s", expected[row].name, word);
            for (char *c = strchr(variable, '='); *c; c++)
                *c = (char)(*c >= 'a' && *c <= 'z' && i % 2 ? *c - 32 : *c);
            CHECK_SAID(read_these(&options, variable, NULL) == 0 && !n_told, "%s", variable);
            value = row == 0   ? (unsigned)options.policy
                    : row == 1 ? (unsigned)options.free_mode
                    : row == 2 ? (unsigned)options.log
                               : (unsigned)options.disable;
            CHECK_SAID(value == i, "%s gave %u", variable, value);
        }
    }
}

static void reads_sizes_and_text(void)
{
    struct ag_options options;
    char cache[] = "ALLOGRAFT_CACHE=1.5GiB", stats[] = "ALLOGRAFT_STATS=/tmp/a=b.json";

    CHECK(read_these(&options, cache, stats) == 0 && n_told == 0);
    CHECK(options.cache.value == 3ull << 29 && !options.cache.percent);
    CHECK(!strcmp(options.stats.text, "/tmp/a=b.json"));
    CHECK(read_these(&options, "ALLOGRAFT_PENDING=80%", "ALLOGRAFT_POOL_KEEP=0") == 0);
    CHECK(options.pending.value == 80 && options.pending.percent && options.pool_keep.value == 0);
}

/* Each row refuses what it cannot be; the default stands in its place, one line says all. */
static void refuses_bad_values(void)
{
    static const char *const bad[] = {"", "poo", "pooll", "pool|native", "2", "-1", "yes", " 0",
                                      "200%", "1 GiB", "%n%s", "\xff"};
    struct ag_options options;
    char why[300], variable[100];

    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *info = ag_option_info(i);
        bool is_text = !strcmp(info->type, "TEXT"), is_size = !strcmp(info->type, "SIZE");

        for (size_t j = 0; j < N_OF(bad); j++) {
            if ((is_text && j > 0) || (is_size && !strcmp(bad[j], "2")))
                continue;
            CHECK_SAID(ag_option_check(info->name, bad[j], why, sizeof(why)) == -EINVAL, "%s=%s",
                       info->name, bad[j]);
            CHECK_SAID(strstr(why, info->name) && strstr(why, info->allowed) && strstr(why, bad[j]),
                       "%s", why);
            snprintf(variable, sizeof(variable), "%s=%s", info->name, bad[j]);
            CHECK(read_these(&options, variable, NULL) == -EINVAL && n_told == 1);
            CHECK(told[0].level == AG_LOG_ERROR && !strcmp(told[0].line, why));
        }
    }
    /* The others keep their values, and the bad one its default. */
    CHECK(read_these(&options, "ALLOGRAFT_POLICY=pol", "ALLOGRAFT_FREE=sync") == -EINVAL);
    CHECK(options.policy == AG_POLICY_POOL && options.free_mode == AG_FREE_SYNC && n_told == 1);
    CHECK(ag_option_check("ALLOGRAFT_POLICY", "pol", why, 8) == -EINVAL && strlen(why) == 7);
}

static void names_the_nearest(void)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        {"ALLOGRAFT_POLYCI", "ALLOGRAFT_POLICY"}, {"ALLOGRAFT_STAT", "ALLOGRAFT_STATS"},
        {"ALLOGRAFT_FRE", "ALLOGRAFT_FREE"},      {"ALLOGRAFT_policy", "ALLOGRAFT_POLICY"},
        {"ALLOGRAFT_CASHE", "ALLOGRAFT_CACHE"},   {"ALLOGRAFT_POOLKEEP", "ALLOGRAFT_POOL_KEEP"},
    };
    struct ag_options options;
    char why[300], variable[100];

    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(variable, sizeof(variable), "%s=1", cases[i].name);
        CHECK(read_these(&options, variable, NULL) == 0 && n_told == 1);
        CHECK_SAID(told[0].level == AG_LOG_WARN && strstr(told[0].line, cases[i].name) &&
                       strstr(told[0].line, cases[i].nearest), "%s", told[0].line);
        CHECK(ag_option_check(cases[i].name, "1", why, sizeof(why)) == -ENOENT);
        CHECK_SAID(strstr(why, cases[i].nearest), "%s", why);
    }
    CHECK(read_these(&options, "ALLOGRAFT_LIBRARY=/somewhere/lib.so", NULL) == 0 && n_told == 0);
}

/* Names and values of any length, no '=', and neighbours of the prefix. */
static void survives_odd_environments(void)
{
    static char long_name[5000] = "ALLOGRAFT_", long_value[9000] = "ALLOGRAFT_POLICY=";
    struct ag_options options;

    memset(long_name + 10, 'X', sizeof(long_name) - 11);
    long_name[4000] = '=';
    memset(long_value + 17, 'v', sizeof(long_value) - 18);
    CHECK(read_these(&options, long_name, NULL) == 0 && n_told == 1);
    CHECK(read_these(&options, long_value, NULL) == -EINVAL && n_told == 1);
    CHECK(read_these(&options, "ALLOGRAFT_POLICY", "ALLOGRAFT") == 0 && n_told == 0);
    CHECK(read_these(&options, "ALLOGRAFTPOLICY=x", "=") == 0 && n_told == 0);
    CHECK(read_these(&options, "ALLOGRAFT_=1", NULL) == 0 && n_told == 1);
    CHECK(read_these(&options, "allograft_policy=native", NULL) == 0 && n_told == 0);
    CHECK(options.policy == AG_POLICY_POOL);
    CHECK(read_these(&options, "ALLOGRAFT_POLICY=pool=native", NULL) == -EINVAL);
}

static void finds_text_and_level(void)
{
    char *environment[] = {"ALLOGRAFT_LOGS=off", "ALLOGRAFT_LOG=debug", "ALLOGRAFT_LOG=off", NULL};
    char *bad[] = {"ALLOGRAFT_LOG=loud", NULL};

    CHECK(ag_options_log_level(environment) == AG_LOG_DEBUG);
    CHECK(ag_options_log_level(bad) == AG_LOG_WARN && ag_options_log_level(NULL) == AG_LOG_WARN);
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *text = ag_option_text(environment, i);

        if (strcmp(ag_option_info(i)->name, "ALLOGRAFT_LOG"))
            CHECK(text == NULL);
        else
            CHECK(text && !strcmp(text, "debug"));
    }
}

static void means_bytes(void)
{
    const uint64_t card = 150ull << 30;

    CHECK(ag_size_bytes((struct ag_size){100, true}, 1000) == 1000);
    CHECK(ag_size_bytes((struct ag_size){25, true}, 1000) == 250);
    CHECK(ag_size_bytes((struct ag_size){0, true}, card) == 0);
    CHECK(ag_size_bytes((struct ag_size){100, true}, card) <= card);
    CHECK(ag_size_bytes((struct ag_size){100, true}, card) > card - 100);
    CHECK(ag_size_bytes((struct ag_size){4096, false}, card) == 4096);
    CHECK(ag_size_bytes((struct ag_size){UINT64_MAX, false}, card) == UINT64_MAX);
}

int main(void)
{
    has_defaults();
    rows_are_whole();
    words_follow_the_enumerations();
    reads_sizes_and_text();
    refuses_bad_values();
    names_the_nearest();
    survives_odd_environments();
    finds_text_and_level();
    means_bytes();
    return 0;
}
