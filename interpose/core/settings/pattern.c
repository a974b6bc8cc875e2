/* Expands %p, %h, %n and %r in file names: see pattern.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/settings/pattern.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/report/stats.h"

/* What a letter stands for; its length, or 0 for a letter that stands for nothing. */
static size_t expand(const struct ag_stats_head *head, char letter, char *text, size_t capacity)
{
    int length = 0;

    if (letter == 'p')
        length = snprintf(text, capacity, "%d", head->pid);
    else if (letter == 'h')
        length = snprintf(text, capacity, "%s", head->host);
    else if (letter == 'n')
        length = snprintf(text, capacity, "%s", head->program);
    else if (letter == 'r')
        length = snprintf(text, capacity, "%d", head->rank < 0 ? 0 : head->rank);
    return length > 0 ? (size_t)length : 0;
}

void ag_pattern_expand(const char *pattern, const struct ag_stats_head *head, bool in_child,
                       char *path, size_t capacity)
{
    size_t length = 0;
    bool has_pid = false;
    char pid[16];

    for (; *pattern && length + 1 < capacity; pattern++) {
        size_t added =
            *pattern == '%' ? expand(head, pattern[1], path + length, capacity - length) : 0;

        if (!added) {
            path[length++] = *pattern;
            continue;
        }
        pattern++;
        has_pid = has_pid || *pattern == 'p';
        length += added;
    }
    path[length < capacity ? length : capacity - 1] = '\0';
    if (in_child && !has_pid) {
        snprintf(pid, sizeof(pid), "%d", head->pid);
        (void)ag_pattern_distinguish(path, capacity, pid);
    }
}

bool ag_pattern_distinguish(char *path, size_t capacity, const char *words)
{
    const char *slash = strrchr(path, '/');
    char *name = slash ? path + (slash + 1 - path) : path;
    char *dot = strrchr(name, '.');
    char *end = path + strlen(path);
    char *at = dot && dot != name ? dot : end;
    size_t more = strlen(words) + 1;

    if ((size_t)(end - path) + more >= capacity)
        return false;
    memmove(at + more, at, (size_t)(end - at) + 1);
    *at = '.';
    memcpy(at + 1, words, more - 1);
    return true;
}

const char *ag_pattern_unknown(const char *pattern)
{
    for (const char *at = strchr(pattern, '%'); at; at = strchr(at + 1, '%')) {
        bool is_letter = (at[1] >= 'a' && at[1] <= 'z') || (at[1] >= 'A' && at[1] <= 'Z');

        if (is_letter && !strchr("phnr", at[1]))
            return at;
    }
    return NULL;
}
