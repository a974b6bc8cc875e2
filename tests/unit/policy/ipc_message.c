/* policy/ipc/ipc_message.c: what is written is read again; one wrong bit, another length or another
 * version is not; the three kinds are not taken for each other, nor for a handle of the driver's.
 */
#include "policy/ipc/ipc_message.h"

#include <string.h>

#include "tests/common/check.h"

static uint64_t state = 1;

static void fill(void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)chance(&state);
}

static struct ag_ipc_handle any_handle(void)
{
    struct ag_ipc_handle handle;

    fill(&handle.process, sizeof(handle.process));
    fill(&handle.token, sizeof(handle.token));
    handle.number = chance(&state);
    handle.pid = (uint32_t)chance(&state);
    return handle;
}

static struct ag_ipc_request any_request(void)
{
    struct ag_ipc_request request;

    fill(&request.token, sizeof(request.token));
    request.number = chance(&state);
    return request;
}

static struct ag_ipc_reply any_reply(void)
{
    struct ag_ipc_reply reply = {.status =
                                     chance(&state) % 2 ? AG_IPC_GIVEN : AG_IPC_NO_SUCH_MEMORY};

    reply.pool = (uint32_t)chance(&state);
    reply.size = chance(&state);
    fill(reply.uuid, sizeof(reply.uuid));
    fill(reply.pointer, sizeof(reply.pointer));
    return reply;
}

static void there_and_back(void)
{
    for (unsigned i = 0; i < 1000; i++) {
        struct ag_ipc_handle handle = any_handle(), handle_again;
        struct ag_ipc_request request = any_request(), request_again;
        struct ag_ipc_reply reply = any_reply(), reply_again;
        uint8_t bytes[AG_IPC_REPLY_BYTES];

        ag_ipc_write_handle(bytes, &handle);
        CHECK(ag_ipc_read_handle(bytes, &handle_again));
        CHECK(ag_ipc_same_id(&handle.process, &handle_again.process));
        CHECK(ag_ipc_same_id(&handle.token, &handle_again.token));
        CHECK(handle.number == handle_again.number && handle.pid == handle_again.pid);
        ag_ipc_write_request(bytes, &request);
        CHECK(ag_ipc_read_request(bytes, AG_IPC_REQUEST_BYTES, &request_again));
        CHECK(ag_ipc_same_id(&request.token, &request_again.token));
        CHECK(request.number == request_again.number);
        ag_ipc_write_reply(bytes, &reply);
        CHECK(ag_ipc_read_reply(bytes, AG_IPC_REPLY_BYTES, &reply_again));
        CHECK(reply.status == reply_again.status && reply.pool == reply_again.pool);
        CHECK(reply.size == reply_again.size);
        CHECK(!memcmp(reply.uuid, reply_again.uuid, sizeof(reply.uuid)));
        CHECK(!memcmp(reply.pointer, reply_again.pointer, sizeof(reply.pointer)));
    }
}

/* Does any of the three readers take the bytes? */
static bool is_taken(const uint8_t *bytes, size_t n)
{
    struct ag_ipc_handle handle;
    struct ag_ipc_request request;
    struct ag_ipc_reply reply;

    return (n == AG_IPC_HANDLE_BYTES && ag_ipc_read_handle(bytes, &handle)) ||
           ag_ipc_read_request(bytes, n, &request) || ag_ipc_read_reply(bytes, n, &reply);
}

/* Writes one of the three; its size. */
static size_t write_any(unsigned which, uint8_t *bytes)
{
    struct ag_ipc_handle handle = any_handle();
    struct ag_ipc_request request = any_request();
    struct ag_ipc_reply reply = any_reply();

    switch (which) {
    case 0:
        ag_ipc_write_handle(bytes, &handle);
        return AG_IPC_HANDLE_BYTES;
    case 1:
        ag_ipc_write_request(bytes, &request);
        return AG_IPC_REQUEST_BYTES;
    default:
        ag_ipc_write_reply(bytes, &reply);
        return AG_IPC_REPLY_BYTES;
    }
}

static void nothing_but_the_whole(void)
{
    for (unsigned which = 0; which < 3; which++) {
        uint8_t bytes[2 * AG_IPC_REPLY_BYTES] = {0};
        size_t n = write_any(which, bytes);

        CHECK_SAID(is_taken(bytes, n), "%u", which);
        for (size_t bit = 0; bit < n * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK_SAID(!is_taken(bytes, n), "%u, bit %zu", which, bit);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t other = 0; other < sizeof(bytes); other++)
            CHECK_SAID(other == n || !is_taken(bytes, other), "%u, %zu bytes", which, other);
    }
}

/* What the driver or the program may have put there instead. */
static void nothing_else(void)
{
    uint8_t bytes[AG_IPC_HANDLE_BYTES] = {0};
    struct ag_ipc_handle handle;

    CHECK(!ag_ipc_read_handle(bytes, &handle));
    memset(bytes, 0xff, sizeof(bytes));
    CHECK(!ag_ipc_read_handle(bytes, &handle));
    for (unsigned i = 0; i < 100000; i++) {
        fill(bytes, sizeof(bytes));
        CHECK(!ag_ipc_read_handle(bytes, &handle));
    }
}

static void ids(void)
{
    struct ag_ipc_id a, b;

    fill(&a, sizeof(a));
    b = a;
    CHECK(ag_ipc_same_id(&a, &b));
    for (unsigned bit = 0; bit < 128; bit++) {
        b.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_SAID(!ag_ipc_same_id(&a, &b), "bit %u", bit);
        b.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    there_and_back();
    nothing_but_the_whole();
    nothing_else();
    ids();
    return 0;
}
