/* redirect.h: what small redirects of the driver share: how they stand before it, and reach it. */
#ifndef REDIRECT_H
#define REDIRECT_H

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

/* The driver's own function; looked up once. */
#define REAL(symbol)                                      \
    (__extension__({                                      \
        static __typeof__(&symbol) real_;                 \
        if (!real_)                                       \
            *(void **)&real_ = dlsym(RTLD_NEXT, #symbol); \
        real_;                                            \
    }))

#endif
