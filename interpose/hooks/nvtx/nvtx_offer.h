/* Makes NVTX load us (entry_nvtx.c), or says why it will not. */
#ifndef AG_NVTX_OFFER_H
#define AG_NVTX_OFFER_H

#include "interpose/core/settings/options.h"

/* Is a variable set that may ask for NVTX, and not the one that names NVTX's library? Otherwise no
 * setting needs to be read as the library is loaded, which must cost nothing then. */
bool ag_nvtx_may_be_needed(void);
/* Makes NVTX load us where the settings need it. */
void ag_nvtx_offer(const struct ag_options *options);
/* Warns where the settings need NVTX but NVTX will not load us. */
void ag_nvtx_tell(const struct ag_options *options);

#endif
