/* debug_lines.c: asks libdw: see debug_lines.h. It is opened when the first file is looked at: the
 * command starts no slower for it, and works where it is not installed. */
#include "tools/trace/debug_lines.h"

#ifndef HAVE_LIBDW

#include <stddef.h>

bool debug_lines_available(void)
{
    return false;
}

struct debug_lines *debug_lines_open(const char *path)
{
    (void)path;
    return NULL;
}

void debug_lines_close(struct debug_lines *lines)
{
    (void)lines;
}

unsigned debug_lines_find(struct debug_lines *lines, uint64_t offset, struct ag_frame_name *ret,
                          unsigned most)
{
    (void)lines, (void)offset, (void)ret, (void)most;
    return 0;
}

#else

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is called of it, and of libelf, which it brings along. */
#define FUNCTIONS(F)                \
    F(dwfl_begin)                   \
    F(dwfl_end)                     \
    F(dwfl_report_offline)          \
    F(dwfl_report_end)              \
    F(dwfl_module_getelf)           \
    F(dwfl_module_getdwarf)         \
    F(dwfl_module_addrdie)          \
    F(dwfl_module_getsrc)           \
    F(dwfl_lineinfo)                \
    F(dwfl_standard_find_debuginfo) \
    F(dwfl_offline_section_address) \
    F(dwfl_build_id_find_elf)       \
    F(dwarf_tag)                    \
    F(dwarf_attr)                   \
    F(dwarf_attr_integrate)         \
    F(dwarf_formstring)             \
    F(dwarf_formudata)              \
    F(dwarf_diename)                \
    F(dwarf_getsrcfiles)            \
    F(dwarf_filesrc)                \
    F(dwarf_getscopes)              \
    F(dwarf_getscopes_die)          \
    F(dwarf_dieoffset)              \
    F(dwarf_offdie)                 \
    F(elf_getphdrnum)               \
    F(gelf_getphdr)

static struct {
    bool is_asked, is_there;
    Dwfl_Callbacks callbacks;
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
} dw;

bool debug_lines_available(void)
{
    void *library;

    if (dw.is_asked)
        return dw.is_there;
    dw.is_asked = true;
    library = dlopen("libdw.so.1", RTLD_LAZY);
#define FIND(name)   dw.name = library ? (__typeof__(&name))dlsym(library, #name) : NULL;
    FUNCTIONS(FIND)
#define HAS(name)    &&dw.name
    dw.is_there = library FUNCTIONS(HAS);
    dw.callbacks.find_debuginfo = dw.dwfl_standard_find_debuginfo;
    dw.callbacks.section_address = dw.dwfl_offline_section_address;
    dw.callbacks.find_elf = dw.dwfl_build_id_find_elf;
    return dw.is_there;
}

struct debug_lines {
    Dwfl *session;
    Dwfl_Module *module;
    GElf_Addr first; /* address of the first segment, by the file and where libdw put it */
};

/* Where the first segment's page begins, by the file. */
static GElf_Addr first_page(Elf *elf)
{
    GElf_Addr first = ~(GElf_Addr)0;
    size_t n = 0;

    if (dw.elf_getphdrnum(elf, &n))
        return 0;
    for (size_t i = 0; i < n; i++) {
        GElf_Phdr header;

        if (dw.gelf_getphdr(elf, (int)i, &header) && header.p_type == PT_LOAD &&
            header.p_vaddr < first)
            first = header.p_vaddr & ~(header.p_align ? header.p_align - 1 : 0);
    }
    return first == ~(GElf_Addr)0 ? 0 : first;
}

static bool report_module(struct debug_lines *lines, const char *path)
{
    GElf_Addr bias = 0;
    Dwarf_Addr unused;
    Elf *elf;

    lines->session = dw.dwfl_begin(&dw.callbacks);
    if (!lines->session)
        return false;
    lines->module = dw.dwfl_report_offline(lines->session, "", path, -1);
    if (!lines->module || dw.dwfl_report_end(lines->session, NULL, NULL))
        return false;
    elf = dw.dwfl_module_getelf(lines->module, &bias);
    if (!elf || !dw.dwfl_module_getdwarf(lines->module, &unused))
        return false;
    lines->first = first_page(elf) + bias;
    return true;
}

