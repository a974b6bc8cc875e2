/* Looking for addresses of movable memory in parameters: see named.h. */
#include "policy/paging/named.h"

#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/map.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/graph_nodes.h"
#include "policy/managed/kernel_params.h"
#include "policy/order/capture.h"
#include "policy/paging/plan/extents.h"
#include "policy/paging/plan/toll.h"
#include "policy/paging/ranges.h"

#define MOST_OF_GRAPH   2048u
#define SHARED_OF_TILES 8192u /* with as much a kernel keeps parts of what it reads repeatedly */
#define OF_TILES        10u   /* crossings; products of matrices were seen to take 4 to 30 */
#define MOST_DEEP       8u    /* graphs within graphs that are looked at */

struct graph_names {
    unsigned n;
    struct ag_name at[MOST_OF_GRAPH];
};

static struct ag_map graphs; /* by the graph that can be launched; under the lock of the ranges */

/* --- one kernel --- */

uint64_t ag_name_kernel(const struct ag_launch *launch)
{
    return ag_hash_word((uintptr_t)launch->function, launch->config) | 1;
}

uint64_t ag_name_operand(uint64_t kernel, const struct ag_name *name)
{
    return ag_hash_word(kernel, name->offset) | 1;
}

static void name_word(struct ag_names *names, uint64_t word, size_t offset)
{
    unsigned at = 0;

    if (!ag_range_may_hold(word)) {
        names->others = ag_hash_word(names->others, word);
        return;
    }
    if (names->n == AG_MOST_NAMED)
        return;
    while (at < names->n && names->at[at].address > word)
        at++;
    if (at < names->n && names->at[at].address == word)
        return;
    memmove(&names->at[at + 1], &names->at[at], (names->n++ - at) * sizeof(names->at[0]));
    names->at[at] =
        (struct ag_name){.address = word, .uses = 1, .crossings = 1, .offset = (uint32_t)offset};
}

static void name_bytes(struct ag_names *names, const unsigned char *bytes, size_t offset,
                       size_t size)
{
    uint64_t word;
    size_t at = -offset % sizeof(word);

    names->others = ag_hash_bytes(names->others, bytes, at < size ? at : size);
    for (; at + sizeof(word) <= size; at += sizeof(word)) {
        memcpy(&word, bytes + at, sizeof(word));
        name_word(names, word, offset + at);
    }
    if (at < size)
        names->others = ag_hash_bytes(names->others, bytes + at, size - at);
}

void ag_name_launch(struct ag_names *names, const struct ag_launch *launch)
{
    const struct ag_layout *layout;
    size_t size = 0;
    const void *buffer;

    names->n = 0;
    names->others = 0;
    if (!launch->params == !launch->extra)
        return; /* neither: nothing to look at; both: the driver refuses that */
    if (launch->extra) {
        buffer = ag_params_buffer(launch->extra, &size);
        if (buffer)
            name_bytes(names, buffer, 0, size);
        return;
    }
    layout = ag_params_of(launch->function);
    for (uint32_t i = 0; layout && i < layout->n; i++)
        if (launch->params[i])
            name_bytes(names, launch->params[i], layout->params[i].offset, layout->params[i].size);
}

/* --- the kernels of a graph --- */

/* What kernels that are given addresses there are taken to use: the range, or each its own part of
 * it. 0: it is in none. */
static CUdeviceptr part_of(CUdeviceptr address)
{
    const struct ag_movable *range;
    CUdeviceptr part = 0;

    if (!ag_range_may_hold(address))
        return 0;
    (void)ag_ranges_lock();
    range = ag_range_at(address);
    if (range)
        part = ag_extents_are_learnt(range) ? address : range->address;
    ag_ranges_unlock();
    return part;
}

static void add_name(struct graph_names *all, CUdeviceptr address, unsigned crossings)
{
    CUdeviceptr range = part_of(address);
    unsigned i = 0;

    while (i < all->n && all->at[i].range != range)
        i++;
    if (i == MOST_OF_GRAPH || !range)
        return;
    if (i == all->n)
        all->at[all->n++] = (struct ag_name){.address = address, .range = range};
    if (address < all->at[i].address)
        all->at[i].address = address;
    all->at[i].uses++;
    all->at[i].crossings += crossings;
}

