/* Reads and writes the file of programs that need the audit: see audit_memory.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/audit/audit_memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/text.h"

static char wanted[PATH_MAX + AG_AUDIT_LINE_MOST];

bool ag_audit_memory_has(const char *file, const char *line)
{
    static char text[AG_AUDIT_MEMORY_MOST + 2]; /* lines between line ends */
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t length = fd < 0 ? -1 : read(fd, text + 1, AG_AUDIT_MEMORY_MOST);
    size_t line_length = strlen(line);

    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return false;
    text[0] = '\n';
    text[length + 1] = '\0';
    for (const char *at = text; (at = strstr(at, line)); at++)
        if (at[-1] == '\n' && at[line_length] == '\n')
            return true;
    return false;
}

void ag_audit_memory_begin(void)
{
    const char *value = getenv(AG_AUDIT_MEMORY_VARIABLE);

    if (value && strlen(value) < sizeof(wanted))
        memcpy(wanted, value, strlen(value) + 1);
}

static void make_folders(char *file)
{
    for (char *slash = strchr(file + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(file, 0700);
        *slash = '/';
    }
}

/* With its end, in one write. */
static bool append_line(const char *file, char *line)
{
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    size_t length = strlen(line);
    struct stat st;
    bool done;

    line[length] = '\n';
    done = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
           ((size_t)st.st_size + length + 1 <= AG_AUDIT_MEMORY_MOST || !ftruncate(fd, 0)) &&
           ag_text_write_bytes(fd, line, length + 1) == (ssize_t)(length + 1);
    line[length] = '\0';
    if (fd >= 0)
        close(fd);
    return done;
}

bool ag_audit_memory_add(void)
{
    char *line = strchr(wanted, '\t');
    bool added;

    if (*wanted != '/' || !line)
        return false;
    *line++ = '\0';
    make_folders(wanted);
    added = ag_audit_memory_has(wanted, line) || append_line(wanted, line);
    *wanted = '\0';
    return added;
}
