/* Handles and messages of other processes: whatever the bytes, no crash, and what is taken is
 * exactly what would have been written. */
#include "policy/ipc/ipc_message.h"

#include <string.h>

#include "fuzz.h"

/* Makes the bytes' checksum right, so that what it hides is looked at as well. */
static void seal(uint8_t *bytes, size_t n)
{
    uint64_t sum = 0xcbf29ce484222325u;

    for (size_t i = 0; i + 8 < n; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3u;
    for (unsigned i = 0; i < 8 && n >= 8; i++)
        bytes[n - 8 + i] = (uint8_t)(sum >> 8 * i);
}

static void look_at(const uint8_t *bytes, size_t n)
{
    uint8_t again[AG_IPC_REPLY_BYTES];
    struct ag_ipc_handle handle;
    struct ag_ipc_request request;
    struct ag_ipc_reply reply;

    if (n == AG_IPC_HANDLE_BYTES && ag_ipc_read_handle(bytes, &handle)) {
        ag_ipc_write_handle(again, &handle);
        FUZZ_CHECK(!memcmp(again, bytes, n));
    }
    if (ag_ipc_read_request(bytes, n, &request)) {
        FUZZ_CHECK(n == AG_IPC_REQUEST_BYTES);
        ag_ipc_write_request(again, &request);
        FUZZ_CHECK(!memcmp(again, bytes, n));
    }
    if (ag_ipc_read_reply(bytes, n, &reply)) {
        FUZZ_CHECK(n == AG_IPC_REPLY_BYTES && reply.status < AG_IPC_N_STATUSES);
        ag_ipc_write_reply(again, &reply);
        FUZZ_CHECK(!memcmp(again, bytes, n));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t sizes[] = {AG_IPC_HANDLE_BYTES, AG_IPC_REQUEST_BYTES, AG_IPC_REPLY_BYTES};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t *bytes = calloc(1, sizes[i]); /* of exactly that size: ASan sees what lies behind */

        FUZZ_CHECK(bytes);
        if (size)
            memcpy(bytes, data, size < sizes[i] ? size : sizes[i]);
        look_at(bytes, sizes[i]);
        seal(bytes, sizes[i]);
        look_at(bytes, sizes[i]);
        free(bytes);
    }
    look_at(data, size);
    return 0;
}
