/* caller.c: names and kinds of modules, before and after they are closed and others lie where they
 * lay, from many threads, and when there are more of them than are kept. argv[1] is the module
 * caller_module.c was built into; with argv[2], all of it as under a glibc before 2.35. */
#include "interpose/core/settings/caller.h"

#include "interpose/core/base/loaded.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/common/check.h"

#define MORE_THAN_KEPT 1010u

static char module_bytes[1 << 20];
static size_t module_size;
static char folder[] = "/tmp/unit-caller-XXXXXX";

static void read_module(const char *path)
{
    int fd = open(path, O_RDONLY);
    ssize_t length = read(fd, module_bytes, sizeof(module_bytes));

    CHECK(length > 0 && (size_t)length < sizeof(module_bytes));
    module_size = (size_t)length;
    close(fd);
}

/* Opens a copy of the module under the name and removes the file. */
static void *open_as(const char *name)
{
    char path[400];
    void *module;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
    CHECK(write(fd, module_bytes, module_size) == (ssize_t)module_size && !close(fd));
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK_SAID(module, "%s", dlerror());
    unlink(path);
    return module;
}

static void knows_modules(void)
{
    const char *name = ag_caller_module((const void *)knows_modules);
    int on_stack = 0;

    CHECK_SAID(name && !strcmp(name, program_invocation_short_name), "%s", name);
    CHECK(ag_caller_module((const void *)knows_modules) == name);
    CHECK(ag_caller_of((const void *)knows_modules) == AG_CALLER_PROGRAM);
    name = ag_caller_module(dlsym(RTLD_DEFAULT, "getpid"));
    CHECK_SAID(name && !strncmp(name, "libc.so", 7), "%s", name);
    CHECK(ag_caller_of(dlsym(RTLD_DEFAULT, "getpid")) == AG_CALLER_PROGRAM);
    /* Addresses in no module: twice, since what is kept must say the same. */
    for (int i = 0; i < 2; i++) {
        CHECK(!ag_caller_module(NULL) && ag_caller_of(NULL) == AG_CALLER_PROGRAM);
        CHECK(!ag_caller_module(&on_stack) && ag_caller_of(&on_stack) == AG_CALLER_PROGRAM);
        CHECK(!ag_caller_module((const void *)(UINT64_MAX - 5)));
        CHECK(!ag_caller_module((const void *)((1ull << 48) + 64)));
    }
}

/* The same low bits in a high address are no known address. */
static void keeps_addresses_apart(void)
{
    uintptr_t known = (uintptr_t)knows_modules;

    CHECK(ag_caller_module((const void *)known));
    for (uint64_t high = 1; high < 1 << 16; high++) {
        CHECK(!ag_caller_module((const void *)(known | high << 48)));
        CHECK(ag_caller_module((const void *)known));
    }
}

static const struct {
    const char *name;
    enum ag_caller caller;
} cases[] = {
    {"libnccl.so.2", AG_CALLER_EXPORTER},          {"libmpi_cxx.so", AG_CALLER_EXPORTER},
    {"libucs.so.0", AG_CALLER_EXPORTER},           {"libcufile.so.0", AG_CALLER_EXPORTER},
    {"libcublasLt.so", AG_CALLER_CUDA_LIBRARY},    {"libcufft.so.12", AG_CALLER_CUDA_LIBRARY},
    {"libcudnn_ops.so.9", AG_CALLER_CUDA_LIBRARY}, {"libnvJitLink.so.13", AG_CALLER_CUDA_LIBRARY},
    {"libcufft_helper.so", AG_CALLER_PROGRAM},     {"libcudnn_tricks.so", AG_CALLER_PROGRAM},
    {"libmylibnccl.so", AG_CALLER_PROGRAM},        {"libcudart.so.13", AG_CALLER_PROGRAM},
};
static const char *names[N_OF(cases)];

/* Each lies where the one before lay, unless the loader has a reason of its own. */
static void tells_kinds(void)
{
    const void *address, *before = NULL;
    unsigned same = 0;

    for (size_t i = 0; i < N_OF(cases); i++, before = address) {
        void *module = open_as(cases[i].name);

        address = dlsym(module, "module_function");
        CHECK(address);
        same += address == before;
        for (int again = 0; again < 2; again++) { /* what is kept says the same */
            names[i] = ag_caller_module(address);
            CHECK_SAID(names[i] && !strcmp(names[i], cases[i].name), "%s: %s", cases[i].name,
                       names[i]);
            CHECK_SAID(ag_caller_of(address) == cases[i].caller, "%s", cases[i].name);
        }
        CHECK(!dlclose(module));
    }
    printf("%u of %zu modules lay where the one before lay\n", same, N_OF(cases) - 1);
}

static void names_outlive_modules(void)
{
    for (size_t i = 0; i < N_OF(cases); i++)
        CHECK_SAID(!strcmp(names[i], cases[i].name), "%s was %s", cases[i].name, names[i]);
}

static void *first;

static void *ask(void *argument)
{
    const char *own = ag_caller_module((const void *)knows_modules), *name = argument;

    for (unsigned i = 0; i < 20000; i++) {
        /* Addresses all over the module, so that entries push each other out. */
        const char *found = ag_caller_module((char *)first + i % 8);

        CHECK(found && !strcmp(found, name));
        CHECK(ag_caller_module((const void *)knows_modules) == own);
    }
    return (void *)ag_caller_module(first);
}

/* All threads meet a new module at once, and are given one name. */
static void is_one_name_in_all_threads(void)
{
    static char name[] = "libthreads.so";
    pthread_t threads[8];
    void *module = open_as(name);

    first = dlsym(module, "module_function");
    for (size_t i = 0; i < N_OF(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, ask, name));
    for (size_t i = 0; i < N_OF(threads); i++) {
        void *found;

        pthread_join(threads[i], &found);
        CHECK(found == ag_caller_module(first));
    }
}

/* More modules than there is room for: unknown, but of the right kind, and the others stay
 * known. */
static void has_a_bound(void)
{
    unsigned unknown = 0;

    for (unsigned i = 0; i < MORE_THAN_KEPT; i++) {
        char name[40];
        const char *found;
        void *module;

        snprintf(name, sizeof(name), "libucs_%u.so", i);
        module = open_as(name);
        found = ag_caller_module(dlsym(module, "module_function"));
        unknown += !found;
        CHECK_SAID(!found || !strcmp(found, name), "%s: %s", name, found);
        CHECK(!found || !unknown);
        CHECK(ag_caller_of(dlsym(module, "module_function")) == AG_CALLER_EXPORTER);
    }
    CHECK_SAID(unknown > 0 && unknown < 40, "%u unknown", unknown);
    CHECK(ag_caller_module((const void *)knows_modules));
}

int main(int argc, char **argv)
{
    CHECK((argc == 2 || argc == 3) && mkdtemp(folder));
    if (argc == 3)
        ag_loaded_without_find_object();
    read_module(argv[1]);
    knows_modules();
    keeps_addresses_apart();
    tells_kinds();
    is_one_name_in_all_threads();
    if (ALONE(MORE_THAN_KEPT) == MORE_THAN_KEPT) /* not under ThreadSanitizer */
        has_a_bound();
    names_outlive_modules();
    rmdir(folder);
    return 0;
}
