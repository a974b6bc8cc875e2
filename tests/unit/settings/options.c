/* options.c and config.c: every row of options.def, bad values, unknown names, the words of
 * `allowed` in the order of the enumerations; the file, its mistakes, and what goes before what. */
#include "interpose/core/settings/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/text.h"
#include "interpose/core/settings/config.h"
#include "tests/common/check.h"

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
    CHECK(options.policy == AG_POLICY_AUTO && options.free_mode == AG_FREE_AUTO);
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
            CHECK_SAID(strcmp(info->name, ag_option_info(j)->name), "%s is there twice",
                       info->name);
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
    size_t offset, size;  /* of the member, read as a number */
    const char *words[6]; /* by the value of the enumeration */
};

#define MEMBER(member) offsetof(struct ag_options, member), sizeof(((struct ag_options *)0)->member)

static const struct words expected_words[] = {
    {"ALLOGRAFT_POLICY",
     MEMBER(policy),
     {[AG_POLICY_AUTO] = "auto",
      [AG_POLICY_POOL] = "pool",
      [AG_POLICY_NATIVE] = "native",
      [AG_POLICY_MANAGED] = "managed"}},
    {"ALLOGRAFT_ON_ERROR",
     MEMBER(on_error),
     {[AG_ON_ERROR_NOTE] = "note", [AG_ON_ERROR_REPORT] = "report", [AG_ON_ERROR_EXIT] = "exit"}},
    {"ALLOGRAFT_COPY", MEMBER(copy), {[AG_COPY_BY_DRIVER] = "driver", [AG_COPY_BY_CREW] = "auto"}},
    {"ALLOGRAFT_WAIT",
     MEMBER(wait),
     {[AG_WAIT_MODE_NATIVE] = "native",
      [AG_WAIT_MODE_SLEEP] = "sleep",
      [AG_WAIT_MODE_AUTO] = "auto"}},
    {"ALLOGRAFT_FREE",
     MEMBER(free_mode),
     {[AG_FREE_AUTO] = "auto", [AG_FREE_ORDERED] = "ordered", [AG_FREE_SYNC] = "sync"}},
    {"ALLOGRAFT_HOST",
     MEMBER(host),
     {[AG_HOST_NATIVE] = "native", [AG_HOST_CACHE] = "cache", [AG_HOST_FAST] = "fast"}},
    {"ALLOGRAFT_LOG",
     MEMBER(log),
     {[AG_LOG_OFF] = "off",
      [AG_LOG_ERROR] = "error",
      [AG_LOG_WARN] = "warn",
      [AG_LOG_INFO] = "info",
      [AG_LOG_DEBUG] = "debug"}},
    {"ALLOGRAFT_MANAGED_BACKEND",
     MEMBER(managed_backend),
     {[AG_MANAGED_AUTO] = "auto", [AG_MANAGED_PLAIN] = "plain", [AG_MANAGED_POOL] = "pool"}},
    {"ALLOGRAFT_PREFER",
     MEMBER(prefer.kind),
     {[AG_PREFER_DEVICE] = "device",
      [AG_PREFER_HOST] = "host",
      [AG_PREFER_NUMA] = "numa:N",
      [AG_PREFER_NONE] = "none"}},
    {"ALLOGRAFT_ACCESS",
     MEMBER(access),
     {[AG_ACCESS_DEVICE] = "device", [AG_ACCESS_PEERS] = "peers", [AG_ACCESS_NONE] = "none"}},
    {"ALLOGRAFT_PREFETCH",
     MEMBER(prefetch),
     {[AG_PREFETCH_ALLOC] = "alloc", [AG_PREFETCH_LAUNCH] = "launch", [AG_PREFETCH_OFF] = "off"}},
    {"ALLOGRAFT_GUARD",
     MEMBER(guard),
     {[AG_GUARD_OFF] = "off",
      [AG_GUARD_POISON] = "poison",
      [AG_GUARD_CANARY] = "canary",
      [AG_GUARD_PAGE] = "page"}},
    {"ALLOGRAFT_OOM",
     MEMBER(oom),
     {[AG_OOM_ERROR] = "error", [AG_OOM_SPILL] = "spill", [AG_OOM_PAGE] = "page"}},
    {"ALLOGRAFT_DISABLE", MEMBER(disable), {[false] = "0", [true] = "1"}},
    {"ALLOGRAFT_WAITS", MEMBER(waits), {[false] = "0", [true] = "1"}},
    {"ALLOGRAFT_READ_MOSTLY", MEMBER(read_mostly), {[false] = "0", [true] = "1"}},
    {"ALLOGRAFT_UNSPILL", MEMBER(unspill), {[false] = "0", [true] = "1"}},
    {"ALLOGRAFT_OVERSUBSCRIBE", MEMBER(oversubscribe), {[false] = "0", [true] = "1"}},
    {"ALLOGRAFT_GRAPH_PROFIT", MEMBER(graph_profit), {[false] = "0", [true] = "1"}},
    {"ALLOGRAFT_GRAPH_ITERATION",
     MEMBER(graph_iteration.kind),
     {[AG_ITERATION_AUTO] = "auto",
      [AG_ITERATION_SYNC] = "sync",
      [AG_ITERATION_NVTX] = "nvtx:NAME"}},
    {"ALLOGRAFT_GRAPH_SEGMENT",
     MEMBER(graph_segment.kind),
     {[AG_SEGMENT_GROWING] = "growing", [AG_SEGMENT_FIXED] = "4..4096"}},
};

