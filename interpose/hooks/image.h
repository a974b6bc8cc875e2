/* Inspects device code before it is loaded: may it print? */
#ifndef AG_IMAGE_H
#define AG_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Does the code call device printf? `image` is what cuModuleLoadData takes: a fat binary or the
 * wrapper around one, a cubin, or PTX text. What is compressed with zstd cannot be looked into: a
 * fat binary of nothing but such PTX counts as printing, one with compressed cubins does not unless
 * something else in it prints. NULL: false. Where the kernel does not let us read carefully, all
 * code counts as printing. */
bool ag_image_prints(const void *image);
/* Looks at at most `size` readable bytes, so that nothing after them is touched. */
bool ag_image_bytes_print(const void *image, size_t size);
/* Looks at a file; false when it cannot be read. */
bool ag_image_file_prints(const char *path);

#endif
