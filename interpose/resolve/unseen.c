/* The list of libraries whose work or accesses we do not see, and the look for them: see unseen.h.
 *
 * What they do between two of our hooks is only known to have ended once the host has waited for
 * the context, as a native free does. A device that reads memory needs more: memory of a pool has
 * no physical pages that others could pin.
 *
 * A library that lets other devices at memory does nothing where no kernel module connects these
 * with the GPU; then the driver has to be asked first (cuMemGetHandleForAddressRange), which is
 * hooked. And what NCCL opens for itself it uses on memory of its own and after its kernels. So a
 * program counts if it, or any other library, is linked with the library; or if NCCL is not there.
 *
 * Within ag_loaded_each() no other function of the loader is called. Two threads may look at once:
 * each notes all that it finds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/resolve/unseen.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/loaded.h"
#include "interpose/core/report/stats.h"
#include "interpose/resolve/trampoline.h"
#include "policy/churn.h"
#include "policy/order/drain.h"
#include "policy/paging/latch.h"

#define MODULES      "/sys/module"
#define MOST_MODULES 3u

enum deed { SUBMITS, REACHES };

static const struct row {
    const char *beginning; /* of the file's name */
    enum deed deed;
    const char *modules[MOST_MODULES]; /* one of these must be loaded, if any is named */
    bool is_verbs;                     /* NCCL opens it, too */
} rows[] = {
    {"libnvoptix", SUBMITS, {NULL}, false},
    {"libnvcuvid.so", SUBMITS, {NULL}, false},
    {"libnvidia-encode.so", SUBMITS, {NULL}, false},
    {"libnvidia-opticalflow.so", SUBMITS, {NULL}, false},
    {"libnvidia-fbc.so", SUBMITS, {NULL}, false},
    {"libnvidia-ngx.so", SUBMITS, {NULL}, false},
    {"libibverbs.so", REACHES, {"nvidia_peermem", "nv_peer_mem", "efa"}, true},
    {"libgdrapi.so", REACHES, {"gdrdrv"}, false},
    {"libcufile.so", REACHES, {"nvidia_fs"}, false},
    {"libpsm2.so", REACHES, {"hfi1"}, false},
    {"libcxi.so", REACHES, {"cxi_ss1"}, false},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))
_Static_assert(N_ROWS <= AG_STATS_UNSEEN, "each has its name in the report");

/* NCCL, what it opens, and what that is linked with; beside what libibverbs opens. */
static const char *const of_verbs[] = {
    "libnccl", "libibverbs.so", "librdmacm.so", "libibumad.so", "libfabric.so",
    "libefa.", "libmlx4.",      "libmlx5.",     "libhns.",      "libmana.",
};

struct look {
    uint64_t changes; /* of the loader's list */
    bool has_nccl, needs_verbs;
    char found[N_ROWS][sizeof(ag_stats.unseen[0])]; /* names of files */
};

static _Atomic uint64_t known_changes; /* up to the last look */
static atomic_flag is_named[N_ROWS];   /* in the report */

static bool begins(const char *name, const char *beginning)
{
    return !strncmp(name, beginning, strlen(beginning));
}

static bool is_of_verbs(const char *name)
{
    bool is = strstr(name, "-rdmav") != NULL;

    for (size_t i = 0; i < sizeof(of_verbs) / sizeof(of_verbs[0]) && !is; i++)
        is = begins(name, of_verbs[i]);
    return is;
}

/* Nothing more where no library has come or gone. */
static int find_libraries(struct dl_phdr_info *info, size_t size, void *look_)
{
    struct look *look = look_;
    const char *name = ag_loaded_file_name(info);

    (void)size;
    look->changes = info->dlpi_adds + info->dlpi_subs;
    if (look->changes == atomic_load_explicit(&known_changes, memory_order_acquire))
        return 1;
    look->has_nccl |= begins(name, "libnccl");
    for (size_t i = 0; i < N_ROWS; i++) {
        if (begins(name, rows[i].beginning))
            snprintf(look->found[i], sizeof(look->found[i]), "%s", name);
    }
    return 0;
}

/* Is it linked with verbs, and none of their own? */
static int find_need(struct dl_phdr_info *info, size_t size, void *look_)
{
    struct look *look = look_;
    struct ag_needed needed;

    (void)size;
    if (is_of_verbs(ag_loaded_file_name(info)))
        return 0;
    ag_needed_begin(&needed, info);
    for (const char *name; (name = ag_needed_next(&needed)) && !look->needs_verbs;)
        look->needs_verbs = is_of_verbs(name);
    return look->needs_verbs;
}

/* Where nobody can tell, they may be. */
static bool has_modules(const struct row *row)
{
    char path[64];

    if (!row->modules[0] || access(MODULES, F_OK))
        return true;
    for (size_t i = 0; i < MOST_MODULES && row->modules[i]; i++) {
        snprintf(path, sizeof(path), MODULES "/%s", row->modules[i]);
        if (!access(path, F_OK))
            return true;
    }
    return false;
}

static bool counts(const struct row *row, struct look *look)
{
    if (!has_modules(row))
        return false;
    if (row->is_verbs && look->has_nccl)
        (void)ag_loaded_each(find_need, look);
    return !row->is_verbs || !look->has_nccl || look->needs_verbs;
}

/* Notes the library each time that it is met: the thread that noted it before may not have done so
 * completely. */
static void note_library(size_t row, const char *name)
{
    char why[160];

    if (!atomic_flag_test_and_set(&is_named[row]))
        snprintf(ag_stats.unseen[row], sizeof(ag_stats.unseen[row]), "%s", name);
    ag_churn_note_reached();
    ag_latch_end();
    if (rows[row].deed == REACHES) {
        ag_drain_note_visible(AG_VISIBLE_RDMA);
        return;
    }
    snprintf(why, sizeof(why), "%s submits work past Allograft", name);
    ag_drain_note_visible(AG_VISIBLE_UNSEEN);
    ag_trampoline_end(why);
}

void ag_unseen_look(void)
{
    uint32_t asked = ag_loaded_look_begin();
    struct look look = {0};

    if (!ag_loaded_each(find_libraries, &look)) {
        for (size_t i = 0; i < N_ROWS; i++) {
            if (*look.found[i] && counts(&rows[i], &look))
                note_library(i, look.found[i]);
        }
        ag_trampoline_look_around();
        atomic_store_explicit(&known_changes, look.changes, memory_order_release);
    }
    ag_loaded_look_end(asked);
}

/* Relaxed: a child has one thread. */
void ag_unseen_begin_child(void)
{
    atomic_store_explicit(&known_changes, 0, memory_order_relaxed);
    for (size_t i = 0; i < N_ROWS; i++)
        atomic_flag_clear(&is_named[i]);
}
