/* unit.h: numbers as people read them: "201", "2.00 MiB", "30.2 us", "98.5 %". */
#ifndef TOOLS_UNIT_H
#define TOOLS_UNIT_H

#include <stddef.h>

enum unit { UNIT_COUNT, UNIT_BYTES, UNIT_NS, UNIT_PERCENT };

/* Writes the value with its unit into the buffer, which it returns. */
const char *unit_text(char *buffer, size_t size, enum unit unit, double value);

#endif
