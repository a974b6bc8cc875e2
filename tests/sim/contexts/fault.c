/* fault.c: counts the calls of each symbol and makes the chosen ones fail (SIM_FAIL).
 *
 * SIM_FAIL=<symbol>:<n>[:<error number>][,...]: the n-th call of the symbol returns the error
 * (999, CUDA_ERROR_UNKNOWN, when none is given) and does nothing. The symbol * stands for every
 * call, n = 0 for each of them. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_BUCKETS 1024

struct counter {
    const char *symbol;
    unsigned long n;
};

struct rule {
    char symbol[64];
    unsigned long n;
    int error;
};

static struct {
    struct counter counters[N_BUCKETS];
    struct rule rules[16];
    unsigned n_rules;
    unsigned long n_calls;
    bool parsed;
} self;

/* The symbol's place: its counter, or an empty one. */
static struct counter *counter_of(const char *symbol)
{
    unsigned hash = 5381;

    for (const char *c = symbol; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    for (unsigned i = 0; i < N_BUCKETS; i++) {
        struct counter *counter = &self.counters[(hash + i) % N_BUCKETS];
        if (!counter->symbol || !strcmp(counter->symbol, symbol))
            return counter;
    }
    abort();
}

static void parse(void)
{
    const char *text = getenv("SIM_FAIL");

    self.parsed = true;
    while (text && *text && self.n_rules < SIM_COUNT(self.rules)) {
        struct rule *rule = &self.rules[self.n_rules];
        int used = 0;

        rule->error = CUDA_ERROR_UNKNOWN;
        if (sscanf(text, "%63[^:]:%lu%n:%d%n", rule->symbol, &rule->n, &used, &rule->error, &used) <
            2) {
            fprintf(stderr, "sim: SIM_FAIL=%s is not <symbol>:<n>[:<error>]\n", text);
            exit(2);
        }
        self.n_rules++;
        text += used;
        if (*text == ',')
            text++;
    }
}

CUresult sim_fault(const char *symbol)
{
    if (!self.parsed)
        parse();
    struct counter *counter = counter_of(symbol);
    counter->symbol = symbol;
    unsigned long n = ++counter->n;
    self.n_calls++;
    for (unsigned i = 0; i < self.n_rules; i++) {
        const struct rule *rule = &self.rules[i];
        bool any = !strcmp(rule->symbol, "*");

        if (!any && strcmp(rule->symbol, symbol))
            continue;
        if (rule->n == 0 || rule->n == (any ? self.n_calls : n))
            return (CUresult)rule->error;
    }
    return CUDA_SUCCESS;
}

unsigned long sim_calls(const char *symbol)
{
    sim_lock();
    unsigned long n = strcmp(symbol, "*") ? counter_of(symbol)->n : self.n_calls;
    sim_unlock();
    return n;
}
