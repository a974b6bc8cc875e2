/* clock.c: the clock of the random programs, which runs ahead when somebody waits in vain.
 *
 * Allograft gives a wait for the device up after ten seconds. Natively nobody would have waited
 * there, so some random programs keep the device busy until that wait is over: they took ten
 * seconds, or twenty, where others take milliseconds. The time is not needed. Once five hundred
 * questions about the same work have been answered "not ready", with no other call between them, no
 * call is going to change that, and each look at the clock moves it on by a tenth of a second. So
 * the wait ends as it would have, by its timeout.
 *
 * Programs that do nothing for twelve seconds, and kernels that run for so long, move it on as
 * well.
 *
 * The executable comes first where the loader looks for a function: the library calls this one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "diff.h"
#include "sim.h"

#define FROM_NS 100000000u /* of the process; most have ended by then */
#define IN_VAIN 500u
#define STEP_NS 100000000u

static struct {
    int (*real)(clockid_t, struct timespec *);
    _Atomic uint64_t began_ns, ahead_ns;
    _Atomic unsigned long n_others, since; /* since: questions at the last other call */
} self;

void clock_start(void)
{
    self.real = (__typeof__(self.real))(uintptr_t)dlsym(RTLD_NEXT, "clock_gettime");
}

void clock_restart(void)
{
    self.began_ns = 0;
}

void clock_skip(uint64_t ns)
{
    self.ahead_ns += ns;
}

static unsigned long questions(void)
{
    return sim_calls("cuStreamQuery") + sim_calls("cuEventQuery");
}

/* Is the caller one of those who ask again and again? */
static bool in_vain(void)
{
    unsigned long asked = questions(), others = sim_calls("*") - asked;

    if (others != self.n_others) {
        self.n_others = others;
        self.since = asked;
    }
    return asked > self.since + IN_VAIN;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    int error = self.real ? self.real(id, now) : (int)syscall(SYS_clock_gettime, id, now);
    uint64_t ns;

    if (error || id != CLOCK_MONOTONIC)
        return error;
    ns = (uint64_t)now->tv_sec * 1000000000u + (uint64_t)now->tv_nsec;
    if (!self.began_ns)
        self.began_ns = ns;
    if (ns - self.began_ns >= FROM_NS && in_vain())
        self.ahead_ns += STEP_NS;
    ns += self.ahead_ns;
    now->tv_sec = (time_t)(ns / 1000000000u);
    now->tv_nsec = (long)(ns % 1000000000u);
    return 0;
}
