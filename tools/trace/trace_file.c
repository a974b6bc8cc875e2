/* trace_file.c: reads a trace and sorts its events by time: see trace_file.h. Every number of a
 * file is checked before it is used: kinds, lengths, and impossible times. */
#include "tools/trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/hash.h"
#include "tools/base/list.h"
#include "tools/base/mapping.h"

#define MOST_TEXTS 65536u /* numbers of texts have 16 bits */
#define N_SPACES   (AG_TRACE_TEXT_WAIT + 1u)

struct text {
    uint64_t base;
    uint32_t space, number;
    const char *text;
    const char *build_id;
};

struct entry {
    uint64_t key;  /* ticks, the sort key */
    uint32_t unit; /* its unit in the file */
};

struct trace {
    const char *bytes;
    size_t n_bytes;
    struct mapping mapping; /* unless the bytes are the caller's */
    struct ag_trace_header header;
    struct trace_info info;
    struct ag_trace_moment last_clock;
    double ns_per_tick;
    struct entry *entries;
    size_t n_entries, max_entries;
    struct text *texts; /* sorted by space and number */
    size_t n_texts, max_texts;
    char *text_memory;
    size_t text_used;
};

static const char *const ends[] = {
    [AG_TRACE_END_EXIT] = "exit",
    [AG_TRACE_END_QUICK] = "quick_exit",
    [AG_TRACE_END_AT_ONCE] = "_exit",
    [AG_TRACE_END_EXEC] = "exec",
};

/* --- the units --- */

static size_t n_units(const struct trace *trace)
{
    return (trace->n_bytes - trace->header.header_bytes) / AG_TRACE_UNIT;
}

static const char *unit_at(const struct trace *trace, size_t i)
{
    return trace->bytes + trace->header.header_bytes + i * AG_TRACE_UNIT;
}

static struct ag_trace_event raw_at(const struct trace *trace, size_t i)
{
    struct ag_trace_event event;

    memcpy(&event, unit_at(trace, i), sizeof(event));
    return event;
}

static bool is_of_the_file(unsigned kind)
{
    return kind >= AG_TRACE_TEXT && kind <= AG_TRACE_END;
}

static bool is_event(unsigned kind)
{
    return (kind >= AG_TRACE_ALLOC && kind <= AG_TRACE_STACK) ||
           (kind >= AG_TRACE_REPLAY && kind <= AG_TRACE_BUILD) ||
           (kind >= AG_TRACE_TRANSFER && kind <= AG_TRACE_PREFETCH) || kind == AG_TRACE_MARK ||
           (kind >= AG_TRACE_WAIT && kind <= AG_TRACE_PIECES);
}

static bool is_alloc(unsigned kind)
{
    return kind == AG_TRACE_ALLOC || kind == AG_TRACE_ALLOC_ASYNC;
}

static bool is_free(unsigned kind)
{
    return kind == AG_TRACE_FREE || kind == AG_TRACE_FREE_ASYNC;
}

/* Adds the text at `bytes`. A NUL in it separates a path from a build-id. */
static bool add_text_event(struct trace *trace, const struct ag_trace_event *head,
                           const char *bytes)
{
    size_t n = head->size, first = strnlen(bytes, n);
    struct text *list = list_grow(trace->texts, trace->n_texts, &trace->max_texts, sizeof(*list));
    char *copy = trace->text_memory + trace->text_used;

    if (!list)
        return false;
    trace->texts = list;
    memcpy(copy, bytes, n);
    copy[n] = '\0'; /* fits: the text's own event takes more room in the file */
    trace->text_used += n + 1;
    list[trace->n_texts++] = (struct text){
        .base = head->caller,
        .space = head->code,
        .number = (uint32_t)head->address,
        .text = copy,
        .build_id = first < n ? copy + first + 1 : "",
    };
    return true;
}

static bool add_entry(struct trace *trace, const struct ag_trace_event *event, size_t unit)
{
    struct entry *list =
        list_grow(trace->entries, trace->n_entries, &trace->max_entries, sizeof(*list));
    uint64_t key = event->ticks;

    if (!list)
        return false;
    trace->entries = list;
    if ((is_alloc(event->kind) || event->kind == AG_TRACE_FAILED) &&
        __builtin_add_overflow(key, event->duration, &key))
        key = UINT64_MAX;
    list[trace->n_entries++] = (struct entry){key, (uint32_t)unit};
    trace->info.n_kinds[event->kind]++;
    return true;
}

