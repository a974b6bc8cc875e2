/* Makes NVTX load us (entry_nvtx.c), or says why it will not. */
#ifndef AG_NVTX_OFFER_H
#define AG_NVTX_OFFER_H

#include "interpose/core/settings/options.h"

/* As the library is loaded: makes NVTX load us where the settings of the environment need it. */
void ag_nvtx_offer(void);
/* Warns where the settings need NVTX but NVTX will not load us. */
void ag_nvtx_tell(const struct ag_options *options);

#endif
