/* frame_text.c: names frames, and writes stacks that share them: see frame_text.h. */
#include "tools/trace/frame_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/html.h"

/* ---- frames -------------------------------------------------------------------------------- */

static const char *last_component(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void name_python(const struct ag_holders *holders, uint64_t frame, struct frame_text *ret)
{
    const char *function = holders->text + (uint32_t)frame;

    snprintf(ret->name, sizeof(ret->name), "%s", *function ? function : "?");
    snprintf(ret->place, sizeof(ret->place), "%s:%u", function + strlen(function) + 1,
             ag_frame_line(frame));
}

static void name_native(const struct ag_holders *holders, uint64_t frame,
                        const struct ag_frame_name *name, struct frame_text *ret)
{
    unsigned module = (unsigned)(frame >> 48);
    const char *path = module ? holders->text + holders->modules[module].path : "code in no file";

    if (name && *name->function)
        snprintf(ret->name, sizeof(ret->name), "%s", name->function);
    else
        snprintf(ret->name, sizeof(ret->name), "%.200s+0x%llx", last_component(path),
                 (unsigned long long)(frame & ((1ull << 48) - 1)));
    if (name && *name->file)
        snprintf(ret->place, sizeof(ret->place), "%s:%u", name->file, name->line);
    else
        snprintf(ret->place, sizeof(ret->place), "%.500s", last_component(path));
}

/* Is the file one of those that are installed for programs to use: a shared library in such a
 * folder, a module of Python or of its packages, the interpreter? */
static bool is_of_library(const char *path, bool is_python)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/", "/lib/python",
                                          "/lib/", "/lib64/"};
    unsigned n = is_python ? 3 : sizeof(folders) / sizeof(folders[0]);

    for (unsigned i = 0; i < n; i++) {
        if (strstr(path, folders[i]))
            return true;
    }
    return is_python ? !strncmp(path, "<frozen ", 8) : !strncmp(last_component(path), "python", 6);
}

bool frame_is_of_library(const struct ag_holders *holders, uint64_t frame)
{
    const char *text = holders->text;
    unsigned module = (unsigned)(frame >> 48);

    if (frame & AG_FRAME_PYTHON) {
        text += (uint32_t)frame;
        return is_of_library(text + strlen(text) + 1, true);
    }
    return module && is_of_library(text + holders->modules[module].path, false);
}

unsigned frame_texts(const struct ag_holders_view *view, uint64_t frame,
                     struct frame_text ret[FRAME_INLINED])
{
    struct ag_frame_name names[FRAME_INLINED];
    unsigned n = 0;

    if (frame & AG_FRAME_PYTHON) {
        name_python(view->holders, frame, &ret[0]);
        return 1;
    }
    if (view->names)
        n = view->names(view->namer, view->holders, frame, names, FRAME_INLINED);
    if (!n)
        name_native(view->holders, frame, NULL, &ret[0]);
    for (unsigned i = 0; i < n; i++)
        name_native(view->holders, frame, &names[i], &ret[i]);
    return n ? n : 1;
}

/* ---- stacks -------------------------------------------------------------------------------- */

#define CUT (-1) /* in the place of a frame: there are more */

/* A frame, with the texts that it may stand in. */
struct shared {
    const struct ag_holders *holders;
    uint64_t frame;
};

static bool is_at(const struct ag_holders *holders, uint64_t frame, uint64_t address)
{
    uint64_t offset = frame & ((1ull << 48) - 1);

    return !(frame & AG_FRAME_PYTHON) && holders->modules[frame >> 48].base + offset == address;
}

bool frames_have_site(const struct ag_holders *holders, uint32_t row, uint64_t caller)
{
    const struct ag_held_stack *stack = row < holders->n_stacks ? &holders->stacks[row] : NULL;

    if (!stack || ag_held_is_wait(stack))
        return false;
    for (uint32_t i = 0; i < stack->n; i++) {
        if (is_at(holders, holders->frames[stack->first + i], caller))
            return true;
    }
    return false;
}

