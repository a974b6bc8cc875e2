/* html_web.h: the style sheets and scripts that pages carry (tools/report/web/), by embed.py. Of
 * each script there is the hash by which the page's Content-Security-Policy allows it and no
 * other. */
#ifndef TOOLS_HTML_WEB_H
#define TOOLS_HTML_WEB_H

extern const char web_page_css[];
extern const char web_page_css_hash[];
extern const char web_page_js[];
extern const char web_page_js_hash[];
extern const char web_uplot_css[]; /* of uPlot, which draws memory over time */
extern const char web_uplot_css_hash[];
extern const char web_uplot_js[];
extern const char web_uplot_js_hash[];

#endif
