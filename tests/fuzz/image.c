/* Device code: whatever the bytes, no crash, nothing read behind them, and no call of vprintf seen
 * where the bytes do not hold its name, but in a fat binary, which may hide it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/hooks/image.h"

#include <string.h>

#include "fuzz.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FAT_MAGIC     0xba55ed50u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *image = malloc(size + 8);
    bool named = size && memmem(data, size, "vprintf", strlen("vprintf")) != NULL;
    uint32_t magic = 0;

    FUZZ_CHECK(image);
    if (size)
        memcpy(image, data, size);
    memset(image + size, 0, 8); /* what a program passes is text or has headers: it has an end */
    if (size >= sizeof(magic))
        memcpy(&magic, image, sizeof(magic));
    FUZZ_CHECK(!ag_image_bytes_print(image, size) || named || magic == FAT_MAGIC);
    if (magic == WRAPPER_MAGIC && size >= 16) {
        /* A wrapper around itself, and one around what follows it. */
        memcpy(image + 8, &image, sizeof(image));
        (void)ag_image_prints(image);
        memcpy(image + 8, &(char *){image + 16}, sizeof(image));
    }
    (void)ag_image_prints(image);
    free(image);
    return 0;
}
