/* Processors that the process may use: see processors.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/processors.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/text.h"

#define PATH_BYTES 512u
#define CGROUPS    "/sys/fs/cgroup"
#define QUOTA      "/cpu.max"

uint32_t ag_processors_allowed(void)
{
    cpu_set_t set;
    int n;

    CPU_ZERO(&set);
    n = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
    return n > 1 ? (uint32_t)n : 1;
}

uint32_t ag_processors_of_quota(const char *text)
{
    char *rest;
    unsigned long long quota = strtoull(text, &rest, 10), period = 0;

    if (rest != text && *rest == ' ')
        period = strtoull(rest, &rest, 10);
    if (!quota || !period || quota / period >= UINT32_MAX)
        return UINT32_MAX;
    return (uint32_t)((quota + period - 1) / period);
}

/* The least that the group at `path` and those above it, up to the root, may have. */
static uint32_t quota_from(char *path)
{
    const size_t root = sizeof(CGROUPS) - 1;
    uint32_t least = UINT32_MAX;
    char text[64];

    for (;;) {
        size_t length = strlen(path);
        uint32_t quota;

        memcpy(path + length, QUOTA, sizeof(QUOTA));
        ag_text_read_file(path, text, sizeof(text));
        quota = ag_processors_of_quota(text); /* of "", none */
        least = quota < least ? quota : least;
        while (length > root && path[--length] != '/')
            ;
        if (strlen(path) - strlen(QUOTA) <= root)
            return least;
        path[length] = '\0';
    }
}

/* The group is the line "0::/path" of /proc/self/cgroup. */
static uint32_t processors_of_quota(void)
{
    char text[PATH_BYTES], path[PATH_BYTES + sizeof(CGROUPS) + sizeof(QUOTA)] = CGROUPS;
    const char *line;

    ag_text_read_file("/proc/self/cgroup", text, sizeof(text));
    line = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
    if (!line)
        return UINT32_MAX;
    line = strchr(line, '/');
    if (line && line[1] && line[1] != '\n')
        strncat(path, line, strcspn(line, "\n"));
    return quota_from(path);
}

uint32_t ag_processors_usable(void)
{
    uint32_t usable = ag_processors_allowed(), quota = processors_of_quota();

    return quota < usable ? quota : usable;
}

uint32_t ag_processors_running(const char *text)
{
    const char *slash = strchr(text, '/');
    unsigned long running;
    char *rest;

    while (slash && slash > text && slash[-1] != ' ')
        slash--;
    running = slash ? strtoul(slash, &rest, 10) : 0;
    return running && *rest == '/' && running < UINT32_MAX ? (uint32_t)running : 0;
}

uint32_t ag_processors_idle(void)
{
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t running;
    char text[64];

    ag_text_read_file("/proc/loadavg", text, sizeof(text));
    running = ag_processors_running(text);
    if (all < 1 || !running)
        return UINT32_MAX;
    return running < (unsigned long)all ? (uint32_t)all - running : 0;
}
