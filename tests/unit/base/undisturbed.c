/* interpose/core/base/threads/undisturbed.h: what is sent meanwhile comes afterwards, a fault at
 * once. */
#include "interpose/core/base/threads/undisturbed.h"

#include <stdint.h>
#include <sys/mman.h>

#include "tests/common/check.h"

#define PAGE 4096u

static volatile sig_atomic_t n_sent, n_faults;
static volatile unsigned char *closed;

static void count(int signal)
{
    (void)signal;
    n_sent++;
}

static void open_page(int signal)
{
    (void)signal;
    n_faults++;
    (void)mprotect((void *)(uintptr_t)closed, PAGE, PROT_READ | PROT_WRITE);
}

int main(void)
{
    struct sigaction sent = {.sa_handler = count}, fault = {.sa_handler = open_page};
    struct ag_undisturbed outer, inner;
    sigset_t now;
    int state;

    OK(sigaction(SIGUSR1, &sent, NULL) || sigaction(SIGSEGV, &fault, NULL));
    closed = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(closed != MAP_FAILED);
    ag_undisturbed_begin(&outer);
    ag_undisturbed_begin(&inner);
    OK(raise(SIGUSR1));
    closed[0] = 1;
    ag_undisturbed_end(&inner);
    CHECK(n_sent == 0 && n_faults == 1);
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
    CHECK(state == PTHREAD_CANCEL_DISABLE);
    ag_undisturbed_end(&outer);
    OK(pthread_sigmask(SIG_BLOCK, NULL, &now) || pthread_setcancelstate(state, &state));
    CHECK(n_sent == 1 && !sigismember(&now, SIGUSR1) && state == PTHREAD_CANCEL_ENABLE);
    return 0;
}
