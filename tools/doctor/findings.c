/* findings.c: collects what `allograft doctor` found: see findings.h. */
#include "tools/doctor/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/complain.h"

void findings_add(struct findings *findings, enum verdict verdict, const char *section,
                  const char *name, const char *format, ...)
{
    struct finding *more = realloc(findings->at, (findings->n + 1) * sizeof(*more));
    struct finding *finding;
    va_list args;

    if (!more) {
        command_complain("doctor: out of memory");
        exit(STATUS_FAILED);
    }
    findings->at = more;
    finding = &more[findings->n++];
    finding->verdict = verdict;
    finding->section = section;
    snprintf(finding->name, sizeof(finding->name), "%s", name);
    va_start(args, format);
    vsnprintf(finding->text, sizeof(finding->text), format, args);
    va_end(args);
    /* Names of files and devices must not control the terminal. */
    for (char *c = finding->text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

enum verdict findings_worst(const struct findings *findings)
{
    enum verdict verdict = VERDICT_INFO;

    for (size_t i = 0; i < findings->n; i++) {
        if (findings->at[i].verdict > verdict)
            verdict = findings->at[i].verdict;
    }
    return verdict;
}

bool findings_have_failed(const struct findings *findings, const char *section, const char *name)
{
    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->at[i];

        if (finding->verdict == VERDICT_FAIL && !strcmp(finding->section, section) &&
            !strcmp(finding->name, name))
            return true;
    }
    return false;
}
