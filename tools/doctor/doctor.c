/* doctor.c: `allograft doctor` runs the checks of doctor.h one after the other and shows what they
 * found. It calls them; none calls it. */
#include "tools/doctor/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/emitter.h"
#include "tools/base/complain.h"
#include "tools/doctor/doctor_driver.h"
#include "tools/line/command_line.h"
#include "tools/run/environment.h"

#define STATUS_RESTRICTED 3

static int exit_status(enum verdict verdict)
{
    return verdict == VERDICT_FAIL   ? STATUS_FAILED
           : verdict >= VERDICT_TRAP ? STATUS_RESTRICTED
                                     : STATUS_OK;
}

static const char *const words[] = {"info", "good", "trap", "lack", "fail"};

#define WIDTH  80u
#define INDENT 7u /* of the text after the marks */

/* Prints the text from column INDENT on, wrapped. */
static void show_wrapped(const char *text)
{
    size_t column = INDENT;

    while (*text) {
        size_t length = strcspn(text, " ");

        if (column > INDENT && column + 1 + length > WIDTH) {
            printf("\n%*s", (int)INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, text);
        column += length;
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void show_sum(const struct findings *findings)
{
    static const char *const sums[][2] = {{"Nothing was tested", ""},
                                          {"Everything works", ""},
                                          {"It works", "; see the lines marked '!'"},
                                          {"It works", ", except for the lines marked 'no'"},
                                          {"It does not work", "; see FAIL"}};
    const char *const *sum = sums[findings_worst(findings)];
    bool simulated = doctor_driver_is_simulated();

    printf("%s %s%s.\n", sum[0], simulated ? "on the simulated driver" : "here", sum[1]);
    if (!simulated && (findings_have_failed(findings, "driver", "found") ||
                       findings_have_failed(findings, "driver", "devices")))
        printf("To try it without a GPU, on the simulated driver:\n"
               "  %s doctor --simulate\n",
               program_invocation_name);
}

static void show_text(const struct findings *findings)
{
    static const char *const marks[] = {"     ", "  ok ", "    !", "   no", " FAIL"};
    const char *section = "";

    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->at[i];

        if (strcmp(section, finding->section) != 0)
            printf("%s\n", finding->section);
        section = finding->section;
        printf("%s  ", marks[finding->verdict]);
        show_wrapped(finding->text);
    }
    show_sum(findings);
}

static void show_findings_json(const struct findings *findings)
{
    struct ag_text text = {0};
    struct ag_emitter json = {.text = &text};

    ag_emit_object(&json, NULL);
    ag_emit_string(&json, "schema", "allograft-doctor/1");
    ag_emit_string(&json, "version", ALLOGRAFT_VERSION);
    ag_emit_string(&json, "verdict", words[findings_worst(findings)]);
    ag_emit_bool(&json, "simulated", doctor_driver_is_simulated());
    ag_emit_array(&json, "findings");
    for (size_t i = 0; i < findings->n; i++) {
        const struct finding *finding = &findings->at[i];

        ag_emit_line(&json, 1);
        ag_emit_object(&json, NULL);
        ag_emit_string(&json, "section", finding->section);
        ag_emit_string(&json, "name", finding->name);
        ag_emit_string(&json, "verdict", words[finding->verdict]);
        ag_emit_string(&json, "text", finding->text);
        ag_emit_end(&json);
    }
    ag_emit_end(&json);
    ag_emit_end(&json);
    puts(text.data ? text.data : "{}");
    ag_text_finish(&text);
}

/* Makes the simulated driver the one that a look-up by name finds, here and in the programs of the
 * self-test. */
static int simulate(void)
{
    char library[PATH_MAX], driver[PATH_MAX + 64];
    int status = locate_library(library, sizeof(library));

    if (status == STATUS_OK)
        status = simulate_driver(library, driver, sizeof(driver));
    if (status == STATUS_OK && !dlopen(driver, RTLD_NOW | RTLD_LOCAL)) {
        command_complain("doctor: %s", dlerror());
        status = STATUS_FAILED;
    }
    return status;
}

static int start_work(const char *what)
{
    if (!strcmp(what, "bus"))
        return doctor_bus_work();
    return strcmp(what, "moves") != 0 ? doctor_work(what) : doctor_moves_work();
}

int command_doctor(const struct command_line *line)
{
    struct findings findings = {0};
    bool json = false, test = true, simulated = false;
    int status;

    for (size_t i = 0; i < line->n_given; i++) {
        if (line->given[i].option == OPTION_doctor_work) /* a child of ours, see doctor_child.c */
            return start_work(line->given[i].value);
        json |= line->given[i].option == OPTION_doctor_json;
        test &= line->given[i].option != OPTION_doctor_no_test;
        simulated |= line->given[i].option == OPTION_doctor_simulate;
    }
    if (simulated) {
        status = simulate();
        if (status != STATUS_OK)
            return status;
    }
    doctor_machine(&findings);
    if (doctor_driver(&findings) > 0 && test) {
        doctor_bus(&findings);
        doctor_moves(&findings);
        doctor_self_test(&findings);
    }
    if (json)
        show_findings_json(&findings);
    else
        show_text(&findings);
    status = exit_status(findings_worst(&findings));
    free(findings.at);
    return status;
}
