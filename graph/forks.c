/* Forks over streams: see forks.h. */
#include "graph/forks.h"

#include "graph/replay/segment.h"
#include "graph/stream.h"
#include "interpose/driver/driver.h"
#include "policy/contexts/context.h"

#define EDGES      64u /* events that make forks; more of them end segments, as others do */
#define REMEMBERED 8u  /* events that a thread recorded last */
#define TEMPORARY  8u  /* events that made forks and were destroyed, after which no fork is made */
#define UNJOINED   8u  /* segments in a row that were not joined, after which a stream leads none */

_Atomic uint32_t ag_forks_holding;
_Atomic bool ag_forks_wanted;

/* An event that makes forks. */
struct edge {
    _Atomic(CUevent) event;               /* NULL: the row is free */
    _Atomic(struct ag_context *) context; /* NULL: it is not there yet, or no more */
    _Atomic(struct ag_stream *) recorder; /* in whose segment it was recorded last; NULL: in none */
};

static struct edge edges[EDGES];
static _Atomic uint32_t n_edges; /* rows that were ever used */
static _Atomic uint32_t n_destroyed;

/* What the calling thread recorded last, natively, in turns. */
static _Thread_local struct {
    CUevent event[REMEMBERED];
    CUstream handle[REMEMBERED];
    uint32_t n;
} mine;

void ag_forks_configure(bool on)
{
    atomic_store(&ag_forks_wanted, on);
}

/* --- events --- */

/* The row of an event of the current context; NULL: it is none that makes forks. */
static struct edge *find_edge(CUevent event)
{
    uint32_t n = atomic_load_explicit(&n_edges, memory_order_relaxed);

    if (!ag_forks_on() || !event)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        struct edge *edge = &edges[i];

        if (atomic_load_explicit(&edge->event, memory_order_relaxed) == event) {
            struct ag_context *context = atomic_load_explicit(&edge->context, memory_order_acquire);

            return context && context == ag_context_current() ? edge : NULL;
        }
    }
    return NULL;
}

bool ag_forks_is_edge(CUevent event)
{
    return find_edge(event) != NULL;
}

static void add_edge(CUevent event)
{
    for (uint32_t i = 0; i < EDGES; i++) {
        uint32_t n = atomic_load_explicit(&n_edges, memory_order_relaxed);
        CUevent none = NULL;

        if (!atomic_compare_exchange_strong(&edges[i].event, &none, event))
            continue;
        atomic_store_explicit(&edges[i].recorder, NULL, memory_order_relaxed);
        atomic_store_explicit(&edges[i].context, ag_context_current(), memory_order_release);
        while (n <= i && !atomic_compare_exchange_weak(&n_edges, &n, i + 1))
            ;
        return;
    }
}

/* The stream in whose segment the event is, as far as nobody has recorded it elsewhere since. */
static struct ag_stream *recorder_of(CUevent event)
{
    struct edge *edge = find_edge(event);

    return edge ? atomic_load_explicit(&edge->recorder, memory_order_acquire) : NULL;
}

static void set_recorder(CUevent event, struct ag_stream *leader)
{
    struct edge *edge = find_edge(event);

    if (edge)
        atomic_store_explicit(&edge->recorder, leader, memory_order_release);
}

void ag_forks_note_recorded(CUevent event, CUstream handle)
{
    uint32_t i = mine.n % REMEMBERED;

    if (!ag_forks_on())
        return;
    mine.n++;
    mine.event[i] = event;
    mine.handle[i] = handle;
    set_recorder(event, NULL);
}

void ag_forks_note_waited(CUevent event, CUstream handle)
{
    if (!ag_forks_on() || ag_forks_is_edge(event) ||
        atomic_load_explicit(&n_destroyed, memory_order_relaxed) >= TEMPORARY)
        return;
    for (uint32_t i = 0; i < REMEMBERED; i++) {
        if (mine.event[i] == event && mine.handle[i] != handle) {
            add_edge(event);
            return;
        }
    }
}

bool ag_forks_event_dying(CUevent event)
{
    bool found = false;

    for (uint32_t i = 0; ag_forks_on() && event && i < EDGES; i++) {
        if (atomic_load_explicit(&edges[i].event, memory_order_relaxed) != event)
            continue;
        atomic_store_explicit(&edges[i].context, NULL, memory_order_relaxed);
        atomic_store_explicit(&edges[i].event, NULL, memory_order_release);
        found = true;
    }
    if (found)
        atomic_fetch_add_explicit(&n_destroyed, 1, memory_order_relaxed);
    return found;
}

/* --- who leads --- */

static struct ag_stream *leader_of(struct ag_stream *branch)
{
    return atomic_load_explicit(&branch->leader, memory_order_acquire);
}

static uint32_t number_of(const struct ag_forks *forks, const struct ag_stream *branch)
{
    for (uint32_t i = 1; i < forks->n_branches; i++) {
        if (forks->branch[i].stream == branch)
            return i;
    }
    return 0;
}