static void read_note(struct trace *trace, const struct ag_trace_event *event)
{
    if (event->kind == AG_TRACE_CLOCK && event->ticks > trace->last_clock.ticks)
        trace->last_clock = (struct ag_trace_moment){event->ticks, event->address};
    if (event->kind == AG_TRACE_DROPPED)
        trace->info.n_dropped += event->size;
    if (event->kind == AG_TRACE_END && event->code < sizeof(ends) / sizeof(ends[0]))
        trace->info.ended_by = ends[event->code];
}

/* Reads all units once; false when memory runs out. */
static bool read_units(struct trace *trace)
{
    size_t n = n_units(trace);

    for (size_t i = 0; i < n; i++) {
        struct ag_trace_event event = raw_at(trace, i);
        size_t more =
            event.kind != AG_TRACE_TEXT ? 0 : (event.size + AG_TRACE_UNIT - 1) / AG_TRACE_UNIT;

        if (event.kind == AG_TRACE_TEXT) {
            if (event.size > AG_TRACE_TEXT_MAX || more > n - i - 1) {
                trace->info.cut = true;
                break;
            }
            if (event.code < N_SPACES && event.address < MOST_TEXTS &&
                !add_text_event(trace, &event, unit_at(trace, i + 1)))
                return false;
            i += more;
        } else if (is_of_the_file(event.kind)) {
            read_note(trace, &event);
        } else if (is_event(event.kind) && !add_entry(trace, &event, i)) {
            return false;
        }
    }
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *one = a, *two = b;

    if (one->key != two->key)
        return one->key < two->key ? -1 : 1;
    return one->unit < two->unit ? -1 : one->unit > two->unit;
}

static int compare_texts(const void *a, const void *b)
{
    const struct text *one = a, *two = b;

    if (one->space != two->space)
        return one->space < two->space ? -1 : 1;
    return one->number < two->number ? -1 : one->number > two->number;
}

/* --- opening --- */

static uint64_t to_ns(const struct trace *trace, uint64_t ticks)
{
    double ns = (double)ticks * trace->ns_per_tick;

    return ns < 9e18 ? (uint64_t)ns : (uint64_t)9e18;
}

/* Converts ticks to nanoseconds since the process began. */
static uint64_t since_start(const struct trace *trace, uint64_t ticks)
{
    uint64_t start = trace->header.started.ticks;

    return ticks > start ? to_ns(trace, ticks - start) : 0;
}

/* Computes the length of a tick from two times: the start of the process, and the last clock
 * event. */
static void calibrate(struct trace *trace)
{
    const struct ag_trace_moment *from = &trace->header.started, *to = &trace->last_clock;

    if (to->ticks <= trace->header.opened.ticks)
        to = &trace->header.opened;
    trace->ns_per_tick = 1;
    if (to->ticks > from->ticks && to->ns > from->ns)
        trace->ns_per_tick = (double)(to->ns - from->ns) / (double)(to->ticks - from->ticks);
}

static void fill_info(struct trace *trace)
{
    struct trace_info *info = &trace->info;
    struct ag_trace_header *header = &trace->header;

    header->allograft[sizeof(header->allograft) - 1] = '\0';
    header->host[sizeof(header->host) - 1] = '\0';
    header->program[sizeof(header->program) - 1] = '\0';
    info->pid = header->pid;
    info->rank = header->rank;
    info->simulated = header->simulated != 0;
    info->program = header->program;
    info->host = header->host;
    info->allograft = header->allograft;
    info->opened_real_ns = header->opened_real_ns;
    info->opened_ns = since_start(trace, header->opened.ticks);
    info->n_events = trace->n_entries;
    info->last_ns = info->opened_ns;
    if (trace->n_entries) {
        struct trace_event last = trace_event(trace, trace->n_entries - 1);
        uint64_t end = last.began_ns + last.duration_ns;

        info->last_ns = end > info->last_ns ? end : info->last_ns;
    }
    info->cut = info->cut || (trace->n_bytes - header->header_bytes) % AG_TRACE_UNIT;
}