/* Word i of `allowed` is the enumeration's value i, in small and in capital letters. */
static void words_follow_the_enumerations(void)
{
    for (size_t row = 0; row < N_OF(expected_words); row++) {
        const struct words *expected = &expected_words[row];

        for (unsigned i = 0; i < N_OF(expected->words); i++) {
            const char *word = expected->words[i];
            struct ag_options options;
            char in_list[32], variable[64];
            unsigned value = 0;

            CHECK_SAID(nth_word(allowed_of(expected->name), i, in_list, sizeof(in_list)) ==
                           (word != NULL),
                       "%s has another number of words", expected->name);
            if (!word)
                break;
            CHECK_SAID(!strcmp(word, in_list), "%s: word %u is %s", expected->name, i, in_list);
            if (!strcmp(word, "numa:N"))
                word = "numa:7";
            if (!strcmp(word, "4..4096"))
                word = "77";
            snprintf(variable, sizeof(variable), "%s=%s", expected->name, word);
            for (char *c = strchr(variable, '='); *c; c++)
                *c = (char)(*c >= 'a' && *c <= 'z' && i % 2 ? *c - 32 : *c);
            CHECK_SAID(read_these(&options, variable, NULL) == 0 && !n_told, "%s", variable);
            memcpy(&value, (char *)&options + expected->offset, expected->size);
            CHECK_SAID(value == i, "%s gave %u", variable, value);
        }
    }
}

/* No enumeration or switch of the list was forgotten above. */
static void every_word_is_expected(void)
{
    static const char *const others[] = {"SIZE",  "TEXT",          "PATH",
                                         "RULES", "STREAMS",       "COUNT",
                                         "BYTES", "WORD_OR_COUNT", "WORD_OR_BYTES"};

    for (size_t i = 0; i < ag_options_count(); i++) {
        bool met = false;

        for (size_t j = 0; j < N_OF(others); j++)
            met = met || !strcmp(ag_option_info(i)->type, others[j]);
        for (size_t j = 0; j < N_OF(expected_words); j++)
            met = met || !strcmp(ag_option_info(i)->name, expected_words[j].name);
        CHECK_SAID(met, "%s is not tested", ag_option_info(i)->name);
    }
}

static void reads_numa_nodes(void)
{
    struct ag_options options;

    CHECK(read_these(&options, "ALLOGRAFT_PREFER=numa:0", NULL) == 0);
    CHECK(options.prefer.kind == AG_PREFER_NUMA && options.prefer.node == 0);
    CHECK(read_these(&options, "ALLOGRAFT_PREFER=NUMA:12", NULL) == 0 && options.prefer.node == 12);
    CHECK(read_these(&options, "ALLOGRAFT_PREFER=host", NULL) == 0 && options.prefer.node == 0);
    CHECK(read_these(&options, "ALLOGRAFT_PREFER=numa:", NULL) == -EINVAL);
    CHECK(read_these(&options, "ALLOGRAFT_PREFER=numa:1x", NULL) == -EINVAL);
    CHECK(read_these(&options, "ALLOGRAFT_PREFER=numa:2147483648", NULL) == -EINVAL);
}

static void reads_sizes_and_text(void)
{
    struct ag_options options;
    char cache[] = "ALLOGRAFT_CACHE=1.5GiB", stats[] = "ALLOGRAFT_STATS=/tmp/a=b.json";

    CHECK(read_these(&options, cache, stats) == 0 && n_told == 0);
    CHECK(options.cache.value == 3ull << 29 && !options.cache.percent);
    CHECK(!strcmp(options.stats.text, "/tmp/a=b.json"));
    CHECK(read_these(&options, "ALLOGRAFT_STATS=0", "ALLOGRAFT_COUNTERS=None") == 0 && n_told == 0);
    CHECK(!strcmp(options.stats.text, "off") && !strcmp(options.counters.text, "off"));
    CHECK(read_these(&options, "ALLOGRAFT_TRACE=false", "ALLOGRAFT_STATS=./0") == 0);
    CHECK(!*options.trace.text && !strcmp(options.stats.text, "./0"));
    CHECK(read_these(&options, "ALLOGRAFT_PENDING=80%", "ALLOGRAFT_POOL_KEEP=0") == 0);
    CHECK(options.pending.value == 80 && options.pending.percent && options.pool_keep.value == 0);
}

