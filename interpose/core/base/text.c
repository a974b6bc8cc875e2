/* Text without stdio streams: see text.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"

#define FIRST_CAPACITY 16384u
#define LONGEST_NAME   64u

static bool grow_text(struct ag_text *text, size_t need)
{
    size_t capacity = text->capacity ? text->capacity : FIRST_CAPACITY;
    char *data;

    while (capacity < need)
        capacity *= 2;
    data = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return false;
    if (text->data) {
        memcpy(data, text->data, text->length + 1);
        munmap(text->data, text->capacity);
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void ag_text_finish(struct ag_text *text)
{
    if (text->data)
        munmap(text->data, text->capacity);
    *text = (struct ag_text){0};
}

/* --- printing --- */

/* vsnprintf(3) in the C locale, which libc has at hand: nothing is allocated. */
__attribute__((format(printf, 3, 0))) static int print_in_c_locale(char *buffer, size_t capacity,
                                                                   const char *format, va_list args)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(c);
    int length = vsnprintf(buffer, capacity, format, args);

    (void)uselocale(before);
    freelocale(c);
    return length;
}

int ag_text_print(char *buffer, size_t capacity, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = print_in_c_locale(buffer, capacity, format, args);
    va_end(args);
    return length;
}

/* Most lines fit into what there is: those are printed once. */
void ag_text_add_args(struct ag_text *text, const char *format, va_list args)
{
    size_t room = text->capacity - text->length;
    va_list again;
    int length;

    if (text->truncated)
        return;
    va_copy(again, args);
    length = print_in_c_locale(text->data ? text->data + text->length : NULL, room, format, again);
    va_end(again);
    if (length < 0) /* and what was there ends as before */
        goto undo;
    if ((size_t)length >= room) {
        if (!grow_text(text, text->length + (size_t)length + 1)) {
            text->truncated = true;
            goto undo;
        }
        (void)print_in_c_locale(text->data + text->length, (size_t)length + 1, format, args);
    }
    text->length += (size_t)length;
    return;
undo:
    if (text->data)
        text->data[text->length] = '\0';
}

void ag_text_add(struct ag_text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    ag_text_add_args(text, format, args);
    va_end(args);
}

