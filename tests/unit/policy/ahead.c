/* policy/paging/ahead.c: the thread leaves the driver to others as long after each call as that
 * took, calls nothing while pieces move, and gives nothing back that is needed again. Its driver is
 * slow, and counts. */
#include "policy/paging/ahead.h"

#include <time.h>

#include "interpose/core/base/clock.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/paging/handles.h"
#include "policy/paging/latch.h"
#include "policy/pinned/host_room.h"
#include "tests/common/check.h"

#define PIECE   ((size_t)1 << 20)
#define PIECES  8u       /* are made ahead */
#define OTHERS  1u       /* likewise, for the other device */
#define CALL_NS 4000000u /* a call takes, at least */
#define MADE    (PIECES + OTHERS)
#define MOST    (2 * MADE)

_Atomic unsigned ag_captures_open;

static struct call {
    uint64_t began, ended;
} calls[MOST];
static _Atomic unsigned n_calls; /* that have ended */
static _Atomic unsigned n_kept[2];
static _Atomic bool is_scarce_again;
/* Nobody looks into them. */
static struct ag_device *const device = (struct ag_device *)&calls[0];
static struct ag_device *const other = (struct ag_device *)&calls[1];

static _Atomic unsigned *kept_for(const struct ag_device *of)
{
    return &n_kept[of == other];
}

static void sleep_ns(uint64_t ns)
{
    (void)nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

static void call_driver(void)
{
    unsigned i = n_calls;

    CHECK(i < MOST);
    calls[i].began = ag_clock_ns();
    sleep_ns(CALL_NS);
    calls[i].ended = ag_clock_ns();
    n_calls = i + 1;
}

/* --- what the thread calls --- */

CUstreamCaptureMode ag_capture_relax(void)
{
    return CU_STREAM_CAPTURE_MODE_RELAXED;
}

struct ag_device *ag_device_met(unsigned i)
{
    return i == 0 ? device : i == 1 ? other : NULL;
}

uint64_t ag_budget_size(const struct ag_device *of)
{
    return 16 * (of == other ? OTHERS : PIECES) * PIECE;
}

uint64_t ag_handles_kept_on_host(const struct ag_device *of)
{
    return *kept_for(of) * PIECE;
}

bool ag_handles_are_scarce(const struct ag_device *of)
{
    (void)of;
    return n_calls < MADE || is_scarce_again;
}

bool ag_handle_make_ahead(struct ag_device *of, size_t size)
{
    CHECK(size == PIECE);
    call_driver();
    ++*kept_for(of);
    return true;
}

size_t ag_handle_give_one_back(struct ag_device *of)
{
    if (!ag_handles_kept_on_host(of))
        return 0;
    call_driver();
    --*kept_for(of);
    return PIECE;
}

void ag_host_room_read(const char *root, struct ag_host_room *ret_room)
{
    (void)root;
    *ret_room = (struct ag_host_room){0};
}

bool ag_host_room_is_short(const struct ag_host_room *room)
{
    (void)room;
    return false;
}

/* --- what is checked --- */

static void await_calls(unsigned n)
{
    for (unsigned i = 0; i < 20000 && n_calls < n; i++)
        sleep_ns(1000000);
    CHECK_SAID(n_calls >= n, "%u calls", n_calls);
}

/* Nothing begins meanwhile; what was under way may end. */
static void test_while_pieces_move(void)
{
    unsigned n;

    await_calls(2);
    CHECK(ag_latch_close(UINT64_MAX));
    sleep_ns(2 * CALL_NS);
    n = n_calls;
    sleep_ns(10 * CALL_NS);
    CHECK_SAID(n_calls == n, "%u of %u", n, n_calls);
    ag_latch_open();
}

/* What is left is kept, and goes once it is not scarce any more. */
static void test_scarce_again(void)
{
    unsigned n;

    await_calls(MADE + 2);
    is_scarce_again = true;
    n = n_calls;
    sleep_ns(10 * CALL_NS);
    CHECK_SAID(n_calls <= n + 1, "%u, then %u", n, n_calls); /* one was under way */
    is_scarce_again = false;
}

static void test_pauses(void)
{
    for (unsigned i = 0; i + 1 < n_calls; i++)
        CHECK_SAID(calls[i + 1].began - calls[i].ended >= CALL_NS, "call %u: %lu ns", i,
                   calls[i + 1].began - calls[i].ended);
}

int main(void)
{
    ag_latch_configure(true);
    ag_ahead_look(device, PIECE);
    test_while_pieces_move();
    await_calls(PIECES);
    ag_ahead_look(other, PIECE);
    test_scarce_again();
    await_calls(2 * MADE); /* nothing is scarce any more: all goes back */
    CHECK(!n_kept[0] && !n_kept[1]);
    ag_ahead_stop();
    test_pauses();
    return 0;
}
