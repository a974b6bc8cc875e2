/* The style sheets and scripts of pages, which no input changes: a fuzzer does without them. */
#include "tools/base/html_web.h"

#define NOTHING(name)             \
    const char web_##name[] = ""; \
    const char web_##name##_hash[] = ""

NOTHING(page_css);
NOTHING(page_js);
NOTHING(uplot_css);
NOTHING(uplot_js);
