/* Functions and their layouts: see kernel_params.h.
 *
 * Two tables, both read without a lock:
 * - Layouts are values: equal ones are stored once, under a number, and never freed. A program has
 *   few different ones, however many modules it loads and unloads, so no reader can see one vanish.
 * - Function -> number of a layout, in one word, so that no reader sees half of an entry. All of it
 *   is emptied before anything is unloaded, since a handle may come back as another function. */
#include "policy/managed/kernel_params.h"

#include <stdatomic.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"

/* --- layouts --- */

#define UNIT_BYTES  32u /* a layout's number is the number of its first unit */
#define N_NUMBERS   65536u
#define NO_LAYOUT   1u   /* the number of functions whose layout the driver does not report */
#define READY_UNITS 256u /* whose pages are there before they are used */

struct store {
    uint16_t by_content[N_NUMBERS]; /* open addressing; 0 for an empty place */
    unsigned char units[N_NUMBERS][UNIT_BYTES];
};

static struct {
    struct ag_lock lock; /* guards all changes of both tables: who has it loads relaxed */
    _Atomic(struct store *) store;
    unsigned next_unit, n_layouts;
    _Atomic(struct functions *) functions;
    _Atomic uint64_t generation; /* of forgetting */
} state = {.lock = AG_LOCK_INIT(AG_RANK_PARAMS), .next_unit = NO_LAYOUT + 1};

static size_t layout_bytes(uint32_t n)
{
    return sizeof(struct ag_layout) + n * sizeof(struct ag_param);
}

static const struct ag_layout *numbered(const struct store *store, unsigned number)
{
    return number == NO_LAYOUT ? NULL
                               : (const struct ag_layout *)(const void *)store->units[number];
}

static uint64_t hash_layout(const struct ag_layout *layout)
{
    uint64_t hash = layout->n * 4 + layout->is_kernel * 2 + layout->has_clusters;

    for (uint32_t i = 0; i < layout->n; i++) {
        hash = ag_hash_word(hash, layout->params[i].offset);
        hash = ag_hash_word(hash, layout->params[i].size);
    }
    return hash >> 32;
}

/* The store, made on first need; with the lock held. NULL without memory. */
static struct store *get_store(void)
{
    struct store *store = atomic_load_explicit(&state.store, memory_order_relaxed);

    if (store)
        return store;
    store = ag_pages_get(sizeof(*store));
    if (!store)
        return NULL;
    /* Whichever layouts come first, their places are all over the table of contents. */
    ag_pages_ready(store, offsetof(struct store, units) + READY_UNITS * sizeof(store->units[0]));
    atomic_store_explicit(&state.store, store, memory_order_release);
    return store;
}

/* The number of a layout equal to this one; NO_LAYOUT when the store is full. With the lock held.
 */
static unsigned number_of_layout(struct store *store, const struct ag_layout *layout)
{
    size_t size = layout_bytes(layout->n), n_units = (size + UNIT_BYTES - 1) / UNIT_BYTES;
    unsigned place = (unsigned)hash_layout(layout) % N_NUMBERS;

    for (; store->by_content[place]; place = (place + 1) % N_NUMBERS) {
        const struct ag_layout *known = numbered(store, store->by_content[place]);

        if (known->n == layout->n && !memcmp(known, layout, size))
            return store->by_content[place];
    }
    if (state.next_unit + n_units > N_NUMBERS || state.n_layouts >= N_NUMBERS / 2)
        return NO_LAYOUT;
    memcpy(store->units[state.next_unit], layout, size);
    store->by_content[place] = (uint16_t)state.next_unit;
    state.next_unit += (unsigned)n_units;
    state.n_layouts++;
    return store->by_content[place];
}

/* --- functions --- */

#define NUMBER_BITS    16u
#define FIRST_CAPACITY 1024u

struct functions {
    size_t capacity, count;
    _Atomic uint64_t words[]; /* handle and number of its layout; 0 for an empty place */
};

/* Handles are addresses in user space, of 48 bits. Others are not kept. */
static bool fits_word(uint64_t handle)
{
    return handle && handle >> (64 - NUMBER_BITS) == 0;
}

