/* The part of NVTX's binary interface (version 3) that our injection uses, so that NVIDIA's headers
 * are not needed to build. tests/preload/nvtx_headers.c checks it against them. */
#ifndef AG_NVTX_ABI_H
#define AG_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum ag_nvtx_export { AG_NVTX_EXPORT_CALLBACKS = 1 };

enum ag_nvtx_module {
    AG_NVTX_CORE = 1,
    AG_NVTX_CUDA = 2,
    AG_NVTX_CUDART = 4,
    AG_NVTX_CORE2 = 5,
};

/* Places in the tables of modules. */
enum ag_nvtx_core {
    AG_NVTX_MARK_EX = 1,
    AG_NVTX_MARK_A,
    AG_NVTX_MARK_W,
    AG_NVTX_RANGE_START_EX,
    AG_NVTX_RANGE_START_A,
    AG_NVTX_RANGE_START_W,
    AG_NVTX_RANGE_PUSH_EX = 8,
    AG_NVTX_RANGE_PUSH_A,
    AG_NVTX_RANGE_PUSH_W,
};
enum ag_nvtx_core2 {
    AG_NVTX_DOMAIN_MARK_EX = 1,
    AG_NVTX_DOMAIN_RANGE_START_EX = 2,
    AG_NVTX_DOMAIN_RANGE_PUSH_EX = 4,
    AG_NVTX_DOMAIN_RESOURCE_CREATE = 6,
    AG_NVTX_DOMAIN_REGISTER_STRING_A = 10,
    AG_NVTX_DOMAIN_REGISTER_STRING_W,
    AG_NVTX_DOMAIN_CREATE_A,
    AG_NVTX_DOMAIN_CREATE_W,
};
enum ag_nvtx_cuda { AG_NVTX_NAME_CU_STREAM_A = 5, AG_NVTX_NAME_CU_STREAM_W };
enum ag_nvtx_cudart { AG_NVTX_NAME_CUDA_STREAM_A = 3, AG_NVTX_NAME_CUDA_STREAM_W };

enum ag_nvtx_message_type {
    AG_NVTX_MESSAGE_ASCII = 1,
    AG_NVTX_MESSAGE_UNICODE = 2,
    AG_NVTX_MESSAGE_REGISTERED = 3,
};

union ag_nvtx_message {
    const char *ascii;
    const wchar_t *unicode;
    const void *registered; /* what we answered as the string was registered */
};

/* nvtxEventAttributes_t */
struct ag_nvtx_event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union ag_nvtx_message message;
};

/* nvtxResourceAttributes_t */
struct ag_nvtx_resource {
    uint16_t version, size;
    int32_t type;
    uint64_t identifier;
    int32_t message_type;
    union ag_nvtx_message message;
};

#define AG_NVTX_RESOURCE_CU_STREAM   (4 << 16 | 3)
#define AG_NVTX_RESOURCE_CUDA_STREAM (5 << 16 | 1)

/* What a push answers when nobody counts depths, as without an injection. */
#define AG_NVTX_NO_TRACKING (-2)

typedef void (*ag_nvtx_function)(void);

/* NvtxExportTableCallbacks. *ret_table: pointers to where the functions are kept; *ret_size of
 * them. */
struct ag_nvtx_callbacks {
    size_t struct_size;
    int (*get_table)(enum ag_nvtx_module module, ag_nvtx_function ***ret_table, unsigned *ret_size);
};

typedef const void *ag_nvtx_get_export(uint32_t export_id);

#endif
