/* The formats of device code, as far as finding a call of vprintf in it needs: see image.h.
 *
 * A wrapper (magic, version, pointer to the fat binary) comes from nvcc's host code. A fat binary is a
 * header of 16 bytes (magic, version, header size, size of the entries) and entries, each with a header
 * of its own: kind, version, header size, payload size, ..., flags at byte 40. A cubin is an ELF file
 * whose string table names what it calls; PTX is text that names it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "image.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRAPPER_MAGIC 0x466243b1u
#define FAT_MAGIC 0xba55ed50u
#define FLAG_ZSTD 0x8000u
#define ENTRY_HEADER_LEAST 48u

static const char callee[] = "vprintf";

struct wrapper {
    uint32_t magic, version;
    const void *fat;
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

static bool contains(const char *bytes, size_t size)
{
    return memmem(bytes, size, callee, sizeof(callee) - 1) != NULL;
}

/* Of entries in `size` bytes. */
static bool entries_print(const char *bytes, size_t size)
{
    struct entry_header header;

    while (size >= ENTRY_HEADER_LEAST) {
        memcpy(&header, bytes, sizeof(header));
        if (header.header_size < ENTRY_HEADER_LEAST || header.header_size > size ||
            header.payload_size > size - header.header_size)
            return false;
        if (!(header.flags & FLAG_ZSTD) &&
            contains(bytes + header.header_size, (size_t)header.payload_size))
            return true;
        bytes += header.header_size + header.payload_size;
        size -= header.header_size + (size_t)header.payload_size;
    }
    return false;
}

/* Bytes of an ELF file, whose section table stands last in a cubin. */
static size_t elf_size(const Elf64_Ehdr *elf)
{
    return (size_t)elf->e_shoff + (size_t)elf->e_shnum * elf->e_shentsize;
}

bool ag_image_bytes_print(const void *image, size_t size)
{
    struct fat_header fat;
    struct wrapper wrapper;
    Elf64_Ehdr elf;

    if (size >= sizeof(wrapper)) {
        memcpy(&wrapper, image, sizeof(wrapper));
        if (wrapper.magic == WRAPPER_MAGIC) /* a pointer: only what the process itself passes */
            return size == SIZE_MAX && ag_image_prints(wrapper.fat);
    }
    if (size >= sizeof(fat)) {
        memcpy(&fat, image, sizeof(fat));
        if (fat.magic == FAT_MAGIC) {
            if (fat.header_size > size || fat.entries_size > size - fat.header_size)
                return false;
            return entries_print((const char *)image + fat.header_size, (size_t)fat.entries_size);
        }
    }
    if (size >= sizeof(elf) && !memcmp(image, ELFMAG, SELFMAG)) {
        memcpy(&elf, image, sizeof(elf));
        return contains(image, elf_size(&elf) < size ? elf_size(&elf) : size);
    }
    return contains(image, size == SIZE_MAX ? strlen(image) : size);
}

/* How much of an image may be read is known only from its own headers; the magic numbers say of which
 * kind it is, and text ends with a NUL. So a kind is only tried where its first bytes fit. */
bool ag_image_prints(const void *image)
{
    uint32_t magic = 0;
    const char *text = image;

    if (!image)
        return false;
    for (size_t i = 0; i < sizeof(magic); i++) { /* text may be shorter than a magic number */
        if (!text[i])
            break;
        memcpy((char *)&magic + i, text + i, 1);
    }
    if (magic == WRAPPER_MAGIC || magic == FAT_MAGIC || !memcmp(&magic, ELFMAG, SELFMAG))
        return ag_image_bytes_print(image, SIZE_MAX);
    return contains(text, strlen(text));
}

bool ag_image_file_prints(const char *path)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
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
