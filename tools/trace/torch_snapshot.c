/* torch_snapshot.c: what snapshots of PyTorch's memory consist of, and one of the blocks that are
 * live: see torch_snapshot.h. */
#include "tools/trace/torch_snapshot.h"

#include <stdlib.h>
#include <string.h>

#define MOST_INLINED 16u
#define MOST_BLOCKS  1000u        /* of a stack: more of them make a page slow, and say no more */
#define ALIGNMENT    0x200000u    /* segments begin there */
#define FIRST        0x100000000u /* address */

static const char *const words[TORCH_N_WORDS] = {
    [TORCH_ACTION] = "action",
    [TORCH_ADDR] = "addr",
    [TORCH_SIZE] = "size",
    [TORCH_STREAM] = "stream",
    [TORCH_FRAMES] = "frames",
    [TORCH_TIME_US] = "time_us",
    [TORCH_NAME] = "name",
    [TORCH_FILENAME] = "filename",
    [TORCH_LINE] = "line",
    [TORCH_ALLOC] = "alloc",
    [TORCH_FREE_REQUESTED] = "free_requested",
    [TORCH_FREE_COMPLETED] = "free_completed",
    [TORCH_SEGMENT_ALLOC] = "segment_alloc",
    [TORCH_SEGMENT_FREE] = "segment_free",
    [TORCH_DEVICE] = "device",
    [TORCH_ADDRESS] = "address",
    [TORCH_TOTAL_SIZE] = "total_size",
    [TORCH_ALLOCATED_SIZE] = "allocated_size",
    [TORCH_ACTIVE_SIZE] = "active_size",
    [TORCH_REQUESTED_SIZE] = "requested_size",
    [TORCH_SEGMENT_TYPE] = "segment_type",
    [TORCH_SEGMENT_POOL_ID] = "segment_pool_id",
    [TORCH_IS_EXPANDABLE] = "is_expandable",
    [TORCH_BLOCKS] = "blocks",
    [TORCH_STATE] = "state",
    [TORCH_LARGE] = "large",
    [TORCH_ACTIVE_ALLOCATED] = "active_allocated",
};

void torch_word(struct torch_writer *w, enum torch_word word)
{
    if (w->words[word]) {
        pickle_again(&w->pickle, w->words[word] - 1);
        return;
    }
    pickle_text(&w->pickle, words[word]);
    w->words[word] = pickle_keep(&w->pickle) + 1;
}

void torch_pair(struct torch_writer *w, enum torch_word key, uint64_t value)
{
    torch_word(w, key);
    pickle_number(&w->pickle, value);
}

/* The first key is how a file is known to be ours. */
void torch_begin(struct torch_writer *w, FILE *out, const char *about)
{
    memset(w, 0, sizeof(*w));
    pickle_begin(&w->pickle, out);
    pickle_open_dict(&w->pickle);
    pickle_text(&w->pickle, "allograft");
    pickle_text(&w->pickle, about);
}

void torch_open_frames(struct torch_writer *w, struct pickle_list *ret)
{
    torch_word(w, TORCH_FRAMES);
    pickle_open_list(&w->pickle, ret);
}

void torch_open_segments(struct torch_writer *w, struct pickle_list *ret)
{
    pickle_text(&w->pickle, "segments");
    pickle_open_list(&w->pickle, ret);
}

void torch_open_traces(struct torch_writer *w, struct pickle_list *ret)
{
    pickle_text(&w->pickle, "device_traces");
    pickle_open_list(&w->pickle, ret);
}

void torch_end(struct torch_writer *w)
{
    pickle_close_dict(&w->pickle);
    pickle_end(&w->pickle);
}

/* ---- frames -------------------------------------------------------------------------------- */

void torch_frame(struct torch_writer *w, const char *name, const char *file, uint32_t line)
{
    pickle_open_dict(&w->pickle);
    torch_word(w, TORCH_NAME);
    pickle_text(&w->pickle, name);
    torch_word(w, TORCH_FILENAME);
    pickle_text(&w->pickle, file);
    torch_pair(w, TORCH_LINE, line);
    pickle_close_dict(&w->pickle);
}