/* Each row refuses what it cannot be; the default stands in its place, one line says all. */
static void refuses_bad_values(void)
{
    static const char *const bad[] = {"",    "poo", "pooll", "pool|native", "2",    "-1",
                                      "yes", " 0",  "200%",  "1 GiB",       "%n%s", "\xff"};
    struct ag_options options;
    char why[300], variable[100];

    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *info = ag_option_info(i);
        bool is_text = !strcmp(info->type, "TEXT"), is_size = !strcmp(info->type, "SIZE");
        bool is_count = !strcmp(info->type, "COUNT") || !strncmp(info->type, "WORD_OR_", 8) ||
                        !strncmp(info->allowed, "0..", 3) || i == AG_OPTION_STACKS_SAMPLE;

        if (!strcmp(info->type, "RULES") || !strcmp(info->type, "PATH") ||
            !strcmp(info->type, "STREAMS"))
            continue; /* below */

        for (size_t j = 0; j < N_OF(bad); j++) {
            if ((is_text && j > 0) || ((is_size || is_count) && !strcmp(bad[j], "2")))
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
    CHECK(options.policy == AG_POLICY_AUTO && options.free_mode == AG_FREE_SYNC && n_told == 1);
    CHECK(ag_option_check("ALLOGRAFT_POLICY", "pol", why, 8) == -EINVAL && strlen(why) == 7);
}

static void reads_rules(void)
{
    static char too_long[AG_TEXT_MAX + 30] = "ALLOGRAFT_CONFIG=/";
    struct ag_options options;
    char why[300];

    CHECK(read_these(&options, "ALLOGRAFT_RULES=nth=1:native; *:pool", NULL) == 0 && !n_told);
    CHECK(options.rules.n == 2 && options.rules.needs == AG_NEED_NTH);
    CHECK(read_these(&options, "ALLOGRAFT_RULES=", "ALLOGRAFT_CONFIG=") == 0 && !n_told);
    CHECK(options.rules.n == 0 && !*options.config.text);
    CHECK(read_these(&options, "ALLOGRAFT_RULES=OFF", "ALLOGRAFT_CONFIG=Off") == 0 && !n_told);
    CHECK(options.rules.n == 0 && !*options.config.text);
    CHECK(read_these(&options, "ALLOGRAFT_RULES=nth=1:natve", "ALLOGRAFT_FREE=sync") == -EINVAL);
    CHECK(n_told == 1 && told[0].level == AG_LOG_ERROR && options.rules.n == 0);
    CHECK_SAID(!strncmp(told[0].line, "ALLOGRAFT_RULES: column 7: unknown action \"natve\"; ", 49),
               "%s", told[0].line);
    CHECK(ag_option_check("ALLOGRAFT_RULES", "nth=1:natve", why, sizeof(why)) == -EINVAL);
    CHECK_SAID(!strcmp(why, told[0].line), "%s", why);
    CHECK(ag_option_check("ALLOGRAFT_RULES", "nth=1:native", why, sizeof(why)) == 0);
    memset(too_long + 18, 'x', sizeof(too_long) - 19);
    CHECK(read_these(&options, too_long, NULL) == -EINVAL && n_told == 1);
}

/* Counts and sizes hold to the ends of the range that `allowed` names. */
static void reads_ranges(void)
{
    static const struct {
        char *good, *bad;
        uint64_t value;
        size_t offset, size;
    } cases[] = {
        {"ALLOGRAFT_GRAPH_WARMUP=1", "ALLOGRAFT_GRAPH_WARMUP=0", 1, MEMBER(graph_warmup)},
        {"ALLOGRAFT_GRAPH_WARMUP=1000", "ALLOGRAFT_GRAPH_WARMUP=1001", 1000, MEMBER(graph_warmup)},
        {"ALLOGRAFT_GRAPH_WARMUP=auto", "ALLOGRAFT_GRAPH_WARMUP=off", 0, MEMBER(graph_warmup)},
        {"ALLOGRAFT_GRAPH_HOLD_US=10", "ALLOGRAFT_GRAPH_HOLD_US=9", 10, MEMBER(graph_hold_us)},
        {"ALLOGRAFT_GRAPH_HOLD_US=60000000", "ALLOGRAFT_GRAPH_HOLD_US=60000001", 60000000,
         MEMBER(graph_hold_us)},
        {"ALLOGRAFT_GRAPH_GRAPHS=65536", "ALLOGRAFT_GRAPH_GRAPHS=65537", 65536,
         MEMBER(graph_graphs)},
        {"ALLOGRAFT_GRAPH_GRAPHS=1", "ALLOGRAFT_GRAPH_GRAPHS=0", 1, MEMBER(graph_graphs)},
        {"ALLOGRAFT_GRAPH_STAGING=4096", "ALLOGRAFT_GRAPH_STAGING=4097", 4096,
         MEMBER(graph_staging)},
        {"ALLOGRAFT_GRAPH_STAGING=1", "ALLOGRAFT_GRAPH_STAGING=0", 1, MEMBER(graph_staging)},
        {"ALLOGRAFT_GRAPH_VERIFY=0", "ALLOGRAFT_GRAPH_VERIFY=1000001", 0, MEMBER(graph_verify)},
        {"ALLOGRAFT_GRAPH_STAGING_SLOT=4096", "ALLOGRAFT_GRAPH_STAGING_SLOT=4095", 4096,
         MEMBER(graph_staging_slot)},
        {"ALLOGRAFT_GRAPH_STAGING_SLOT=64MiB", "ALLOGRAFT_GRAPH_STAGING_SLOT=65MiB", 64 << 20,
         MEMBER(graph_staging_slot)},
        {"ALLOGRAFT_GRAPH_STAGING_SLOT=1.5MiB", "ALLOGRAFT_GRAPH_STAGING_SLOT=50%", 3 << 19,
         MEMBER(graph_staging_slot)},
        {"ALLOGRAFT_GRAPH_STAGING_SLOT=8k", "ALLOGRAFT_GRAPH_STAGING_SLOT=max", 8192,
         MEMBER(graph_staging_slot)},
        {"ALLOGRAFT_GRAPH_WARMUP=0007", "ALLOGRAFT_GRAPH_WARMUP=18446744073709551618", 7,
         MEMBER(graph_warmup)},
        {"ALLOGRAFT_GRAPH_SEGMENT=4", "ALLOGRAFT_GRAPH_SEGMENT=3", 4, MEMBER(graph_segment.n)},
        {"ALLOGRAFT_GRAPH_SEGMENT=4096", "ALLOGRAFT_GRAPH_SEGMENT=4097", 4096,
         MEMBER(graph_segment.n)},
    };
    struct ag_options options;

    for (size_t i = 0; i < N_OF(cases); i++) {
        uint64_t value = 0;

        CHECK_SAID(read_these(&options, cases[i].good, NULL) == 0 && !n_told, "%s", cases[i].good);
        memcpy(&value, (char *)&options + cases[i].offset, cases[i].size);
        CHECK_SAID(value == cases[i].value, "%s gave %llu", cases[i].good,
                   (unsigned long long)value);
        CHECK_SAID(read_these(&options, cases[i].bad, NULL) == -EINVAL && n_told == 1, "%s",
                   cases[i].bad);
        CHECK_SAID(strstr(told[0].line, cases[i].bad) && strstr(told[0].line, "; allowed: "), "%s",
                   told[0].line);
    }
    CHECK(read_these(&options, NULL, NULL) == 0 && options.graph_segment.n == 0);
    CHECK(options.graph_warmup == 0 && options.graph_hold_us == 200 && options.graph_graphs == 512);
    CHECK(options.graph_memory.value == 256 << 20 && options.graph_staging == 64);
    CHECK(options.graph_staging_slot == 256 << 10 && options.graph_profit && !options.graph_verify);
    CHECK(!options.graph.n && !*options.graph_dump.text);
}

static void reads_streams(void)
{
    struct ag_options options;

    CHECK(read_these(&options, "ALLOGRAFT_GRAPH=all", NULL) == 0 && options.graph.n == 1);
    CHECK(options.graph.word[0].kind == AG_STREAMS_ALL);
    CHECK(read_these(&options, "ALLOGRAFT_GRAPH=off", NULL) == 0 && options.graph.n == 0);
    CHECK(read_these(&options, "ALLOGRAFT_GRAPH=", NULL) == 0 && options.graph.n == 0);
    CHECK(read_these(&options,
                     "ALLOGRAFT_GRAPH= Legacy\t,PER-THREAD,nonBlocking , priority:-5,"
                     "Priority:0,nth:4294967295,name:my *,name:off",
                     NULL) == 0 &&
          !n_told);
    CHECK(options.graph.n == 8);
    for (unsigned i = 0; i < 3; i++)
        CHECK(options.graph.word[i].kind == (enum ag_stream_word_kind)(AG_STREAMS_LEGACY + i));
    CHECK(options.graph.word[3].kind == AG_STREAMS_PRIORITY && options.graph.word[3].number == -5);
    CHECK(options.graph.word[4].kind == AG_STREAMS_PRIORITY && options.graph.word[4].number == 0);
    CHECK(options.graph.word[5].kind == AG_STREAMS_NTH &&
          options.graph.word[5].number == UINT32_MAX);
    CHECK(options.graph.word[6].kind == AG_STREAMS_NAME &&
          !strcmp(options.graph.word[6].name, "my *"));
    CHECK(options.graph.word[7].kind == AG_STREAMS_NAME &&
          !strcmp(options.graph.word[7].name, "off"));
}

static void refuses_bad_streams(void)
{
    static const char forms[] = "off, or of all|legacy|per-thread|nonblocking|priority:N|nth:K|"
                                "name:GLOB one or more, separated by commas";
    static const struct {
        const char *text, *place;
    } cases[] = {
        {"al", "column 1: \"al\""},
        {"all,", "column 5: \"\""},
        {",all", "column 1: \"\""},
        {"all, off", "column 6: \"off\""},
        {"off,all", "column 1: \"off\""},
        {" ", "column 2: \"\""},
        {"legacy,  nth:0 ,all", "column 10: \"nth:0\""},
        {"nth:", "column 1: \"nth:\""},
        {"nth:-1", "column 1: \"nth:-1\""},
        {"nth:4294967296", "column 1: \"nth:4294967296\""},
        {"priority:", "column 1: \"priority:\""},
        {"priority:-", "column 1: \"priority:-\""},
        {"priority:+1", "column 1: \"priority:+1\""},
        {"priority:1001", "column 1: \"priority:1001\""},
        {"name:", "column 1: \"name:\""},
        {"all legacy", "column 1: \"all legacy\""},
        {"1", "column 1: \"1\""},
    };
    char why[400], expected[400], text[2000] = "name:";
    struct ag_options options;

    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(expected, sizeof(expected), "ALLOGRAFT_GRAPH: %s is not allowed; allowed: %s%s",
                 cases[i].place, forms, i ? "" : "; did you mean all?");
        CHECK(ag_option_check("ALLOGRAFT_GRAPH", cases[i].text, why, sizeof(why)) == -EINVAL);
        CHECK_SAID(!strcmp(why, expected), "%s\n not %s", why, expected);
    }
    memset(text + 5, 'x', 63);
    CHECK(ag_option_check("ALLOGRAFT_GRAPH", text, why, sizeof(why)) == 0);
    memset(text + 5, 'x', 64);
    CHECK(ag_option_check("ALLOGRAFT_GRAPH", text, why, sizeof(why)) == -EINVAL);
    memset(text + 5, 'x', 1900);
    CHECK(ag_option_check("ALLOGRAFT_GRAPH", text, why, sizeof(why)) == -EINVAL &&
          strstr(why, "allowed:"));
    strcpy(text, "nth:1");
    for (unsigned i = 1; i < AG_MAX_STREAM_WORDS; i++)
        strcat(text, ",nth:1");
    CHECK(ag_option_check("ALLOGRAFT_GRAPH", text, why, sizeof(why)) == 0);
    strcat(text, ",nth:2");
    CHECK(ag_option_check("ALLOGRAFT_GRAPH", text, why, sizeof(why)) == -EINVAL);
    CHECK_SAID(
        !strcmp(why,
                "ALLOGRAFT_GRAPH: column 97: \"nth:2\" is not allowed; allowed: up to 16 words"),
        "%s", why);
    CHECK(read_these(&options, "ALLOGRAFT_GRAPH=all,x", NULL) == -EINVAL && n_told == 1 &&
          !options.graph.n);
}

