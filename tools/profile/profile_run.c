/* profile_run.c: runs the program that is profiled, under the settings of a profile. */
#include "tools/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/report/unused.h"
#include "tools/base/complain.h"
#include "tools/run/child.h"
#include "tools/run/environment.h"

/* What a profile asks for, unless the user has set it otherwise. */
static const struct {
    const char *name, *value;
} asked[] = {
    {"ALLOGRAFT_STACKS", "16"},
    {"ALLOGRAFT_WAITS", "1"},
};

static int set_in_folder(const char *name, const char *folder, const char *file)
{
    char *value;
    int failed;

    if (asprintf(&value, "%s%s", folder, file) < 0)
        return STATUS_FAILED;
    failed = setenv(name, value, 1);
    free(value);
    return failed ? STATUS_FAILED : STATUS_OK;
}

/* Where the processes write is for the profile to say. */
static int refuse_places(const char *pair)
{
    static const char *const places[] = {"STATS", "TRACE", "COUNTERS"};
    char name[128];

    if (settings_full_name(pair, strcspn(pair, "="), name, sizeof(name)))
        return STATUS_OK; /* which is told with the other mistakes */
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strcmp(name + strlen("ALLOGRAFT_"), places[i]) != 0)
            continue;
        command_complain("profile: --set %s: a profile makes its page of its own reports and "
                         "traces; `allograft run` writes them where you say",
                         pair);
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int apply_settings(const struct command_line *line, const struct profile_folder *folder,
                          struct run_extras *ret_extras)
{
    int status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < line->n_given; i++) {
        ret_extras->audit |= line->given[i].option == OPTION_profile_audit;
        ret_extras->simulate |= line->given[i].option == OPTION_profile_simulate;
        if (line->given[i].option != OPTION_profile_set)
            continue;
        status = refuse_places(line->given[i].value);
        if (status == STATUS_OK)
            status = run_set_pair(line->given[i].value);
    }
    for (size_t i = 0; status == STATUS_OK && i < sizeof(asked) / sizeof(asked[0]); i++)
        status = setenv(asked[i].name, asked[i].value, 0) ? STATUS_FAILED : STATUS_OK;
    if (status == STATUS_OK)
        status = set_in_folder("ALLOGRAFT_STATS", folder->path, "/%p.json");
    if (status == STATUS_OK)
        status = set_in_folder("ALLOGRAFT_TRACE", folder->path, "/%p.trace");
    if (status == STATUS_OK)
        status = set_in_folder("ALLOGRAFT_COUNTERS", folder->counters, "");
    return status;
}

struct start {
    const struct command_line *line;
    const struct profile_folder *folder;
};

static int become_profiled(void *start_)
{
    const struct start *start = start_;
    struct run_extras extras = {0};
    int status = apply_settings(start->line, start->folder, &extras);

    (void)unsetenv(AG_UNUSED_VARIABLE); /* the parent says itself that nothing used CUDA */
    if (status == STATUS_OK)
        status = run_prepare(start->line->words, extras);
    return status == STATUS_OK ? run_execute(start->line->words) : status;
}

int profile_run(const struct command_line *line, const struct profile_folder *folder,
                bool *ret_started)
{
    struct start start = {line, folder};

    return child_run(become_profiled, &start, "profile", ret_started);
}
