/* Hooks of module and library loading: what the code can do that the host could see, and memory for it. */
#include "driver.h"
#include "entry.h"
#include "image.h"
#include "order.h"
#include "pressure.h"

/* Device printf comes out while the host waits: natively before what the host prints after cudaFree. */
static void note_code(bool prints)
{
    if (prints)
        ag_order_note_visible(AG_VISIBLE_PRINTF);
}

/* `prints` is evaluated once, before the call. A failure for want of memory is tried again after what
 * we keep was given back. */
#define LOADS(symbol, prints, parameters, ...)                                        \
    AG_ENTRY CUresult symbol parameters                                               \
    {                                                                                 \
        CUresult result;                                                              \
                                                                                      \
        AG_ENTER(symbol, __VA_ARGS__);                                                \
        note_code(prints);                                                            \
        result = ag_cu.symbol(__VA_ARGS__);                                           \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && ag_pressure_relieve_current())      \
            result = ag_cu.symbol(__VA_ARGS__);                                       \
        return ag_entry_leave(result);                                                \
    }

LOADS(cuModuleLoad, ag_image_file_prints(file), (CUmodule * module, const char *file), module, file)
LOADS(cuModuleLoadData, ag_image_prints(image), (CUmodule * module, const void *image), module, image)
LOADS(cuModuleLoadDataEx, ag_image_prints(image),
      (CUmodule * module, const void *image, unsigned int n, CUjit_option *options, void **values),
      module, image, n, options, values)
LOADS(cuModuleLoadFatBinary, ag_image_prints(image), (CUmodule * module, const void *image), module, image)
LOADS(cuLibraryLoadData, ag_image_prints(code),
      (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned int n_jit,
       CUlibraryOption *options, void **values, unsigned int n),
      library, code, jit, jit_values, n_jit, options, values, n)
LOADS(cuLibraryLoadFromFile, ag_image_file_prints(file),
      (CUlibrary * library, const char *file, CUjit_option *jit, void **jit_values, unsigned int n_jit,
       CUlibraryOption *options, void **values, unsigned int n),
      library, file, jit, jit_values, n_jit, options, values, n)
