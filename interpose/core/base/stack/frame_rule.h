/* How to get from a frame of the stack to its caller's: what the call frame information of a
 * library (.eh_frame, which compilers write for exceptions) says of a place in its code. Pure: it
 * reads the tables that it is given. DWARF 5, section 6.4, and the Linux Standard Base's
 * description of .eh_frame and .eh_frame_hdr. */
#ifndef AG_FRAME_RULE_H
#define AG_FRAME_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* The canonical frame address (CFA) is the stack pointer before the call. */
enum ag_frame_cfa {
    AG_CFA_UNKNOWN,  /* nothing is said of the place */
    AG_CFA_STACK,    /* stack pointer + offset */
    AG_CFA_FRAME,    /* frame pointer + offset */
    AG_CFA_IN_FRAME, /* stored at frame pointer + offset: of a function that aligns its stack */
    AG_CFA_OUTERMOST /* nobody called */
};

/* Where the caller's frame pointer is. */
enum ag_frame_saved {
    AG_SAVED_NOT,     /* still in the register */
    AG_SAVED_AT_CFA,  /* CFA + saved_at */
    AG_SAVED_AT_FRAME /* where the frame pointer points */
};

struct ag_frame_rule {
    enum ag_frame_cfa cfa;
    enum ag_frame_saved saved;
    int32_t cfa_offset, saved_at;
    int32_t return_at; /* the return address: CFA + return_at */
};

/* The rule at `place`, by the table `header` (the segment PT_GNU_EH_FRAME) of the library that it
 * is in. False: the table says something that no rule of these can tell. */
bool ag_frame_rule_find(const void *header, uintptr_t place, struct ag_frame_rule *ret);

/* The code around `place` that one description is of: a function, or the part of one that the
 * compiler put elsewhere. False when there is none. */
bool ag_frame_rule_range(const void *header, uintptr_t place, uintptr_t *ret_begins,
                         uintptr_t *ret_ends);

#endif
