/* Sizes: whatever the text, a refusal that touches nothing, or a value that reads back the same. */
#include "interpose/core/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), again[32], people[64];
    uint64_t value = 1234567, value_again;
    bool percent = true, percent_again;
    int result;

    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    result = ag_text_parse_size(text, &value, &percent);
    FUZZ_CHECK(result == 0 || result == -EINVAL);
    if (result) {
        FUZZ_CHECK(value == 1234567 && percent);
    } else {
        FUZZ_CHECK(!percent || value <= 100);
        FUZZ_CHECK(value < 1ull << 63 || value == UINT64_MAX);
        if (value != UINT64_MAX) {
            snprintf(again, sizeof(again), "%" PRIu64 "%s", value, percent ? "%" : "");
            FUZZ_CHECK(ag_text_parse_size(again, &value_again, &percent_again) == 0);
            FUZZ_CHECK(value_again == value && percent_again == percent);
        }
        FUZZ_CHECK(strlen(ag_text_size(people, sizeof(people), value)) < 32);
    }
    free(text);
    return 0;
}