/* Kernels of a graph are not timed one by one: what no launch was timed with is guessed. */
static unsigned guessed_crossings(const CUDA_KERNEL_NODE_PARAMS *node, CUfunction function)
{
    int compiled;

    if (!ag_params_attribute(function, !node->func, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                             &compiled) ||
        compiled < 0)
        compiled = 0;
    return node->sharedMemBytes + (unsigned)compiled >= SHARED_OF_TILES ? OF_TILES : 1;
}

static unsigned crossings_in_graph(uint64_t kernel, uint64_t operand, unsigned guessed)
{
    unsigned price;
    bool is_known;

    (void)ag_ranges_lock();
    is_known = ag_toll_is_known(operand);
    price = ag_toll_of(kernel, operand);
    ag_ranges_unlock();
    if (!is_known)
        return guessed;
    return price < 100 ? 1 : (price + 50) / 100;
}

static void name_kernel(struct graph_names *all, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS kernel;
    struct ag_launch launch = {0};
    struct ag_names names;
    unsigned guessed;
    uint64_t hash;

    if (ag_cu.cuGraphKernelNodeGetParams_v2(node, &kernel) != CUDA_SUCCESS)
        return;
    launch.function = kernel.func ? kernel.func : (CUfunction)kernel.kern;
    launch.config = ag_launch_config(
        (uint32_t[]){kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ},
        (uint32_t[]){kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ}, kernel.sharedMemBytes);
    launch.params = kernel.kernelParams;
    launch.extra = kernel.extra;
    ag_name_launch(&names, &launch);
    guessed = names.n ? guessed_crossings(&kernel, launch.function) : 1;
    hash = ag_name_kernel(&launch);
    for (unsigned i = 0; i < names.n; i++)
        add_name(all, names.at[i].address,
                 crossings_in_graph(hash, ag_name_operand(hash, &names.at[i]), guessed));
}

static void name_nodes(struct graph_names *all, CUgraph graph, unsigned deep);

/* A graph within a graph is so many levels deep. */
static void name_node(struct graph_names *all, CUgraphNode node, unsigned deep)
{
    CUgraphNodeType type;
    CUgraph child;

    if (ag_cu.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
        name_kernel(all, node);
    else if (type == CU_GRAPH_NODE_TYPE_GRAPH && deep < MOST_DEEP &&
             ag_cu.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        name_nodes(all, child, deep + 1);
}

static void name_nodes(struct graph_names *all, CUgraph graph, unsigned deep)
{
    struct ag_graph_nodes nodes;

    if (!ag_graph_nodes_get(graph, &nodes))
        return;
    for (size_t i = 0; i < nodes.n; i++)
        name_node(all, nodes.at[i], deep);
    ag_graph_nodes_free(&nodes);
}

static void drop_names(struct graph_names *all)
{
    if (all)
        ag_pages_free(all, sizeof(*all));
}

static bool can_name_graphs(void)
{
    return ag_cu.cuGraphGetNodes && ag_cu.cuGraphNodeGetType &&
           ag_cu.cuGraphKernelNodeGetParams_v2 && ag_cu.cuGraphChildGraphNodeGetGraph &&
           !ag_capture_is_open();
}

void ag_name_graph(CUgraphExec exec, CUgraph graph)
{
    struct graph_names *all = can_name_graphs() ? ag_pages_get(sizeof(*all)) : NULL;
    bool kept;

    ag_name_graph_gone(exec);
    if (!all)
        return;
    name_nodes(all, graph, 0);
    (void)ag_ranges_lock();
    kept = all->n && ag_map_put(&graphs, (uintptr_t)exec, all);
    ag_ranges_unlock();
    if (!kept)
        drop_names(all);
}

void ag_name_graph_gone(CUgraphExec exec)
{
    struct graph_names *all;

    if (!exec)
        return;
    (void)ag_ranges_lock();
    all = ag_map_take(&graphs, (uintptr_t)exec);
    ag_ranges_unlock();
    drop_names(all);
}

const struct ag_name *ag_names_of_graph(CUgraphExec exec, unsigned *ret_n)
{
    const struct graph_names *all = exec ? ag_map_get(&graphs, (uintptr_t)exec) : NULL;

    *ret_n = all ? all->n : 0;
    return all ? all->at : NULL;
}

void ag_names_begin_child(void)
{
    graphs = (struct ag_map){0};
}
