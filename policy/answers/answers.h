/* Answers to the program's questions about redirected memory: the same as natively. */
#ifndef AG_POLICY_ANSWERS_H
#define AG_POLICY_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"

/* Each answers as the driver function of that name does. */
CUresult ag_answer_mem_info(size_t *ret_free, size_t *ret_total);
CUresult ag_answer_address_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr address);
CUresult ag_answer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address);
CUresult ag_answer_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                              CUdeviceptr address);
CUresult ag_answer_set_attribute(const void *value, CUpointer_attribute attribute,
                                 CUdeviceptr address);

#endif
