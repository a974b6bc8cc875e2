/* torch_trace.c: a trace as a snapshot of PyTorch's memory: the events of each device, what was
 * left at the end, and the call site of each allocation as its one frame. */
#include <stdlib.h>
#include <string.h>

#include "tools/trace/frame_names.h"
#include "tools/trace/torch_snapshot.h"
#include "tools/trace/trace_out.h"

#define MOST_DEVICES 64u    /* CUDA has no more */
#define MOST_SITES   65536u /* further ones have no frames */
#define MOST_INLINED 16u

struct site {
    uint16_t module;
    uint64_t caller;
    uint32_t frames; /* kept under this number */
};

struct job {
    const struct trace *trace;
    struct torch_writer w;
    struct pickle_list list; /* that is open */
    struct site *sites;      /* by module and caller */
    size_t n_sites;
    uint32_t no_frames;
    bool devices[MOST_DEVICES];
};

/* ---- call sites ---------------------------------------------------------------------------- */

/* The modules of a trace in the form of those of stacks, for who names frames. Made when the first
 * site is to be named. */
struct naming {
    struct frame_namer *namer; /* NULL: nothing is named */
    struct ag_holders *modules;
    bool is_made;
};

static bool open_namer(struct naming *naming)
{
    if (!naming->is_made) {
        naming->is_made = true;
        naming->namer = frame_namer_new();
        naming->modules = calloc(1, sizeof(*naming->modules));
        if (naming->modules)
            naming->modules->n_text = 1;
    }
    return naming->namer && naming->modules;
}

static uint32_t add_module_text(struct ag_holders *modules, const char *text)
{
    size_t n = strlen(text) + 1;
    uint32_t at = modules->n_text;

    if (n > AG_HOLDERS_TEXT - at)
        return 0;
    memcpy(modules->text + at, text, n);
    modules->n_text += (uint32_t)n;
    return at;
}

/* Where in the module, 0: not known. */
static uint64_t site_offset(const struct trace *trace, const struct site *site)
{
    uint64_t base = trace_module_base(trace, site->module);

    return base && site->caller > base ? site->caller - base : 0;
}

static unsigned find_names(const struct trace *trace, struct naming *naming,
                           const struct site *site, struct ag_frame_name *ret)
{
    uint64_t offset = site_offset(trace, site);
    struct ag_held_module *module;
    struct ag_holders *modules;

    if (!offset || offset >> 48 || site->module >= AG_HOLDERS_MODULES || !open_namer(naming))
        return 0;
    modules = naming->modules;
    module = &modules->modules[site->module];
    if (!module->path) {
        module->path =
            add_module_text(modules, trace_text(trace, AG_TRACE_TEXT_MODULE, site->module));
        module->build_id = add_module_text(modules, trace_module_build_id(trace, site->module));
    }
    return frame_names(naming->namer, modules, (uint64_t)site->module << 48 | offset, ret,
                       MOST_INLINED);
}

static void write_site(struct job *job, struct naming *naming, struct site *site)
{
    struct ag_frame_name names[MOST_INLINED];
    uint64_t offset = site_offset(job->trace, site);
    struct pickle_list list;

    pickle_open_list(&job->w.pickle, &list);
    if (!site->caller)
        torch_frame(&job->w, "not known", "?", 0);
    else
        torch_native_frames(&job->w, &list, names, find_names(job->trace, naming, site, names),
                            offset ? trace_text(job->trace, AG_TRACE_TEXT_MODULE, site->module)
                                   : "",
                            offset ? offset : site->caller);
    pickle_close_list(&job->w.pickle);
    site->frames = pickle_keep(&job->w.pickle);
}

static int by_module_and_caller(const void *a, const void *b)
{
    const struct site *one = a, *two = b;

    if (one->module != two->module)
        return one->module < two->module ? -1 : 1;
    return one->caller < two->caller ? -1 : one->caller > two->caller;
}

/* Finds the sites of a device, or of all. */
static bool collect_sites(struct job *job, int device)
{
    uint64_t n_events = trace_info(job->trace)->n_events;
    size_t most = n_events < MOST_SITES ? (size_t)n_events : MOST_SITES;
    struct trace_site *found = calloc(most + 1, sizeof(*found));
    long n = found ? trace_sites(job->trace, device, most, found) : -1;

    job->sites = n >= 0 ? calloc((size_t)n + 1, sizeof(*job->sites)) : NULL;
    for (long i = 0; job->sites && i < n; i++)
        job->sites[i] = (struct site){.module = found[i].module, .caller = found[i].caller};
    free(found);
    if (!job->sites)
        return false;
    job->n_sites = (size_t)n;
    qsort(job->sites, job->n_sites, sizeof(*job->sites), by_module_and_caller);
    return true;
}

static void write_site_frames(struct job *job)
{
    struct naming naming = {.namer = NULL};
    struct pickle_list list, none;

    torch_open_frames(&job->w, &list);
    pickle_open_list(&job->w.pickle, &none);
    torch_frame(&job->w, "not known", "?", 0);
    pickle_close_list(&job->w.pickle);
    job->no_frames = pickle_keep(&job->w.pickle);
    pickle_next(&job->w.pickle, &list);
    for (size_t i = 0; i < job->n_sites; i++) {
        write_site(job, &naming, &job->sites[i]);
        pickle_next(&job->w.pickle, &list);
    }
    pickle_close_list(&job->w.pickle);
    frame_namer_free(naming.namer);
    free(naming.modules);
}