static void reads_frames(void)
{
    static const char *const bad[] = {"0", "65", "-1", "16 ", "on", "16KiB", ""};
    struct ag_options options;
    char why[300];

    CHECK(read_these(&options, NULL, NULL) == 0);
    CHECK(options.stacks == 0 && options.stacks_sample == 0);
    CHECK(read_these(&options, "ALLOGRAFT_STACKS=1", "ALLOGRAFT_STACKS_SAMPLE=512KiB") == 0);
    CHECK(options.stacks == 1 && options.stacks_sample == 512 << 10);
    CHECK(read_these(&options, "ALLOGRAFT_STACKS=64", NULL) == 0);
    CHECK(options.stacks == 64);
    CHECK(read_these(&options, "ALLOGRAFT_STACKS=Off", NULL) == 0);
    CHECK(options.stacks == 0);
    for (size_t i = 0; i < N_OF(bad); i++) {
        CHECK(ag_option_check("ALLOGRAFT_STACKS", bad[i], why, sizeof(why)) == -EINVAL);
        CHECK_SAID(strstr(why, "off|1..64"), "%s", why);
    }
    CHECK(ag_option_check("ALLOGRAFT_STACKS_SAMPLE", "2GiB", why, sizeof(why)) == -EINVAL);
}

static void reads_iterations(void)
{
    static const char *const bad[] = {"nvtx:", "nvtx:@d", "nvtx", "nvtx :x", "sync,auto", ""};
    char why[300], text[200] = "nvtx:";
    struct ag_options options;

    CHECK(read_these(&options, "ALLOGRAFT_GRAPH_ITERATION=nvtx:train step*", NULL) == 0);
    CHECK(options.graph_iteration.kind == AG_ITERATION_NVTX);
    CHECK(!strcmp(options.graph_iteration.name, "train step*"));
    CHECK(!strcmp(options.graph_iteration.domain, "*"));
    CHECK(read_these(&options, "ALLOGRAFT_GRAPH_ITERATION=NVTX:a@b@My.Domain", NULL) == 0);
    CHECK(!strcmp(options.graph_iteration.name, "a@b") &&
          !strcmp(options.graph_iteration.domain, "My.Domain"));
    CHECK(read_these(&options, "ALLOGRAFT_GRAPH_ITERATION=nvtx:a@", NULL) == 0);
    CHECK(!strcmp(options.graph_iteration.name, "a") && !*options.graph_iteration.domain);
    for (size_t i = 0; i < N_OF(bad); i++)
        CHECK_SAID(ag_option_check("ALLOGRAFT_GRAPH_ITERATION", bad[i], why, sizeof(why)) ==
                           -EINVAL &&
                       strstr(why, "; allowed: auto|sync|nvtx:NAME"),
                   "%s", bad[i]);
    memset(text + 5, 'x', 63);
    CHECK(ag_option_check("ALLOGRAFT_GRAPH_ITERATION", text, why, sizeof(why)) == 0);
    text[68] = 'x';
    CHECK(ag_option_check("ALLOGRAFT_GRAPH_ITERATION", text, why, sizeof(why)) == -EINVAL);
    text[6] = '@';
    CHECK(ag_option_check("ALLOGRAFT_GRAPH_ITERATION", text, why, sizeof(why)) == 0);
    text[69] = text[70] = 'x';
    CHECK(ag_option_check("ALLOGRAFT_GRAPH_ITERATION", text, why, sizeof(why)) == -EINVAL);
}