void torch_native_frames(struct torch_writer *w, struct pickle_list *list,
                         const struct ag_frame_name *names, unsigned n, const char *path,
                         uint64_t offset)
{
    const char *slash = strrchr(path, '/');
    char place[400];

    for (unsigned i = 0; i < n && names[i].function[0]; i++) {
        torch_frame(w, names[i].function, names[i].file[0] ? names[i].file : path, names[i].line);
        pickle_next(&w->pickle, list);
    }
    if (n && names[0].function[0])
        return;
    snprintf(place, sizeof(place), "%.255s%s0x%llx%s%s%s", slash ? slash + 1 : path,
             *path ? "+" : "", (unsigned long long)offset, n ? " (" : "", n ? names[0].note : "",
             n ? ")" : "");
    torch_frame(w, place, *path ? path : "?", 0);
    pickle_next(&w->pickle, list);
}

/* ---- segments ------------------------------------------------------------------------------ */

static void write_block(struct torch_writer *w, const struct torch_segment *segment, uint64_t i)
{
    uint64_t each = segment->size / segment->n;
    uint64_t size = i + 1 < segment->n ? each : segment->size - each * i;

    pickle_open_dict(&w->pickle);
    torch_pair(w, TORCH_ADDRESS, segment->address + each * i);
    torch_pair(w, TORCH_SIZE, size);
    torch_pair(w, TORCH_REQUESTED_SIZE, size);
    torch_word(w, TORCH_STATE);
    torch_word(w, TORCH_ACTIVE_ALLOCATED);
    torch_word(w, TORCH_FRAMES);
    pickle_again(&w->pickle, segment->frames);
    pickle_close_dict(&w->pickle);
}

/* The pool's number is that of PyTorch's default pool, which memory_viz shows as such. */
static void write_pool(struct torch_writer *w)
{
    torch_word(w, TORCH_SEGMENT_POOL_ID);
    pickle_number(&w->pickle, 0);
    pickle_number(&w->pickle, 0);
    pickle_pair(&w->pickle);
}

void torch_segment(struct torch_writer *w, const struct torch_segment *segment)
{
    struct pickle_list list;

    pickle_open_dict(&w->pickle);
    torch_pair(w, TORCH_DEVICE, segment->device);
    torch_pair(w, TORCH_ADDRESS, segment->address);
    torch_pair(w, TORCH_TOTAL_SIZE, segment->size);
    torch_pair(w, TORCH_ALLOCATED_SIZE, segment->size);
    torch_pair(w, TORCH_ACTIVE_SIZE, segment->size);
    torch_pair(w, TORCH_REQUESTED_SIZE, segment->size);
    torch_pair(w, TORCH_STREAM, segment->stream);
    torch_word(w, TORCH_SEGMENT_TYPE);
    torch_word(w, TORCH_LARGE);
    write_pool(w);
    torch_word(w, TORCH_IS_EXPANDABLE);
    pickle_truth(&w->pickle, false);
    torch_word(w, TORCH_FRAMES);
    pickle_again(&w->pickle, segment->frames);
    torch_word(w, TORCH_BLOCKS);
    pickle_open_list(&w->pickle, &list);
    for (uint64_t i = 0; i < segment->n; i++) {
        write_block(w, segment, i);
        pickle_next(&w->pickle, &list);
    }
    pickle_close_list(&w->pickle);
    pickle_close_dict(&w->pickle);
}

/* ---- who holds memory ---------------------------------------------------------------------- */

static void write_stack_frames(struct torch_writer *w, const struct ag_holders_view *view,
                               const struct ag_held_stack *stack)
{
    struct ag_frame_name names[MOST_INLINED];
    struct pickle_list list;

    pickle_open_list(&w->pickle, &list);
    for (uint32_t i = 0; i < stack->n; i++) {
        uint64_t frame = view->holders->frames[stack->first + i];
        const char *text = view->holders->text;
        unsigned module = (unsigned)(frame >> 48);

        if (frame & AG_FRAME_PYTHON) {
            text += (uint32_t)frame;
            torch_frame(w, text, text + strlen(text) + 1, ag_frame_line(frame));
            pickle_next(&w->pickle, &list);
            continue;
        }
        torch_native_frames(
            w, &list, names,
            view->names ? view->names(view->namer, view->holders, frame, names, MOST_INLINED) : 0,
            text + view->holders->modules[module].path, frame & ((1ull << 48) - 1));
    }
    pickle_close_list(&w->pickle);
}

