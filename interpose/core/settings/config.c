/* Reads and splits the file of settings: see config.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/settings/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads until the end of the file or the end of the room. Returns the bytes read, or -errno. */
static ssize_t read_to_end(int fd, char *buffer, size_t room)
{
    size_t length = 0;

    while (length < room) {
        ssize_t n = read(fd, buffer + length, room - length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        length += (size_t)n;
    }
    return (ssize_t)length;
}

/* Opens what `path` names if it is a regular file: nothing else has all its text at once, and may
 * be read again by the next process. A descriptor, or -errno. */
static int open_regular(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    int result = 0;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &status))
        result = -errno;
    else if (!S_ISREG(status.st_mode))
        result = S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
    if (!result)
        return fd;
    close(fd);
    return result;
}

int ag_config_load(const char *path, char buffer[AG_CONFIG_MAX + 1], size_t *ret_length, char *why,
                   size_t why_size)
{
    int fd = open_regular(path);
    ssize_t length = fd < 0 ? fd : read_to_end(fd, buffer, AG_CONFIG_MAX + 1);

    if (fd >= 0)
        close(fd);
    if (length == -EINVAL) {
        snprintf(why, why_size, "cannot be read: no regular file");
        return -EINVAL;
    }
    if (length < 0) {
        snprintf(why, why_size, "cannot be read: %s", strerror((int)-length));
        return (int)length;
    }
    if (length > (ssize_t)AG_CONFIG_MAX) {
        snprintf(why, why_size, "too large; allowed: %u bytes", AG_CONFIG_MAX);
        return -EFBIG;
    }
    buffer[length] = '\0';
    *ret_length = (size_t)length;
    return 0;
}

void ag_config_begin(struct ag_config *config, char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, which some editors put first */
    const size_t size = sizeof(mark) - 1;
    bool is_marked = length >= size && !memcmp(text, mark, size);

    config->next = text + (is_marked ? size : 0);
    config->end = text + length;
    config->line = 0;
}

static int is_space_in_line(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The first byte from `text` on, before `end`, that is no blank. */
static char *skip_blanks(char *text, const char *end)
{
    while (text < end && is_space_in_line(*text))
        text++;
    return text;
}

/* Cuts the blanks before `end`, not below `text`; returns the text. */
static char *trim_end(char *text, char *end)
{
    while (end > text && is_space_in_line(end[-1]))
        end--;
    *end = '\0';
    return text;
}

/* Takes the setting that stands between `name`, where the blanks of `line` end, and `end` apart. */
static int split(const char *line, char *name, char *end, struct ag_config_entry *ret, char *why,
                 size_t why_size)
{
    char *equals = memchr(name, '=', (size_t)(end - name)), *value;

    if (!equals) {
        snprintf(why, why_size,
                 "column %zu: no '=' behind \"%.40s\"; allowed: NAME=value, or # and "
                 "a comment",
                 (size_t)(end - line) + 1, trim_end(name, end));
        return -EINVAL;
    }
    if (equals == name) {
        snprintf(why, why_size, "column %zu: no name before '='; allowed: NAME=value",
                 (size_t)(equals - line) + 1);
        return -EINVAL;
    }
    value = skip_blanks(equals + 1, end);
    *ret = (struct ag_config_entry){
        .name = name,
        .value = value,
        .name_column = (size_t)(name - line) + 1,
        .value_column = (size_t)(value - line) + 1,
    };
    (void)trim_end(value, end);
    (void)trim_end(name, equals);
    return 1;
}

/* A file with a NUL byte is no text: nothing after it is read. */
static int refuse_nul(struct ag_config *config, const char *line, const char *end, char *why,
                      size_t why_size)
{
    const char *nul = memchr(line, '\0', (size_t)(end - line));

    if (!nul)
        return 0;
    config->next = config->end;
    snprintf(why, why_size, "column %zu: a NUL byte; allowed: text", (size_t)(nul - line) + 1);
    return -EINVAL;
}

int ag_config_next(struct ag_config *config, struct ag_config_entry *ret, char *why,
                   size_t why_size)
{
    while (config->next < config->end) {
        char *line = config->next, *first;
        char *end = memchr(line, '\n', (size_t)(config->end - line));

        if (!end)
            end = config->end;
        config->next = end + 1;
        config->line++;
        if (refuse_nul(config, line, end, why, why_size))
            return -EINVAL;
        first = skip_blanks(line, end);
        if (first < end && *first != '#')
            return split(line, first, end, ret, why, why_size);
    }
    return 0;
}
