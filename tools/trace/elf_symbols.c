/* elf_symbols.c: looks up functions in ELF files: see elf_symbols.h. Every number of a file is
 * checked before it is used. */
#include "tools/trace/elf_symbols.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#define PAGE 4096u /* segments are mapped at the beginning of a page */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OUR_ORDER ELFDATA2LSB
#else
#define OUR_ORDER ELFDATA2MSB
#endif

/* Copies entry i of a table, `each` bytes long; a table in a file need not be aligned. */
static bool entry(const struct elf_file *file, uint64_t table, uint64_t i, void *ret, size_t each)
{
    uint64_t at;

    if (__builtin_mul_overflow(i, each, &at) || __builtin_add_overflow(at, table, &at) ||
        at > file->n || file->n - at < each)
        return false;
    memcpy(ret, file->bytes + at, each);
    return true;
}

static bool read_header(const struct elf_file *file, Elf64_Ehdr *header)
{
    return entry(file, 0, 0, header, sizeof(*header)) &&
           !memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_ident[EI_DATA] == OUR_ORDER && header->e_phentsize == sizeof(Elf64_Phdr);
}

bool elf_is_one(const struct elf_file *file)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;

    return read_header(file, &header) && header.e_phnum &&
           entry(file, header.e_phoff, header.e_phnum - 1u, &segment, sizeof(segment));
}

/* ---- build-id ---- */

static void id_in_segment(const struct elf_file *file, const Elf64_Phdr *segment, char *digits,
                          size_t capacity)
{
    uint64_t at = segment->p_offset, end;
    Elf64_Nhdr note;

    if (__builtin_add_overflow(at, segment->p_filesz, &end) || end > file->n)
        return;
    while (at < end && entry(file, at, 0, &note, sizeof(note))) {
        uint64_t id = at + sizeof(note) + ((note.n_namesz + 3ull) & ~3ull);
        uint64_t next = id + ((note.n_descsz + 3ull) & ~3ull);

        if (next > end)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            !memcmp(file->bytes + at + sizeof(note), "GNU", 4) && note.n_descsz * 2ull < capacity) {
            for (size_t i = 0; i < note.n_descsz; i++)
                snprintf(digits + 2 * i, 3, "%02x", (unsigned char)file->bytes[id + i]);
            return;
        }
        at = next;
    }
}

void elf_build_id(const struct elf_file *file, char *digits, size_t capacity)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;

    *digits = '\0';
    if (!read_header(file, &header))
        return;
    for (unsigned i = 0; i < header.e_phnum && !*digits; i++) {
        if (entry(file, header.e_phoff, i, &segment, sizeof(segment)) && segment.p_type == PT_NOTE)
            id_in_segment(file, &segment, digits, capacity);
    }
}

/* ---- functions ---- */

/* The address in the file's own terms at which its first segment is mapped. */
static uint64_t first_address(const struct elf_file *file, const Elf64_Ehdr *header)
{
    Elf64_Phdr segment;

    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (entry(file, header->e_phoff, i, &segment, sizeof(segment)) && segment.p_type == PT_LOAD)
            return segment.p_vaddr & ~(uint64_t)(PAGE - 1);
    }
    return 0;
}

static const char *name_at(const struct elf_file *file, const Elf64_Shdr *names, uint32_t at)
{
    if (names->sh_offset > file->n || names->sh_size > file->n - names->sh_offset ||
        at >= names->sh_size || !file->bytes[names->sh_offset + at] ||
        !memchr(file->bytes + names->sh_offset + at, '\0', names->sh_size - at))
        return NULL;
    return file->bytes + names->sh_offset + at;
}

/* The function's name; of several, the first global one is preferred. */
static const char *function_in(const struct elf_file *file, const Elf64_Shdr *table,
                               const Elf64_Shdr *names, uint64_t address)
{
    const char *found = NULL;
    Elf64_Sym symbol;

    for (uint64_t i = 0; i < table->sh_size / sizeof(symbol); i++) {
        unsigned type;

        if (!entry(file, table->sh_offset, i, &symbol, sizeof(symbol)))
            break;
        type = ELF64_ST_TYPE(symbol.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || address < symbol.st_value ||
            address - symbol.st_value >= symbol.st_size || !symbol.st_shndx)
            continue;
        if (!found || ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL)
            found = name_at(file, names, symbol.st_name);
        if (found && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL)
            break;
    }
    return found;
}

/* Finds the symbol table of that type; a file has at most one. */
static bool find_table(const struct elf_file *file, const Elf64_Ehdr *header, uint32_t type,
                       Elf64_Shdr *ret)
{
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (entry(file, header->e_shoff, i, ret, sizeof(*ret)) && ret->sh_type == type)
            return ret->sh_entsize == sizeof(Elf64_Sym) && ret->sh_link < header->e_shnum;
    }
    return false;
}

const char *elf_function_at(const struct elf_file *file, uint64_t offset)
{
    static const uint32_t tables[] = {SHT_SYMTAB, SHT_DYNSYM};
    Elf64_Shdr section, names;
    const char *found = NULL;
    Elf64_Ehdr header;
    uint64_t address;

    if (!read_header(file, &header) || header.e_shentsize != sizeof(section))
        return NULL;
    address = first_address(file, &header) + offset;
    for (size_t k = 0; k < sizeof(tables) / sizeof(tables[0]) && !found; k++) {
        if (find_table(file, &header, tables[k], &section) &&
            entry(file, header.e_shoff, section.sh_link, &names, sizeof(names)))
            found = function_in(file, &section, &names, address);
    }
    return found;
}
