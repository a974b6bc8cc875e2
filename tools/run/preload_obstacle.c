/* preload_obstacle.c: reads from a program's file whether the dynamic linker will preload a library
 * into it. */
#include "tools/run/environment.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Only files with the command's own word size and byte order are parsed; the first bytes of others
 * tell that our library does not fit. */
typedef Elf64_Ehdr elf_header;
typedef Elf64_Phdr elf_segment;

static bool raises_privileges(const char *path, const struct stat *st)
{
    if ((st->st_mode & S_ISUID) && st->st_uid != getuid())
        return true;
    if ((st->st_mode & S_ISGID) && st->st_gid != getgid())
        return true;
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

static bool has_interpreter(int fd, const elf_header *header)
{
    elf_segment segment;

    for (unsigned i = 0; i < header->e_phnum; i++) {
        off_t at = (off_t)header->e_phoff + (off_t)i * header->e_phentsize;

        if (pread(fd, &segment, sizeof(segment), at) != (ssize_t)sizeof(segment))
            return true; /* unreadable: the kernel will report it */
        if (segment.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static const char *elf_obstacle(int fd)
{
    elf_header header;

    if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return NULL;
    if (memcmp(header.e_ident, ELFMAG, SELFMAG))
        return NULL;
    if (header.e_ident[EI_CLASS] != ELFCLASS64)
        return "is a 32-bit program";
    if (!has_interpreter(fd, &header))
        return "is statically linked";
    return NULL;
}

const char *preload_obstacle(const char *path)
{
    const char *obstacle;
    struct stat st;
    int fd;

    if (stat(path, &st))
        return NULL;
    if (raises_privileges(path, &st))
        return "runs with other privileges than the caller's (setuid, setgid or capabilities)";
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    obstacle = elf_obstacle(fd);
    close(fd);
    return obstacle;
}
