/* A library with variables in static thread-local storage and a dependency of its own beside it. */
#include <dlfcn.h>
#include <stddef.h>

int tls_sum(void);

static __thread int values[200] __attribute__((tls_model("initial-exec"))) = {1, 2, 3};

int tls_sum(void)
{
    int sum = 0;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        sum += values[i]++;
    return sum;
}
