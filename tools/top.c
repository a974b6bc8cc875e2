/* `allograft top`: the running processes under Allograft, again and again. */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "top.h"

static const char help_text[] =
    "allograft top [options] [DIR]\n"
    "\n"
    "Shows the processes that run under Allograft: memory by placement, what they allocate and "
    "free a\n"
    "second, how much the cache answered and replay took over. Dead ones, whose counters are "
    "still\n"
    "there, stand below with how they ended; `allograft report` says more of them. q or Ctrl-C "
    "ends\n"
    "it. Without a terminal it shows them once.\n"
    "\n"
    "  DIR           their counters, where ALLOGRAFT_COUNTERS names another folder\n"
    "  --interval S  seconds between two looks (default 1)\n"
    "  --once        once; with --interval, after so long: rates are of that time, else of the "
    "time\n"
    "                since a process began\n"
    "  --json        as JSON (allograft-top/1), once\n"
    "  --clean       remove the counters of dead processes that were shown\n"
    "  --help        this text\n";

struct wishes {
    bool once, json, clean, has_interval;
    double interval;
    const char *folder;
};

/* ---- looking ------------------------------------------------------------------------------- */

static void clean(int folder, const struct top_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        if (table->rows[i].state == AG_RECORD_DEAD)
            folder_remove_if_dead(folder, table->rows[i].file);
    }
}

static int show_once(int folder, const struct wishes *wishes)
{
    struct top_table first = {0}, table = {0};
    struct ag_text text = {0};
    int status = STATUS_FAILED;
    bool good = true;

    if (folder >= 0 && wishes->has_interval) {
        struct timespec pause = {
            (time_t)wishes->interval,
            (long)((wishes->interval - (double)(time_t)wishes->interval) * 1e9)};

        good = top_look(folder, NULL, &first);
        while (good && nanosleep(&pause, &pause) && errno == EINTR)
            ;
    }
    if (folder >= 0)
        good = good && top_look(folder, &first, &table);
    if (good && wishes->json)
        top_render_json(&text, &table);
    else if (good)
        top_render(&text, &table, 250, 0, "\n");
    if (good && !text.truncated && fwrite(text.data, 1, text.length, stdout) == text.length &&
        !fflush(stdout))
        status = STATUS_OK;
    else
        command_complain(good ? "cannot write to standard output" : "the counters cannot be read");
    if (wishes->clean && status == STATUS_OK)
        clean(folder, &table);
    ag_text_finish(&text);
    top_finish(&first);
    top_finish(&table);
    return status;
}

static bool show_page(const struct top_table *table)
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

/* The folder may come into being, or be made anew, while we look. */
static int open_folder(const struct wishes *wishes, int *ret)
{
    char path[PATH_MAX];

    if (!wishes->folder)
        return folder_open_own(ret, path, sizeof(path));
    *ret = open(wishes->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret >= 0)
        return STATUS_OK;
    command_complain("%s: %s", wishes->folder, strerror(errno));
    return STATUS_FAILED;
}

/* The next look; what was seen before it is in *table. */
static bool look(const struct wishes *wishes, struct top_table *table)
{
    struct top_table next = {0};
    int folder;
    bool good;

    if (open_folder(wishes, &folder))
        return false;
    good = folder < 0 || top_look(folder, table, &next);
    if (good && wishes->clean && folder >= 0)
        clean(folder, &next);
    if (folder >= 0)
        close(folder);
    top_finish(table);
    *table = next;
    return good;
}

static void show_always(const struct wishes *wishes)
{
    struct top_table table = {0};
    enum screen_event event = SCREEN_TIME;

    while (event != SCREEN_QUIT) {
        if (event == SCREEN_TIME && !look(wishes, &table))
            break;
        if (!show_page(&table))
            break;
        event = screen_wait(wishes->interval);
    }
    top_finish(&table);
}

/* ---- words --------------------------------------------------------------------------------- */

static int parse_interval(const char *word, struct wishes *wishes)
{
    char *end = NULL;

    wishes->interval = word ? strtod(word, &end) : 0;
    wishes->has_interval = true;
    if (word && end != word && !*end && wishes->interval >= .05 && wishes->interval <= 86400)
        return STATUS_OK;
    command_complain("top: --interval needs seconds, from 0.05 to 86400%s%s%s",
                     word ? ", not '" : "", word ? word : "", word ? "'" : "");
    return STATUS_USAGE;
}

static int parse_words(int argc, char **argv, struct wishes *wishes)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--once"))
            wishes->once = true;
        else if (!strcmp(argv[i], "--json"))
            wishes->json = wishes->once = true;
        else if (!strcmp(argv[i], "--clean"))
            wishes->clean = true;
        else if (!strcmp(argv[i], "--interval")) {
            if (parse_interval(i + 1 < argc ? argv[++i] : NULL, wishes))
                return STATUS_USAGE;
        } else if (argv[i][0] == '-') {
            command_complain(
                "top: no option '%s'; there are: --interval S, --once, --json, --clean, --help",
                argv[i]);
            return STATUS_USAGE;
        } else if (wishes->folder) {
            command_complain("top: one folder at a time");
            return STATUS_USAGE;
        } else {
            wishes->folder = argv[i];
        }
    }
    return STATUS_OK;
}

int command_top(int argc, char **argv)
{
    struct wishes wishes = {.interval = 1};
    int folder, status;

    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help_text, stdout);
        return STATUS_OK;
    }
    if (parse_words(argc, argv, &wishes))
        return STATUS_USAGE;
    if (open_folder(&wishes, &folder))
        return STATUS_FAILED;
    if (wishes.once || !screen_begin()) {
        status = show_once(folder, &wishes);
    } else {
        show_always(&wishes);
        screen_end();
        status = STATUS_OK;
    }
    if (folder >= 0)
        close(folder);
    return status;
}
