/* Which of our functions a thread enters, and how deep: compiled into a library that is built with
 * -finstrument-functions. The program that is walked calls the two functions below (walk.c). */
#include <inttypes.h>
#include <stdio.h>

#include "interpose/core/driver/driver.h"

#define UNSEEN __attribute__((no_instrument_function))
#define SHOWN  __attribute__((no_instrument_function, visibility("default")))
#define MOST   4096u

void walk_begin(void);
void walk_end(const char *name);
void __cyg_profile_func_enter(void *function, void *site);
void __cyg_profile_func_exit(void *function, void *site);

/* Where the library lies. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

static _Thread_local bool on;
static _Thread_local unsigned depth;
static struct {
    uintptr_t function; /* from the library's beginning; 0: the driver's cuMemAlloc_v2 */
    unsigned depth;
} entered[MOST];
static unsigned n_entered;
static CUresult (*real)(CUdeviceptr *, size_t);

UNSEEN static void record(uintptr_t function)
{
    if (n_entered < MOST) {
        entered[n_entered].function = function;
        entered[n_entered].depth = depth;
    }
    n_entered++;
}

SHOWN void __cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    if (!on)
        return;
    depth++;
    record((uintptr_t)function - (uintptr_t)__ehdr_start);
}

SHOWN void __cyg_profile_func_exit(void *function, void *site)
{
    (void)function;
    (void)site;
    if (on)
        depth--;
}

UNSEEN static CUresult allocate_of_driver(CUdeviceptr *address, size_t bytes)
{
    record(0);
    return real(address, bytes);
}

/* From now on the calling thread's functions are recorded. */
SHOWN void walk_begin(void)
{
    real = ag_cu.cuMemAlloc_v2;
    ag_cu.cuMemAlloc_v2 = allocate_of_driver;
    n_entered = 0;
    depth = 0;
    on = true;
}

/* Says what was recorded since, a line for each function that was entered. */
SHOWN void walk_end(const char *name)
{
    on = false;
    ag_cu.cuMemAlloc_v2 = real;
    for (unsigned i = 0; i < n_entered && i < MOST; i++)
        printf("%s %u %" PRIxPTR "\n", name, entered[i].depth, entered[i].function);
    if (n_entered > MOST)
        printf("%s has entered more than %u\n", name, MOST);
}
