/* Messages to bytes and back: see ipc_message.h. */
#include "policy/ipc/ipc_message.h"

#include <string.h>

#include "interpose/core/base/hash.h"

#define VERSION        2u
#define MAGIC_BYTES    8u
#define CHECKSUM_BYTES 8u

static const char handle_magic[MAGIC_BYTES] = {'\xa6', 'a', 'l', 'g', 'r', 'i', 'p', 'c'};
static const char request_magic[MAGIC_BYTES] = {'\xa6', 'a', 'l', 'g', 'r', 'a', 's', 'k'};
static const char reply_magic[MAGIC_BYTES] = {'\xa6', 'a', 'l', 'g', 'r', 's', 'a', 'y'};

/* --- one field after the other --- */

static uint8_t *put_number(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
    return at + bytes;
}

static uint8_t *put_bytes(uint8_t *at, const void *from, size_t n)
{
    memcpy(at, from, n);
    return at + n;
}

static uint64_t get_number(const uint8_t **at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)(*at)[i] << 8 * i;
    *at += bytes;
    return value;
}

static void get_bytes(const uint8_t **at, void *to, size_t n)
{
    memcpy(to, *at, n);
    *at += n;
}

/* FNV-1a: finds what is not ours or was cut, not what was forged; forging is the token's matter. */
static uint64_t checksum(const uint8_t *bytes, size_t n)
{
    return ag_hash_bytes(AG_HASH_FNV, bytes, n);
}

static uint8_t *begin_message(uint8_t *bytes, const char *magic)
{
    return put_number(put_bytes(bytes, magic, MAGIC_BYTES), VERSION, 4);
}

static void end_message(uint8_t *bytes, uint8_t *at)
{
    (void)put_number(at, checksum(bytes, (size_t)(at - bytes)), CHECKSUM_BYTES);
}

/* *ret_at is after the version then. */
static bool opens(const uint8_t *bytes, size_t n, const char *magic, const uint8_t **ret_at)
{
    const uint8_t *last = bytes + n - CHECKSUM_BYTES;

    if (memcmp(bytes, magic, MAGIC_BYTES) ||
        get_number(&last, CHECKSUM_BYTES) != checksum(bytes, n - CHECKSUM_BYTES))
        return false;
    *ret_at = bytes + MAGIC_BYTES;
    return get_number(ret_at, 4) == VERSION;
}

/* --- the three --- */

void ag_ipc_write_handle(uint8_t *bytes, const struct ag_ipc_handle *handle)
{
    uint8_t *at = begin_message(bytes, handle_magic);

    at = put_number(at, handle->pid, 4);
    at = put_bytes(at, handle->process.bytes, AG_IPC_ID_BYTES);
    at = put_bytes(at, handle->token.bytes, AG_IPC_ID_BYTES);
    at = put_number(at, handle->number, 8);
    end_message(bytes, at);
}

bool ag_ipc_read_handle(const uint8_t *bytes, struct ag_ipc_handle *ret)
{
    const uint8_t *at;

    if (!opens(bytes, AG_IPC_HANDLE_BYTES, handle_magic, &at))
        return false;
    ret->pid = (uint32_t)get_number(&at, 4);
    get_bytes(&at, ret->process.bytes, AG_IPC_ID_BYTES);
    get_bytes(&at, ret->token.bytes, AG_IPC_ID_BYTES);
    ret->number = get_number(&at, 8);
    return true;
}

void ag_ipc_write_request(uint8_t *bytes, const struct ag_ipc_request *request)
{
    uint8_t *at = put_number(begin_message(bytes, request_magic), 0, 4);

    at = put_bytes(at, request->token.bytes, AG_IPC_ID_BYTES);
    at = put_number(at, request->number, 8);
    end_message(bytes, at);
}

bool ag_ipc_read_request(const uint8_t *bytes, size_t n, struct ag_ipc_request *ret)
{
    const uint8_t *at;

    if (n != AG_IPC_REQUEST_BYTES || !opens(bytes, n, request_magic, &at) || get_number(&at, 4))
        return false;
    get_bytes(&at, ret->token.bytes, AG_IPC_ID_BYTES);
    ret->number = get_number(&at, 8);
    return true;
}

void ag_ipc_write_reply(uint8_t *bytes, const struct ag_ipc_reply *reply)
{
    uint8_t *at = put_number(begin_message(bytes, reply_magic), reply->status, 4);

    at = put_number(put_number(at, reply->pool, 4), 0, 4);
    at = put_number(at, reply->size, 8);
    at = put_number(put_number(at, reply->range, 8), reply->offset, 8);
    at = put_bytes(at, reply->uuid, AG_IPC_ID_BYTES);
    at = put_bytes(at, reply->pointer, AG_IPC_POINTER_BYTES);
    end_message(bytes, at);
}

bool ag_ipc_read_reply(const uint8_t *bytes, size_t n, struct ag_ipc_reply *ret)
{
    const uint8_t *at;
    uint32_t status, pool;

    if (n != AG_IPC_REPLY_BYTES || !opens(bytes, n, reply_magic, &at))
        return false;
    status = (uint32_t)get_number(&at, 4);
    pool = (uint32_t)get_number(&at, 4);
    if (status >= AG_IPC_N_STATUSES || get_number(&at, 4))
        return false;
    ret->status = (enum ag_ipc_status)status;
    ret->pool = pool;
    ret->size = get_number(&at, 8);
    ret->range = get_number(&at, 8);
    ret->offset = get_number(&at, 8);
    get_bytes(&at, ret->uuid, AG_IPC_ID_BYTES);
    get_bytes(&at, ret->pointer, AG_IPC_POINTER_BYTES);
    return true;
}

bool ag_ipc_same_id(const struct ag_ipc_id *a, const struct ag_ipc_id *b)
{
    volatile uint8_t differ = 0;

    for (unsigned i = 0; i < AG_IPC_ID_BYTES; i++)
        differ |= (uint8_t)(a->bytes[i] ^ b->bytes[i]);
    return !differ;
}
