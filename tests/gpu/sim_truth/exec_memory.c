/* exec_memory.c: copies and fills in an executable graph that come to be of other memory. */
#include "tests/gpu/sim_truth/truth.h"

static CUDA_MEMCPY3D copy_of(CUmemorytype type, CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = type,
                           .srcDevice = from,
                           .dstMemoryType = type,
                           .dstDevice = to,
                           .WidthInBytes = 64,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to, .elementSize = 4, .width = 8, .height = 1};
}

static void copy_line(const char *id, const char *name, CUgraphExec exec, CUgraphNode node_of_copy,
                      CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY3D copy = copy_of(CU_MEMORYTYPE_DEVICE, to, from);

    row(id, name, "code %d", D(cuGraphExecMemcpyNodeSetParams)(exec, node_of_copy, &copy, context));
}

static void fill_line(const char *id, const char *name, CUgraphExec exec, CUgraphNode fill,
                      CUdeviceptr to)
{
    CUDA_MEMSET_NODE_PARAMS set = fill_of(to);

    row(id, name, "code %d", D(cuGraphExecMemsetNodeSetParams)(exec, fill, &set, context));
}

/* A graph of a copy and a fill of plain memory of the device. */
static CUgraphExec plain_graph(CUdeviceptr p, CUdeviceptr q, CUgraphNode *ret_copy,
                               CUgraphNode *ret_fill)
{
    CUDA_MEMSET_NODE_PARAMS set = fill_of(p);
    CUDA_MEMCPY3D copy = copy_of(CU_MEMORYTYPE_DEVICE, q, p);
    CUgraph graph;
    CUgraphExec exec;

    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemcpyNode)(ret_copy, graph, NULL, 0, &copy, context));
    OK(D(cuGraphAddMemsetNode)(ret_fill, graph, NULL, 0, &set, context));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    return exec;
}

void group_piece_graphs(void)
{
    CUdeviceptr p, q, pieces, managed, pool;
    CUgraphNode copy, fill;
    CUgraphExec exec;

    open_device();
    p = device_memory(4096);
    q = device_memory(4096);
    pieces = piece_range(2);
    managed = managed_memory(4096);
    pool = pool_memory(4096);
    exec = plain_graph(p, q, &copy, &fill);
    fill_line("R1321", "a fill in an exec comes to be of a piece on the device", exec, fill,
              pieces);
    fill_line("R1322", "then of one on the host", exec, fill, pieces + PIECE);
    fill_line("R1323", "then of device memory again", exec, fill, p);
    copy_line("R1324", "a copy in an exec comes to be to a piece on the host", exec, copy,
              pieces + PIECE, p);
    copy_line("R1325", "then from one to one on the device", exec, copy, pieces, pieces + PIECE);
    copy_line("R1326", "then between device memory again", exec, copy, q, p);
    fill_line("R1327", "a fill in an exec comes to be of managed memory", exec, fill, managed);
    fill_line("R1328", "then of pool memory", exec, fill, pool);
    copy_line("R1329", "a copy in an exec comes to be from managed to pool memory", exec, copy,
              pool, managed);
}

/* ---- one side of a copy ---- */

enum { POOL, ON_DEVICE, ON_HOST, MANAGED, PINNED, KINDS };

/* Of an executable that has the one copy, and is to have the other one instead. */
static CUresult change(CUDA_MEMCPY3D from, CUDA_MEMCPY3D to)
{
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec exec;

    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddMemcpyNode)(&node, graph, NULL, 0, &from, context));
    OK(D(cuGraphInstantiate)(&exec, graph, 0));
    return D(cuGraphExecMemcpyNodeSetParams)(exec, node, &to, context);
}

/* A copy between plain memory of the device comes to have memory of each kind on one side, and one
 * of each kind comes to be of plain memory. */
static void kind_lines(const char *id, const char *name, CUmemorytype type, bool is_source)
{
    const char *what[] = {"to", "from"};
    CUdeviceptr p = device_memory(4096), q = device_memory(4096), pieces = piece_range(2);
    CUdeviceptr kinds[KINDS] = {[POOL] = pool_memory(4096),
                                [ON_DEVICE] = pieces,
                                [ON_HOST] = pieces + PIECE,
                                [MANAGED] = managed_memory(4096)};
    CUresult there[KINDS], back[KINDS];
    void *pinned;

    OK(D(cuMemAllocHost)(&pinned, 4096));
    kinds[PINNED] = (CUdeviceptr)(uintptr_t)pinned;
    for (unsigned i = 0; i < KINDS; i++) {
        CUDA_MEMCPY3D plain = copy_of(type, q, p);
        CUDA_MEMCPY3D other = is_source ? copy_of(type, q, kinds[i]) : copy_of(type, kinds[i], p);

        there[i] = change(plain, other);
        back[i] = change(other, plain);
    }
    row(id, name,
        "%s pool, piece, piece on the host, managed, pinned %d %d %d %d %d; back %d %d %d %d %d",
        what[is_source], there[0], there[1], there[2], there[3], there[4], back[0], back[1],
        back[2], back[3], back[4]);
}

/* A copy to memory that belongs to no context comes to be to other such memory. */
static void ownerless_line(void)
{
    CUdeviceptr p = device_memory(4096), pieces = piece_range(2), pool = pool_memory(4096);
    CUdeviceptr pairs[][2] = {
        {pool, pieces}, {pieces, pool}, {pieces, pieces + PIECE}, {pieces + PIECE, pieces}};
    CUresult codes[4];

    for (unsigned i = 0; i < 4; i++)
        codes[i] = change(copy_of(CU_MEMORYTYPE_DEVICE, pairs[i][0], p),
                          copy_of(CU_MEMORYTYPE_DEVICE, pairs[i][1], p));
    row("R1394", "a copy in an exec comes to be to other memory of no context",
        "pool to piece %d, back %d; piece to one on the host %d, back %d", codes[0], codes[1],
        codes[2], codes[3]);
}

void group_exec_copies(void)
{
    open_device();
    kind_lines("R1390", "a copy in an exec comes to be to memory of each kind",
               CU_MEMORYTYPE_DEVICE, false);
    kind_lines("R1391", "a copy in an exec comes to be from memory of each kind",
               CU_MEMORYTYPE_DEVICE, true);
    kind_lines("R1392", "the same as R1390, as CU_MEMORYTYPE_UNIFIED", CU_MEMORYTYPE_UNIFIED,
               false);
    kind_lines("R1393", "the same as R1391, as CU_MEMORYTYPE_UNIFIED", CU_MEMORYTYPE_UNIFIED, true);
    ownerless_line();
}
