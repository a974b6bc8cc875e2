/* Advice to the kernel about memory that older headers do not know. A kernel that does not know it
 * refuses it. */
#ifndef AG_BASE_ADVICE_H
#define AG_BASE_ADVICE_H

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

#endif