static uint32_t frames_of(const struct job *job, uint16_t module, uint64_t caller)
{
    const struct site key = {.module = module, .caller = caller};
    const struct site *site =
        bsearch(&key, job->sites, job->n_sites, sizeof(key), by_module_and_caller);

    return site ? site->frames : job->no_frames;
}

/* ---- what was left ------------------------------------------------------------------------- */

static bool write_left(struct job *job, unsigned device)
{
    struct trace_block *blocks;
    long n = trace_left(job->trace, (int)device, &blocks);
    struct torch_segment segment;

    for (long i = 0; i < n; i++) {
        segment = (struct torch_segment){.address = blocks[i].address,
                                         .size = blocks[i].size,
                                         .stream = blocks[i].stream,
                                         .n = 1,
                                         .device = device};
        segment.frames = frames_of(job, blocks[i].module, blocks[i].caller);
        torch_segment(&job->w, &segment);
        pickle_next(&job->w.pickle, &job->list);
    }
    free(blocks);
    return n >= 0;
}

/* ---- events -------------------------------------------------------------------------------- */

static void write_event(struct job *job, enum torch_word action, const struct trace_event *event,
                        uint64_t size, uint32_t frames)
{
    const struct trace_info *info = trace_info(job->trace);
    bool alloc = action == TORCH_ALLOC || action == TORCH_SEGMENT_ALLOC;
    uint64_t ns = event->began_ns + (alloc ? event->duration_ns : 0);

    pickle_open_dict(&job->w.pickle);
    torch_word(&job->w, TORCH_ACTION);
    torch_word(&job->w, action);
    torch_pair(&job->w, TORCH_ADDR, event->address);
    torch_pair(&job->w, TORCH_SIZE, size);
    torch_pair(&job->w, TORCH_STREAM, event->stream);
    torch_pair(&job->w, TORCH_TIME_US, (info->opened_real_ns + ns - info->opened_ns) / 1000);
    torch_word(&job->w, TORCH_FRAMES);
    pickle_again(&job->w.pickle, frames);
    pickle_close_dict(&job->w.pickle);
    pickle_next(&job->w.pickle, &job->list);
}

/* A block that was allocated before the trace began has the size that its free tells, if any. */
static void write_change(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct job *job = data;
    uint64_t size = state->known ? state->size : event->size;
    uint32_t frames;

    if (!event->address)
        return;
    if (event->kind == AG_TRACE_ALLOC || event->kind == AG_TRACE_ALLOC_ASYNC) {
        frames = frames_of(job, event->module, event->caller);
        write_event(job, TORCH_SEGMENT_ALLOC, event, event->size, frames);
        write_event(job, TORCH_ALLOC, event, event->size, frames);
    } else if ((event->kind == AG_TRACE_FREE || event->kind == AG_TRACE_FREE_ASYNC) && size) {
        write_event(job, TORCH_FREE_REQUESTED, event, size, job->no_frames);
        write_event(job, TORCH_FREE_COMPLETED, event, size, job->no_frames);
        write_event(job, TORCH_SEGMENT_FREE, event, size, job->no_frames);
    }
}

static void note_device(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct job *job = data;

    if (event->kind <= AG_TRACE_FREE_ASYNC && event->device >= 0 &&
        event->device < (int)MOST_DEVICES)
        job->devices[event->device] = true;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static bool write_segments(struct job *job)
{
    bool good = true;

    torch_open_segments(&job->w, &job->list);
    for (unsigned i = 0; i < MOST_DEVICES && good; i++)
        good = !job->devices[i] || write_left(job, i);
    pickle_close_list(&job->w.pickle);
    return good;
}

static bool write_traces(struct job *job)
{
    struct pickle_list traces;
    bool good = true;
    unsigned n = MOST_DEVICES;

    while (n > 1 && !job->devices[n - 1])
        n--;
    torch_open_traces(&job->w, &traces);
    for (unsigned i = 0; i < n && good; i++) {
        pickle_open_list(&job->w.pickle, &job->list);
        good = !job->devices[i] || trace_walk(job->trace, (int)i, write_change, job);
        pickle_close_list(&job->w.pickle);
        pickle_next(&job->w.pickle, &traces);
    }
    pickle_close_list(&job->w.pickle);
    return good;
}

bool trace_write_torch(const struct trace *trace, int device, FILE *out)
{
    const struct trace_info *info = trace_info(trace);
    struct job job = {.trace = trace};
    char about[600];
    bool good = trace_walk(trace, device, note_device, &job) && collect_sites(&job, device);

    snprintf(about, sizeof(about), "trace of %s (process %d) on %s, by allograft %s%s%s",
             info->program, info->pid, info->host, info->allograft, info->simulated ? "; " : "",
             info->simulated ? TRACE_SIMULATED : "");
    torch_begin(&job.w, out, about);
    if (good) {
        write_site_frames(&job);
        good = write_segments(&job) && write_traces(&job);
    }
    torch_end(&job.w);
    free(job.sites);
    return good;
}
