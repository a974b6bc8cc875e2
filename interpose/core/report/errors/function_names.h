/* Names of functions that the program has asked modules and kernels for, for the report on the
 * first sticky error: after that the driver tells no function's name any more (it does tell a
 * kernel's). */
#ifndef AG_FUNCTION_NAMES_H
#define AG_FUNCTION_NAMES_H

#include <stddef.h>

/* Keeps up to 119 bytes of the name. Of two functions that share a row of the table, the later one
 * stays. A handle that is used again brings its new name. Any thread. */
void ag_function_note(const void *function, const char *name);
/* Writes the function's name into `buffer`, which it returns; "" where it is not known. */
const char *ag_function_name(const void *function, char *buffer, size_t size);

#endif
