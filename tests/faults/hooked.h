/* hooked.h: every hooked symbol as a function without a type, under a name that cuda.h's macros
 * leave alone; NULL where nobody has it. */
#ifndef HOOKED_H
#define HOOKED_H

#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    void hooked_##symbol(void) __asm__(#symbol) __attribute__((weak));
#include "interpose/core/driver/hooks.def"

#endif
