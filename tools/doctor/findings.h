/* findings.h: the list of what `allograft doctor` found.
 *
 * doctor.c runs the checks (doctor_machine.c, doctor_driver.c, doctor_bus.c, doctor_test.c) one
 * after the other; each adds to the list, and doctor.c shows it. No check calls doctor.c. */
#ifndef TOOLS_FINDINGS_H
#define TOOLS_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>

/* How much a finding matters. The worst one decides the exit status. */
enum verdict {
    VERDICT_INFO, /* a fact */
    VERDICT_GOOD,
    VERDICT_TRAP, /* works, with something to know */
    VERDICT_LACK, /* one feature is not available here */
    VERDICT_FAIL, /* nothing works, or something works incorrectly */
};

struct finding {
    enum verdict verdict;
    const char *section;
    char name[64], text[400];
};

struct findings {
    struct finding *at; /* the owner frees it */
    size_t n;
};

/* Adds a finding: `section` and `name` are words for scripts, `name` unique within its section; the
 * rest is a line for people. Exits when memory runs out. */
void findings_add(struct findings *findings, enum verdict verdict, const char *section,
                  const char *name, const char *format, ...) __attribute__((format(printf, 5, 6)));

enum verdict findings_worst(const struct findings *findings);
/* Is there a finding of that name that failed? */
bool findings_have_failed(const struct findings *findings, const char *section, const char *name);

#endif
