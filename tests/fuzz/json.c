/* JSON strings: whatever the bytes, a string a strict reader takes; of valid UTF-8, the same
 * again. */
#include "interpose/core/base/text.h"

#include <string.h>

#include "fuzz.h"

/* Length of the UTF-8 sequence at `s`, by the table of the standard; 0 for none. */
static size_t sequence(const uint8_t *s)
{
    static const struct {
        uint8_t low, high, second_low, second_high;
        size_t length;
    } rows[] = {
        {0x00, 0x7f, 0, 0xff, 1},    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (*s < rows[i].low || *s > rows[i].high)
            continue;
        if (rows[i].length > 1 && (s[1] < rows[i].second_low || s[1] > rows[i].second_high))
            return 0;
        for (size_t j = 2; j < rows[i].length; j++) {
            if ((s[j] & 0xc0) != 0x80)
                return 0;
        }
        return rows[i].length;
    }
    return 0;
}

static unsigned hex(const char *digits)
{
    unsigned value = 0;

    for (unsigned i = 0; i < 4; i++) {
        const char *at = strchr("0123456789abcdef", digits[i]);

        FUZZ_CHECK(digits[i] && at);
        value = value * 16 + (unsigned)(at - "0123456789abcdef");
    }
    return value;
}

/* Reads the string at `json` strictly; its bytes into `back`, and where a byte was replaced, sets
 * *ret_replaced. Returns what follows the closing quote. */
static const char *read_back(const char *json, char *back, int *ret_replaced)
{
    FUZZ_CHECK(*json++ == '"');
    while (*json != '"') {
        size_t length = sequence((const uint8_t *)json);

        FUZZ_CHECK(length && (uint8_t)*json >= 0x20);
        if (*json != '\\') {
            memcpy(back, json, length);
            back += length;
            json += length;
            continue;
        }
        FUZZ_CHECK(json[1] == '"' || json[1] == '\\' || json[1] == 'u');
        if (json[1] == 'u') {
            unsigned code = hex(json + 2);

            FUZZ_CHECK(code < 0x20 || code == 0x7f || code == 0xfffd);
            *ret_replaced |= code == 0xfffd;
            *back++ = (char)code;
            json += 6;
        } else {
            *back++ = json[1];
            json += 2;
        }
    }
    *back = '\0';
    return json + 1;
}

static int is_utf8(const char *text)
{
    while (*text) {
        size_t length = sequence((const uint8_t *)text);

        if (!length)
            return 0;
        text += length;
    }
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *value = malloc(size + 1), *back = malloc(size + 1);
    struct ag_text text = {0};
    int replaced = 0;

    FUZZ_CHECK(value && back);
    if (size)
        memcpy(value, data, size);
    value[size] = '\0';
    ag_text_add_json(&text, value);
    FUZZ_CHECK(!text.truncated && text.length == strlen(text.data));
    FUZZ_CHECK(read_back(text.data, back, &replaced) == text.data + text.length);
    FUZZ_CHECK(replaced == !is_utf8(value));
    FUZZ_CHECK(replaced || !strcmp(value, back));
    ag_text_finish(&text);
    free(value);
    free(back);
    return 0;
}
