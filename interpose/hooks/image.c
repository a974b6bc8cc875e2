/* Parses device code as far as needed to find out whether it calls vprintf: see image.h.
 *
 * A wrapper (magic, version, pointer to the fat binary) comes from nvcc's host code. A fat binary
 * is a header of 16 bytes (magic, version, header size, size of the entries) and entries, each with
 * a header of its own: kind, version, header size, payload size, ..., flags at byte 40. A cubin is
 * an ELF file whose string tables name what it calls; PTX is text that names it.
 *
 * The program may pass anything, and only headers that may lie say how much of it can be read. So
 * every byte is read through the kernel, which fails where a plain access would crash. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/hooks/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRAPPER_MAGIC      0x466243b1u
#define FAT_MAGIC          0xba55ed50u
#define FLAG_ZSTD          0x8000u
#define KIND_CUBIN         2u
#define ENTRY_HEADER_LEAST 48u
#define CHUNK              16384u

static const char callee[] = "vprintf";

/* Bytes of this process that may or may not be readable. */
struct span {
    const char *base;
    uint64_t size; /* UINT64_MAX: not known */
};

struct wrapper {
    uint32_t magic, version;
    const char *fat;
};

struct fat_header {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t entries_size;
};

struct entry_header {
    uint16_t kind, version;
    uint32_t header_size;
    uint64_t payload_size;
    uint64_t unused[3];
    uint64_t flags;
};

/* The kernel lets nobody look (a container's filter): then all code counts as printing. */
static _Atomic bool forbidden;

/* Reads up to `n` bytes at `offset` into `buffer`. Returns how many there were. */
static size_t fetch(struct span span, uint64_t offset, void *buffer, size_t n)
{
    uintptr_t base = (uintptr_t)span.base;
    struct iovec here = {.iov_base = buffer}, there;
    ssize_t got;

    if (offset >= span.size || offset > UINTPTR_MAX - base)
        return 0;
    there.iov_base = (void *)(base + (uintptr_t)offset);
    if (n > span.size - offset)
        n = (size_t)(span.size - offset);
    here.iov_len = there.iov_len = n;
    got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (got < 0 && (errno == EPERM || errno == ENOSYS))
        forbidden = true;
    return got > 0 ? (size_t)got : 0;
}

/* Does the name stand in [offset, offset + size)? Text ends at its NUL. */
static bool span_contains(struct span span, uint64_t offset, uint64_t size, bool is_text)
{
    char buffer[CHUNK];
    const size_t overlap = sizeof(callee) - 2; /* a name may stand across two chunks */

    while (size >= sizeof(callee) - 1) {
        size_t got = fetch(span, offset, buffer, size < CHUNK ? (size_t)size : CHUNK);
        size_t used = is_text ? strnlen(buffer, got) : got;

        if (memmem(buffer, used, callee, sizeof(callee) - 1))
            return true;
        if (used < CHUNK) /* the end, or as far as it can be read */
            return false;
        offset += CHUNK - overlap;
        size -= CHUNK - overlap;
    }
    return false;
}

/* A fat binary of nothing but PTX that is compressed with zstd, which nvcc 13 does by default,
 * counts as printing: nobody can tell. One with compressed cubins does not, or the libraries of
 * CUDA 13 would make all programs that use them wait. */
static bool entries_print(struct span span, uint64_t offset, uint64_t size)
{
    bool some_hidden = false, all_hidden_ptx = true;
    struct entry_header header;

    while (size >= ENTRY_HEADER_LEAST &&
           fetch(span, offset, &header, sizeof(header)) == sizeof(header)) {
        bool is_hidden = (header.flags & FLAG_ZSTD) != 0;

        if (header.header_size < ENTRY_HEADER_LEAST || header.header_size > size ||
            header.payload_size > size - header.header_size)
            return false;
        if (!is_hidden &&
            span_contains(span, offset + header.header_size, header.payload_size, false))
            return true;
        some_hidden |= is_hidden;
        all_hidden_ptx &= is_hidden && header.kind != KIND_CUBIN;
        offset += header.header_size + header.payload_size;
        size -= header.header_size + header.payload_size;
    }
    return some_hidden && all_hidden_ptx;
}

static bool elf_prints(struct span span, const Elf64_Ehdr *elf)
{
    Elf64_Shdr section;

    for (unsigned i = 0; i < elf->e_shnum && elf->e_shentsize >= sizeof(section); i++) {
        uint64_t offset = elf->e_shoff + (uint64_t)i * elf->e_shentsize;

        if (fetch(span, offset, &section, sizeof(section)) != sizeof(section))
            return false;
        if (section.sh_type == SHT_STRTAB &&
            span_contains(span, section.sh_offset, section.sh_size, false))
            return true;
    }
    return false;
}

static bool span_prints(struct span span, bool may_be_wrapped)
{
    union {
        uint32_t magic;
        struct wrapper wrapper;
        struct fat_header fat;
        Elf64_Ehdr elf;
    } start;
    size_t got = fetch(span, 0, &start, sizeof(start));

    if (got >= sizeof(start.wrapper) && start.magic == WRAPPER_MAGIC)
        return may_be_wrapped && span_prints((struct span){start.wrapper.fat, UINT64_MAX}, false);
    if (got >= sizeof(start.fat) && start.magic == FAT_MAGIC)
        return entries_print(span, start.fat.header_size, start.fat.entries_size);
    if (got >= sizeof(start.elf) && !memcmp(start.elf.e_ident, ELFMAG, SELFMAG))
        return elf_prints(span, &start.elf);
    return span_contains(span, 0, span.size, true);
}

bool ag_image_bytes_print(const void *image, size_t size)
{
    return span_prints((struct span){image, size}, false) || forbidden;
}

bool ag_image_prints(const void *image)
{
    return image && (span_prints((struct span){image, UINT64_MAX}, true) || forbidden);
}

bool ag_image_file_prints(const char *path)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    struct stat status;
    bool prints = false;

    if (fd < 0)
        return false;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size > 0) {
        size_t size = (size_t)status.st_size;
        void *image = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

        if (image != MAP_FAILED) {
            prints = ag_image_bytes_print(image, size);
            munmap(image, size);
        }
    }
    close(fd);
    return prints;
}
