/* Whether the library is in front of the C library: see preloaded.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/resolve/preloaded.h"

#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "interpose/core/base/loaded.h"

/* Relaxed: every thread finds the same. */
static _Atomic enum { UNKNOWN, OPENED, PRELOADED } answer;

struct order {
    bool found_us, found_libc, preloaded;
};

/* Files come in the order in which look-ups see them. */
static int look_for_us(struct dl_phdr_info *info, size_t size, void *data)
{
    struct order *order = data;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begins = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)&answer >= begins &&
            (uintptr_t)&answer < begins + info->dlpi_phdr[i].p_memsz)
            order->found_us = true;
    }
    order->found_libc = slash && !strncmp(slash, "/libc.so.", strlen("/libc.so."));
    order->preloaded = order->found_us;
    return order->found_us || order->found_libc;
}

bool ag_is_preloaded(void)
{
    struct order order = {0};

    if (atomic_load_explicit(&answer, memory_order_relaxed) == UNKNOWN) {
        (void)ag_loaded_each(look_for_us, &order);
        atomic_store_explicit(&answer, order.preloaded ? PRELOADED : OPENED, memory_order_relaxed);
    }
    return atomic_load_explicit(&answer, memory_order_relaxed) == PRELOADED;
}
