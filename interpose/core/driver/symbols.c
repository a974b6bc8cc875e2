/* Finds hooks by name, base name and address: see symbols.h. */
#include "interpose/core/driver/symbols.h"

#include <string.h>

#include "interpose/core/base/addresses.h"
#include "interpose/core/driver/abi.h"
#include "interpose/core/driver/driver.h"

/* The signature of each row is the header's: a version or flavour that does not fit fails here. */
#define SUFFIX_NONE
#define SUFFIX_LEGACY
#define SUFFIX_PTSZ              _ptsz
#define SUFFIX_PTDS              _ptds
#define PASTE(a, b, c, d)        a##b##_v##c##d
#define PFN(base, since, suffix) PASTE(PFN_, base, since, suffix)
#define AG_HOOK(base, symbol, since, flavour, need, flush)                                     \
    _Static_assert(                                                                            \
        __builtin_types_compatible_p(__typeof__(&symbol), PFN(base, since, SUFFIX_##flavour)), \
        #symbol " has another signature in cudaTypedefs.h");
#define AG_CALL AG_HOOK
#include "interpose/core/driver/hooks.def"

static const struct ag_hook_info hooks[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    {#base, #symbol, AG_FLAVOUR_##flavour, AG_WHEN_ALWAYS},
#define AG_HOOK_IF(base, symbol, since, flavour, need, flush, when) \
    {#base, #symbol, AG_FLAVOUR_##flavour, AG_WHEN_##when},
#include "interpose/core/driver/hooks.def"
};

static struct ag_address by_address[AG_N_HOOKS];
static size_t n_by_address;

const struct ag_hook_info *ag_hook_info(enum ag_hook hook)
{
    return &hooks[hook];
}

enum ag_hook ag_hook_by_name(const char *name)
{
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        if (ag_symbol_is(name, hooks[i].symbol))
            return (enum ag_hook)i;
    }
    return AG_N_HOOKS;
}

void ag_symbols_index(void)
{
    n_by_address = 0;
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        const void *address = ag_driver_pointer((enum ag_hook)i);

        if (address)
            by_address[n_by_address++] = (struct ag_address){address, (int)i};
    }
    ag_addresses_sort(by_address, n_by_address);
}

enum ag_hook ag_hook_by_address(const void *address, bool per_thread)
{
    enum ag_hook found = AG_N_HOOKS;
    size_t i = ag_addresses_find(by_address, n_by_address, address);

    for (; i < n_by_address && by_address[i].address == address; i++) {
        found = (enum ag_hook)by_address[i].number;
        if ((hooks[found].flavour >= AG_FLAVOUR_PTSZ) == per_thread)
            break;
    }
    return found;
}

enum ag_hook ag_hook_by_base(const char *base)
{
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        if (!strcmp(base, hooks[i].base))
            return (enum ag_hook)i;
    }
    return AG_N_HOOKS;
}