/* What is wrong with the header, or NULL. */
static const char *header_problem(struct trace *trace)
{
    struct ag_trace_header *header = &trace->header;

    if (trace->n_bytes < sizeof(header->magic) ||
        memcmp(trace->bytes, AG_TRACE_MAGIC, sizeof(AG_TRACE_MAGIC)) != 0)
        return "it is not a trace of Allograft";
    if (trace->n_bytes < sizeof(*header))
        return "it ends within its header";
    memcpy(header, trace->bytes, sizeof(*header));
    if (header->version > AG_TRACE_VERSION)
        return "it was written by a newer version of Allograft, whose command reads it";
    if (header->version != AG_TRACE_VERSION)
        return "it was written by another version of Allograft";
    if (header->header_bytes < sizeof(*header) || header->header_bytes > trace->n_bytes ||
        header->unit_bytes != AG_TRACE_UNIT)
        return "its header is damaged";
    if (n_units(trace) > UINT32_MAX)
        return "it is too large";
    return NULL;
}

static struct trace *fail_open(struct trace *trace, char *why, size_t why_size, const char *problem)
{
    snprintf(why, why_size, "%s", problem);
    trace_close(trace);
    return NULL;
}

static struct trace *read_trace(struct trace *trace, char *why, size_t why_size)
{
    const char *problem = header_problem(trace);

    if (problem)
        return fail_open(trace, why, why_size, problem);
    /* Every text takes a unit and its length in the file, so they fit. */
    trace->text_memory = malloc(trace->n_bytes + 1);
    if (!trace->text_memory || !read_units(trace))
        return fail_open(trace, why, why_size, strerror(ENOMEM));
    if (trace->n_entries)
        qsort(trace->entries, trace->n_entries, sizeof(trace->entries[0]), compare_entries);
    if (trace->n_texts)
        qsort(trace->texts, trace->n_texts, sizeof(trace->texts[0]), compare_texts);
    calibrate(trace);
    fill_info(trace);
    return trace;
}

struct trace *trace_of_bytes(const void *bytes, size_t n, char *why, size_t why_size)
{
    struct trace *trace = calloc(1, sizeof(*trace));

    if (!trace)
        return fail_open(NULL, why, why_size, strerror(ENOMEM));
    trace->bytes = bytes;
    trace->n_bytes = n;
    return read_trace(trace, why, why_size);
}

/* Maps the file; of a running process, as much as there is now. Returns the problem, or NULL. */
static const char *map_trace(struct trace *trace, int fd)
{
    struct stat st;
    int error;

    if (fstat(fd, &st))
        return strerror(errno);
    if (!S_ISREG(st.st_mode))
        return "it is not a regular file";
    error = mapping_begin(&trace->mapping, fd);
    if (error)
        return strerror(-error);
    trace->bytes = trace->mapping.bytes;
    trace->n_bytes = trace->mapping.n;
    return NULL;
}

struct trace *trace_open(const char *path, char *why, size_t why_size)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    const char *problem;
    int fd;

    if (!trace)
        return fail_open(NULL, why, why_size, strerror(ENOMEM));
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_open(trace, why, why_size, strerror(errno));
    problem = map_trace(trace, fd);
    close(fd);
    return problem ? fail_open(trace, why, why_size, problem) : read_trace(trace, why, why_size);
}

void trace_close(struct trace *trace)
{
    if (!trace)
        return;
    mapping_end(&trace->mapping);
    free(trace->entries);
    free(trace->texts);
    free(trace->text_memory);
    free(trace);
}

bool trace_is_torn(const struct trace *trace)
{
    return mapping_is_torn(&trace->mapping);
}

/* --- answers --- */

const struct trace_info *trace_info(const struct trace *trace)
{
    return &trace->info;
}

struct trace_event trace_event(const struct trace *trace, size_t i)
{
    struct ag_trace_event raw = raw_at(trace, trace->entries[i].unit);

    return (struct trace_event){
        .began_ns = since_start(trace, raw.ticks),
        .duration_ns = to_ns(trace, raw.duration),
        .address = raw.address,
        .size = raw.size,
        .stream = raw.stream,
        .caller = raw.caller,
        .thread = raw.thread,
        .kind = raw.kind,
        .placement = raw.placement < AG_TRACE_N_PLACES ? raw.placement : 0,
        .device = raw.device,
        .module = raw.module,
        .code = raw.code,
    };
}

static const struct text *find_text(const struct trace *trace, uint32_t space, uint32_t number)
{
    const struct text key = {.space = space, .number = number};

    return trace->n_texts ? bsearch(&key, trace->texts, trace->n_texts, sizeof(key), compare_texts)
                          : NULL;
}

