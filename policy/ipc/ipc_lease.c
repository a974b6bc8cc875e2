/* Locks on bytes of a file without a name: see ipc_lease.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/ipc/ipc_lease.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/ipc/ipc_socket.h"

static struct ag_ipc_leases leases_of(int fd)
{
    struct ag_ipc_leases leases = {.fd = -1};
    struct stat identity;

    if (fd < 0)
        return leases;
    fd = ag_ipc_out_of_the_way(fd);
    if (fstat(fd, &identity)) {
        (void)close(fd);
        return leases;
    }
    leases.fd = fd;
    leases.device = identity.st_dev;
    leases.inode = identity.st_ino;
    return leases;
}

struct ag_ipc_leases ag_ipc_leases_make(void)
{
    return leases_of(memfd_create("allograft-ipc", MFD_CLOEXEC));
}

struct ag_ipc_leases ag_ipc_leases_open(int fd)
{
    static const char folder[] = "/proc/self/fd/";
    char path[sizeof(folder) + 12], *at = path + sizeof(path) - 1;
    unsigned number = (unsigned)fd;

    *at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    at -= sizeof(folder) - 1;
    memcpy(at, folder, sizeof(folder) - 1);
    return leases_of(fd < 0 ? -1 : open(at, O_RDWR | O_CLOEXEC));
}

bool ag_ipc_leases_there(const struct ag_ipc_leases *leases)
{
    struct stat now;

    return leases->fd >= 0 && !fstat(leases->fd, &now) && now.st_ino == leases->inode &&
           now.st_dev == leases->device;
}

void ag_ipc_leases_close(struct ag_ipc_leases *leases)
{
    if (ag_ipc_leases_there(leases))
        (void)close(leases->fd);
    leases->fd = -1;
}

static void lock(const struct ag_ipc_leases *leases, uint64_t number, short type)
{
    struct flock byte = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};

    if (ag_ipc_leases_there(leases))
        (void)fcntl(leases->fd, F_OFD_SETLK, &byte);
}

void ag_ipc_lease_take(const struct ag_ipc_leases *leases, uint64_t number)
{
    lock(leases, number, F_RDLCK);
}

void ag_ipc_lease_drop(const struct ag_ipc_leases *leases, uint64_t number)
{
    lock(leases, number, F_UNLCK);
}

bool ag_ipc_leased(const struct ag_ipc_leases *leases, uint64_t number)
{
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};

    return ag_ipc_leases_there(leases) && !fcntl(leases->fd, F_OFD_GETLK, &byte) &&
           byte.l_type != F_UNLCK;
}
