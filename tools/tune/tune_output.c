/* tune_output.c: compares the outputs of a tuned program line by line: see tune.h. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "interpose/core/base/hash.h"
#include "tools/base/list.h"
#include "tools/tune/tune.h"

#define LEFT_OUT 0u /* in place of a line's hash */

/* ---- lines that report times ---- */

static bool is_word_at(const char *line, size_t at, size_t n, const char *word)
{
    size_t length = strlen(word);

    return at + length <= n && !strncasecmp(line + at, word, length);
}

/* Is there a unit of times or rates after a number: "ms", " (ms)", "GB/s"? */
static bool is_unit_at(const char *line, size_t at, size_t n)
{
    static const char *const units[] = {"ns", "us", "ms", "s", "sec", "secs", "fps"};

    while (at < n && (line[at] == ' ' || line[at] == '\t' || line[at] == '('))
        at++;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t end = at + strlen(units[i]);

        if (is_word_at(line, at, n, units[i]) && (end == n || !isalnum((unsigned char)line[end])))
            return true;
    }
    while (at < n && isalpha((unsigned char)line[at]))
        at++;
    return is_word_at(line, at, n, "/s") && (at + 2 == n || !isalnum((unsigned char)line[at + 2]) ||
                                             is_word_at(line, at, n, "/sec"));
}

bool tune_reports_time(const char *line, size_t n)
{
    static const char *const words[] = {
        "time",    "elapsed", "duration", "second", "speed",       "bandwidth", "throughput",
        "latency", "rate",    "(s)",      "(ms)",   "(us)",        "(ns)",      "gflop",
        "tflop",   "mflop",   "flop/s",   "flops",  "performance", "took"};
    bool has_digit = false, reports = false;

    for (size_t at = 0; at < n; at++) {
        bool begins = !at || !isalpha((unsigned char)line[at - 1]);

        if (isdigit((unsigned char)line[at])) {
            has_digit = true;
            reports |= is_unit_at(line, at + 1, n);
        }
        for (size_t i = 0; begins && !reports && i < sizeof(words) / sizeof(words[0]); i++)
            reports = is_word_at(line, at, n, words[i]);
    }
    return has_digit && reports;
}

/* ---- the output of one run ---- */

static bool add_line_hash(struct tune_text *text, uint64_t hash)
{
    void *lines = list_grow(text->lines, text->n, &text->room, sizeof(*text->lines));

    if (!lines)
        return false;
    text->lines = lines;
    text->lines[text->n++] = hash;
    return true;
}

bool tune_text_read(int fd, bool whole, struct tune_text *ret)
{
    int copy = fd < 0 || lseek(fd, 0, SEEK_SET) < 0 ? -1 : dup(fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
    uint64_t hash = AG_HASH_FNV;
    size_t room = 0;
    char *line = NULL;
    bool read;
    ssize_t n;

    *ret = (struct tune_text){0};
    if (!file) {
        if (copy >= 0)
            (void)close(copy);
        return false;
    }
    read = true;
    while (read && (n = getline(&line, &room, file)) > 0) {
        if (whole)
            hash = ag_hash_bytes(hash, line, (size_t)n);
        else
            read = add_line_hash(ret, tune_reports_time(line, (size_t)n)
                                          ? LEFT_OUT
                                          : ag_hash_bytes(AG_HASH_FNV, line, (size_t)n) | 1);
    }
    if (whole)
        read = add_line_hash(ret, hash | 1);
    read = read && !ferror(file);
    free(line);
    (void)fclose(file);
    if (!read)
        tune_text_free(ret);
    return read;
}

void tune_text_free(struct tune_text *text)
{
    free(text->lines);
    *text = (struct tune_text){0};
}

/* ---- the outputs of all runs ---- */

size_t tune_output_left_out(const struct tune_output *output)
{
    size_t n = 0;

    for (size_t i = 0; i < output->text.n; i++)
        n += output->text.lines[i] == LEFT_OUT;
    return n;
}

void tune_output_learn(struct tune_output *output, struct tune_text *text)
{
    if (!output->known) {
        output->text = *text;
        *text = (struct tune_text){0};
        output->known = true;
    } else if (text->n != output->text.n) {
        output->ignored = true;
    } else {
        for (size_t i = 0; i < text->n; i++) {
            if (text->lines[i] != output->text.lines[i])
                output->text.lines[i] = LEFT_OUT;
        }
    }
    if (output->text.n && tune_output_left_out(output) == output->text.n)
        output->ignored = true;
}

bool tune_output_differs(const struct tune_output *output, const struct tune_text *text)
{
    if (output->ignored)
        return false;
    if (text->n != output->text.n)
        return true;
    for (size_t i = 0; i < text->n; i++) {
        if (output->text.lines[i] != LEFT_OUT && text->lines[i] != output->text.lines[i])
            return true;
    }
    return false;
}