static bool asks_for_nvtx(char *first, char *second)
{
    struct ag_options options;

    CHECK(read_these(&options, first, second) == 0);
    return ag_options_ask_for_nvtx(&options);
}

static void knows_who_asks_for_nvtx(void)
{
    CHECK(!asks_for_nvtx("ALLOGRAFT_GRAPH=all", NULL) && !asks_for_nvtx(NULL, NULL));
    CHECK(asks_for_nvtx("ALLOGRAFT_GRAPH=legacy,name:x", NULL));
    CHECK(asks_for_nvtx("ALLOGRAFT_GRAPH=all", "ALLOGRAFT_GRAPH_ITERATION=nvtx:x"));
    CHECK(!asks_for_nvtx("ALLOGRAFT_GRAPH=off", "ALLOGRAFT_GRAPH_ITERATION=nvtx:x"));
    CHECK(!asks_for_nvtx("ALLOGRAFT_GRAPH=name:x", "ALLOGRAFT_DISABLE=1"));
}

static bool is_disabled(char *first, char *second)
{
    char *environment[] = {"A=ALLOGRAFT_DISABLE=1", first, second, NULL};

    return ag_options_are_disabled(environment);
}

static void knows_early_who_is_disabled(void)
{
    CHECK(!is_disabled(NULL, NULL) && !ag_options_are_disabled(NULL));
    CHECK(is_disabled("ALLOGRAFT_DISABLE=1", NULL) && !is_disabled("ALLOGRAFT_DISABLE=0", NULL));
    CHECK(is_disabled("ALLOGRAFT_CONFIG=/some/where", "ALLOGRAFT_DISABLE=1"));
    CHECK(!is_disabled("ALLOGRAFT_DISABLE=maybe", NULL) &&
          !is_disabled("ALLOGRAFT_DISABLE=", NULL));
    CHECK(is_disabled("ALLOGRAFT_DISABLE=1", "ALLOGRAFT_DISABLE=0")); /* the first counts */
}

