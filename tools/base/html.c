/* html.c: the style sheet of the pages, and their parts: see html.h. */
#include "tools/base/html.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/base/html_web.h"

/* ---- text ---------------------------------------------------------------------------------- */

/* The length of the UTF-8 sequence at `s`, a string; 0 if there is no valid one. */
static size_t sequence(const unsigned char *s)
{
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

    if (s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    /* Overlong forms, surrogates, code points above U+10FFFF, control characters. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90) ||
        (s[0] == 0xc2 && s[1] < 0xa0) || s[0] < 0x20 || s[0] == 0x7f)
        return 0;
    return length;
}

void html_add(struct ag_text *text, const char *value)
{
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        size_t length = sequence(s);

        if (!length)
            ag_text_add(text, "&#xfffd;");
        else if (strchr("&<>\"'", *s))
            ag_text_add(text, "&#%u;", (unsigned)*s);
        else
            ag_text_add(text, "%.*s", (int)length, (const char *)s);
        s += length ? length : 1;
    }
}

void html_add_process(struct ag_text *text, const char *program, int rank, int pid,
                      const char *host)
{
    html_add(text, program);
    if (rank >= 0)
        ag_text_add(text, ", rank %d", rank);
    ag_text_add(text, ", process %d on ", pid);
    html_add(text, host);
}

/* JSON leaves "<" and "&" as they are, and they could end the element that it stands in. */
void html_add_json(struct ag_text *text, const char *value)
{
    struct ag_text json = {0};
    size_t begin = 0;

    ag_text_add_json(&json, value);
    text->truncated |= json.truncated;
    for (size_t i = 0; i < json.length; i++) {
        if (!strchr("<>&", json.data[i]))
            continue;
        ag_text_add(text, "%.*s\\u%04x", (int)(i - begin), json.data + begin,
                    (unsigned)json.data[i]);
        begin = i + 1;
    }
    if (json.data)
        ag_text_add(text, "%s", json.data + begin);
    ag_text_finish(&json);
}

const char *html_number(char *buffer, size_t size, enum unit unit, double value)
{
    char digits[32];
    size_t length, at = 0;

    if (unit != UNIT_COUNT || value < 1000 || value >= 1e18)
        return unit_text(buffer, size, unit, value);
    snprintf(digits, sizeof(digits), "%.0f", value);
    length = strlen(digits);
    for (size_t i = 0; i < length && at + 2 < size; i++) {
        if (i && (length - i) % 3 == 0)
            buffer[at++] = ',';
        buffer[at++] = digits[i];
    }
    buffer[at] = '\0';
    return buffer;
}

/* ---- the page ------------------------------------------------------------------------------ */

static const char colours[] =
    ":root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--ink:#1b1f24;--soft:#5b6470;"
    "--line:#dfe3e8;--track:#eceff3;--c0:#7a8594;--c1:#2468d8;--c2:#0b8f7d;--c3:#b87408;"
    "--c4:#c8382e;--c5:#7a4fd0;--warn:#fff4d6;--warn-line:#d9a514;--mark:#c8382e}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14171b;--card:#1e2228;--ink:#e8eaed;"
    "--soft:#a3acb8;--line:#363c45;--track:#2b3038;--c0:#8f9aaa;--c1:#6aa1ff;--c2:#3fc7b3;"
    "--c3:#e2a33c;--c4:#ff7a6e;--c5:#b393ff;--warn:#3a3016;--warn-line:#c99a1a;--mark:#ff8f85}}\n";

static const char style[] =
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);"
    "font:16px/1.45 system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;"
    "overflow-wrap:anywhere}\n"
    "main{max-width:90rem;margin:0 auto;padding:1.25rem .9rem 3rem}\n"
    "h1{font-size:1.5rem;line-height:1.2;margin:0 0 .3rem}h2{font-size:1.05rem;margin:0 0 .25rem}\n"
    "h3{font-size:.95rem;margin:1.1rem 0 .2rem}\n"
    ".soft,.note,caption,small{color:var(--soft)}.note{margin:0 0 .6rem;font-size:.88rem}\n"
    ".cards{columns:2 32rem;column-gap:.9rem;margin-top:.9rem}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.9rem "
    "1rem;"
    "margin:0 0 .9rem;break-inside:avoid}.wide{column-span:all}\n"
    ".tiles{display:grid;gap:.7rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,9.5rem),"
    "1fr));"
    "margin:1rem 0 0}\n"
    ".tiles div{background:var(--card);border:1px solid var(--line);border-radius:.6rem;"
    "padding:.7rem .85rem}.tiles dt{color:var(--soft);font-size:.85rem;line-height:1.25}"
    ".tiles dd{margin:.15rem 0 0;font-size:1.45rem;font-weight:600;line-height:1.2}"
    ".tiles small{display:block;font-size:.82rem;font-weight:400}\n"
    ".warnings{background:var(--warn);border:1px solid var(--warn-line);border-radius:.6rem;"
    "margin:1rem 0 0;padding:.6rem 1rem .6rem 2rem}\n"
    "table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}"
    "\n"
    "table+table,details+table{margin-top:.9rem}caption{text-align:left;font-size:.88rem;padding-"
    "bottom:.2rem}"
    "caption:empty{display:none}table+.note{margin-top:.5rem}\n"
    "th,td{overflow-wrap:break-word;padding:.22rem .5rem .22rem "
    "0;text-align:left;vertical-align:top;border-top:1px solid "
    "var(--line);font-weight:400}thead th{color:var(--soft);font-size:.82rem;border-top:0}thead "
    "td{border-top:0}\n"
    ".num{text-align:right;white-space:nowrap;overflow-wrap:normal}td:last-child,th:last-child{"
    "padding-right:0}\n"
    ".bar{width:38%;min-width:3.5rem;vertical-align:middle}code{overflow-wrap:anywhere}\n"
    "svg{display:block;width:100%}.bar svg,.cell svg{height:.7rem;border-radius:.15rem}.stack svg{"
    "height:1.7rem;border-radius:.3rem}.track{fill:var(--track)}\n"
    ".c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)"
    "}"
    ".c5{fill:var(--c5)}\n"
    ".dot{display:inline-block;width:.7em;height:.7em;border-radius:.15em;margin-right:.4em}"
    "i.c0{background:var(--c0)}i.c1{background:var(--c1)}i.c2{background:var(--c2)}"
    "i.c3{background:var(--c3)}i.c4{background:var(--c4)}i.c5{background:var(--c5)}\n"
    ".plot{height:5.5rem;background:var(--track);border-radius:.2rem}.faint{opacity:.4}.axis{"
    "display:flex;justify-content:space-between;gap:1rem;margin:.6rem 0 .15rem;font-size:.9rem;"
    "font-variant-numeric:tabular-nums}.axis.soft{margin-top:.2rem}\n"
    "summary h2{display:inline}.card>summary{color:inherit;font-size:inherit}"
    "details.card{margin-top:0}h2{scroll-margin-top:.9rem}\n"
    "nav{display:flex;flex-wrap:wrap;gap:.15rem .9rem;margin:1rem 0 0;font-size:.9rem;max-height:"
    "7rem;overflow-y:auto}a{color:var(--c1);text-decoration:none}a:hover{text-decoration:underline}"
    "tfoot th,tfoot td{border-top:2px solid var(--line)}\n"
    ".set{font-weight:600}.out{color:var(--mark);font-weight:600}details{margin-top:.6rem}"
    "summary{cursor:pointer;color:var(--soft);font-size:.9rem}\n"
    "code{font-family:ui-monospace,\"DejaVu Sans Mono\",monospace;font-size:.9em}\n"
    ".cell svg{height:.3rem;margin-top:.15rem}.cells .cell{min-width:5rem}.cells "
    "th:first-child{min-width:6rem}\n"
    "@media(max-width:48rem){.bar{width:24%}.cells "
    "thead{position:absolute;width:1px;height:1px;overflow:hidden;"
    "clip-path:inset(50%)}.cells tr{display:grid;grid-template-columns:1fr 1fr;gap:0 1rem;"
    "border-top:1px solid var(--line);padding:.5rem 0}.cells th,.cells td{border:0;padding:.1rem 0;"
    "text-align:left}.cells th{grid-column:1/-1;font-weight:600}.cells td::before{"
    "content:attr(data-label) \" \";color:var(--soft);font-size:.82rem;display:block}}\n"
    "@media(max-width:32rem){.bars tr{display:grid;grid-template-columns:6.5rem 4.2rem "
    "1fr;border-top:1px "
    "solid var(--line)}.bars thead tr{border:0}.bars th,.bars td{border:0}.bars th:first-child{"
    "grid-column:1/-1;padding-bottom:0}.bars .num{text-align:left}.bars "
    "td.bar{width:auto;padding-top:"
    ".5rem}}\n"
    "@media print{body{background:#fff}.card{break-inside:avoid}}\n";

void html_begin(struct ag_text *text, const char *title)
{
    ag_text_add(
        text,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<meta name=\"generator\" content=\"allograft\">\n" /* output.c recognises a page by this */
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src "
        "'unsafe-inline';script-src %s %s\">\n<title>",
        web_uplot_js_hash, web_page_js_hash);
    html_add(text, title);
    ag_text_add(text, "</title>\n<style>\n%s", colours);
    ag_text_add(text, "%s%s%s</style>\n</head>\n<body>\n<main>\n", style, web_uplot_css,
                web_page_css);
}

void html_end(struct ag_text *text, bool has_charts)
{
    ag_text_add(text, "</main>\n");
    if (has_charts)
        ag_text_add(text, "<script>%s</script>\n", web_uplot_js);
    ag_text_add(text, "<script>%s</script>\n</body>\n</html>\n", web_page_js);
}

#define HEADING "<h2 id=\"" /* found again for the contents: texts of others have no such thing */

/* Adds a heading, with an id of its letters and digits, and of the number unless that is 0. */
static void add_heading(struct ag_text *text, const char *heading, unsigned number)
{
    ag_text_add(text, HEADING);
    for (const char *s = heading; *s; s++) {
        if (isalnum((unsigned char)*s))
            ag_text_add(text, "%c", tolower((unsigned char)*s));
        else if (isalnum((unsigned char)s[1]))
            ag_text_add(text, "-");
    }
    if (number)
        ag_text_add(text, "-%u", number);
    ag_text_add(text, "\">%s</h2>", heading);
}

void html_add_contents(struct ag_text *text, const struct ag_text *parts)
{
    const char *at = parts->data, *name, *end;

    ag_text_add(text, "<nav aria-label=\"Contents\">\n");
    while (at && (at = strstr(at, HEADING))) {
        at += strlen(HEADING);
        name = strstr(at, "\">");
        end = name ? strstr(name, "</h2>") : NULL;
        if (!end) /* cut */
            break;
        ag_text_add(text, "<a href=\"#%.*s\">%.*s</a>\n", (int)(name - at), at,
                    (int)(end - name - 2), name + 2);
    }
    ag_text_add(text, "</nav>\n");
}

void html_card_begin(struct ag_text *text, bool wide, const char *heading, const char *note)
{
    ag_text_add(text, "<section class=\"card%s\">\n", wide ? " wide" : "");
    add_heading(text, heading, 0);
    ag_text_add(text, "\n");
    if (note)
        ag_text_add(text, "<p class=\"note\">%s</p>\n", note);
}

void html_card_end(struct ag_text *text)
{
    ag_text_add(text, "</section>\n");
}

void html_fold_begin(struct ag_text *text, unsigned place, const char *heading, int rank, int pid)
{
    char named[128];

    snprintf(named, sizeof(named), "%s, %s %d", heading, rank >= 0 ? "rank" : "process",
             rank >= 0 ? rank : pid);
    ag_text_add(text, "<details class=\"card wide\"%s>\n<summary>", place > 1 ? "" : " open");
    add_heading(text, place ? named : heading, place);
    ag_text_add(text, "</summary>\n");
}

void html_fold_end(struct ag_text *text)
{
    ag_text_add(text, "</details>\n");
}

/* ---- bars ---------------------------------------------------------------------------------- */

void html_bars_begin(struct ag_text *text, const char *caption, const char *of_what,
                     const char *number)
{
    ag_text_add(
        text,
        "<table class=\"bars\">\n<caption>%s</caption>\n<thead><tr><th scope=\"col\">%s</th><th "
        "scope=\"col\" class=\"num\">%s</th><th scope=\"col\" class=\"num\">share</th>"
        "<td class=\"bar\"></td></tr></thead>\n<tbody>\n",
        caption, of_what, number);
}

void html_bar_alone(struct ag_text *text, const char *colour, double share)
{
    share = share > 1 ? 1 : share > 0 ? share : 0;
    ag_text_add(text,
                "<svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
                "<rect class=\"track\" width=\"1000\" height=\"10\"/><rect class=\"%s\" "
                "width=\"%.1f\" height=\"10\"/></svg>",
                colour, share > 0 && share < .004 ? 4 : 1000 * share);
}

void html_bar(struct ag_text *text, const char *colour, const char *label, enum unit unit,
              double part, double longest, double whole)
{
    char number[32], share[32] = "";

    if (whole > 0)
        snprintf(share, sizeof(share), part < 10 * whole ? "%.1f %%" : "%.0f %%",
                 100 * part / whole);
    ag_text_add(text, "<tr><th scope=\"row\">");
    html_add(text, label);
    ag_text_add(text, "</th><td class=\"num\">%s</td><td class=\"num\">%s</td><td class=\"bar\">",
                html_number(number, sizeof(number), unit, part), share);
    if (whole > longest) /* a share of it is drawn as one */
        longest = whole;
    html_bar_alone(text, colour, longest > 0 ? part / longest : 0);
    ag_text_add(text, "</td></tr>\n");
}

void html_bars_end(struct ag_text *text)
{
    ag_text_add(text, "</tbody>\n</table>\n");
}
