/* Environment blocks: strings separated by NUL bytes. Every member of the settings ends in its range,
 * what is told is one line each, and a value is bad exactly when the check of one value says so. */
#include "options.h"

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
    FUZZ_CHECK(!options->cache.percent || options->cache.value <= 100);
    FUZZ_CHECK(!options->pool_keep.percent || options->pool_keep.value <= 100);
    FUZZ_CHECK(!options->pending.percent || options->pending.value <= 100);
    FUZZ_CHECK(ag_size_bytes(options->cache, 1ull << 40) <= 1ull << 40 || !options->cache.percent);
}

/* How many of the strings set a variable of ours to a value that is not allowed. */
static unsigned count_bad(char **environment)
{
    unsigned n = 0;

    for (; *environment; environment++) {
        char *equals = strchr(*environment, '='), why[600];

        if (!equals || strncmp(*environment, "ALLOGRAFT_", 10) != 0)
            continue;
        *equals = '\0';
        n += ag_option_check(*environment, equals + 1, why, sizeof(why)) == -EINVAL;
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
    n_errors = 0;
    result = ag_options_read(environment, &options, tell);
    FUZZ_CHECK(result == (n_errors ? -EINVAL : 0) && n_errors == count_bad(environment));
    check_ranges(&options);
    FUZZ_CHECK(ag_options_log_level(environment) <= AG_LOG_DEBUG);
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *text = ag_option_text(environment, i);

        FUZZ_CHECK(!text || (text > block && text <= block + size));
    }
    free(block);
    return 0;
}
