/* Names the frames of this process's own stacks, as far as its libraries export them. */
#ifndef AG_OWN_NAMES_H
#define AG_OWN_NAMES_H

#include "interpose/core/report/holders/render_holders.h"

ag_frame_names ag_own_names;

#endif
