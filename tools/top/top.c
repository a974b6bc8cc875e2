/* top.c: `allograft top` shows the processes that run under Allograft, and updates the table. */
#include "tools/base/complain.h"
#include "tools/line/command_line.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/base/folder.h"
#include "tools/holders/holders.h"
#include "tools/top/metrics.h"
#include "tools/top/top.h"

struct options {
    bool once, json, clean, has_interval;
    double interval;
    const char *folder, *prometheus;
    const char *holders; /* the process to show, or NULL */
};

/* ---- reading ------------------------------------------------------------------------------- */

static void clean(int folder, const struct top_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        if (table->rows[i].state == AG_RECORD_DEAD)
            folder_remove_if_dead(folder, table->rows[i].file);
    }
}

static int show_once(int folder, const struct options *options)
{
    struct top_table first = {0}, table = {0};
    struct ag_text text = {0};
    int status = STATUS_FAILED;
    bool good = true;

    if (folder >= 0 && options->has_interval) {
        struct timespec pause = {
            (time_t)options->interval,
            (long)((options->interval - (double)(time_t)options->interval) * 1e9)};

        good = top_look(folder, NULL, &first);
        while (good && nanosleep(&pause, &pause) && errno == EINTR)
            ;
    }
    if (folder >= 0)
        good = good && top_look(folder, &first, &table);
    if (good && options->json)
        top_render_json(&text, &table);
    else if (good)
        top_render(&text, &table, 250, 0, "\n");
    if (good && !text.truncated && fwrite(text.data, 1, text.length, stdout) == text.length &&
        !fflush(stdout))
        status = STATUS_OK;
    else
        command_complain(good ? "cannot write to standard output" : "the counters cannot be read");
    if (options->clean && status == STATUS_OK)
        clean(folder, &table);
    ag_text_finish(&text);
    top_finish(&first);
    top_finish(&table);
    return status;
}

static bool show_screen(const struct top_table *table)
{
    struct ag_text text = {0};
    unsigned columns, lines;
    bool good;

    screen_size(&columns, &lines);
    top_render(&text, table, columns, lines, screen_line_end);
    good = screen_show(&text);
    ag_text_finish(&text);
    return good;
}

/* The folder is opened for each update: it may be created, or replaced, in between. NULL, or the
 * fault of what is at `path`, which has PATH_MAX bytes. */
static const char *try_folder(const struct options *options, int *ret, char *path)
{
    if (!options->folder)
        return folder_try_own(ret, path, PATH_MAX);
    snprintf(path, PATH_MAX, "%s", options->folder);
    *ret = open(options->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? strerror(errno) : NULL;
}

static int open_folder(const struct options *options, int *ret)
{
    char path[PATH_MAX];
    const char *fault = try_folder(options, ret, path);

    if (fault)
        command_complain("%s: %s", path, fault);
    return fault ? STATUS_FAILED : STATUS_OK;
}

/* Reads the next table; *table has the last one. As try_folder(). */
static const char *read_next_table(const struct options *options, struct top_table *table,
                                   char *path)
{
    struct top_table next = {0};
    int folder;
    const char *fault = try_folder(options, &folder, path);
    bool good;

    if (fault)
        return fault;
    good = folder < 0 || top_look(folder, table, &next);
    if (good && options->clean && folder >= 0)
        clean(folder, &next);
    if (folder >= 0)
        close(folder);
    top_finish(table);
    *table = next;
    return good ? NULL : "the counters cannot be read";
}

/* What is said while the page is shown goes with it. */
static int show_always(const struct options *options)
{
    struct top_table table = {0};
    enum screen_event event = SCREEN_TIME;
    const char *fault = NULL;
    char path[PATH_MAX];

    while (event != SCREEN_QUIT) {
        if (event == SCREEN_TIME && (fault = read_next_table(options, &table, path)))
            break;
        if (!show_screen(&table))
            break;
        event = screen_wait(options->interval);
    }
    top_finish(&table);
    screen_end();
    if (fault)
        command_complain("%s: %s", path, fault);
    return fault ? STATUS_FAILED : STATUS_OK;
}

/* ---- options ------------------------------------------------------------------------------- */

static int parse_interval(const char *word, struct options *options)
{
    char *end = NULL;

    options->interval = strtod(word, &end);
    options->has_interval = true;
    if (end != word && !*end && options->interval >= .05 && options->interval <= 86400)
        return STATUS_OK;
    command_complain("top: --interval=%s is not allowed; allowed: seconds from 0.05 to 86400",
                     word);
    return STATUS_USAGE;
}

static int read_top_words(const struct command_line *line, struct options *options)
{
    options->folder = line->words[0];
    for (size_t i = 0; i < line->n_given; i++) {
        const struct given *given = &line->given[i];

        options->json |= given->option == OPTION_top_json;
        options->once |= given->option == OPTION_top_once || given->option == OPTION_top_json;
        options->clean |= given->option == OPTION_top_clean;
        if (given->option == OPTION_top_holders)
            options->holders = given->value;
        if (given->option == OPTION_top_prometheus)
            options->prometheus = given->value;
        if (given->option == OPTION_top_interval && parse_interval(given->value, options))
            return STATUS_USAGE;
    }
    return STATUS_OK;
}

/* Root has the folders of all users, unless one is named. */
static bool means_all_users(const struct options *options)
{
    const char *setting = getenv("ALLOGRAFT_COUNTERS");

    return !options->folder && geteuid() == 0 &&
           (!setting || !*setting || !strcmp(setting, "off") || !strcmp(setting, "auto"));
}

static int open_for_metrics(void *data, struct folders *ret)
{
    const struct options *options = data;
    int folder = -1, status = STATUS_OK;
    bool good;

    if (means_all_users(options)) {
        good = folders_add_all_users(ret);
    } else {
        status = open_folder(options, &folder);
        good = status != STATUS_OK || folder < 0 || folders_add(ret, folder);
    }
    if (good)
        return status;
    command_complain("the counters cannot be read: out of memory");
    return STATUS_FAILED;
}

static int export_metrics(struct options *options)
{
    const struct metrics metrics = {
        .open = open_for_metrics,
        .data = options,
        .where = options->prometheus,
        .interval = options->interval,
        .once = options->once,
    };

    if (!options->json && !options->clean)
        return metrics_export(&metrics);
    command_complain("top: --prometheus cannot be used together with --json or --clean");
    return STATUS_USAGE;
}

static int show_holders(const struct options *options)
{
    if (!options->json && !options->clean && !options->prometheus)
        return holders_show(options->holders, options->folder);
    command_complain("top: --holders cannot be used together with --json, --clean or --prometheus; "
                     "`allograft snapshot PID` prints JSON");
    return STATUS_USAGE;
}

int command_top(const struct command_line *line)
{
    struct options options = {.interval = 1};
    int folder, status;

    if (read_top_words(line, &options))
        return STATUS_USAGE;
    if (options.holders)
        return show_holders(&options);
    if (options.prometheus)
        return export_metrics(&options);
    if (open_folder(&options, &folder))
        return STATUS_FAILED;
    if (options.once || !screen_begin())
        status = show_once(folder, &options);
    else
        status = show_always(&options);
    if (folder >= 0)
        close(folder);
    return status;
}
