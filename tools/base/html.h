/* html.h: pieces of pages: text that is safe, tables with bars, cards. */
#ifndef TOOLS_HTML_H
#define TOOLS_HTML_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/base/text.h"
#include "tools/base/unit.h"

/* Text, also within quotes; bytes that are not UTF-8, and control characters, come out as U+FFFD.
 */
void html_add(struct ag_text *text, const char *value);
/* "1,234,567", "2.00 MiB", "30.2 us"; returns buffer. */
const char *html_number(char *buffer, size_t size, enum unit unit, double value);

/* The page up to its first card. Everything it needs is in it. */
void html_begin(struct ag_text *text, const char *title);
void html_end(struct ag_text *text);

/* A card; `note` is a sentence below the heading, or NULL. Neither is escaped. `wide`: over the
 * whole width of the page. */
void html_card_begin(struct ag_text *text, bool wide, const char *heading, const char *note);
void html_card_end(struct ag_text *text);

/* A table of names, numbers, shares and bars. The bars are drawn by numbers that stand beside them,
 * so the table says all that the chart does. */
void html_bars_begin(struct ag_text *text, const char *caption, const char *of_what,
                     const char *number);
/* `colour` is a class of the style. Bars are as long as `part` of `longest`, shares are of `whole`.
 */
void html_bar(struct ag_text *text, const char *colour, const char *label, enum unit unit,
              double part, double longest, double whole);
void html_bars_end(struct ag_text *text);

/* A bar by itself, `share` from 0 to 1. */
void html_bar_alone(struct ag_text *text, const char *colour, double share);

#endif
