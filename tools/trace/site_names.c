/* site_names.c: opens modules to find the functions of call sites, and runs c++filt: see
 * site_names.h. */
#include "tools/trace/site_names.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/mapping.h"
#include "tools/trace/elf_symbols.h"

#define MOST_DEMANGLED 64u

/* ---- one name ---- */

static void copy_printable(struct site_name *ret, const char *name)
{
    size_t n = strnlen(name, sizeof(ret->text) - 1);

    for (size_t i = 0; i < n; i++)
        ret->text[i] = (char)(name[i] >= ' ' && name[i] <= '~' ? name[i] : '?');
    ret->text[n] = '\0';
}

static bool map_module(const char *path, struct mapping *ret)
{
    struct mapping mapping = {.bytes = NULL};
    struct stat st;
    int fd = -1;

    /* Checked before opening: the path comes from the trace, and opening a device may have
     * effects. */
    if (!stat(path, &st) && S_ISREG(st.st_mode))
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode))
        (void)mapping_begin(&mapping, fd);
    close(fd);
    *ret = mapping;
    return mapping.bytes;
}

static const char *find_function(const struct elf_file *file, const char *build_id, uint64_t offset)
{
    const char *name;
    char id[96];

    if (!elf_is_one(file))
        return "(no symbol: the file is not a program or library)";
    elf_build_id(file, id, sizeof(id));
    if (*build_id && strcmp(id, build_id) != 0)
        return "(no symbol: the file has changed since)";
    /* The offset is a return address; the call is the instruction before it. */
    name = elf_function_at(file, offset - 1);
    /* In NVIDIA's static runtime, names are checksums. */
    if (name && !strncmp(name, "libcudart_static_", strlen("libcudart_static_")))
        return "(CUDA runtime, linked statically)";
    return name ? name : "(no symbol: the file is stripped)";
}

static void name_site(const struct trace *trace, const struct trace_site *site,
                      struct site_name *ret)
{
    uint64_t base = trace_module_base(trace, site->module);
    struct mapping mapping;
    struct elf_file file;

    ret->text[0] = '\0';
    if (!site->caller)
        return;
    if (!base || site->caller <= base) {
        copy_printable(ret, "(no symbol: the code is not in a file)");
        return;
    }
    if (!map_module(trace_text(trace, AG_TRACE_TEXT_MODULE, site->module), &mapping)) {
        copy_printable(ret, "(no symbol: the file cannot be read here)");
        return;
    }
    file = (struct elf_file){mapping.bytes, mapping.n};
    copy_printable(
        ret, find_function(&file, trace_module_build_id(trace, site->module), site->caller - base));
    if (mapping_is_torn(&mapping))
        copy_printable(ret, "(no symbol: the file has changed since)");
    mapping_end(&mapping);
}

/* ---- C++ names ---- */

static bool is_mangled(const char *name)
{
    return name[0] == '_' && name[1] == 'Z' &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$.")];
}

/* Runs c++filt, which prints a line for each name. Returns the number of bytes; 0 if it fails. */
static size_t ask_filter(char **argv, char *said, size_t capacity)
{
    posix_spawn_file_actions_t actions;
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC))
        return 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    status = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    while (!status && n + 1 < capacity &&
           ((got = read(ends[0], said + n, capacity - 1 - n)) > 0 || (got < 0 && errno == EINTR)))
        n += got > 0 ? (size_t)got : 0;
    close(ends[0]);
    said[n] = '\0';
    if (status)
        return 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && !WEXITSTATUS(status) ? n : 0;
}

static void demangle(struct site_name *names, size_t n)
{
    char *argv[MOST_DEMANGLED + 2] = {(char *)(uintptr_t) "c++filt"}, *line, *end;
    struct site_name *asked[MOST_DEMANGLED];
    char *said = malloc(1u << 16);
    size_t n_asked = 0;

    for (size_t i = 0; i < n && n_asked < MOST_DEMANGLED; i++) {
        if (is_mangled(names[i].text)) {
            argv[n_asked + 1] = names[i].text;
            asked[n_asked++] = &names[i];
        }
    }
    if (said && n_asked && ask_filter(argv, said, 1u << 16)) {
        line = said;
        for (size_t i = 0; i < n_asked && (end = strchr(line, '\n')); i++, line = end + 1) {
            *end = '\0';
            copy_printable(asked[i], line);
        }
    }
    free(said);
}

void site_names(const struct trace *trace, const struct trace_site *sites, size_t n,
                struct site_name *ret_names)
{
    for (size_t i = 0; i < n; i++)
        name_site(trace, &sites[i], &ret_names[i]);
    demangle(ret_names, n);
}
