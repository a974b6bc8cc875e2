/* holders.h: who holds memory in one process, for the commands that show it. */
#ifndef TOOLS_HOLDERS_H
#define TOOLS_HOLDERS_H

/* Prints who holds memory in process `pid` now, whose counters are in the folder of that name, or
 * NULL for that of the settings. Returns an exit status. */
int holders_show(const char *pid, const char *folder);

#endif
