/* base/lock.c and spin.h with AG_LOCK_CHECKS: locks taken in the order of their ranks pass, any
 * other order and a lock held where none may be held end the process with a line that says so. */
#include "interpose/core/base/threads/lock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/core/base/threads/spin.h"
#include "tests/common/check.h"

#ifndef AG_LOCK_CHECKS
#error "this test needs the checks"
#endif

static struct ag_lock contexts = AG_LOCK_INIT(AG_RANK_CONTEXTS);
static struct ag_lock cache = AG_LOCK_INIT(AG_RANK_CACHE), ledger = AG_LOCK_INIT(AG_RANK_LEDGER);
static struct ag_lock ledger_too, arena = AG_LOCK_INIT(AG_RANK_ARENA);

static void in_order(void)
{
    ag_lock_take(&contexts);
    ag_lock_take(&ledger);
    ag_lock_take(&arena);
    ag_lock_release(&arena);
    ag_lock_release(&ledger);
    ag_lock_take(&cache); /* higher than what is still held */
    ag_lock_release(&contexts);
    ag_lock_release(&cache);
    ag_lock_held_none("in_order");
}

static void tried(void)
{
    CHECK(ag_lock_try(&ledger));
    CHECK(!ag_lock_try(&ledger)); /* busy: nothing is noted */
    ag_lock_release(&ledger);
    ag_lock_held_none("tried");
}

static struct ag_spin spin_ledger = AG_SPIN_INIT(AG_RANK_LEDGER);
static uint64_t under_spin; /* guarded by it */

static void *add_under_spin(void *unused)
{
    for (unsigned i = 0; i < 20000; i++) {
        if (i % 4 || !ag_spin_try(&spin_ledger))
            ag_spin_take(&spin_ledger);
        under_spin++;
        ag_spin_release(&spin_ledger);
    }
    return unused;
}

static void spins(void)
{
    pthread_t threads[4];

    ag_lock_take(&cache);
    CHECK(ag_spin_try(&spin_ledger) && !ag_spin_try(&spin_ledger));
    ag_spin_release(&spin_ledger);
    ag_lock_release(&cache);
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, add_under_spin, NULL));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(under_spin == 4 * 20000);
    ag_lock_held_none("spins");
}

static void wrong_order_spun(void)
{
    ag_spin_take(&spin_ledger);
    ag_lock_take(&contexts);
}

static void same_rank_spun(void)
{
    ag_lock_take(&ledger);
    ag_spin_take(&spin_ledger);
}

static void wrong_order(void)
{
    ag_lock_take(&arena);
    ag_lock_take(&contexts);
}

static void same_rank(void)
{
    ag_lock_take(&ledger);
    ag_lock_take(&ledger_too);
}

static void wrong_order_tried(void)
{
    ag_lock_take(&arena);
    (void)ag_lock_try(&cache);
}

static void held_where_none_may(void)
{
    ag_lock_take(&cache);
    ag_lock_held_none("a driver call");
}

static void held_after_one_was_released(void)
{
    ag_lock_take(&cache);
    ag_lock_take(&ledger);
    ag_lock_release(&ledger);
    ag_lock_held_none("a driver call");
}

/* Runs `breaks` in a child, which must be aborted after a line that holds `words`. */
static void ends(void (*breaks)(void), const char *words)
{
    char said[256] = "";
    int ends[2], status = 0;
    pid_t child;

    CHECK(!pipe(ends));
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        (void)dup2(ends[1], STDERR_FILENO);
        breaks();
        _exit(0);
    }
    close(ends[1]);
    for (size_t length = 0; length < sizeof(said) - 1;) {
        ssize_t got = read(ends[0], said + length, sizeof(said) - 1 - length);

        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_SAID(WIFSIGNALED(status) && WTERMSIG(status) == 6, "%s: status %#x", words, status);
    CHECK_SAID(strstr(said, words), "%s: said \"%s\"", words, said);
}

/* The function's end names the rank that was taken out of order. */
static void ends_taking(void (*function)(void), enum ag_lock_rank rank)
{
    char words[32];

    snprintf(words, sizeof(words), "lock of rank %d taken", (int)rank);
    ends(function, words);
}

int main(void)
{
    ag_lock_init(&ledger_too, AG_RANK_LEDGER);
    in_order();
    tried();
    in_order();
    spins();
    ends_taking(wrong_order, AG_RANK_CONTEXTS);
    ends_taking(same_rank, AG_RANK_LEDGER);
    ends_taking(wrong_order_spun, AG_RANK_CONTEXTS);
    ends_taking(same_rank_spun, AG_RANK_LEDGER);
    ends_taking(wrong_order_tried, AG_RANK_CACHE);
    ends(held_where_none_may, "a driver call entered under locks");
    ends(held_after_one_was_released, "a driver call entered under locks");
    return 0;
}
