/* debug_lines.c: asks libdw: see debug_lines.h. */
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

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct debug_lines {
    Dwfl *session;
    Dwfl_Module *module;
    GElf_Addr first; /* address of the first segment, by the file and where libdw put it */
};

bool debug_lines_available(void)
{
    return true;
}

/* Where the first segment's page begins, by the file. */
static GElf_Addr first_page(Elf *elf)
{
    GElf_Addr first = ~(GElf_Addr)0;
    size_t n = 0;

    if (elf_getphdrnum(elf, &n))
        return 0;
    for (size_t i = 0; i < n; i++) {
        GElf_Phdr header;

        if (gelf_getphdr(elf, (int)i, &header) && header.p_type == PT_LOAD &&
            header.p_vaddr < first)
            first = header.p_vaddr & ~(header.p_align ? header.p_align - 1 : 0);
    }
    return first == ~(GElf_Addr)0 ? 0 : first;
}

static bool find_module(struct debug_lines *lines, const char *path)
{
    static const Dwfl_Callbacks callbacks = {
        .find_debuginfo = dwfl_standard_find_debuginfo,
        .section_address = dwfl_offline_section_address,
        .find_elf = dwfl_build_id_find_elf,
    };
    GElf_Addr bias = 0;
    Dwarf_Addr unused;
    Elf *elf;

    lines->session = dwfl_begin(&callbacks);
    if (!lines->session)
        return false;
    lines->module = dwfl_report_offline(lines->session, "", path, -1);
    if (!lines->module || dwfl_report_end(lines->session, NULL, NULL))
        return false;
    elf = dwfl_module_getelf(lines->module, &bias);
    if (!elf || !dwfl_module_getdwarf(lines->module, &unused))
        return false;
    lines->first = first_page(elf) + bias;
    return true;
}

struct debug_lines *debug_lines_open(const char *path)
{
    struct debug_lines *lines = calloc(1, sizeof(*lines));

    if (lines && find_module(lines, path))
        return lines;
    debug_lines_close(lines);
    return NULL;
}

void debug_lines_close(struct debug_lines *lines)
{
    if (lines && lines->session)
        dwfl_end(lines->session);
    free(lines);
}

static bool is_function(Dwarf_Die *scope)
{
    int tag = dwarf_tag(scope);

    return tag == DW_TAG_inlined_subroutine || tag == DW_TAG_subprogram;
}

/* As the linker knows it, so that C++ names are complete; else as the source has it. */
static void take_name(Dwarf_Die *scope, struct ag_frame_name *ret)
{
    Dwarf_Attribute attribute;
    const char *name = NULL;

    if (dwarf_attr_integrate(scope, DW_AT_linkage_name, &attribute))
        name = dwarf_formstring(&attribute);
    if (!name)
        name = dwarf_diename(scope);
    snprintf(ret->function, sizeof(ret->function), "%s", name ? name : "");
}

static void take_line(const char *file, int line, struct ag_frame_name *ret)
{
    snprintf(ret->file, sizeof(ret->file), "%s", file ? file : "");
    ret->line = line > 0 ? (uint32_t)line : 0;
}

/* Where an inlined function was called. */
static void take_call(Dwarf_Die *unit, Dwarf_Die *scope, struct ag_frame_name *ret)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    size_t n;

    if (dwarf_formudata(dwarf_attr(scope, DW_AT_call_file, &attribute), &file) ||
        dwarf_formudata(dwarf_attr(scope, DW_AT_call_line, &attribute), &line) ||
        dwarf_getsrcfiles(unit, &files, &n))
        return;
    take_line(dwarf_filesrc(files, file, NULL, NULL), (int)line, ret);
}

/* The scopes around the address, innermost first: first those that the innermost is in by its
 * source, then, of that one, those that it is in by its code. */
static int scopes_at(struct debug_lines *lines, Dwarf_Die *unit, Dwarf_Addr address,
                     Dwarf_Die **ret)
{
    Dwarf_Die *scopes = NULL, innermost;
    Dwarf_Addr bias;
    int n = dwarf_getscopes(unit, address, &scopes);
    bool good = n > 0 && dwarf_offdie(dwfl_module_getdwarf(lines->module, &bias),
                                      dwarf_dieoffset(&scopes[0]), &innermost);

    if (n > 0)
        free(scopes);
    return good ? dwarf_getscopes_die(&innermost, ret) : 0;
}

unsigned debug_lines_find(struct debug_lines *lines, uint64_t offset, struct ag_frame_name *ret,
                          unsigned most)
{
    Dwarf_Addr address = lines->first + offset, bias = 0;
    Dwarf_Die *unit = dwfl_module_addrdie(lines->module, address, &bias), *scopes = NULL;
    Dwfl_Line *line = dwfl_module_getsrc(lines->module, address);
    int number = 0, n = unit ? scopes_at(lines, unit, address - bias, &scopes) : 0;
    const char *file = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    unsigned found = 0;

    take_line(file, number, ret);
    for (int i = 0; i < n && found < most; i++) {
        if (!is_function(&scopes[i]))
            continue;
        take_name(&scopes[i], &ret[found++]);
        if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram)
            break;
        if (found < most)
            take_call(unit, &scopes[i], &ret[found]);
    }
    if (n > 0)
        free(scopes);
    if (!found)
        memset(ret, 0, sizeof(*ret));
    return found;
}

#endif
