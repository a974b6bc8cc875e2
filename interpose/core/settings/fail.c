/* Which calls fail: see fail.h. */
#include "interpose/core/settings/fail.h"

#include <stdio.h>
#include <string.h>

/* A number that looks random and depends on both: the finisher of MurmurHash3 over their sum. */
static uint64_t mix_numbers(uint64_t seed, uint64_t n)
{
    uint64_t x = n + seed * 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

bool ag_fail_is_due(const struct ag_fail *fail, uint64_t n)
{
    if (n <= fail->after || (n - fail->after) % fail->every)
        return false;
    return fail->chance_ppm == AG_CHANCE_ALWAYS ||
           mix_numbers(fail->seed, n) % AG_CHANCE_ALWAYS < fail->chance_ppm;
}

bool ag_fail_is_all(const struct ag_fail *fail)
{
    return !fail->after && fail->every == 1 && fail->over == UINT64_MAX &&
           fail->chance_ppm == AG_CHANCE_ALWAYS;
}

/* The digits at `*text`, after which it is left, as a number with so many decimals. False: none,
 * or too many. */
static bool parse_digits(const char **text, unsigned most, uint64_t *ret_value, unsigned *ret_n)
{
    unsigned n = 0;

    for (*ret_value = 0; **text >= '0' && **text <= '9'; (*text)++) {
        if (++n > most)
            return false;
        *ret_value = 10 * *ret_value + (uint64_t)(**text - '0');
    }
    *ret_n = n;
    return n > 0;
}

bool ag_chance_parse(const char *text, uint64_t *ret_ppm)
{
    bool percent = strchr(text, '%') != NULL;
    unsigned decimals = percent ? 4 : 6, n = 0, whole_digits;
    uint64_t whole, part = 0, ppm;

    if (!parse_digits(&text, 9, &whole, &whole_digits))
        return false;
    if (*text == '.') {
        text++;
        if (!parse_digits(&text, decimals, &part, &n))
            return false;
    }
    for (; n < decimals; n++)
        part *= 10;
    if (strcmp(text, percent ? "%" : "") != 0)
        return false;
    ppm = whole * (AG_CHANCE_ALWAYS / (percent ? 100 : 1)) + part;
    if (!ppm || ppm > AG_CHANCE_ALWAYS)
        return false;
    *ret_ppm = ppm;
    return true;
}

const char *ag_chance_print(char text[AG_CHANCE_TEXT], uint64_t ppm)
{
    size_t length;

    if (ppm >= AG_CHANCE_ALWAYS) {
        snprintf(text, AG_CHANCE_TEXT, "1");
        return text;
    }
    length = (size_t)snprintf(text, AG_CHANCE_TEXT, "0.%06u", (unsigned)ppm);
    while (text[length - 1] == '0')
        text[--length] = '\0';
    return text;
}
