/* Renders the frames of stacks: see render_frames.h. */
#include "interpose/core/report/holders/render_frames.h"

#include <stdio.h>
#include <string.h>

#define MOST_INLINED 16u

/* --- text --- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static const char *module_path(const struct ag_holders *holders, uint64_t frame)
{
    unsigned module = (unsigned)(frame >> 48);

    return module ? holders->text + holders->modules[module].path : "";
}

static uint64_t offset_in_module(uint64_t frame)
{
    return frame & ((1ull << 48) - 1);
}

static unsigned names_of(const struct ag_holders_view *view, uint64_t frame,
                         struct ag_frame_name names[MOST_INLINED])
{
    return view->names ? view->names(view->namer, view->holders, frame, names, MOST_INLINED) : 0;
}

/* Where the function is not known, its place in the file is what tools can look up. */
static void text_place(struct ag_text *text, const struct ag_holders *holders, uint64_t frame)
{
    const char *path = module_path(holders, frame);

    ag_text_add(text, "      %s+0x%llx", *path ? last_part(path) : "(code in no file) ",
                (unsigned long long)offset_in_module(frame));
}

static void text_native(struct ag_text *text, const struct ag_holders_view *view, uint64_t frame)
{
    struct ag_frame_name names[MOST_INLINED];
    unsigned n = names_of(view, frame, names);
    const char *path = module_path(view->holders, frame);

    if (!n || (n == 1 && !*names[0].function && !*names[0].file)) {
        text_place(text, view->holders, frame);
        ag_text_add(text, n && *names[0].note ? " (%s)\n" : "\n", names[0].note);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        ag_text_add(text, "      %s", *names[i].function ? names[i].function : "?");
        if (*names[i].file)
            ag_text_add(text, " at %s:%u", names[i].file, names[i].line);
        if (i + 1 < n)
            ag_text_add(text, " (inlined)\n");
        else
            ag_text_add(text, " (%s%s%s)\n", last_part(path), *names[i].note ? ": " : "",
                        names[i].note);
    }
}

static void text_python(struct ag_text *text, const struct ag_holders *holders, uint64_t frame)
{
    const char *function = holders->text + (uint32_t)frame;

    ag_text_add(text, "      %s at %s:%u (Python)\n", *function ? function : "?",
                function + strlen(function) + 1, ag_frame_line(frame));
}

void ag_render_frames_text(struct ag_text *text, const struct ag_holders_view *view,
                           const struct ag_held_stack *stack)
{
    for (uint32_t i = 0; i < stack->n; i++) {
        uint64_t frame = view->holders->frames[stack->first + i];

        if (frame & AG_FRAME_PYTHON)
            text_python(text, view->holders, frame);
        else
            text_native(text, view, frame);
    }
    if (stack->is_cut)
        ag_text_add(text, "      ...\n");
}

void ag_render_names_advice_text(struct ag_text *text, const struct ag_holders_view *view)
{
    if (view && view->is_own && view->holders && view->holders->most_frames &&
        atomic_load_explicit(&view->holders->n_stacks, memory_order_acquire))
        ag_text_add(text, "  (functions and lines: ALLOGRAFT_STATS=x.json, and then `allograft "
                          "report x.json`)\n");
}

/* --- JSON --- */

void ag_render_modules_json(struct ag_emitter *json, const struct ag_holders *holders)
{
    unsigned n = atomic_load_explicit(&holders->n_modules, memory_order_acquire);

    ag_emit_line(json, 2);
    ag_emit_array(json, "modules");
    for (unsigned i = 1; i < n; i++) {
        ag_emit_line(json, 3);
        ag_emit_object(json, NULL);
        ag_emit_string(json, "path", holders->text + holders->modules[i].path);
        ag_emit_string(json, "build_id", holders->text + holders->modules[i].build_id);
        ag_emit_number(json, "base", holders->modules[i].base);
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

static void emit_names(struct ag_emitter *json, const struct ag_frame_name *names, unsigned n)
{
    if (!n)
        return;
    ag_emit_array(json, "names");
    for (unsigned i = 0; i < n; i++) {
        ag_emit_object(json, NULL);
        ag_emit_string(json, "function", names[i].function);
        ag_emit_string(json, "file", names[i].file);
        ag_emit_number(json, "line", names[i].line);
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

static void emit_frame(struct ag_emitter *json, const struct ag_holders_view *view, uint64_t frame)
{
    struct ag_frame_name names[MOST_INLINED];

    ag_emit_object(json, NULL);
    if (frame & AG_FRAME_PYTHON) {
        const char *text = view->holders->text + (uint32_t)frame;

        ag_emit_string(json, "function", text);
        ag_emit_string(json, "file", text + strlen(text) + 1);
        ag_emit_number(json, "line", ag_frame_line(frame));
    } else {
        ag_emit_number(json, "module", frame >> 48);
        ag_emit_number(json, "offset", offset_in_module(frame));
        emit_names(json, names, names_of(view, frame, names));
    }
    ag_emit_end(json);
}

void ag_render_frames_json(struct ag_emitter *json, const struct ag_holders_view *view,
                           const struct ag_held_stack *stack)
{
    ag_emit_bool(json, "cut", stack->is_cut);
    ag_emit_array(json, "frames");
    for (uint32_t i = 0; i < stack->n; i++)
        emit_frame(json, view, view->holders->frames[stack->first + i]);
    ag_emit_end(json);
}
