/* Which programs need `allograft run --audit`, in a small file of their user's: a line for each
 * program whose calls went past us, for which the next `allograft run` of it looks. Nobody knows
 * before the program's end.
 *
 * The command names file and line in the environment, and whichever process of the program finds
 * that calls went past us adds the line. Several may do so at once: a line is one write. */
#ifndef AG_AUDIT_MEMORY_H
#define AG_AUDIT_MEMORY_H

#include <stdbool.h>

#define AG_AUDIT_MEMORY_VARIABLE "ALLOGRAFT_AUDIT_MEMORY" /* the file, a tab, and the line */
#define AG_AUDIT_MEMORY_MOST     16384u /* bytes of the file: then it begins anew */
#define AG_AUDIT_LINE_MOST       1024u

/* Does the file have that line? */
bool ag_audit_memory_has(const char *file, const char *line);
/* Reads the variable as the process starts. */
void ag_audit_memory_begin(void);
/* Calls of this process went past us. True where the next `allograft run` will find it, and this
 * one did not. */
bool ag_audit_memory_add(void);

#endif