/* Texts of Python may stand several times in what was read back. */
static int compare_shared(const void *a, const void *b)
{
    const struct shared *one = a, *two = b;
    const char *x, *y;
    int differ;

    if (one->frame == two->frame)
        return 0;
    if (!(one->frame & two->frame & AG_FRAME_PYTHON) ||
        ag_frame_line(one->frame) != ag_frame_line(two->frame))
        return one->frame < two->frame ? -1 : 1;
    x = one->holders->text + (uint32_t)one->frame;
    y = two->holders->text + (uint32_t)two->frame;
    differ = strcmp(x, y);
    return differ ? differ : strcmp(x + strlen(x) + 1, y + strlen(y) + 1);
}

/* Lists each frame of these stacks once, and returns how many. */
static size_t share_frames(const struct ag_holders *holders, const uint32_t *rows, size_t n,
                           struct shared *ret)
{
    size_t n_frames = 0, n_shared = 0;

    for (size_t i = 0; i < n; i++) {
        const struct ag_held_stack *stack = &holders->stacks[rows[i]];

        for (uint32_t k = 0; k < stack->n; k++)
            ret[n_frames++] = (struct shared){holders, holders->frames[stack->first + k]};
    }
    qsort(ret, n_frames, sizeof(*ret), compare_shared);
    for (size_t i = 0; i < n_frames; i++) {
        if (!n_shared || compare_shared(&ret[n_shared - 1], &ret[i]) != 0)
            ret[n_shared++] = ret[i];
    }
    return n_shared;
}

/* [1 if it is of a library, name, place, and those of what it was inlined into]. */
static void add_shared(struct ag_text *text, const struct ag_holders_view *view, uint64_t frame,
                       struct frame_text *names)
{
    unsigned n = frame_texts(view, frame, names);

    ag_text_add(text, "[%d", frame_is_of_library(view->holders, frame));
    for (unsigned i = 0; i < n; i++) {
        ag_text_add(text, ",");
        html_add_json(text, names[i].name);
        ag_text_add(text, ",");
        html_add_json(text, names[i].place);
    }
    ag_text_add(text, "]");
}

/* The numbers of its frames. */
static void add_numbers(struct ag_text *text, const struct ag_holders *holders, uint32_t row,
                        const struct shared *shared, size_t n)
{
    const struct ag_held_stack *stack = &holders->stacks[row];
    const char *before = "[";

    for (uint32_t i = 0; i < stack->n; i++) {
        const struct shared key = {holders, holders->frames[stack->first + i]};
        const struct shared *found = bsearch(&key, shared, n, sizeof(key), compare_shared);

        if (found)
            ag_text_add(text, "%s%td", before, found - shared);
        before = ",";
    }
    if (stack->is_cut)
        ag_text_add(text, "%s%d", before, CUT);
    ag_text_add(text, stack->is_cut || stack->n ? "]" : "[]");
}

void frames_add_stacks(struct ag_text *text, const struct ag_holders_view *view,
                       const uint32_t *rows, size_t n)
{
    struct shared *shared = calloc(2 * AG_HOLDERS_MOST * n, sizeof(*shared));
    struct frame_text *names = calloc(FRAME_INLINED, sizeof(*names));
    size_t n_shared;

    if (shared && names) {
        n_shared = share_frames(view->holders, rows, n, shared);
        ag_text_add(text, "\"frames\":[");
        for (size_t i = 0; i < n_shared; i++) {
            ag_text_add(text, i ? ",\n" : "");
            add_shared(text, view, shared[i].frame, names);
        }
        ag_text_add(text, "],\"stacks\":[");
        for (size_t i = 0; i < n; i++) {
            ag_text_add(text, i ? "," : "");
            add_numbers(text, view->holders, rows[i], shared, n_shared);
        }
        ag_text_add(text, "],\n");
    }
    text->truncated |= !shared || !names;
    free(names);
    free(shared);
}
