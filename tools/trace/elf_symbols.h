/* elf_symbols.h: finds the function at an offset of an ELF file in its symbol tables. Pure; the
 * bytes may be anything. */
#ifndef TOOLS_ELF_SYMBOLS_H
#define TOOLS_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a file; they stay the caller's. */
struct elf_file {
    const char *bytes;
    size_t n;
};

/* Is it a complete 64-bit ELF file with this machine's byte order? */
bool elf_is_one(const struct elf_file *file);

/* Writes its build-id as hexadecimal digits, or "" if there is none that fits. */
void elf_build_id(const struct elf_file *file, char *digits, size_t capacity);

/* The name of the function whose code contains `offset`, counted from where the file's first
 * segment is mapped. The name is as the file has it; NULL if no symbol covers the offset. Symbols
 * without a size do not count: the nearest symbol below an address need not be its function. */
const char *elf_function_at(const struct elf_file *file, uint64_t offset);

#endif
