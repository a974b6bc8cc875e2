/* settings.c: reads the SIM_* environment once. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t read_number(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    char *end;

    if (!text || !*text)
        return fallback;
    uint64_t value = strtoull(text, &end, 0);
    if (!strcmp(end, "KiB"))
        value <<= 10;
    else if (!strcmp(end, "MiB"))
        value <<= 20;
    else if (!strcmp(end, "GiB"))
        value <<= 30;
    else if (*end) {
        fprintf(stderr, "sim: %s=%s is not a number\n", name, text);
        exit(2);
    }
    return value;
}

/* The index of the variable's value among n words; the first word is the default. */
static int read_word(const char *name, const char *const *words, int n)
{
    const char *text = getenv(name);

    if (!text || !*text)
        return 0;
    for (int i = 0; i < n; i++)
        if (!strcmp(text, words[i]))
            return i;
    fprintf(stderr, "sim: %s=%s is not known\n", name, text);
    exit(2);
}

static void read_all(void)
{
    static const char *const scheds[] = {"adversarial", "eager", "thread", "lazy", "reluctant"};
    static const char *const violations[] = {"exit", "abort", "count"};

    settings.seed = read_number("SIM_SEED", 1);
    settings.n_devices = (int)SIM_MIN(read_number("SIM_DEVICES", 1), SIM_MAX_DEVICES);
    settings.memory_bytes = read_number("SIM_MEMORY", (uint64_t)1 << 30);
    settings.driver_version = (int)read_number("SIM_DRIVER_VERSION", 13000);
    settings.upload_bytes = read_number("SIM_UPLOAD", 0);
    settings.lazy_bytes = read_number("SIM_LAZY", 0);
    settings.context_bytes = read_number("SIM_CONTEXT", 0);
    settings.sched = (enum sim_sched)read_word("SIM_SCHED", scheds, 5);
    settings.idle_ms = (unsigned)read_number("SIM_IDLE_MS", 500);
    if (settings.sched == SIM_SCHED_LAZY)
        settings.idle_ms = 0;
    settings.stall = (unsigned)read_number("SIM_STALL", 0);
    settings.log = read_number("SIM_LOG", 0) != 0;
    settings.on_violation = (enum sim_on_violation)read_word("SIM_VIOLATION", violations, 3);
}

const struct sim_settings *sim_settings(void)
{
    (void)pthread_once(&once, read_all);
    return &settings;
}

bool sim_settings_attribute(int attribute, int *ret_value)
{
    const char *text = getenv("SIM_ATTRIBUTES");
    int number, value, used;

    while (text && sscanf(text, "%d=%d%n", &number, &value, &used) == 2) {
        if (number == attribute) {
            *ret_value = value;
            return true;
        }
        text += used;
        if (*text != ',')
            break;
        text++;
    }
    return false;
}