/* Length of the UTF-8 sequence at `s`, 0 when it is malformed. */
static size_t utf8_length(const unsigned char *s)
{
    size_t length = s[0] < 0x80   ? 1
                    : s[0] < 0xc2 ? 0
                    : s[0] < 0xe0 ? 2
                    : s[0] < 0xf0 ? 3
                    : s[0] < 0xf5 ? 4
                                  : 0;

    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

void ag_text_add_json(struct ag_text *text, const char *value)
{
    const unsigned char *s = (const unsigned char *)value;

    ag_text_add(text, "\"");
    while (*s) {
        size_t length = utf8_length(s);

        if (!length)
            ag_text_add(text, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            ag_text_add(text, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            ag_text_add(text, "\\u%04x", *s);
        else
            ag_text_add(text, "%.*s", (int)length, (const char *)s);
        s += length ? length : 1;
    }
    ag_text_add(text, "\"");
}

/* The signal that the kernel sends beside this error of write(2), or 0. */
static int signal_of(int error)
{
    return error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
}

void ag_text_read_file(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, capacity - 1);

    if (fd >= 0)
        (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
}

ssize_t ag_text_write_bytes(int fd, const char *bytes, size_t n)
{
    const struct timespec at_once = {0};
    sigset_t refusals, previous, pending;
    ssize_t written;
    int error;

    sigemptyset(&refusals);
    sigaddset(&refusals, SIGPIPE);
    sigaddset(&refusals, SIGXFSZ);
    sigaddset(&refusals, SIGTTOU); /* who blocks it is let through */
    pthread_sigmask(SIG_BLOCK, &refusals, &previous);
    sigpending(&pending);
    written = write(fd, bytes, n);
    error = errno;
    if (written < 0 && signal_of(error) && !sigismember(&pending, signal_of(error))) {
        sigemptyset(&refusals);
        sigaddset(&refusals, signal_of(error));
        (void)sigtimedwait(&refusals, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    errno = error;
    return written;
}

int ag_text_write(const struct ag_text *text, int fd)
{
    size_t done = 0;

    while (done < text->length) {
        ssize_t written = ag_text_write_bytes(fd, text->data + done, text->length - done);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        if (written == 0)
            return -EIO;
        done += (size_t)written;
    }
    return 0;
}

/* Waits until `fd` takes something, or has something to say against it. 0 or -errno. */
static int wait_for_room(int fd, uint64_t until_ns)
{
    struct pollfd writable = {.fd = fd, .events = POLLOUT};

    for (;;) {
        uint64_t now = ag_clock_ns();
        int ready =
            poll(&writable, 1, now < until_ns ? (int)((until_ns - now + 999999) / 1000000) : 0);

        if (ready > 0)
            return 0;
        if (!ready || errno != EINTR)
            return ready ? -errno : -ETIMEDOUT;
    }
}

/* What poll(2) found room for is PIPE_BUF bytes of a pipe. */
static ssize_t write_some(int fd, mode_t kind, const char *bytes, size_t n)
{
    if (S_ISSOCK(kind))
        return send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return ag_text_write_bytes(fd, bytes, S_ISREG(kind) || n < PIPE_BUF ? n : PIPE_BUF);
}

int ag_text_write_within(int fd, const char *bytes, size_t n, int timeout_ms)
{
    const uint64_t timeout_ns = (uint64_t)timeout_ms * 1000000u;
    uint64_t until_ns = ag_clock_ns() + timeout_ns;
    struct stat st;

    if (fstat(fd, &st))
        return -errno;
    while (n) {
        int result = S_ISREG(st.st_mode) ? 0 : wait_for_room(fd, until_ns);
        ssize_t written = result ? 0 : write_some(fd, st.st_mode, bytes, n);

        if (result || !written)
            return result ? result : -EIO;
        if (written < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (written < 0 && ag_clock_ns() > until_ns)
            return -ETIMEDOUT;
        if (written < 0)
            continue;
        bytes += written;
        n -= (size_t)written;
        until_ns = ag_clock_ns() + timeout_ns;
    }
    return 0;
}

/* --- words and numbers --- */

static unsigned lower(char c)
{
    unsigned byte = (unsigned char)c;

    return byte >= 'A' && byte <= 'Z' ? byte - 'A' + 'a' : byte;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* How many bytes both begin with. */
static size_t common(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] && lower(a[n]) == lower(b[n]))
        n++;
    return n;
}

bool ag_text_same(const char *a, const char *b)
{
    size_t n = common(a, b);

    return !a[n] && !b[n];
}

bool ag_text_begins(const char *text, const char *start)
{
    return !start[common(text, start)];
}

/* The factor a suffix stands for; 0 when there is no such suffix. */
static uint64_t suffix_factor(const char *suffix)
{
    static const char letters[] = "kmgt";
    const char *letter;

    if (!*suffix || ag_text_same(suffix, "b"))
        return 1;
    letter = strchr(letters, (int)lower(*suffix));
    if (!letter || !*letter)
        return 0;
    if (suffix[1] && !ag_text_same(suffix + 1, "b") && !ag_text_same(suffix + 1, "ib"))
        return 0;
    return 1ull << (10 * (letter - letters + 1));
}

/* Digits with at most one point in between: what is before it exactly, after it as a part of 1.
 * Not strtod, which takes the program's locale for the point. What is after the number, or NULL
 * when there is no digit first or too many. */
static const char *parse_number(const char *text, uint64_t *ret_whole, double *ret_part)
{
    uint64_t whole = 0;
    double part = 0, place = 1;

    if (!is_digit(*text))
        return NULL;
    for (; is_digit(*text); text++) {
        if (__builtin_mul_overflow(whole, 10u, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
            return NULL;
    }
    if (*text == '.' && is_digit(text[1])) {
        for (text++; is_digit(*text); text++) {
            place /= 10;
            part += place * (*text - '0');
        }
    }
    *ret_whole = whole;
    *ret_part = part;
    return text;
}

int ag_text_parse_size(const char *text, uint64_t *ret_value, bool *ret_percent)
{
    uint64_t value, factor;
    const char *end;
    double part;
    bool percent;

    if (ag_text_same(text, "max")) {
        *ret_value = UINT64_MAX;
        *ret_percent = false;
        return 0;
    }
    end = parse_number(text, &value, &part);
    if (!end)
        return -EINVAL;
    percent = !strcmp(end, "%");
    factor = percent ? 1 : suffix_factor(end);
    if (!factor || (percent && value > 100) || (factor == 1 && part > 0))
        return -EINVAL;
    if (__builtin_mul_overflow(value, factor, &value) || value >> 63)
        return -EINVAL;
    value += (uint64_t)(part * (double)factor);
    if (value >> 63)
        return -EINVAL;
    *ret_value = value;
    *ret_percent = percent;
    return 0;
}

int ag_text_choice(const char *value, const char *allowed)
{
    size_t length = strlen(value);
    int i = 0;

    for (const char *word = allowed; word; i++) {
        const char *end = strchr(word, '|');
        size_t word_length = end ? (size_t)(end - word) : strlen(word);

        if (word_length == length && length && common(word, value) >= length)
            return i;
        word = end ? end + 1 : NULL;
    }
    return -1;
}

const char *ag_text_size(char *buffer, size_t capacity, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1024;
        unit++;
    }
    (void)ag_text_print(buffer, capacity, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}

const char *ag_text_duration(char *buffer, size_t capacity, double nanoseconds)
{
    if (nanoseconds < 1e3)
        (void)ag_text_print(buffer, capacity, "%.0f ns", nanoseconds);
    else if (nanoseconds < 1e6)
        (void)ag_text_print(buffer, capacity, "%.2f us", nanoseconds / 1e3);
    else if (nanoseconds < 1e9)
        (void)ag_text_print(buffer, capacity, "%.2f ms", nanoseconds / 1e6);
    else
        (void)ag_text_print(buffer, capacity, "%.2f s", nanoseconds / 1e9);
    return buffer;
}

static bool same_letter(char a, char b)
{
    return lower(a) == lower(b);
}

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned ag_text_distance(const char *a, const char *b)
{
    const size_t n_a = strlen(a), n_b = strlen(b);
    /* What a's first i letters are from b's first j is rows[i % 3][j]. */
    unsigned rows[3][LONGEST_NAME + 1];

    if (n_a >= LONGEST_NAME || n_b >= LONGEST_NAME)
        return UINT_MAX;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n_a; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i - 1) % 3], *two_above = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = above[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            row[j] = smaller(row[j], smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

void ag_text_nearest_try(struct ag_text_nearest *nearest, const char *name)
{
    const size_t length = strlen(nearest->written);
    const unsigned most = 1 + (unsigned)length / 4;
    unsigned distance = ag_text_distance(nearest->written, name);

    if (distance > most && length >= 3 && ag_text_begins(name, nearest->written))
        distance = most;
    if (length > 1 && name[0] && name[1] && distance <= most &&
        (!nearest->name || distance < nearest->distance)) {
        nearest->name = name;
        nearest->distance = distance;
    }
}

/* How far `written` is from a word of a list; UINT_MAX when it is not near. Of "nth:K" only what
 * stands before the colon is compared. */
static unsigned distance_to_word(const char *written, const char *word)
{
    static const char stands_for_others[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    bool is_form = strpbrk(word, stands_for_others);
    char head[LONGEST_NAME], word_head[LONGEST_NAME];
    struct ag_text_nearest nearest = {.written = head};

    if (is_form && !strchr(word, ':'))
        return UINT_MAX;
    snprintf(head, sizeof(head), "%.*s", (int)strcspn(written, is_form ? ":" : ""), written);
    snprintf(word_head, sizeof(word_head), "%.*s", (int)strcspn(word, is_form ? ":" : ""), word);
    ag_text_nearest_try(&nearest, word_head);
    return nearest.name && nearest.distance ? nearest.distance : UINT_MAX;
}

const char *ag_text_suggest(char *text, size_t size, const char *written, const char *allowed)
{
    unsigned best = UINT_MAX;

    *text = '\0';
    while (*allowed) {
        size_t length = strcspn(allowed, "|, ");
        char word[LONGEST_NAME];
        unsigned distance;

        snprintf(word, sizeof(word), "%.*s", (int)length, allowed);
        distance = distance_to_word(written, word);
        if (distance < best) {
            best = distance;
            snprintf(text, size, "; did you mean %s?", word);
        }
        allowed += length + (allowed[length] != '\0');
    }
    return text;
}
