/* Answers to the program's questions about redirected memory: the same as natively. */
#ifndef AG_POLICY_ANSWERS_H
#define AG_POLICY_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/driver/abi.h"

/* Each as the driver function of that name. */
CUresult ag_answer_mem_info(size_t *ret_free, size_t *ret_total);
CUresult ag_answer_address_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr address);
CUresult ag_answer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address);
CUresult ag_answer_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                              CUdeviceptr address);
CUresult ag_answer_set_attribute(const void *value, CUpointer_attribute attribute,
                                 CUdeviceptr address);
/* Does the address lie in redirected memory that the program owns? Copies its
 * entry of the ledger. */
struct ag_block_seen;
bool ag_answer_redirected(CUdeviceptr address, struct ag_block_seen *ret_copy);
/* What the driver is to be told of the address: another one, that no memory has, where it lies in
 * memory that the program has freed. */
CUdeviceptr ag_answer_known(CUdeviceptr address);
/* The driver is about to let others at the memory, or to change what it is. If it is native memory
 * that we would keep, it goes back when the program frees it. */
void ag_answer_note_exported(CUdeviceptr address);

#endif
