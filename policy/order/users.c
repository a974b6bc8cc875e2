/* The list of threads that use CUDA, and who of them counts: see users.h. */
#include "policy/order/users.h"

#include <pthread.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/threads/lock.h"

/* Frees that drain between two looks. A thread stops to count at the second look that has not seen
 * it, or at the first after one that has: so 8 to 16 frees are slower than they might be in a
 * program whose first thread leaves the work to another (18 us instead of 9 with kernels of 2 us,
 * 47 instead of 39 with kernels of 20). */
#define DRAINS_PER_LOOK 8u

struct ag_user ag_user_unknown;
_Thread_local struct ag_user *ag_user_own = &ag_user_unknown;
_Atomic unsigned ag_users_counted;

static struct {
    struct ag_lock lock; /* guards the list, and all of a user but `seen` */
    struct ag_user *first;
    _Atomic unsigned n_drained; /* relaxed: a count */
} users = {.lock = AG_LOCK_INIT(AG_RANK_USERS)};

static struct ag_arena records = AG_ARENA_INIT(struct ag_user);
static pthread_key_t key; /* its destructor sees threads end */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool has_key;

static void count_user(struct ag_user *user)
{
    if (!user->counts)
        atomic_fetch_add_explicit(&ag_users_counted, 1, memory_order_seq_cst);
    user->counts = true;
}

static void count_no_more(struct ag_user *user)
{
    if (user->counts)
        atomic_fetch_sub_explicit(&ag_users_counted, 1, memory_order_seq_cst);
    user->counts = false;
}

static void user_ends(void *data)
{
    struct ag_user *own = data, **link = &users.first;

    ag_user_own = &ag_user_unknown;
    ag_lock_take(&users.lock);
    while (*link != own)
        link = &(*link)->next;
    *link = own->next;
    count_no_more(own);
    ag_lock_release(&users.lock);
    ag_arena_put(&records, own);
}

static void make_key(void)
{
    has_key = !pthread_key_create(&key, user_ends);
}

/* A record of the calling thread, or NULL where its end would go unnoticed. */
static struct ag_user *make_record(void)
{
    struct ag_user *fresh;

    (void)pthread_once(&key_once, make_key);
    fresh = has_key ? ag_arena_get(&records) : NULL;
    if (fresh && pthread_setspecific(key, fresh)) {
        ag_arena_put(&records, fresh);
        return NULL;
    }
    return fresh;
}

/* A thread without a record is one of several that may come and go: all of them count from here on.
 */
static void add_unknown(void)
{
    atomic_store_explicit(&ag_user_unknown.seen, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&ag_users_counted, 2, memory_order_seq_cst);
}

void ag_users_add(void)
{
    bool is_new = ag_user_own == &ag_user_unknown;
    struct ag_user *own = is_new ? make_record() : ag_user_own;

    if (!own) {
        add_unknown();
        return;
    }
    ag_lock_take(&users.lock);
    if (is_new) {
        own->next = users.first;
        users.first = own;
    }
    count_user(own);
    atomic_store_explicit(&own->seen, true, memory_order_relaxed);
    ag_lock_release(&users.lock);
    ag_user_own = own;
}

/* Looks at all threads: those that were not seen since the last look do not count any more. */
static void look_at_users(void)
{
    ag_lock_take(&users.lock);
    for (struct ag_user *user = users.first; user; user = user->next) {
        if (user == ag_user_own)
            continue;
        if (!atomic_load_explicit(&user->seen, memory_order_relaxed))
            count_no_more(user);
        atomic_store_explicit(&user->seen, false, memory_order_relaxed);
    }
    ag_lock_release(&users.lock);
}

bool ag_users_drained(bool watched)
{
    if (!watched ||
        atomic_fetch_add_explicit(&users.n_drained, 1, memory_order_relaxed) % DRAINS_PER_LOOK !=
            DRAINS_PER_LOOK - 1)
        return false;
    look_at_users();
    return true;
}

void ag_users_begin_child(void)
{
    ag_lock_init(&users.lock, AG_RANK_USERS); /* the thread that held it is the parent's */
    ag_arena_begin_child(&records);
    atomic_store(&ag_user_unknown.seen, false);
    users.first = NULL;
    atomic_store(&ag_users_counted, 0);
    if (ag_user_own == &ag_user_unknown)
        return;
    *ag_user_own = (struct ag_user){.seen = true};
    users.first = ag_user_own;
    count_user(ag_user_own);
}