static bool watches(char *first, char *second)
{
    struct ag_options options;

    CHECK(read_these(&options, first, second) == 0);
    return ag_options_watch_launches(&options);
}

static void knows_who_watches_launches(void)
{
    CHECK(!watches(NULL, NULL) && !watches("ALLOGRAFT_PREFETCH=alloc", NULL));
    CHECK(watches("ALLOGRAFT_PREFETCH=LAUNCH", NULL));
    CHECK(watches("ALLOGRAFT_RULES=*:managed,prefetch=launch", NULL));
    CHECK(watches("ALLOGRAFT_RULES=*:prefetch=off;*:Prefetch \t=\n Launch ;", NULL));
    CHECK(!watches("ALLOGRAFT_RULES=from=prefetch=launch:pool", NULL)); /* a library's name */
    CHECK(!watches("ALLOGRAFT_RULES=*:prefetch=alloc", "ALLOGRAFT_POLICY=managed"));
    CHECK(watches("ALLOGRAFT_RULES=*:prefetch=alloc", "ALLOGRAFT_PREFETCH=launch"));
}

/* --- the file --- */

/* Reads this text as a file's; the result, and what was told. */
static int read_text(struct ag_options *ret, const char *text)
{
    static char copy[8192];

    n_told = 0;
    memset(ret, 0xee, sizeof(*ret));
    snprintf(copy, sizeof(copy), "%s", text);
    return ag_options_read_text("a.conf", copy, strlen(copy), ret, tell);
}

static void reads_a_file(void)
{
    struct ag_options options;
    char origin[100];

    CHECK(read_text(&options, "") == 0 && !n_told && options.policy == AG_POLICY_AUTO);
    CHECK(read_text(&options, "\xef\xbb\xbfPOLICY = pool") == 0 &&
          options.policy == AG_POLICY_POOL);
    CHECK(read_text(&options, "\xef\xbb\xbf# a comment") == 0 && !n_told);
    CHECK(read_text(&options, "# a comment\n\n  # another = one\r\n\tPOLICY = managed \r\n"
                              "ALLOGRAFT_FREE=sync\nallograft_cache=1MiB\nRULES = nth=1:native;\n"
                              "unspill=1\nrules=*:pool\nSTATS= a # b = c.json") == 0);
    CHECK_SAID(n_told == 0, "%s", told[0].line);
    CHECK(options.policy == AG_POLICY_MANAGED && options.free_mode == AG_FREE_SYNC);
    CHECK(options.cache.value == 1 << 20 && options.unspill && options.rules.n == 2);
    CHECK(options.rules.rule[0].params.policy == AG_POLICY_NATIVE);
    CHECK(!strcmp(options.stats.text, "a # b = c.json"));
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_POLICY), "managed"));
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_LIMIT), "max"));
    CHECK_SAID(!strcmp(ag_option_value(&options, AG_OPTION_RULES), "nth=1:native;; *:pool"), "%s",
               ag_option_value(&options, AG_OPTION_RULES));
    CHECK(options.origins[AG_OPTION_POLICY].kind == AG_ORIGIN_FILE);
    CHECK(options.origins[AG_OPTION_POLICY].line == 4 &&
          options.origins[AG_OPTION_RULES].line == 7);
    strcpy(options.config.text, "/etc/a.conf"); /* which ag_options_read() does */
    CHECK(!strcmp(ag_option_origin(&options, AG_OPTION_POLICY, origin, sizeof(origin)),
                  "/etc/a.conf:4"));
    CHECK(!strcmp(ag_option_origin(&options, AG_OPTION_LIMIT, origin, sizeof(origin)), "default"));
}

