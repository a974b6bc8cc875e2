/* What the two files of the stub driver share. */
#ifndef STUB_DRIVER_H
#define STUB_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL /* symbols under their own names, not renamed to the newest */
#include <cuda.h>

#define STUB_EXPORT __attribute__((visibility("default")))

enum stub_flavour { STUB_NONE, STUB_LEGACY, STUB_PTSZ, STUB_PTDS };

/* A driver symbol, exported under its full name, and what cuGetProcAddress gives it for. */
struct stub_symbol {
    const char *base;
    const char *symbol;
    int since;
    enum stub_flavour flavour;
    void *address;
};

/* Ends with an entry whose base is NULL. */
extern const struct stub_symbol stub_symbols[];

/* Exported, too, but cuGetProcAddress's names and versions for them are not listed: "base" is
 * NULL. */
extern const struct stub_symbol stub_unhooked[];
extern const unsigned stub_n_unhooked;

/* Distinct functions for all that is asked for and not in stub_symbols; NULL when there are no
 * more. Each call takes one. */
void *stub_take_anonymous(void);

#endif
