/* Which function lies at a place of an ELF file, by its symbol tables. Pure; the bytes may be
 * anything. */
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

/* Is it an ELF file of 64 bits and of this machine's byte order, whose headers lie in it? */
bool elf_is_one(const struct elf_file *file);

/* Its build-id as hexadecimal digits into `digits`, or "" when there is none that fits. */
void elf_build_id(const struct elf_file *file, char *digits, size_t capacity);

/* The name of the function whose code holds the byte `offset` bytes behind where the file's first
 * segment begins in memory, as it stands in the file; NULL when no symbol covers it. Only symbols
 * that have a size count: the nearest one below a place need not be its function. */
const char *elf_function_at(const struct elf_file *file, uint64_t offset);

#endif