/* 0 when it is not known. */
static unsigned look_up_function(uint64_t handle)
{
    struct functions *table = atomic_load_explicit(&state.functions, memory_order_acquire);
    size_t place = table ? ag_hash_entry(handle, table->capacity) : 0;

    for (size_t n = 0; table && n < table->capacity;
         n++, place = (place + 1) & (table->capacity - 1)) {
        uint64_t word = atomic_load_explicit(&table->words[place], memory_order_acquire);

        if (!word)
            break;
        if (word >> NUMBER_BITS == handle)
            return (unsigned)(word & ((1u << NUMBER_BITS) - 1));
    }
    return 0;
}

static void enter_word(struct functions *table, uint64_t word)
{
    size_t place = ag_hash_entry(word >> NUMBER_BITS, table->capacity);
    uint64_t there;

    while ((there = atomic_load_explicit(&table->words[place], memory_order_relaxed))) {
        if (there >> NUMBER_BITS == word >> NUMBER_BITS)
            return; /* another thread asked at the same time */
        place = (place + 1) & (table->capacity - 1);
    }
    atomic_store_explicit(&table->words[place], word, memory_order_release);
    table->count++;
}

static size_t size_of_table(size_t capacity)
{
    return sizeof(struct functions) + capacity * sizeof(uint64_t);
}

/* A table that is at most half full; with the lock held. The old one stays mapped for its readers.
 */
static struct functions *functions_with_room(void)
{
    struct functions *old = atomic_load_explicit(&state.functions, memory_order_relaxed), *fresh;
    size_t capacity = old ? old->capacity * 2 : FIRST_CAPACITY;

    if (old && (old->count + 1) * 2 <= old->capacity)
        return old;
    fresh = ag_pages_get(size_of_table(capacity));
    if (!fresh)
        return NULL;
    ag_pages_ready(fresh, size_of_table(capacity));
    fresh->capacity = capacity;
    for (size_t i = 0; old && i < old->capacity; i++) {
        uint64_t word = atomic_load_explicit(&old->words[i], memory_order_relaxed);

        if (word)
            enter_word(fresh, word);
    }
    atomic_store_explicit(&state.functions, fresh, memory_order_release);
    return fresh;
}

void ag_params_prepare(void)
{
    ag_lock_take(&state.lock);
    (void)get_store();
    (void)functions_with_room();
    ag_lock_release(&state.lock);
}

void ag_params_forget(void)
{
    struct functions *table;

    if (!atomic_load_explicit(&state.functions, memory_order_acquire))
        return;
    ag_lock_take(&state.lock);
    atomic_fetch_add_explicit(&state.generation, 1, memory_order_relaxed);
    table = atomic_load_explicit(&state.functions, memory_order_relaxed);
    for (size_t i = 0; i < table->capacity; i++)
        atomic_store_explicit(&table->words[i], 0, memory_order_release);
    table->count = 0;
    ag_lock_release(&state.lock);
}

void ag_params_begin_child(void)
{
    ag_lock_init(&state.lock, AG_RANK_PARAMS); /* a thread of the parent may have held it */
    ag_params_forget();
}

/* --- what the driver says --- */

union asked {
    struct ag_layout layout;
    unsigned char room[sizeof(struct ag_layout) + AG_MAX_PARAMS * sizeof(struct ag_param)];
};

static CUresult ask_one(CUfunction function, bool as_kernel, size_t i, size_t *offset, size_t *size)
{
    if (as_kernel)
        return ag_cu.cuKernelGetParamInfo
                   ? ag_cu.cuKernelGetParamInfo((CUkernel)(void *)function, i, offset, size)
                   : CUDA_ERROR_INVALID_HANDLE;
    return ag_cu.cuFuncGetParamInfo ? ag_cu.cuFuncGetParamInfo(function, i, offset, size)
                                    : CUDA_ERROR_INVALID_HANDLE;
}

/* There is no call for the number of parameters: the one after the last is an invalid value. Of a
 * handle of the other kind the first may be one as well, so *ret_certain is false for none. */
