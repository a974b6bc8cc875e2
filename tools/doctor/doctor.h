/* What `allograft doctor` found, and the pieces that look. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

/* How much a finding matters. The worst decides the exit status. */
enum verdict {
    VERDICT_INFO, /* a fact */
    VERDICT_GOOD,
    VERDICT_TRAP, /* works, with something to know */
    VERDICT_LACK, /* one way of working is not to be had here */
    VERDICT_FAIL, /* nothing works, or not as it should */
};

struct findings;

/* Notes what was found: `section` and `name` are words for scripts, `name` unique within its
 * section, the rest is a line for people. Exits when memory runs out. */
void found(struct findings *findings, enum verdict verdict, const char *section, const char *name,
           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The machine, the library and the process: nothing of CUDA. */
void doctor_machine(struct findings *findings);
/* The driver and its devices. How many devices there are; 0 when none can be used. */
int doctor_driver(struct findings *findings);
/* Runs this program natively and under the library, and compares. */
void doctor_self_test(struct findings *findings);
/* What the self-test runs: allocations and frees among work, through one door ("dlsym",
 * "get-proc"). */
int doctor_work(const char *door);

#endif
