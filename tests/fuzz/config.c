/* Files of settings: each bad line is told with a place inside the file, each value in force comes
 * from a line that there is, and nothing is bad without having been told. */
#include "interpose/core/settings/options.h"

#include <errno.h>
#include <string.h>

#include "fuzz.h"

static const char *file;
static size_t file_size;
static unsigned n_told, last_line;

/* The length of a line of the file, from 1; the file must have it. */
static size_t line_length(unsigned long line)
{
    const char *at = file, *end = file + file_size, *next;

    while (line > 1) {
        at = memchr(at, '\n', (size_t)(end - at));
        FUZZ_CHECK(at);
        at++;
        line--;
    }
    next = memchr(at, '\n', (size_t)(end - at));
    return (size_t)((next ? next : end) - at);
}

static void tell(enum ag_log_level level, const char *line)
{
    unsigned long number, column;
    char *end;

    FUZZ_CHECK(level == AG_LOG_ERROR && strlen(line) < 1000 && !strchr(line, '\n'));
    FUZZ_CHECK(!strncmp(line, "a.conf:", 7));
    number = strtoul(line + 7, &end, 10);
    FUZZ_CHECK(number > last_line && !strncmp(end, ": column ", 9)); /* in order, once a line */
    column = strtoul(end + 9, &end, 10);
    FUZZ_CHECK(column >= 1 && column <= line_length(number) + 1 && !strncmp(end, ": ", 2));
    last_line = (unsigned)number;
    n_told++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ag_options options;
    char *text = malloc(size + 1), *original = malloc(size + 1);
    int result;

    FUZZ_CHECK(text && original);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    memcpy(original, text, size + 1);
    file = original;
    file_size = size;
    n_told = last_line = 0;
    memset(&options, 0xee, sizeof(options));
    result = ag_options_read_text("a.conf", text, size, &options, tell);
    FUZZ_CHECK(result == (n_told ? -EINVAL : 0));
    FUZZ_CHECK(options.rules.n <= AG_MAX_RULES && options.policy <= AG_POLICY_MANAGED);
    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_origin *origin = &options.origins[i];

        FUZZ_CHECK(origin->kind == AG_ORIGIN_DEFAULT || origin->kind == AG_ORIGIN_FILE);
        FUZZ_CHECK(strlen(ag_option_value(&options, i)) <= sizeof(options.texts));
        if (origin->kind == AG_ORIGIN_FILE)
            FUZZ_CHECK(line_length(origin->line) > 0);
    }
    free(text);
    free(original);
    return 0;
}