static bool ask_all(CUfunction function, bool as_kernel, union asked *asked, bool *ret_certain)
{
    struct ag_layout *layout = &asked->layout;
    size_t offset = 0, size = 0;
    CUresult result;

    *layout = (struct ag_layout){0};
    while ((result = ask_one(function, as_kernel, layout->n, &offset, &size)) == CUDA_SUCCESS) {
        if (layout->n == AG_MAX_PARAMS || offset > UINT32_MAX || size > UINT32_MAX - offset)
            return false;
        layout->params[layout->n++] = (struct ag_param){(uint32_t)offset, (uint32_t)size};
        if (offset + size > layout->total)
            layout->total = (uint32_t)(offset + size);
    }
    *ret_certain = layout->n > 0;
    return result == CUDA_ERROR_INVALID_VALUE;
}

/* The call for functions takes kernels as well, the one for kernels no functions. */
static bool is_kernel(CUfunction function)
{
    size_t offset, size;
    CUresult result = ask_one(function, true, 0, &offset, &size);

    return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE;
}

bool ag_params_attribute(CUfunction function, bool as_kernel, CUfunction_attribute attribute,
                         int *ret_value)
{
    CUdevice device;

    if (!as_kernel)
        return ag_cu.cuFuncGetAttribute &&
               ag_cu.cuFuncGetAttribute(ret_value, attribute, function) == CUDA_SUCCESS;
    return ag_cu.cuKernelGetAttribute && ag_cu.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           ag_cu.cuKernelGetAttribute(ret_value, attribute, (CUkernel)(void *)function, device) ==
               CUDA_SUCCESS;
}

/* Compiled in, or set by the program. True when the driver does not say. */
static bool has_clusters(CUfunction function, bool as_kernel)
{
    int width;

    return !ag_params_attribute(function, as_kernel, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                &width) ||
           width > 0;
}

/* Asks for the layout as of a function, and as of a kernel if that gave none. */
static bool ask_either(CUfunction function, union asked *asked)
{
    bool certain = false;
    bool is_function = ask_all(function, false, asked, &certain);

    if (is_function && certain)
        return true;
    if (ask_all(function, true, asked, &certain))
        return true;
    return is_function && !asked->layout.n; /* without parameters */
}

static bool ask_layout(CUfunction function, union asked *asked)
{
    if (!ask_either(function, asked))
        return false;
    asked->layout.is_kernel = is_kernel(function);
    asked->layout.has_clusters = has_clusters(function, asked->layout.is_kernel);
    return true;
}

/* Asks, and remembers what came out, also that nothing did. */
static unsigned learn_function(CUfunction function)
{
    uint64_t handle = (uint64_t)(uintptr_t)function;
    uint64_t generation = atomic_load_explicit(&state.generation, memory_order_acquire);
    struct functions *table;
    struct store *store;
    union asked asked;
    bool answered = ask_layout(function, &asked);
    unsigned number = NO_LAYOUT;

    ag_lock_take(&state.lock);
    store = get_store();
    if (store && answered)
        number = number_of_layout(store, &asked.layout);
    table = store && fits_word(handle) ? functions_with_room() : NULL;
    if (table && generation == atomic_load_explicit(&state.generation, memory_order_relaxed))
        enter_word(table, handle << NUMBER_BITS | number);
    ag_lock_release(&state.lock);
    return number;
}

const struct ag_layout *ag_params_of(CUfunction function)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const struct ag_layout *layout;
    unsigned number;

    if (!ag_cu.cuFuncGetParamInfo && !ag_cu.cuKernelGetParamInfo) {
        if (!atomic_flag_test_and_set(&said))
            ag_log_warn(
                "the driver does not tell the parameters of kernels (CUDA 12.4 does): managed "
                "memory is not prefetched before launches");
        ag_stats_add(AG_STAT_LAUNCH_UNKNOWN, 1);
        return NULL;
    }
    number = function ? look_up_function((uint64_t)(uintptr_t)function) : NO_LAYOUT;
    if (!number)
        number = learn_function(function);
    layout = numbered(atomic_load_explicit(&state.store, memory_order_acquire), number);
    if (!layout)
        ag_stats_add(AG_STAT_LAUNCH_UNKNOWN, 1);
    return layout;
}

const void *ag_params_buffer(void **extra, size_t *ret_bytes)
{
    const void *buffer = NULL;
    const size_t *bytes = NULL;

    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = extra[1];
        else
            return NULL;
    }
    *ret_bytes = bytes ? *bytes : 0;
    return buffer;
}
