/* Which block of ours an address lies in, and whether the program has it. */
#ifndef AG_POLICY_LOOKUP_H
#define AG_POLICY_LOOKUP_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "policy/ledger.h"

#define AG_LOOKUP_NOWHERE ((CUdeviceptr)1) /* an address that no memory has */

/* Memory of ours that the driver knows nothing of: what it says of this, it natively says of any
 * that the program has freed. Of an address without memory a driver may say something else. */
extern char ag_lookup_unknown[1];
#define AG_LOOKUP_UNKNOWN ((CUdeviceptr)(uintptr_t)ag_lookup_unknown)

enum ag_found {
    AG_FOUND_NOTHING, /* not ours: the driver answers */
    AG_FOUND_BLOCK,
    AG_FOUND_FREED, /* ours, but not the program's: natively unknown */
};

/* Copies the ledger's entry of the block in which the address lies, where there is one. */
enum ag_found ag_lookup(CUdeviceptr address, struct ag_block_seen *ret_copy);
/* Finds a block for a question that the driver is asked as well: that one says what is wrong with
 * it. */
enum ag_found ag_lookup_quickly(CUdeviceptr address, struct ag_block_seen *ret_copy);
/* Does the address lie in redirected memory that the program owns? Copies its
 * entry of the ledger. */
bool ag_lookup_redirected(CUdeviceptr address, struct ag_block_seen *ret_copy);
/* What the driver is to be told of the address: another one, that no memory has, where it lies in
 * memory that the program has freed. */
CUdeviceptr ag_lookup_known(CUdeviceptr address);

/* The driver has answered for `asked` where the program's question was about `address`: of memory
 * that it does not know it gives the address itself as the host's. */
void ag_lookup_correct_unknown(void *data, CUpointer_attribute attribute, CUdeviceptr asked,
                               CUdeviceptr address);

/* Nobody gets any of the piece's slab from now on. */
void ag_lookup_close_slab(const struct ag_block_seen *piece);
/* The driver is about to let others at the memory, or to change what it is. If it is native memory
 * that we would keep, it goes back when the program frees it. */
void ag_lookup_note_exported(CUdeviceptr address);

#endif