/* Each mistake is told with its place, and the other lines count. */
static void refuses_bad_lines(void)
{
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"POLICY",
         "a.conf:1: column 7: no '=' behind \"POLICY\"; allowed: NAME=value, or # and a comment"},
        {"\n  POLICY  \n",
         "a.conf:2: column 11: no '=' behind \"POLICY\"; allowed: NAME=value, or # and a comment"},
        {"\n\n =pool", "a.conf:3: column 2: no name before '='; allowed: NAME=value"},
        {"POLICY = fast",
         "a.conf:1: column 10: POLICY=fast is not allowed; allowed: auto|pool|native|managed"},
        {"POLICY=",
         "a.conf:1: column 8: POLICY= is not allowed; allowed: auto|pool|native|managed"},
        {"  POLCY=pool", "a.conf:1: column 3: unknown setting POLCY; did you mean POLICY?"},
        {"ALLOGRAFT_LIMT=1",
         "a.conf:1: column 1: unknown setting ALLOGRAFT_LIMT; did you mean LIMIT?"},
        {"ALLOGRAFT_LIBRARY=/x.so", NULL},
        {"export POLICY=pool", NULL},
        {"CONFIG=b.conf",
         "a.conf:1: column 1: CONFIG names another file; allowed: all other settings"},
        {"FREE=sync\n\nALLOGRAFT_FREE=auto",
         "a.conf:3: column 1: FREE was set in line 1; allowed: once"},
        {"STATS=\"x.json\"",
         "a.conf:1: column 7: a quotation mark; allowed: the value without any"},
        {"RULES='*:pool'", "a.conf:1: column 7: a quotation mark; allowed: the value without any"},
        {"RULES=*:pool\n RULES = nth=1,szie>1:pool\n",
         "a.conf:2: column 16: unknown condition \"szie\"; allowed: size, device, from, nth, "
         "thread, call, *; "
         "did you mean size?"},
        {"FREE=s\x01\x7f",
         "a.conf:1: column 6: FREE=s?? is not allowed; allowed: auto|ordered|sync"},
    };
    struct ag_options options;
    char text[300];

    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(text, sizeof(text), "%s\nLIMIT=1GiB\n", cases[i].text);
        CHECK_SAID(read_text(&options, text) == -EINVAL && n_told == 1, "%s", text);
        CHECK(told[0].level == AG_LOG_ERROR && options.limit.value == 1 << 30);
        CHECK_SAID(!cases[i].line || !strcmp(told[0].line, cases[i].line), "%s\n gave %s\n not  %s",
                   text, told[0].line, cases[i].line);
    }
    CHECK(ag_options_read_text("b", (char[]){"FREE=sync\nA\0=1\nLOG=off"}, 22, &options, tell) ==
          -EINVAL);
    CHECK_SAID(!strcmp(told[1].line, "b:2: column 2: a NUL byte; allowed: text"), "%s",
               told[1].line);
    CHECK(options.free_mode == AG_FREE_SYNC && options.log == AG_LOG_WARN && n_told == 2);
}

static char folder[] = "/tmp/unit-options-XXXXXX", config_path[60];

static void write_config(const char *text, size_t length)
{
    int fd = open(config_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHECK(write(fd, text, length) == (ssize_t)length && !close(fd));
}

/* Reads an environment that names the file, and one variable more. */
static int read_with_config(struct ag_options *ret, char *more)
{
    static char variable[100];

    snprintf(variable, sizeof(variable), "ALLOGRAFT_CONFIG=%s", config_path);
    return read_these(ret, variable, more);
}

static void the_environment_goes_before_the_file(void)
{
    static const char text[] = "POLICY=native\nRULES=nth=1:pool\nRULES=nth=2:pool\nLIMIT=2GiB\n";
    struct ag_options options;
    char origin[100], expected[100];

    write_config(text, strlen(text));
    CHECK(read_with_config(&options, NULL) == 0 && !n_told);
    CHECK(options.policy == AG_POLICY_NATIVE && options.rules.n == 2 &&
          options.limit.value == 2ull << 30);
    snprintf(expected, sizeof(expected), "%s:2", config_path);
    CHECK(!strcmp(ag_option_origin(&options, AG_OPTION_RULES, origin, sizeof(origin)), expected));
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_CONFIG), config_path));
    CHECK(read_with_config(&options, "ALLOGRAFT_RULES=thread=x:managed") == 0 && !n_told);
    CHECK(options.rules.n == 1 && options.rules.needs == AG_NEED_THREAD);
    CHECK(options.policy == AG_POLICY_NATIVE);
    CHECK(!strcmp(ag_option_origin(&options, AG_OPTION_RULES, origin, sizeof(origin)),
                  "environment"));
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_RULES), "thread=x:managed"));
    CHECK(read_with_config(&options, "ALLOGRAFT_RULES=") == 0 && options.rules.n == 0);
    CHECK(read_with_config(&options, "ALLOGRAFT_POLICY=pool") == 0 &&
          options.policy == AG_POLICY_POOL);
    CHECK(options.origins[AG_OPTION_POLICY].kind == AG_ORIGIN_ENVIRONMENT);
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_POLICY), "pool"));
}

