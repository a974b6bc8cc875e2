/* Environment blocks: strings separated by NUL bytes. Every member of the settings ends in its
 * range, what is told is one line each, and a value is bad exactly when the check of one value says
 * so. Of a file of settings only the name is looked at: config.c is for those. */
#include "interpose/core/settings/options.h"

#include <errno.h>
#include <string.h>

#include "fuzz.h"

#define MOST_STRINGS 64u

static unsigned n_errors;

static void tell(enum ag_log_level level, const char *line)
{
    FUZZ_CHECK(level == AG_LOG_WARN || level == AG_LOG_ERROR);
    FUZZ_CHECK(strlen(line) < 1024 && *line && !strchr(line, '\n'));
    n_errors += level == AG_LOG_ERROR;
}

static void check_ranges(const struct ag_options *options)
{
    FUZZ_CHECK(options->policy <= AG_POLICY_MANAGED && options->free_mode <= AG_FREE_SYNC);
    FUZZ_CHECK(options->log <= AG_LOG_DEBUG);
    FUZZ_CHECK(options->managed_backend <= AG_MANAGED_POOL &&
               options->prefer.kind <= AG_PREFER_NONE);
    FUZZ_CHECK(options->access <= AG_ACCESS_NONE && options->prefetch <= AG_PREFETCH_OFF);
    FUZZ_CHECK(options->oom <= AG_OOM_PAGE && options->rules.n <= AG_MAX_RULES);
    FUZZ_CHECK(!options->cache.percent || options->cache.value <= 100);
    FUZZ_CHECK(!options->pool_keep.percent || options->pool_keep.value <= 100);
    FUZZ_CHECK(!options->pending.percent || options->pending.value <= 100);
    FUZZ_CHECK(options->graph.n <= AG_MAX_STREAM_WORDS &&
               options->graph_iteration.kind <= AG_ITERATION_NVTX);
    for (unsigned i = 0; i < options->graph.n; i++) {
        const struct ag_stream_word *word = &options->graph.word[i];

        FUZZ_CHECK(word->kind <= AG_STREAMS_NAME && memchr(word->name, 0, sizeof(word->name)));
        FUZZ_CHECK((word->kind == AG_STREAMS_NAME) == !!*word->name);
        FUZZ_CHECK(word->kind != AG_STREAMS_NTH ||
                   (word->number > 0 && word->number <= UINT32_MAX));
        FUZZ_CHECK(word->kind != AG_STREAMS_PRIORITY ||
                   (word->number >= -1000 && word->number <= 1000));
    }
    FUZZ_CHECK(memchr(options->graph_iteration.name, 0, AG_GLOB_MAX));
    FUZZ_CHECK(memchr(options->graph_iteration.domain, 0, AG_GLOB_MAX));
    FUZZ_CHECK((options->graph_iteration.kind == AG_ITERATION_NVTX) ==
               !!*options->graph_iteration.name);
    FUZZ_CHECK((options->graph_segment.kind == AG_SEGMENT_FIXED) ==
               (options->graph_segment.n >= 4));
    FUZZ_CHECK(options->graph_segment.kind <= AG_SEGMENT_FIXED && options->graph_segment.n <= 4096);
    FUZZ_CHECK(options->graph_warmup <= 1000);
    FUZZ_CHECK(options->graph_staging_slot >= 4096 && options->graph_staging_slot <= 64 << 20);
    FUZZ_CHECK(!ag_options_ask_for_nvtx(options) || options->graph.n);
    FUZZ_CHECK(ag_size_bytes(options->cache, 1ull << 40) <= 1ull << 40 || !options->cache.percent);
}

/* Is a variable of that name among the strings before `string`? */
static int met_before(char **environment, char **string, size_t length)
{
    for (; environment < string; environment++) {
        if (!strncmp(*environment, *string, length) && (*environment)[length] == '=')
            return 1;
    }
    return 0;
}

/* How many of the strings set a variable of ours, for the first time, to a value that is not
 * allowed. */
static unsigned count_bad(char **environment)
{
    unsigned n = 0;

    for (char **string = environment; *string; string++) {
        char *equals = strchr(*string, '='), why[600];

        if (!equals || strncmp(*string, "ALLOGRAFT_", 10) != 0 ||
            met_before(environment, string, (size_t)(equals - *string)))
            continue;
        *equals = '\0';
        n += ag_option_check(*string, equals + 1, why, sizeof(why)) == -EINVAL;
        *equals = '=';
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *block = malloc(size + 1), *environment[MOST_STRINGS + 1];
    struct ag_options options;
    size_t n = 0;
    int result;

    FUZZ_CHECK(block);
    if (size)
        memcpy(block, data, size);
    block[size] = '\0';
    for (char *string = block; string <= block + size && n < MOST_STRINGS;
         string += strlen(string) + 1)
        environment[n++] = string;
    environment[n] = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!strncmp(environment[i], "ALLOGRAFT_CONFIG=", 17) && environment[i][17])
            memcpy(environment[i] + 13, "IG2", 3); /* unknown, and no file is opened */
    }
    n_errors = 0;
    result = ag_options_read(environment, &options, tell);
    FUZZ_CHECK(result == (n_errors ? -EINVAL : 0) && n_errors == count_bad(environment));
    check_ranges(&options);
    FUZZ_CHECK(ag_options_log_level(environment) <= AG_LOG_DEBUG);
    FUZZ_CHECK(ag_options_are_disabled(environment) == options.disable);
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *text = ag_option_text(environment, i);

        FUZZ_CHECK(!text || (text > block && text <= block + size));
    }
    free(block);
    return 0;
}
