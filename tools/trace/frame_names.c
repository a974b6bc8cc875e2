/* frame_names.c: opens modules and looks frames up in them: see frame_names.h. */
#include "tools/trace/frame_names.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/mapping.h"
#include "tools/trace/debug_lines.h"
#include "tools/trace/elf_symbols.h"

struct module {
    bool is_open;
    const char *fault; /* why nothing can be said of it, or NULL */
    struct mapping mapping;
    struct debug_lines *lines; /* NULL: none */
};

struct frame_namer {
    struct module modules[AG_HOLDERS_MODULES];
    char *(*demangle)(const char *, char *, size_t *, int *); /* NULL: names stay as they are */
};

struct frame_namer *frame_namer_new(void)
{
    struct frame_namer *namer = calloc(1, sizeof(*namer));
    void *library = namer ? dlopen("libstdc++.so.6", RTLD_LAZY) : NULL;

    if (library)
        namer->demangle =
            (char *(*)(const char *, char *, size_t *, int *))dlsym(library, "__cxa_demangle");
    return namer;
}

void frame_namer_free(struct frame_namer *namer)
{
    for (unsigned i = 0; namer && i < AG_HOLDERS_MODULES; i++) {
        debug_lines_close(namer->modules[i].lines);
        if (namer->modules[i].mapping.bytes)
            mapping_end(&namer->modules[i].mapping);
    }
    free(namer);
}

const char *frame_names_mismatch(const char *build_id, const char *id_of_file)
{
    return *build_id && strcmp(build_id, id_of_file) != 0 ? "the file has changed since" : NULL;
}

/* ---- modules ------------------------------------------------------------------------------- */

/* Checked before opening: the path comes from a report, and opening a device may have effects. */
static const char *map_file_of_module(const char *path, struct mapping *ret)
{
    struct stat st;
    int fd = -1;

    if (!stat(path, &st) && S_ISREG(st.st_mode))
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return "the file cannot be read here";
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || mapping_begin(ret, fd))
        ret->bytes = NULL;
    close(fd);
    return ret->bytes ? NULL : "the file cannot be read here";
}

static const char *open_module(struct module *module, const char *path, const char *build_id)
{
    const char *fault = map_file_of_module(path, &module->mapping);
    struct elf_file file = {module->mapping.bytes, module->mapping.n};
    char id[96];

    if (fault)
        return fault;
    if (!elf_is_one(&file))
        return "the file is no program or library";
    elf_build_id(&file, id, sizeof(id));
    fault = frame_names_mismatch(build_id, id);
    if (!fault)
        module->lines = debug_lines_open(path);
    return fault;
}

static struct module *opened_module(struct frame_namer *namer, const struct ag_holders *holders,
                                    unsigned number)
{
    struct module *module = &namer->modules[number];
    const struct ag_held_module *row = &holders->modules[number];

    if (!module->is_open)
        module->fault =
            open_module(module, holders->text + row->path, holders->text + row->build_id);
    module->is_open = true;
    return module;
}

/* ---- names --------------------------------------------------------------------------------- */

/* Texts of a file must not control the terminal. */
static void keep_printable(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

static void copy_function(const struct frame_namer *namer, struct ag_frame_name *name)
{
    int status = -1;
    char *plain = namer->demangle && !strncmp(name->function, "_Z", 2)
                      ? namer->demangle(name->function, NULL, NULL, &status)
                      : NULL;

    if (plain && !status)
        snprintf(name->function, sizeof(name->function), "%s", plain);
    free(plain);
    keep_printable(name->function);
    keep_printable(name->file);
}

/* Names the function by the symbol tables alone. */
static void name_by_symbol(const struct module *module, uint64_t offset, struct ag_frame_name *ret)
{
    struct elf_file file = {module->mapping.bytes, module->mapping.n};
    const char *function = elf_function_at(&file, offset - 1);

    snprintf(ret->function, sizeof(ret->function), "%s", function ? function : "");
    snprintf(ret->note, sizeof(ret->note), "%s",
             !function                 ? "no symbol: the file is stripped"
             : debug_lines_available() ? "no line: no debug information"
                                       : "no line: there is no libdw here");
}

unsigned frame_names(void *namer_, const struct ag_holders *holders, uint64_t frame,
                     struct ag_frame_name *ret, unsigned most)
{
    struct frame_namer *namer = namer_;
    uint64_t offset = frame & ((1ull << 48) - 1);
    unsigned number = (unsigned)(frame >> 48), n = 0;
    const struct module *module;

    if (!most || !number || !offset)
        return 0;
    memset(ret, 0, most * sizeof(*ret));
    module = opened_module(namer, holders, number);
    if (module->lines)
        n = debug_lines_find(module->lines, offset - 1, ret, most);
    if (!n && module->fault)
        snprintf(ret->note, sizeof(ret->note), "no symbol: %s", module->fault);
    else if (!n)
        name_by_symbol(module, offset, ret);
    if (mapping_is_torn(&module->mapping))
        return 0;
    n = n ? n : 1;
    for (unsigned i = 0; i < n; i++)
        copy_function(namer, &ret[i]);
    return n;
}
