/* The Python functions that the calling thread is in, where CPython 3.9 to 3.14 runs in the
 * process.
 *
 * Libraries release the interpreter's lock before they allocate, so the interpreter cannot be asked
 * by its C API. But the frames of a thread that is in a call of C code stand still, with or without
 * the lock, and hold their code objects, which never change. So they are read as they lie in
 * memory: nothing is called but what tells of the thread's state, no reference is taken, nothing is
 * changed. Where the frames lie differs by version; the offsets are those of the headers of each
 * version, in a usual build, and since 3.13 those that the interpreter itself keeps for debuggers.
 * Another version or kind of build (with reference tracing, without the
 * lock) has no frames here. */
#ifndef AG_PYTHON_FRAMES_H
#define AG_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#define AG_PYTHON_NAME 512u

struct ag_python_frame {
    char function[AG_PYTHON_NAME], file[AG_PYTHON_NAME]; /* UTF-8, cut to that */
    uint32_t line;
    bool is_outermost; /* of those that one loop of the interpreter runs */
};

/* Gives up to `most` frames to `take`, innermost first, and returns how many. `changes`:
 * ag_loaded_changes(), since the interpreter may be loaded late. */
typedef void ag_python_take(void *taker, const struct ag_python_frame *frame);
unsigned ag_python_frames(uint64_t changes, unsigned most, ag_python_take *take, void *taker);

/* Does the return address lie in the interpreter's loop, which runs Python functions? Once for each
 * call of C code that came back to Python. */
bool ag_python_is_loop(uintptr_t place);

/* A forked child: the thread that held our lock is the parent's. */
void ag_python_begin_child(void);

#endif