static void leave(struct ag_stream *branch, struct ag_stream *leader)
{
    (void)atomic_compare_exchange_strong(&branch->leader, &leader, NULL);
}

struct ag_stream *ag_forks_own_leader(struct ag_stream *branch)
{
    struct ag_stream *leader;

    while ((leader = leader_of(branch))) {
        if (!ag_stream_own(leader)) {
            leave(branch, leader); /* it was retired, and leads nobody */
            continue;
        }
        if (leader_of(branch) == leader) {
            leader->next.branch = number_of(&leader->forks, branch);
            if (leader->segment.n_ops >= AG_FORKS_MOST_OPS)
                ag_segment_end(leader, true, AG_FLUSH_EVENT);
            else if (leader->next.branch)
                return leader;
            leave(branch, leader); /* the thread that was to make it a branch has not yet */
        }
        leader->next.branch = 0;
        ag_stream_disown(leader);
    }
    return NULL;
}

/* Work on the legacy stream, which must come behind that of a blocking branch, flushes a leader
 * that is blocking, too. Of the leader, which is not owned, only atomic fields are read. */
static bool may_branch(const struct ag_stream *leader, const struct ag_stream *branch)
{
    return branch->id.created && branch->id.marked && !branch->altered &&
           !atomic_load_explicit(&branch->backed_off, memory_order_acquire) &&
           atomic_load_explicit(&leader->id.context, memory_order_relaxed) == branch->id.context &&
           (!branch->id.is_blocking ||
            atomic_load_explicit(&leader->id.is_blocking, memory_order_relaxed));
}

/* From here on the branch's operations look for that leader. Owned for a moment only. */
static bool follow(struct ag_stream *branch, struct ag_stream *leader)
{
    bool follows;

    if (!ag_stream_own(branch))
        return false;
    follows = !leader_of(branch) && may_branch(leader, branch);
    if (follows)
        ag_segment_end(branch, true, AG_FLUSH_EVENT);
    follows = follows && !branch->segment.n_ops;
    if (follows)
        atomic_store_explicit(&branch->leader, leader, memory_order_release);
    ag_stream_disown(branch);
    return follows;
}

static bool add_branch(struct ag_stream *leader, struct ag_stream *branch)
{
    struct ag_forks *forks = &leader->forks;
    CUstream handle = atomic_load_explicit(&branch->id.handle, memory_order_relaxed);

    if (!forks->n_branches)
        forks->branch[forks->n_branches++] =
            (struct ag_branch){leader, leader->id.handle, 0, false};
    if (forks->n_branches == AG_MAX_BRANCHES || leader->id.priority != branch->id.priority)
        return false;
    leader->next.branch = forks->n_branches;
    forks->branch[forks->n_branches++] = (struct ag_branch){branch, handle, 0, true};
    return true;
}

struct ag_stream *ag_forks_own_forked(struct ag_stream *branch, CUevent event)
{
    struct ag_stream *leader = recorder_of(event);

    if (!leader || leader == branch || !follow(branch, leader))
        return NULL;
    if (!ag_stream_own(leader)) {
        leave(branch, leader);
        return NULL;
    }
    if (leader_of(branch) == leader && ag_forks_has(leader, event) && add_branch(leader, branch))
        return leader;
    leave(branch, leader);
    leader->next.branch = 0;
    ag_stream_disown(leader);
    return NULL;
}

