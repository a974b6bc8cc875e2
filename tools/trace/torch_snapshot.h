/* torch_snapshot.h: what torch.cuda.memory._snapshot() gives, as its _dump_snapshot() writes it:
 * for PyTorch's memory_viz. Every block is a segment of its own, since only the driver knows how
 * memory lies in its pools.
 *
 * https://github.com/pytorch/pytorch: torch/cuda/_memory_viz.py, torch/utils/viz/MemoryViz.js */
#ifndef TOOLS_TORCH_SNAPSHOT_H
#define TOOLS_TORCH_SNAPSHOT_H

#include <stdbool.h>

#include "interpose/core/report/holders/render_holders.h"
#include "tools/base/pickle.h"

enum torch_word {
    TORCH_ACTION,
    TORCH_ADDR,
    TORCH_SIZE,
    TORCH_STREAM,
    TORCH_FRAMES,
    TORCH_TIME_US,
    TORCH_NAME,
    TORCH_FILENAME,
    TORCH_LINE,
    TORCH_ALLOC,
    TORCH_FREE_REQUESTED,
    TORCH_FREE_COMPLETED,
    TORCH_SEGMENT_ALLOC,
    TORCH_SEGMENT_FREE,
    TORCH_DEVICE,
    TORCH_ADDRESS,
    TORCH_TOTAL_SIZE,
    TORCH_ALLOCATED_SIZE,
    TORCH_ACTIVE_SIZE,
    TORCH_REQUESTED_SIZE,
    TORCH_SEGMENT_TYPE,
    TORCH_SEGMENT_POOL_ID,
    TORCH_IS_EXPANDABLE,
    TORCH_BLOCKS,
    TORCH_STATE,
    TORCH_LARGE,
    TORCH_ACTIVE_ALLOCATED,
    TORCH_N_WORDS
};

struct torch_writer {
    struct pickle pickle;
    uint32_t words[TORCH_N_WORDS]; /* kept under this number less 1 */
};

/* Between these, three lists, each from its torch_open_...() to pickle_close_list(): of lists of
 * frames, which are kept to be named in the others; of segments; and of a list of events for each
 * device. `about` says what it is of. */
void torch_begin(struct torch_writer *w, FILE *out, const char *about);
void torch_open_frames(struct torch_writer *w, struct pickle_list *ret);
void torch_open_segments(struct torch_writer *w, struct pickle_list *ret);
void torch_open_traces(struct torch_writer *w, struct pickle_list *ret);
void torch_end(struct torch_writer *w);

void torch_word(struct torch_writer *w, enum torch_word word);
void torch_pair(struct torch_writer *w, enum torch_word key, uint64_t value);

/* A member of a list of frames, innermost first. */
void torch_frame(struct torch_writer *w, const char *name, const char *file, uint32_t line);
/* Writes the frames of a frame of native code, with the functions inlined there; `path`: of its
 * module. */
void torch_native_frames(struct torch_writer *w, struct pickle_list *list,
                         const struct ag_frame_name *names, unsigned n, const char *path,
                         uint64_t offset);

/* A segment that is live: its blocks are `n` parts of it. */
struct torch_segment {
    uint64_t address, size, stream, n;
    unsigned device;
    uint32_t frames; /* kept under this number */
};
void torch_segment(struct torch_writer *w, const struct torch_segment *segment);

/* Writes who holds device memory and managed memory: a segment for each stack, and blocks of equal
 * size, at addresses that mean nothing; of single blocks nothing is known. False when memory runs
 * out. */
bool torch_write_holders(const struct ag_holders_view *view, const char *about, FILE *out);

#endif
