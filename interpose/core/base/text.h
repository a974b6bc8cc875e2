/* Text without stdio: a bounded buffer to write reports into, sizes for people, and the nearest of
 * several names.
 *
 * Nothing here depends on the program's locale, where a decimal point may be a comma, and "I" may
 * not be the capital of "i". */
#ifndef AG_BASE_TEXT_H
#define AG_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A growing text. Memory comes from mmap, so a report can be written where malloc must not be
 * called. When memory runs out, what follows is dropped and `truncated` says so. */
struct ag_text {
    char *data; /* NUL-terminated once anything was added; NULL before */
    size_t length;
    size_t capacity;
    bool truncated;
};

void ag_text_finish(struct ag_text *text);
void ag_text_add(struct ag_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ag_text_add_args(struct ag_text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* snprintf(3). */
int ag_text_print(char *buffer, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a JSON string with its quotes; bytes that are not UTF-8 come out as U+FFFD. */
void ag_text_add_json(struct ag_text *text, const char *value);
/* Reads a small file as text, cut at what there is room for; "" where it cannot be read. Changes
 * errno. */
void ag_text_read_file(const char *path, char *text, size_t capacity);
/* write(2), but a pipe nobody reads gives EPIPE and no SIGPIPE, a limit on file sizes EFBIG and no
 * SIGXFSZ, and a terminal that wants no output of the background (`stty tostop`) gets it without
 * SIGTTOU: the program did not ask for output. */
ssize_t ag_text_write_bytes(int fd, const char *bytes, size_t n);
/* Writes all of it; 0 or -errno. */
int ag_text_write(const struct ag_text *text, int fd);
/* Writes `n` bytes for whoever must not hang: a pipe, socket or terminal that takes nothing for
 * `timeout_ms` gives -ETIMEDOUT. Of a pipe to which others write at the same moment this is only
 * sure when `fd` does not block. */
int ag_text_write_within(int fd, const char *bytes, size_t n, int timeout_ms);

/* "4096", "64KiB", "1.5GiB", "80%", "max". Decimal and binary suffixes both mean powers of 1024;
 * bytes and percentages are whole. *ret_percent tells whether *ret_value is a percentage. Returns
 * 0, or -EINVAL with both untouched. */
int ag_text_parse_size(const char *text, uint64_t *ret_value, bool *ret_percent);

/* Upper and lower case of English alike: are they the same; does `text` begin with `start`? */
bool ag_text_same(const char *a, const char *b);
bool ag_text_begins(const char *text, const char *start);

/* The position of `value` in "a|b|c", upper and lower case alike, or -1. */
int ag_text_choice(const char *value, const char *allowed);

/* A size for people, e.g. "1.50 GiB"; returns buffer. */
const char *ag_text_size(char *buffer, size_t capacity, uint64_t bytes);
/* A duration for people, e.g. "12.3 us"; returns buffer. */
const char *ag_text_duration(char *buffer, size_t capacity, double nanoseconds);

/* Number of single-character edits from a to b, ignoring case; two neighbours that changed places
 * are one. Names over 63 characters count as far apart (UINT_MAX). */
unsigned ag_text_distance(const char *a, const char *b);

/* The one, among names that are tried one by one, that `written` was likely meant to be: one or few
 * edits away, or longer. */
struct ag_text_nearest {
    const char *written;
    const char *name; /* NULL when none comes near */
    unsigned distance;
};

void ag_text_nearest_try(struct ag_text_nearest *nearest, const char *name);
/* Writes "; did you mean WORD?", of the words of "a|b:N|c" or "a, b", or nothing; returns text. */
const char *ag_text_suggest(char *text, size_t size, const char *written, const char *allowed);

#endif
