/* html.h: the parts of an HTML page: escaped text, cards, tables with bars. */
#ifndef TOOLS_HTML_H
#define TOOLS_HTML_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/text.h"
#include "tools/base/unit.h"

/* Adds escaped text, which may stand within quotes. Control characters and bytes that are not UTF-8
 * become U+FFFD. */
void html_add(struct ag_text *text, const char *value);
/* "PROGRAM, rank R, process P on HOST"; a rank below 0 is none. */
void html_add_process(struct ag_text *text, const char *program, int rank, int pid,
                      const char *host);
/* Adds a JSON string with its quotes, for JSON within an element of the page. */
void html_add_json(struct ag_text *text, const char *value);
/* "1,234,567", "2.00 MiB", "30.2 us"; returns buffer. */
const char *html_number(char *buffer, size_t size, enum unit unit, double value);

/* Adds the page up to its first card. The page is self-contained, and runs our scripts alone. */
void html_begin(struct ag_text *text, const char *title);
/* Ends it with its scripts; `has_charts`: one of memory over time is among them. */
void html_end(struct ag_text *text, bool has_charts);

/* Adds a list of contents: of the headings of the page's other parts, which are in `parts`. */
void html_add_contents(struct ag_text *text, const struct ag_text *parts);

/* Begins a card. `note` is a sentence below the heading, or NULL; neither is escaped. A `wide` card
 * spans the whole page. */
void html_card_begin(struct ag_text *text, bool wide, const char *heading, const char *note);
void html_card_end(struct ag_text *text);

/* A wide card of one process, which folds; `place`: 0 where no other process has such a card, else
 * 1 for the first, 2 ... Of several only the first one is open, and their headings name the
 * process: by its rank, or if that is below 0 by `pid`. */
void html_fold_begin(struct ag_text *text, unsigned place, const char *heading, int rank, int pid);
void html_fold_end(struct ag_text *text);

/* Begins a table of names, numbers, shares and bars. Each bar stands beside its number, so that the
 * table says all that the chart does. */
void html_bars_begin(struct ag_text *text, const char *caption, const char *of_what,
                     const char *number);
/* Adds a row. `colour` is a class of the style sheet; the bar's length is `part` / `longest`, the
 * share is `part` / `whole`. */
void html_bar(struct ag_text *text, const char *colour, const char *label, enum unit unit,
              double part, double longest, double whole);
void html_bars_end(struct ag_text *text);

/* Adds a bar without a table; `share` is from 0 to 1. */
void html_bar_alone(struct ag_text *text, const char *colour, double share);

#endif
