/* settings.c: `allograft options` prints every setting as a table. */
#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"
#include "tools/line/command_line.h"
#include "tools/run/environment.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The table has this width everywhere, so that docs/settings.md can hold the same text; a narrower
 * terminal gets a list. */
#define TABLE_COLUMNS 100
#define COLUMN_GAP    2

/* ---- the table ----------------------------------------------------------------------------- */

struct widths {
    int name, value, allowed;
};

static int widest(int width, const char *text)
{
    int length = (int)strlen(text);

    return length > width ? length : width;
}

static struct widths measure_columns(void)
{
    struct widths w = {(int)strlen("variable"), (int)strlen("default"), (int)strlen("allowed")};

    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *row = ag_option_info(i);

        w.name = widest(w.name, row->name);
        w.value = widest(w.value, row->default_text);
        w.allowed = widest(w.allowed, row->allowed);
    }
    return w;
}

static void print_row(struct widths w, const char *name, const char *value, const char *allowed,
                      const char *help)
{
    const int indent = w.name + w.value + w.allowed + 3 * COLUMN_GAP;

    printf("%-*s  %-*s  %-*s  ", w.name, name, w.value, value, w.allowed, allowed);
    command_wrap(stdout, indent, indent, TABLE_COLUMNS, help);
}

/* The width of the terminal, at most TABLE_COLUMNS; that also without a terminal. */
static int columns_here(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 40 || size.ws_col > TABLE_COLUMNS)
        return TABLE_COLUMNS;
    return size.ws_col;
}

/* Prints the settings as a list, for a terminal that is too narrow for the table. */
static void print_list(int columns)
{
    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *row = ag_option_info(i);

        printf("%s  %s  (%s)\n    ", row->name, row->allowed, row->default_text);
        command_wrap(stdout, 4, 4, columns - 1, row->help);
    }
}

static int print_table(void)
{
    struct widths w = measure_columns();

    if (columns_here() < TABLE_COLUMNS) {
        print_list(columns_here());
        return STATUS_OK;
    }

    print_row(w, "variable", "default", "allowed", "meaning");
    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *row = ag_option_info(i);

        print_row(w, row->name, row->default_text, row->allowed, row->help);
    }
    return STATUS_OK;
}

int command_options(const struct command_line *line)
{
    return line->n_given ? settings_show_checked() : print_table();
}
