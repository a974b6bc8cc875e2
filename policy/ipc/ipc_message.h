/* The bytes that travel between two processes that share memory of our pools or slabs: the handle
 * that the program carries over, the question put to the process that gave it out, and its answer.
 * Pure.
 *
 * All numbers are little-endian. A handle is 64 bytes, as the driver's; the 8 bytes it begins with
 * and the checksum it ends with distinguish the two.
 *
 *   handle    magic[8] version:u32 pid:u32 process[16] token[16] number:u64 checksum:u64
 *   request   magic[8] version:u32 zero:u32 token[16] number:u64 checksum:u64
 *   reply     magic[8] version:u32 status:u32 pool:u32 zero:u32 size:u64 range:u64 offset:u64
 *             uuid[16] pointer[64] checksum:u64; file descriptors travel beside it when the status
 *             is GIVEN */
#ifndef AG_POLICY_IPC_MESSAGE_H
#define AG_POLICY_IPC_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AG_IPC_HANDLE_BYTES  64u
#define AG_IPC_REQUEST_BYTES 48u
#define AG_IPC_REPLY_BYTES   136u
#define AG_IPC_ID_BYTES      16u
#define AG_IPC_POINTER_BYTES 64u

/* 128 random bits. */
struct ag_ipc_id {
    uint8_t bytes[AG_IPC_ID_BYTES];
};

struct ag_ipc_handle {
    struct ag_ipc_id process; /* who gave it out: names the socket */
    struct ag_ipc_id token;   /* of this allocation: who knows it was given the handle */
    uint64_t number;          /* of this allocation, from 1 on */
    uint32_t pid;             /* of that process where it runs; for messages only */
};

struct ag_ipc_request {
    struct ag_ipc_id token;
    uint64_t number;
};

enum ag_ipc_status { AG_IPC_GIVEN, AG_IPC_NO_SUCH_MEMORY, AG_IPC_N_STATUSES };

#define AG_IPC_NO_POOL UINT32_MAX /* the driver has a handle of that memory, of the whole slab */

struct ag_ipc_reply {
    enum ag_ipc_status status;
    uint32_t pool;                         /* which of the exporter's pools, or AG_IPC_NO_POOL */
    uint64_t size;                         /* bytes its program asked for */
    uint64_t range;                        /* which of the exporter's allocations it lies in */
    uint64_t offset;                       /* from where that begins: of a piece of a slab */
    uint8_t uuid[AG_IPC_ID_BYTES];         /* of the device */
    uint8_t pointer[AG_IPC_POINTER_BYTES]; /* CUmemPoolPtrExportData; CUipcMemHandle without pool */
};

void ag_ipc_write_handle(uint8_t *bytes, const struct ag_ipc_handle *handle);
void ag_ipc_write_request(uint8_t *bytes, const struct ag_ipc_request *request);
void ag_ipc_write_reply(uint8_t *bytes, const struct ag_ipc_reply *reply);

/* False when the bytes are none of ours, or not whole; *ret is untouched then. A handle always has
 * AG_IPC_HANDLE_BYTES. */
bool ag_ipc_read_handle(const uint8_t *bytes, struct ag_ipc_handle *ret);
bool ag_ipc_read_request(const uint8_t *bytes, size_t n, struct ag_ipc_request *ret);
bool ag_ipc_read_reply(const uint8_t *bytes, size_t n, struct ag_ipc_reply *ret);

/* Takes as long whatever the two are. */
bool ag_ipc_same_id(const struct ag_ipc_id *a, const struct ag_ipc_id *b);

#endif