const char *trace_text(const struct trace *trace, enum ag_trace_text space, unsigned number)
{
    const struct text *text = find_text(trace, space, number);

    return text ? text->text : "?";
}

uint64_t trace_module_base(const struct trace *trace, unsigned number)
{
    const struct text *text = find_text(trace, AG_TRACE_TEXT_MODULE, number);

    return text ? text->base : 0;
}

const char *trace_module_build_id(const struct trace *trace, unsigned number)
{
    const struct text *text = find_text(trace, AG_TRACE_TEXT_MODULE, number);

    return text ? text->build_id : "";
}

const char *trace_place(const struct trace *trace, unsigned placement)
{
    return trace_text(trace, AG_TRACE_TEXT_PLACEMENT, placement);
}

const char *trace_site_name(const struct trace *trace, unsigned module, uint64_t caller,
                            char *buffer, size_t size)
{
    const struct text *text = find_text(trace, AG_TRACE_TEXT_MODULE, module);
    const char *slash = text ? strrchr(text->text, '/') : NULL;

    if (!caller)
        snprintf(buffer, size, "not known");
    else if (!text)
        snprintf(buffer, size, "0x%llx", (unsigned long long)caller);
    else
        snprintf(buffer, size, "%s+0x%llx", slash ? slash + 1 : text->text,
                 (unsigned long long)(caller - text->base));
    return buffer;
}

/* --- memory --- */

struct block {
    uint64_t address; /* 0: a free slot */
    uint64_t size, allocated_ns, number, caller, stream;
    uint32_t stack;
    uint16_t module;
    uint8_t place;
    bool gone;
};

/* Blocks by address: a hash table with open addressing. Freed blocks keep their slots until it
 * grows. */
struct blocks {
    struct block *places;
    size_t capacity, used;
};

static struct block *find_block(const struct blocks *blocks, uint64_t address)
{
    size_t at = (size_t)(ag_hash_spread(address) >> 20);

    for (;; at++) {
        struct block *block = &blocks->places[at & (blocks->capacity - 1)];

        if (!block->address || block->address == address)
            return block;
    }
}

static bool grow_blocks(struct blocks *blocks)
{
    struct blocks larger = {NULL, 64, 0};

    if (blocks->capacity && blocks->used * 2 < blocks->capacity)
        return true;
    for (size_t i = 0; i < blocks->capacity; i++)
        larger.used += blocks->places[i].address && !blocks->places[i].gone;
    while (larger.capacity < larger.used * 4)
        larger.capacity *= 2;
    larger.places = calloc(larger.capacity, sizeof(struct block));
    if (!larger.places)
        return false;
    for (size_t i = 0; i < blocks->capacity; i++) {
        const struct block *block = &blocks->places[i];

        if (block->address && !block->gone)
            *find_block(&larger, block->address) = *block;
    }
    free(blocks->places);
    *blocks = larger;
    return true;
}

struct walk {
    struct blocks blocks;
    struct trace_state state;
    uint64_t n_allocs;
};

static void subtract(struct walk *walk, const struct block *block)
{
    walk->state.level[block->place] -= block->size;
    walk->state.total -= block->size;
}

static void add_to_levels(struct walk *walk, const struct block *block)
{
    walk->state.level[block->place] += block->size;
    walk->state.total += block->size;
}

static bool allocated(struct walk *walk, const struct trace_event *event)
{
    struct block *block;

    walk->n_allocs++;
    if (!event->address)
        return true;
    if (!grow_blocks(&walk->blocks))
        return false;
    block = find_block(&walk->blocks, event->address);
    if (!block->address)
        walk->blocks.used++;
    else if (!block->gone) /* the event of its free was dropped */
        subtract(walk, block);
    *block = (struct block){
        .address = event->address,
        .size = event->size,
        .allocated_ns = event->began_ns,
        .number = walk->n_allocs,
        .caller = event->caller,
        .stream = event->stream,
        .stack = TRACE_NO_STACK,
        .module = event->module,
        .place = event->placement,
    };
    add_to_levels(walk, block);
    return true;
}

/* The block that the event is of; NULL: the trace has no allocation of it. */
static struct block *live_block(const struct walk *walk, const struct trace_event *event)
{
    struct block *block =
        walk->blocks.capacity && event->address ? find_block(&walk->blocks, event->address) : NULL;

    return block && block->address && !block->gone ? block : NULL;
}