bool ag_forks_may_withhold(struct ag_stream *leader, uint32_t branch)
{
    const struct ag_branch *it = &leader->forks.branch[branch];
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!branch || !it->is_new)
        return true;
    if (ag_cu.cuStreamIsCapturing(it->handle, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    return atomic_load_explicit(&it->stream->joined_to, memory_order_acquire) ==
               leader->id.created ||
           ag_cu.cuStreamQuery(it->handle) == CUDA_SUCCESS;
}

void ag_forks_strays(struct ag_stream *stream)
{
    if (atomic_load_explicit(&stream->joined_to, memory_order_relaxed))
        atomic_store_explicit(&stream->joined_to, 0, memory_order_release);
}

/* --- what comes after what --- */

static uint32_t find_event(const struct ag_forks *forks, CUevent event)
{
    uint32_t i = 0;

    while (i < forks->n_events && forks->recorded[i].event != event)
        i++;
    return i;
}

bool ag_forks_has(const struct ag_stream *leader, CUevent event)
{
    return recorder_of(event) == leader &&
           find_event(&leader->forks, event) < leader->forks.n_events;
}

bool ag_forks_takes(const struct ag_stream *leader, CUevent event)
{
    struct ag_stream *recorder = recorder_of(event);

    return leader->forks.n_unjoined < UNJOINED && (!recorder || recorder == leader) &&
           find_event(&leader->forks, event) < AG_FORKS_EVENTS;
}

/* The branch has one more operation, which nobody has waited for. */
static void advance(struct ag_forks *forks, uint32_t branch)
{
    ag_branches others = ~((ag_branches)1 << branch);

    for (uint32_t i = 0; i < forks->n_branches; i++)
        forks->branch[i].before &= others;
    for (uint32_t i = 0; i < forks->n_events; i++)
        forks->recorded[i].before &= others;
}

static void note_event(struct ag_stream *leader, uint32_t branch, CUevent event)
{
    struct ag_forks *forks = &leader->forks;
    uint32_t i = find_event(forks, event);

    if (i == forks->n_events)
        forks->n_events++;
    leader->next.in_fork = true;
    forks->recorded[i].event = event;
    forks->recorded[i].before =
        (forks->n_branches ? forks->branch[branch].before : 0) | (ag_branches)1 << branch;
    set_recorder(event, leader);
}

void ag_forks_append(struct ag_stream *leader, const struct ag_op *op)
{
    struct ag_forks *forks = &leader->forks;
    uint32_t branch = ag_op_branch(op);
    enum ag_op_kind kind = ag_op_kind(op);

    if (kind == AG_OP_RECORD) {
        note_event(leader, branch, ag_op_event(op));
        return;
    }
    advance(forks, branch);
    forks->branch[branch].is_new = false;
    if (kind == AG_OP_WAIT && forks->n_branches)
        forks->branch[branch].before |= forks->recorded[find_event(forks, ag_op_event(op))].before;
}

bool ag_forks_are_open(const struct ag_stream *leader)
{
    const struct ag_forks *forks = &leader->forks;
    ag_branches all = ((ag_branches)1 << forks->n_branches) - 2;

    return forks->n_branches && (forks->branch[0].before & all) != all;
}

void ag_forks_set_holding(struct ag_stream *leader, bool holding)
{
    struct ag_forks *forks = &leader->forks;

    if (atomic_load_explicit(&forks->holds_events, memory_order_relaxed) == holding)
        return;
    atomic_store_explicit(&forks->holds_events, holding, memory_order_seq_cst);
    if (holding)
        atomic_fetch_add_explicit(&ag_forks_holding, 1, memory_order_seq_cst);
    else
        atomic_fetch_sub_explicit(&ag_forks_holding, 1, memory_order_seq_cst);
}

/* --- ends --- */

static void forget_recorded(struct ag_stream *leader)
{
    uint32_t n = atomic_load_explicit(&n_edges, memory_order_relaxed);

    for (uint32_t i = 0; i < n; i++) {
        struct ag_stream *expected = leader;

        (void)atomic_compare_exchange_strong(&edges[i].recorder, &expected, NULL);
    }
}

static bool is_joined_to(struct ag_stream *branch, const struct ag_stream *leader)
{
    return atomic_load_explicit(&branch->joined_to, memory_order_acquire) == leader->id.created;
}

/* Those that were joined before, unless they are branches now or were given something else. */
static void keep_joined(struct ag_stream *leader)
{
    struct ag_forks *forks = &leader->forks;
    uint32_t n = 0;

    for (uint32_t i = 0; i < forks->n_joined; i++) {
        if (!number_of(forks, forks->joined[i]) && is_joined_to(forks->joined[i], leader))
            forks->joined[n++] = forks->joined[i];
    }
    forks->n_joined = n;
}

void ag_forks_end(struct ag_stream *leader)
{
    struct ag_forks *forks = &leader->forks;

    ag_forks_set_holding(leader, false);
    if (forks->n_branches) {
        forks->n_unjoined = ag_forks_are_open(leader) ? forks->n_unjoined + 1 : 0;
        keep_joined(leader);
    }
    for (uint32_t i = 1; i < forks->n_branches; i++) {
        struct ag_stream *branch = forks->branch[i].stream;
        bool joined = forks->branch[0].before >> i & 1 && forks->n_joined < AG_MAX_BRANCHES;

        if (joined)
            forks->joined[forks->n_joined++] = branch;
        atomic_store_explicit(&branch->joined_to, joined ? leader->id.created : 0,
                              memory_order_release);
        leave(branch, leader);
    }
    forget_recorded(leader);
    forks->n_branches = forks->n_events = 0;
    leader->next.in_fork = leader->next.end_is_due = false;
    leader->next.branch = 0;
}

void ag_forks_forget_joined(struct ag_stream *leader)
{
    struct ag_forks *forks = &leader->forks;

    for (uint32_t i = 0; i < forks->n_joined; i++) {
        uint64_t created = leader->id.created;

        (void)atomic_compare_exchange_strong(&forks->joined[i]->joined_to, &created, 0);
    }
    forks->n_joined = 0;
}

CUstream ag_forks_target(const struct ag_stream *leader, const struct ag_op *op, CUstream handle)
{
    uint32_t branch = ag_op_branch(op);

    return branch ? leader->forks.branch[branch].handle : handle;
}
