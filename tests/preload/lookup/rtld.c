/* What dlsym's pseudo-handles mean, seen from a program, from its libraries and from a loaded one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "tests/common/say.h"

/* Both libraries define probe(), linked in this order: a, b. The program defines none. */
extern char probe_next_a(void);
extern char probe_default_a(void);
extern char probe_next_b(void);
extern char probe_default_b(void);

static char ask(void *where, const char *name)
{
    char (*found)(void) = (char (*)(void))dlsym(where, name);

    return found != NULL ? found() : '-';
}

static int ask_int(void *where, const char *name)
{
    int (*found)(void) = (int (*)(void))dlsym(where, name);

    return found != NULL ? found() : -1;
}

static void *in_a_thread(void *unused)
{
    (void)unused;
    (void)dlerror();
    (void)dlsym(RTLD_DEFAULT, "no_such_name");
    say("thread: dlerror %s", dlerror());
    return NULL;
}

static void loaded_library(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL) {
        say("dlopen: %s", dlerror());
        _exit(97);
    }
    say("loaded: handle %c", ask(handle, "probe"));
    say("loaded: next %c", ask(handle, "probe_next_c"));
    say("loaded: default %c", ask(handle, "probe_default_c"));
    say("loaded: own scope %d", ask_int(handle, "probe_own_c"));
    say("program sees it by default: %c", ask(RTLD_DEFAULT, "probe_next_c"));
    say("close: %d", dlclose(handle));
}

int main(int argc, char **argv)
{
    pthread_t thread;

    say("program: next %c", ask(RTLD_NEXT, "probe"));
    say("program: default %c", ask(RTLD_DEFAULT, "probe"));
    say("a: next %c", probe_next_a());
    say("a: default %c", probe_default_a());
    say("b: next %c", probe_next_b());
    say("b: default %c", probe_default_b());
    loaded_library(argc > 1 ? argv[1] : "");
    (void)dlsym(RTLD_NEXT, "no_such_name");
    say("next: dlerror %s", dlerror());
    (void)dlsym(RTLD_DEFAULT, "cuNoSuchCall");
    say("driver's kind of name: dlerror %s", dlerror());
    say("malloc found: %d", dlsym(RTLD_NEXT, "malloc") != NULL);
    say("dlsym found: %d", dlsym(RTLD_DEFAULT, "dlsym") != NULL);
    say("version unknown: %d", dlvsym(RTLD_DEFAULT, "dlsym", "NO_SUCH_VERSION") == NULL);
    NEED(pthread_create(&thread, NULL, in_a_thread, NULL));
    NEED(pthread_join(thread, NULL));
    return 0;
}