/* A second stack would be of an allocation whose own event was dropped. */
static void read_stack(struct walk *walk, const struct trace_event *event)
{
    struct block *block = live_block(walk, event);

    if (block && block->stack == TRACE_NO_STACK)
        block->stack = event->code;
}

static void release_block(struct walk *walk, const struct trace_event *event)
{
    struct trace_state *state = &walk->state;
    struct block *block = live_block(walk, event);

    if (!block)
        return;
    state->known = true;
    state->size = block->size;
    state->allocated_ns = block->allocated_ns;
    state->from = block->place;
    state->caller = block->caller;
    state->module = block->module;
    state->stack = block->stack;
    subtract(walk, block);
    if (event->kind == AG_TRACE_MOVED) {
        block->place = event->placement;
        add_to_levels(walk, block);
        return;
    }
    state->temporary = block->number == walk->n_allocs;
    block->gone = true;
}

/* Leaves the blocks, which the caller frees. */
static bool walk_all(const struct trace *trace, int device,
                     void (*visit)(const struct trace_state *state, void *data), void *data,
                     struct blocks *ret_blocks)
{
    struct walk walk = {.n_allocs = 0};
    bool good = true;

    for (size_t i = 0; i < trace->n_entries && good; i++) {
        struct trace_event event = trace_event(trace, i);
        bool elsewhere = device != AG_TRACE_NO_DEVICE && event.device != device;

        walk.state.known = walk.state.temporary = false;
        /* The event of a free into the program's own pools does not name the device. */
        if (elsewhere && event.kind != AG_TRACE_FREE_ASYNC)
            continue;
        if (is_alloc(event.kind))
            good = allocated(&walk, &event);
        else if (is_free(event.kind) || event.kind == AG_TRACE_MOVED)
            release_block(&walk, &event);
        else if (event.kind == AG_TRACE_STACK)
            read_stack(&walk, &event);
        walk.state.event = event;
        if (good && (!elsewhere || walk.state.known))
            visit(&walk.state, data);
    }
    *ret_blocks = walk.blocks;
    return good;
}

bool trace_walk(const struct trace *trace, int device,
                void (*visit)(const struct trace_state *state, void *data), void *data)
{
    struct blocks blocks;
    bool good = walk_all(trace, device, visit, data, &blocks);

    free(blocks.places);
    return good;
}

static void ignore_state(const struct trace_state *state, void *data)
{
    (void)state;
    (void)data;
}

static int compare_left(const void *a, const void *b)
{
    const struct trace_block *one = a, *two = b;

    return one->address < two->address ? -1 : one->address > two->address;
}

long trace_left(const struct trace *trace, int device, struct trace_block **ret_blocks)
{
    struct blocks blocks;
    bool good = walk_all(trace, device, ignore_state, NULL, &blocks);
    struct trace_block *left = good ? calloc(blocks.used + 1, sizeof(*left)) : NULL;
    long n = 0;

    for (size_t i = 0; left && i < blocks.capacity; i++) {
        const struct block *block = &blocks.places[i];

        if (block->address && !block->gone)
            left[n++] = (struct trace_block){.address = block->address,
                                             .size = block->size,
                                             .stream = block->stream,
                                             .caller = block->caller,
                                             .allocated_ns = block->allocated_ns,
                                             .stack = block->stack,
                                             .module = block->module};
    }
    free(blocks.places);
    if (left)
        qsort(left, (size_t)n, sizeof(*left), compare_left);
    *ret_blocks = left;
    return left ? n : -1;
}

/* --- summaries --- */

struct bucketing {
    struct trace_bucket *buckets;
    size_t n, at;
    uint64_t from_ns, length_ns;
    uint64_t level[AG_TRACE_N_PLACES], total; /* after the last event */
};

/* Starts the buckets up to number `to` with the current levels. */
static void fill_buckets(struct bucketing *b, size_t to)
{
    while (b->at < to) {
        struct trace_bucket *next = &b->buckets[++b->at];

        memcpy(next->least, b->level, sizeof(next->least));
        memcpy(next->most, b->level, sizeof(next->most));
        next->most_total = b->total;
    }
}

