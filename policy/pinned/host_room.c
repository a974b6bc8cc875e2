/* Reads what the kernel says of memory: see host_room.h. */
#include "policy/pinned/host_room.h"

#include <string.h>

#include "interpose/core/base/text.h"

#define PATH_BYTES 512
#define GROUPS     "/sys/fs/cgroup"
#define SHORT_PART 16u   /* of the total */
#define STALLED    1000u /* hundredths of a percent */

/* The text of a file, cut at what there is room for; "" where there is none. */
static void read_some(const char *root, const char *folder, const char *file, char *text,
                      size_t size)
{
    char path[PATH_BYTES];

    *text = '\0';
    if (ag_text_print(path, sizeof(path), "%s%s%s", root, folder, file) < (int)sizeof(path))
        ag_text_read_file(path, text, size);
}

/* The number at the beginning of `text`, times `unit`; UINT64_MAX where there is none ("max"). */
static uint64_t number(const char *text, uint64_t unit)
{
    uint64_t value = 0;

    while (*text == ' ')
        text++;
    if (*text < '0' || *text > '9')
        return UINT64_MAX;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    return value * unit;
}

/* The number after `name`, which begins a line. */
static uint64_t number_after(const char *text, const char *name, uint64_t unit)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, strlen(name)))
            return number(line + strlen(name), unit);
    }
    return UINT64_MAX;
}

static void lower_to(uint64_t *value, uint64_t to)
{
    if (to < *value)
        *value = to;
}

static void read_machine(const char *root, struct ag_host_room *room)
{
    char text[4096] = {0};

    read_some(root, "/proc/", "meminfo", text, sizeof(text));
    lower_to(&room->total_bytes, number_after(text, "MemTotal:", 1024));
    lower_to(&room->available_bytes, number_after(text, "MemAvailable:", 1024));
}

/* Where the files of the cgroup lie: its folder as v2 names it; where that is not to be seen, the
 * top, which in a container is its own. */
static void find_group(const char *root, char *folder, size_t size)
{
    char text[2048], *path, *end;

    read_some(root, "/proc/self/", "cgroup", text, sizeof(text));
    path = strstr(text, "0::/");
    end = path ? strchr(path, '\n') : NULL;
    if (end)
        *end = '\0';
    (void)ag_text_print(folder, size, "/sys/fs/cgroup%s/", path ? path + 3 : "");
    read_some(root, folder, "memory.current", text, sizeof(text));
    if (!*text)
        (void)ag_text_print(folder, size, "/sys/fs/cgroup/");
}

/* Reads the bounds of a memory cgroup. What files take that nobody has used lately is free. */
static void read_group(const char *root, const char *folder, const char *most_file,
                       const char *used_file, struct ag_host_room *room)
{
    char text[4096] = {0};
    uint64_t most, used, files;

    read_some(root, folder, most_file, text, sizeof(text));
    most = number(text, 1);
    read_some(root, folder, used_file, text, sizeof(text));
    used = number(text, 1);
    if (most == UINT64_MAX || used == UINT64_MAX)
        return;
    read_some(root, folder, "memory.stat", text, sizeof(text));
    files = number_after(text, "inactive_file ", 1);
    if (files <= used)
        used -= files;
    lower_to(&room->total_bytes, most);
    lower_to(&room->available_bytes, most > used ? most - used : 0);
}

/* The groups above, as of a batch job or a container, have bounds of their own, for all below. */
static void read_groups(const char *root, const char *folder, struct ag_host_room *room)
{
    char path[PATH_BYTES];
    size_t end;

    (void)ag_text_print(path, sizeof(path), "%s", folder);
    for (end = strlen(path); end > strlen(GROUPS); path[end] = '\0') {
        read_group(root, path, "memory.max", "memory.current", room);
        while (--end && path[end - 1] != '/')
            ;
    }
}

/* "some avg10=1.23 avg60=...": hundredths; the decimals are two. */
static unsigned read_stalled(const char *root, const char *folder, const char *file)
{
    const char *after;
    char text[256] = {0};
    uint64_t whole, part;

    read_some(root, folder, file, text, sizeof(text));
    after = strstr(text, "some avg10=");
    whole = after ? number(after + strlen("some avg10="), 100) : UINT64_MAX;
    after = after ? strchr(after, '.') : NULL;
    part = after ? number(after + 1, 1) : UINT64_MAX;
    return whole > 10000 || part > 99 ? 0 : (unsigned)(whole + part);
}

void ag_host_room_read(const char *root, struct ag_host_room *ret_room)
{
    struct ag_host_room room = {.total_bytes = UINT64_MAX, .available_bytes = UINT64_MAX};
    char folder[PATH_BYTES];
    unsigned stalled;

    find_group(root, folder, sizeof(folder));
    read_machine(root, &room);
    read_groups(root, folder, &room);
    read_group(root, "/sys/fs/cgroup/memory/", "memory.limit_in_bytes", "memory.usage_in_bytes",
               &room);
    room.stalled = read_stalled(root, "/proc/", "pressure/memory");
    stalled = read_stalled(root, folder, "memory.pressure");
    if (stalled > room.stalled)
        room.stalled = stalled;
    if (room.total_bytes == UINT64_MAX)
        room.total_bytes = 0;
    *ret_room = room;
}

bool ag_host_room_is_short(const struct ag_host_room *room)
{
    return room->available_bytes < room->total_bytes / SHORT_PART || room->stalled >= STALLED;
}
