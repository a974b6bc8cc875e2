/* A program that copies by batches, behind a kernel, and asks for what a cudaFree natively waits
 * for: when that has returned, it writes what the batch read, or reads what the batch wrote. */
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define WORDS 1000
#define BYTES (WORDS * sizeof(uint32_t))

typedef PFN_cuMemcpyBatchAsync_v12080 lines_12080;
typedef PFN_cuMemcpyBatchAsync_v13000 lines_13000;
typedef PFN_cuMemcpy3DBatchAsync_v12080 boxes_12080;
typedef PFN_cuMemcpy3DBatchAsync_v13000 boxes_13000;

static CUstream stream;
static CUmemcpySrcAccessOrder order;
static void *function;
static bool is_boxes, is_old;

static CUresult copy_lines(CUdeviceptr to, CUdeviceptr from)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = order};
    size_t first = 0, failed;
    /* In halves: it is the second operand that matters as much as the first. */
    size_t sizes[2] = {BYTES / 2, BYTES / 2};
    CUdeviceptr tos[2] = {to, to + BYTES / 2}, froms[2] = {from, from + BYTES / 2};

    if (is_old)
        return ((lines_12080)function)(tos, froms, sizes, 2, &attributes, &first, 1, &failed,
                                       stream);
    return ((lines_13000)function)(tos, froms, sizes, 2, &attributes, &first, 1, stream);
}

static CUmemcpy3DOperand operand(CUdeviceptr p)
{
    CUmemcpy3DOperand operand = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER};

    operand.op.ptr.ptr = p;
    return operand;
}

static CUresult copy_boxes(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D_BATCH_OP box = {.src = operand(from),
                                  .dst = operand(to),
                                  .extent = {BYTES / 4, 2, 2},
                                  .srcAccessOrder = order};
    size_t failed;

    if (is_old)
        return ((boxes_12080)function)(1, &box, &failed, 0, stream);
    return ((boxes_13000)function)(1, &box, 0, stream);
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from)
{
    return is_boxes ? copy_boxes(to, from) : copy_lines(to, from);
}

static void write_host(uint32_t *host, uint32_t value)
{
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = value + i;
}

/* argv: the driver's function, the order by its number, and "from" or "to" the host, or "within".
 */
int main(int argc, char **argv)
{
    CUdeviceptr device, quiet, temporary, host_address;
    uint32_t *host = calloc(WORDS, sizeof(*host));
    const char *way = argc == 4 ? argv[3] : "";

    if (argc != 4 || host == NULL)
        _exit(98);
    (void)device_open();
    function = dlsym(dlopen("libcuda.so.1", RTLD_NOW), argv[1]);
    is_boxes = strstr(argv[1], "3D") != NULL;
    is_old = strstr(argv[1], "_v2") == NULL;
    order = (CUmemcpySrcAccessOrder)atoi(argv[2]);
    host_address = (CUdeviceptr)(uintptr_t)host;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&device, BYTES));
    OK(cuMemAlloc(&quiet, BYTES));
    for (uint32_t iteration = 1; iteration <= 10; iteration++) {
        uint32_t value = 100 * iteration;
        bool from = strcmp(way, "from") == 0, to = strcmp(way, "to") == 0;

        OK(cuMemAlloc(&temporary, 4096));
        write_host(host, from ? value : 1);
        launch_fill(stream, device, WORDS, from ? 1 : value);
        OK(copy(from ? device : to ? host_address : quiet, from ? host_address : device));
        OK(cuMemFree(temporary));
        if (from)
            write_host(host, 0);
        say("wrong words %u", to ? wrong_words(host, WORDS, value)
                                 : count_wrong(from ? device : quiet, WORDS, value));
    }
    return 0;
}