static void put_into_bucket(const struct trace_state *state, void *data)
{
    struct bucketing *b = data;
    uint64_t ns =
        state->event.began_ns + (is_alloc(state->event.kind) ? state->event.duration_ns : 0);
    uint64_t since = ns > b->from_ns ? ns - b->from_ns : 0;
    size_t to = b->n - 1;
    struct trace_bucket *bucket;

    if (since < b->length_ns)
        to = (size_t)((double)since / (double)b->length_ns * (double)b->n);
    fill_buckets(b, to < b->n ? to : b->n - 1);
    bucket = &b->buckets[b->at];
    for (unsigned i = 0; i < AG_TRACE_N_PLACES; i++) {
        b->level[i] = state->level[i];
        bucket->least[i] = b->level[i] < bucket->least[i] ? b->level[i] : bucket->least[i];
        bucket->most[i] = b->level[i] > bucket->most[i] ? b->level[i] : bucket->most[i];
    }
    b->total = state->total;
    bucket->most_total = b->total > bucket->most_total ? b->total : bucket->most_total;
}

bool trace_memory(const struct trace *trace, int device, size_t n, struct trace_bucket *ret_buckets)
{
    struct bucketing b = {
        .buckets = ret_buckets,
        .n = n,
        .from_ns = trace->info.opened_ns,
        .length_ns = trace->info.last_ns - trace->info.opened_ns,
    };

    if (!n)
        return true;
    memset(ret_buckets, 0, n * sizeof(*ret_buckets));
    for (size_t i = 0; i < n; i++)
        ret_buckets[i].from_ns =
            b.from_ns + (uint64_t)((double)b.length_ns * (double)i / (double)n);
    if (!trace_walk(trace, device, put_into_bucket, &b))
        return false;
    fill_buckets(&b, n - 1);
    return true;
}

struct sites {
    struct trace_site *list; /* open addressing by caller and module; n_allocs 0: a free slot */
    size_t capacity, used;
    bool full; /* memory ran out */
};

static struct trace_site *find_site(struct sites *sites, uint16_t module, uint64_t caller)
{
    size_t at = (size_t)(ag_hash_word(caller, (uint64_t)module << 48) >> 20);

    for (;; at++) {
        struct trace_site *site = &sites->list[at & (sites->capacity - 1)];

        if (!site->n_allocs || (site->module == module && site->caller == caller))
            return site;
    }
}

static bool make_room_for_site(struct sites *sites)
{
    struct sites larger = {.capacity = sites->capacity ? sites->capacity * 2 : 64,
                           .used = sites->used};

    if (sites->capacity && sites->used * 2 < sites->capacity)
        return true;
    larger.list = calloc(larger.capacity, sizeof(*larger.list));
    if (!larger.list)
        return false;
    for (size_t i = 0; i < sites->capacity; i++) {
        const struct trace_site *site = &sites->list[i];

        if (site->n_allocs)
            *find_site(&larger, site->module, site->caller) = *site;
    }
    free(sites->list);
    *sites = larger;
    return true;
}

static void count_site(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct sites *sites = data;
    struct trace_site *site;

    if (is_free(event->kind) && state->known && state->temporary && sites->capacity)
        find_site(sites, state->module, state->caller)->n_temporary++;
    if (!is_alloc(event->kind) || sites->full)
        return;
    if (!make_room_for_site(sites)) {
        sites->full = true;
        return;
    }
    site = find_site(sites, event->module, event->caller);
    sites->used += !site->n_allocs;
    site->module = event->module;
    site->caller = event->caller;
    site->n_allocs++;
    site->bytes += event->size;
}

static int by_bytes_and_caller(const void *a, const void *b)
{
    const struct trace_site *one = a, *two = b;

    if (one->bytes != two->bytes)
        return one->bytes > two->bytes ? -1 : 1;
    if (one->caller != two->caller)
        return one->caller < two->caller ? -1 : 1;
    return one->module < two->module ? -1 : one->module > two->module;
}

long trace_sites(const struct trace *trace, int device, size_t most, struct trace_site *ret_sites)
{
    struct sites sites = {NULL, 0, 0, false};
    bool good = trace_walk(trace, device, count_site, &sites) && !sites.full;
    size_t n = 0;

    for (size_t i = 0; good && i < sites.capacity; i++) {
        if (sites.list[i].n_allocs)
            sites.list[n++] = sites.list[i];
    }
    if (n)
        qsort(sites.list, n, sizeof(*sites.list), by_bytes_and_caller);
    n = n < most ? n : most;
    if (n)
        memcpy(ret_sites, sites.list, n * sizeof(*ret_sites));
    free(sites.list);
    return good ? (long)n : -1;
}
