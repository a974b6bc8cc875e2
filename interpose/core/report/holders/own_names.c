/* Names frames by the dynamic symbols of what is loaded: see own_names.h. It takes no lock of the
 * loader's, for it runs where the process ends. */
#include "interpose/core/report/holders/own_names.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/base/loaded.h"
#include "interpose/core/base/stack/walk.h"

unsigned ag_own_names(void *namer, const struct ag_holders *holders, uint64_t frame,
                      struct ag_frame_name *ret, unsigned most)
{
    uint64_t base = holders->modules[ag_frame_module(frame)].base;
    const void *place = (const void *)(uintptr_t)(base + ag_frame_offset(frame) - 1);
    struct ag_loaded loaded;
    const char *function;

    (void)namer;
    if (!most || !base || !ag_loaded_is_lock_free() || !ag_loaded_find(place, &loaded) ||
        (uintptr_t)loaded.base != base)
        return 0;
    function = ag_loaded_function(&loaded, place);
    if (!function)
        return 0;
    memset(ret, 0, sizeof(*ret));
    snprintf(ret->function, sizeof(ret->function), "%s", function);
    return 1;
}