static void refuses_bad_files(void)
{
    static char large[AG_CONFIG_MAX + 1];
    struct ag_options options;
    char expected[200];

    memset(large, '\n', sizeof(large));
    memcpy(large, "LIMIT=1", 7);
    write_config(large, sizeof(large) - 1);
    CHECK(read_with_config(&options, NULL) == 0 && options.limit.value == 1);
    write_config(large, sizeof(large));
    CHECK(read_with_config(&options, NULL) == -EINVAL && n_told == 1 && options.limit.value != 1);
    snprintf(expected, sizeof(expected), "ALLOGRAFT_CONFIG=%s too large; allowed: 65536 bytes",
             config_path);
    CHECK_SAID(!strcmp(told[0].line, expected), "%s", told[0].line);
    unlink(config_path);
    CHECK(read_with_config(&options, NULL) == -EINVAL && n_told == 1);
    snprintf(expected, sizeof(expected),
             "ALLOGRAFT_CONFIG=%s cannot be read: No such file or directory", config_path);
    CHECK_SAID(!strcmp(told[0].line, expected), "%s", told[0].line);
    CHECK(!mkfifo(config_path, 0600)); /* nobody writes: reading would wait for ever */
    CHECK(read_with_config(&options, NULL) == -EINVAL && n_told == 1);
    CHECK(strstr(told[0].line, "no regular file"));
    unlink(config_path);
    CHECK(read_these(&options, "ALLOGRAFT_CONFIG=/", NULL) == -EINVAL && n_told == 1);
}

/* Values are copies, since programs write over their environment; what is too much is cut. */
static void keeps_the_texts(void)
{
    static char rules[] = "ALLOGRAFT_RULES=nth=1:native", size[30000] = "ALLOGRAFT_LIMIT=";
    static char longer[30000] = "ALLOGRAFT_RULES=*:pool;";
    struct ag_options options;

    memset(size + 16, '0', sizeof(size) - 17);
    CHECK(read_these(&options, rules, size) == 0);
    memset(rules, 'x', sizeof(rules) - 1);
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_RULES), "nth=1:native"));
    CHECK(strlen(ag_option_value(&options, AG_OPTION_LIMIT)) == sizeof(options.texts) - 1);
    CHECK(!memcmp(ag_option_value(&options, AG_OPTION_LIMIT), "0000", 4));
    CHECK(read_these(&options, size, "ALLOGRAFT_LOG=off") == 0 && options.log == AG_LOG_OFF);
    CHECK(!*ag_option_value(&options, AG_OPTION_LOG)); /* no room was left */
    memset(longer + 23, ';', sizeof(longer) - 24);
    CHECK(read_these(&options, longer, "ALLOGRAFT_LOG=off") == 0 && options.rules.n == 1);
    CHECK(strlen(ag_option_value(&options, AG_OPTION_RULES)) == sizeof(options.rules_text) - 1);
    CHECK(!strcmp(ag_option_value(&options, AG_OPTION_LOG), "off"));
    /* Of two of one name the first, as for getenv(). */
    CHECK(read_these(&options, "ALLOGRAFT_LOG=info", "ALLOGRAFT_LOG=bad") == 0 && !n_told);
    CHECK(options.log == AG_LOG_INFO);
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
                       strstr(told[0].line, cases[i].nearest),
                   "%s", told[0].line);
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
    CHECK(options.policy == AG_POLICY_AUTO);
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
    every_word_is_expected();
    reads_numa_nodes();
    reads_sizes_and_text();
    refuses_bad_values();
    reads_rules();
    reads_ranges();
    reads_streams();
    refuses_bad_streams();
    reads_frames();
    reads_iterations();
    knows_who_asks_for_nvtx();
    knows_early_who_is_disabled();
    knows_who_watches_launches();
    reads_a_file();
    refuses_bad_lines();
    CHECK(mkdtemp(folder));
    snprintf(config_path, sizeof(config_path), "%s/a b.conf", folder);
    the_environment_goes_before_the_file();
    refuses_bad_files();
    rmdir(folder);
    keeps_the_texts();
    names_the_nearest();
    survives_odd_environments();
    finds_text_and_level();
    means_bytes();
    return 0;
}
