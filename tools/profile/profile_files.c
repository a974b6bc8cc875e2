/* profile_files.c: the folder that the processes of a profile write in, and what is found there. */
#include "tools/profile/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/text.h"
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/base/list.h"
#include "tools/base/shell.h"

bool profile_folder_make(struct profile_folder *ret)
{
    if (!folder_make_temporary("profile", ret->path, sizeof(ret->path))) {
        command_complain("profile: no temporary folder could be made: %s", strerror(errno));
        return false;
    }
    snprintf(ret->counters, sizeof(ret->counters), "%s/counters", ret->path);
    if (mkdir(ret->counters, 0700)) {
        command_complain("profile: %s: %s", ret->counters, strerror(errno));
        folder_remove(ret->path);
        return false;
    }
    return true;
}

void profile_folder_remove(const struct profile_folder *folder)
{
    folder_remove(folder->counters);
    folder_remove(folder->path);
}

/* Adds a pattern that names the files of a folder with this ending, if there are any. */
static void add_pattern(struct ag_text *text, const char *folder, const char *ending)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    bool found = false;

    while (directory && !found && (entry = readdir(directory))) {
        const char *dot = strrchr(entry->d_name, '.');

        found = *entry->d_name != '.' && dot && !strcmp(dot, ending);
    }
    if (directory)
        closedir(directory);
    if (!found)
        return;
    ag_text_add(text, " ");
    shell_add_word(text, folder);
    ag_text_add(text, "/*%s", ending);
}

void profile_folder_keep(const struct profile_folder *folder)
{
    struct ag_text files = {0};

    add_pattern(&files, folder->path, ".json");
    add_pattern(&files, folder->path, ".trace");
    add_pattern(&files, folder->counters, ".counters");
    if (files.data)
        command_complain("profile: what the processes wrote is kept: `allograft report --html "
                         "PAGE%s` makes a page of it",
                         files.data);
    else
        profile_folder_remove(folder);
    ag_text_finish(&files);
}

static bool add_trace_path(struct job *job, struct profile_traces *traces, const char *path)
{
    void *paths = list_grow(traces->paths, traces->n, &traces->capacity, sizeof(*traces->paths));
    char *copy = paths ? strdup(path) : NULL;

    if (paths)
        traces->paths = paths;
    if (!copy)
        return false;
    traces->paths[traces->n++] = copy;
    return job_add_trace(job, copy);
}

static bool add_process(struct job *job, const char *path)
{
    struct process process;

    return process_read_or_say(AT_FDCWD, path, &process) && job_add(job, &process);
}

/* Adds every file of a folder; returns how many could not be read. */
static unsigned add_files(const char *folder, struct job *job, struct profile_traces *traces)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    unsigned n_failed = 0;

    while (directory && (entry = readdir(directory))) {
        char path[2 * PATH_MAX];
        struct stat st;

        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (*entry->d_name == '.' || lstat(path, &st) || !S_ISREG(st.st_mode))
            continue; /* a process that goes on is writing it, or it is no file */
        if (job_is_trace(path))
            n_failed += !add_trace_path(job, traces, path);
        else
            n_failed += !add_process(job, path);
    }
    if (directory)
        closedir(directory);
    return n_failed;
}

unsigned profile_add(const struct profile_folder *folder, struct job *job,
                     struct profile_traces *traces)
{
    return add_files(folder->path, job, traces) + add_files(folder->counters, job, traces);
}

void profile_traces_free(struct profile_traces *traces)
{
    for (size_t i = 0; i < traces->n; i++)
        free(traces->paths[i]);
    free(traces->paths);
    *traces = (struct profile_traces){0};
}
