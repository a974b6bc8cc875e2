/* unit.c: writes numbers as people read them: see unit.h. */
#include "tools/base/unit.h"

#include <stdint.h>
#include <stdio.h>

#include "interpose/core/base/text.h"

const char *unit_text(char *buffer, size_t size, enum unit unit, double value)
{
    if (unit == UNIT_BYTES)
        return ag_text_size(buffer, size, value < 1.8e19 ? (uint64_t)value : UINT64_MAX);
    if (unit == UNIT_NS)
        return ag_text_duration(buffer, size, value);
    if (unit == UNIT_PERCENT)
        snprintf(buffer, size, "%.1f %%", value);
    else
        snprintf(buffer, size, "%.0f", value);
    return buffer;
}
