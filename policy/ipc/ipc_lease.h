/* Leases: which process has which exported block open. A lease is a lock on one byte of a file
 * without a name, so the kernel drops it when its holder dies. The exporter makes the file and
 * sends it with the pool; the offset of the byte is the number of the export. Knows no CUDA. */
#ifndef AG_POLICY_IPC_LEASE_H
#define AG_POLICY_IPC_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ag_ipc_leases {
    int fd; /* -1: none; nothing is leased then */
    dev_t device;
    ino_t inode; /* a program may close what it did not open, and use the number */
};

/* The exporter's: a new file. fd is -1 when there is none to be had. */
struct ag_ipc_leases ag_ipc_leases_make(void);
/* The importer's: the file of `fd`, which stays the caller's, opened anew, since locks of one
 * opening do not exclude each other. */
struct ag_ipc_leases ag_ipc_leases_open(int fd);
void ag_ipc_leases_close(struct ag_ipc_leases *leases);
/* Is the descriptor still the file it was? */
bool ag_ipc_leases_there(const struct ag_ipc_leases *leases);

void ag_ipc_lease_take(const struct ag_ipc_leases *leases, uint64_t number);
void ag_ipc_lease_drop(const struct ag_ipc_leases *leases, uint64_t number);
/* Has anybody else taken it? */
bool ag_ipc_leased(const struct ag_ipc_leases *leases, uint64_t number);

#endif