struct debug_lines *debug_lines_open(const char *path)
{
    struct debug_lines *lines = calloc(1, sizeof(*lines));

    if (lines && debug_lines_available() && report_module(lines, path))
        return lines;
    debug_lines_close(lines);
    return NULL;
}

void debug_lines_close(struct debug_lines *lines)
{
    if (lines && lines->session)
        dw.dwfl_end(lines->session);
    free(lines);
}

static bool is_function(Dwarf_Die *scope)
{
    int tag = dw.dwarf_tag(scope);

    return tag == DW_TAG_inlined_subroutine || tag == DW_TAG_subprogram;
}

/* Copies the name as the linker knows it, so that C++ names are complete, or else as the source has
 * it. */
static void copy_name(Dwarf_Die *scope, struct ag_frame_name *ret)
{
    Dwarf_Attribute attribute;
    const char *name = NULL;

    if (dw.dwarf_attr_integrate(scope, DW_AT_linkage_name, &attribute))
        name = dw.dwarf_formstring(&attribute);
    if (!name)
        name = dw.dwarf_diename(scope);
    snprintf(ret->function, sizeof(ret->function), "%s", name ? name : "");
}

static void copy_line(const char *file, int line, struct ag_frame_name *ret)
{
    snprintf(ret->file, sizeof(ret->file), "%s", file ? file : "");
    ret->line = line > 0 ? (uint32_t)line : 0;
}

/* Where an inlined function was called. */
static void copy_call(Dwarf_Die *unit, Dwarf_Die *scope, struct ag_frame_name *ret)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    size_t n;

    if (dw.dwarf_formudata(dw.dwarf_attr(scope, DW_AT_call_file, &attribute), &file) ||
        dw.dwarf_formudata(dw.dwarf_attr(scope, DW_AT_call_line, &attribute), &line) ||
        dw.dwarf_getsrcfiles(unit, &files, &n))
        return;
    copy_line(dw.dwarf_filesrc(files, file, NULL, NULL), (int)line, ret);
}

/* The scopes around the address, innermost first: first those that the innermost is in by its
 * source, then, of that one, those that it is in by its code. */
static int scopes_at(struct debug_lines *lines, Dwarf_Die *unit, Dwarf_Addr address,
                     Dwarf_Die **ret)
{
    Dwarf_Die *scopes = NULL, innermost;
    Dwarf_Addr bias;
    int n = dw.dwarf_getscopes(unit, address, &scopes);
    bool good = n > 0 && dw.dwarf_offdie(dw.dwfl_module_getdwarf(lines->module, &bias),
                                         dw.dwarf_dieoffset(&scopes[0]), &innermost);

    if (n > 0)
        free(scopes);
    return good ? dw.dwarf_getscopes_die(&innermost, ret) : 0;
}

unsigned debug_lines_find(struct debug_lines *lines, uint64_t offset, struct ag_frame_name *ret,
                          unsigned most)
{
    Dwarf_Addr address = lines->first + offset, bias = 0;
    Dwarf_Die *unit = dw.dwfl_module_addrdie(lines->module, address, &bias), *scopes = NULL;
    Dwfl_Line *line = dw.dwfl_module_getsrc(lines->module, address);
    int number = 0, n = unit ? scopes_at(lines, unit, address - bias, &scopes) : 0;
    const char *file = line ? dw.dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    unsigned found = 0;

    copy_line(file, number, ret);
    for (int i = 0; i < n && found < most; i++) {
        if (!is_function(&scopes[i]))
            continue;
        copy_name(&scopes[i], &ret[found++]);
        if (dw.dwarf_tag(&scopes[i]) == DW_TAG_subprogram)
            break;
        if (found < most)
            copy_call(unit, &scopes[i], &ret[found]);
    }
    if (n > 0)
        free(scopes);
    if (!found)
        memset(ret, 0, sizeof(*ret));
    return found;
}

#endif
