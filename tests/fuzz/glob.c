/* Globs: a glob, a NUL, a text; the same answer as from a matcher that tries every way. */
#include "interpose/core/settings/rules.h"

#include <string.h>

#include "fuzz.h"

#define LONGEST 14u /* of either: trying every way takes its time */

static bool match(const char *glob, const char *text)
{
    if (!*glob)
        return !*text;
    if (*glob == '*')
        return match(glob + 1, text) || (*text && match(glob, text + 1));
    return *text && (*glob == '?' || *glob == *text) && match(glob + 1, text + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t length = strnlen((const char *)data, size), rest = size - length;
    char *glob = malloc(length + 1), *text = malloc(rest + 1);
    bool found;

    FUZZ_CHECK(glob && text);
    memcpy(glob, data ? data : (const uint8_t *)"", length);
    glob[length] = '\0';
    memset(text, 0, rest + 1);
    if (rest)
        memcpy(text, data + length + 1, rest - 1);
    found = ag_glob_match(glob, text);
    if (length <= LONGEST && strlen(text) <= LONGEST)
        FUZZ_CHECK(found == match(glob, text));
    free(glob);
    free(text);
    return 0;
}
