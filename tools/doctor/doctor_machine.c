/* doctor_machine.c: checks the machine, the library and the environment, without any GPU. */
#include "tools/doctor/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "interpose/core/base/text.h"
#include "tools/base/complain.h"
#include "tools/run/environment.h"

/* The first of the words that a line of the file begins with, or NULL. */
static const char *line_begins_with(const char *path, const char *const *words)
{
    FILE *file = fopen(path, "re");
    const char *hit = NULL;
    char line[512];

    while (file && !hit && fgets(line, sizeof(line), file)) {
        for (size_t i = 0; words[i] && !hit; i++) {
            if (!strncmp(line, words[i], strlen(words[i])))
                hit = words[i];
        }
    }
    if (file)
        fclose(file);
    return hit;
}

static void look_at_library(struct findings *findings)
{
    char path[PATH_MAX];
    void *handle;

    if (locate_library(path, sizeof(path)) != STATUS_OK) {
        findings_add(findings, VERDICT_FAIL, "library", "found", "liballograft.so was not found");
        return;
    }
    if (!preload_can_name(path)) {
        findings_add(findings, VERDICT_FAIL, "library", "found", "%s: " PRELOAD_CANNOT_NAME, path);
        return;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        findings_add(findings, VERDICT_GOOD, "library", "found", "%s", path);
    else
        findings_add(findings, VERDICT_FAIL, "library", "found", "cannot be loaded: %s", dlerror());
}

/* Files of counters are kept in /dev/shm. */
static void look_at_shared_memory(struct findings *findings)
{
    if (access("/dev/shm", W_OK))
        findings_add(findings, VERDICT_LACK, "machine", "counters",
                     "/dev/shm is not writable (%s): no reports of killed processes, and no `top`",
                     strerror(errno));
    else
        findings_add(findings, VERDICT_GOOD, "machine", "counters",
                     "/dev/shm is writable: killed processes leave their counters there");
}

static void look_at_locked_memory(struct findings *findings)
{
    struct rlimit limit;
    char size[32];

    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= 64 << 20)
        return;
    findings_add(findings, VERDICT_INFO, "machine", "memlock",
                 "at most %s of locked memory (ulimit -l); the driver's pinned memory "
                 "does not count",
                 ag_text_size(size, sizeof(size), limit.rlim_cur));
}

static void look_at_environment(struct findings *findings)
{
    const char *preload = getenv("LD_PRELOAD"), *audit = getenv("LD_AUDIT");
    size_t wrong = settings_check_environment();

    if (wrong)
        findings_add(
            findings, VERDICT_FAIL, "environment", "settings",
            "%zu bad setting%s in ALLOGRAFT_* variables: programs would run without Allograft",
            wrong, wrong == 1 ? "" : "s");
    if (preload && *preload)
        findings_add(
            findings, VERDICT_TRAP, "environment", "preload",
            "LD_PRELOAD is set already: %s. Libraries before liballograft.so in it see calls first",
            preload);
    if (audit && *audit)
        findings_add(findings, VERDICT_TRAP, "environment", "audit", "LD_AUDIT is set: %s", audit);
    if (getenv("CUDA_INJECTION64_PATH"))
        findings_add(findings, VERDICT_TRAP, "environment", "injection",
                     "CUDA_INJECTION64_PATH is set: a profiler is in every CUDA process");
}

static void look_for_traps(struct findings *findings)
{
    static const char *const rdma[] = {"nvidia_peermem", "nv_peer_mem", "gdrdrv", NULL};
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY"),
               *module = line_begins_with("/proc/modules", rdma);
    char control[PATH_MAX];
    struct utsname name;

    snprintf(control, sizeof(control), "%s/control", pipe && *pipe ? pipe : "/tmp/nvidia-mps");
    if (!access(control, F_OK))
        findings_add(
            findings, VERDICT_TRAP, "machine", "mps",
            "MPS is running (%s): an error in one of its clients is an error in all of them",
            control);
    if (module)
        findings_add(findings, VERDICT_TRAP, "machine", "rdma",
                     "%s is loaded: pool memory cannot be registered for RDMA; libraries known to "
                     "do that get native memory (see RULES)",
                     module);
    if (!uname(&name) && strcasestr(name.release, "microsoft"))
        findings_add(findings, VERDICT_TRAP, "machine", "wsl",
                     "WSL 2: no concurrent managed access, no IPC");
    if (!access("/.dockerenv", F_OK) || !access("/run/.containerenv", F_OK))
        findings_add(findings, VERDICT_INFO, "machine", "container",
                     "a container: `report` and `top` see only the processes in it");
}

void doctor_machine(struct findings *findings)
{
    look_at_library(findings);
    look_at_shared_memory(findings);
    look_at_locked_memory(findings);
    look_for_traps(findings);
    look_at_environment(findings);
}
