/* A library that is linked with one by which devices reach memory. */
#include "tests/preload/unseen/unseen.h"

int unseen_use(void);

int unseen_use(void)
{
    return unseen_read(0, 0, 0);
}