/* Bytes of a stack that a device has; 0: the memory is the host's, or none is live. */
static uint64_t live_bytes(const struct ag_held_stack *stack)
{
    return stack->kind == AG_HELD_HOST || stack->device < 0
               ? 0
               : atomic_load_explicit(&stack->held[AG_HELD_LIVE].bytes, memory_order_relaxed);
}

static uint64_t live_blocks(const struct ag_held_stack *stack, uint64_t bytes)
{
    uint64_t n = (atomic_load_explicit(&stack->held[AG_HELD_LIVE].blocks, memory_order_relaxed) +
                  AG_HOLDERS_ONE / 2) /
                 AG_HOLDERS_ONE;

    n = n > MOST_BLOCKS ? MOST_BLOCKS : n ? n : 1;
    return n < bytes ? n : bytes;
}

static bool is_stack_shown(const struct ag_held_stack *stack)
{
    uint64_t bytes = live_bytes(stack);

    return bytes && bytes < (uint64_t)1 << 48;
}

static unsigned device_of_stack(const struct ag_held_stack *stack)
{
    return stack->device < (int)AG_HELD_DEVICES ? (unsigned)stack->device : AG_HELD_DEVICES - 1;
}

static void write_stacks(struct torch_writer *w, const struct ag_holders_view *view, uint32_t n,
                         uint32_t *ret_kept)
{
    struct pickle_list list;

    torch_open_frames(w, &list);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_stack_shown(&view->holders->stacks[i]))
            continue;
        write_stack_frames(w, view, &view->holders->stacks[i]);
        ret_kept[i] = pickle_keep(&w->pickle);
        pickle_next(&w->pickle, &list);
    }
    pickle_close_list(&w->pickle);
}

/* Returns how many devices there are. */
static unsigned write_live_stacks(struct torch_writer *w, const struct ag_holders_view *view,
                                  uint32_t n, const uint32_t *kept)
{
    uint64_t address = FIRST;
    unsigned n_devices = 1;
    struct pickle_list list;

    torch_open_segments(w, &list);
    for (uint32_t i = 0; i < n; i++) {
        const struct ag_held_stack *stack = &view->holders->stacks[i];
        struct torch_segment segment = {.address = address, .size = live_bytes(stack)};

        /* The process goes on: what was shown before may be gone. */
        if (!kept[i] || !is_stack_shown(stack))
            continue;
        segment.device = device_of_stack(stack);
        segment.n = live_blocks(stack, segment.size);
        segment.frames = kept[i];
        torch_segment(w, &segment);
        pickle_next(&w->pickle, &list);
        n_devices = segment.device < n_devices ? n_devices : segment.device + 1;
        address += (segment.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    pickle_close_list(&w->pickle);
    return n_devices;
}

bool torch_write_holders(const struct ag_holders_view *view, const char *about, FILE *out)
{
    uint32_t n = atomic_load_explicit(&view->holders->n_stacks, memory_order_acquire);
    uint32_t *kept = calloc(n + 1, sizeof(*kept));
    struct pickle_list traces, trace;
    struct torch_writer w;
    unsigned n_devices;

    if (!kept)
        return false;
    torch_begin(&w, out, about);
    write_stacks(&w, view, n, kept);
    n_devices = write_live_stacks(&w, view, n, kept);
    torch_open_traces(&w, &traces);
    for (unsigned i = 0; i < n_devices; i++) {
        pickle_open_list(&w.pickle, &trace);
        pickle_close_list(&w.pickle);
        pickle_next(&w.pickle, &traces);
    }
    pickle_close_list(&w.pickle);
    torch_end(&w);
    free(kept);
    return true;
}
