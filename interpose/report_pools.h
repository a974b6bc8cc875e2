/* The part of the report that tells of the program's own stream-ordered pools. */
#ifndef AG_REPORT_POOLS_H
#define AG_REPORT_POOLS_H

#include "base/text.h"

/* Nothing when the program used none. JSON: a field "app_pools" with a comma behind it. */
void ag_report_pools_json(struct ag_text *text);
void ag_report_pools_text(struct ag_text *text);

#endif
