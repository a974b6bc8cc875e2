/* The locks of the control API, which a forked child finds free. */
#include "interpose/api/api.h"

struct ag_lock ag_api_lock = AG_LOCK_INIT(AG_RANK_API);
pthread_mutex_t ag_api_look_up_mutex = PTHREAD_MUTEX_INITIALIZER;

void ag_api_begin_child(void)
{
    ag_lock_init(&ag_api_lock, AG_RANK_API);
    ag_api_look_up_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
