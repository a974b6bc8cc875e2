/* residency.c: where the pages of managed memory lie, what was advised about them, who makes room.
 *
 * The bytes themselves never move: they lie in host memory that everybody maps. What moves is whose
 * card a page counts against. Managed pages go when anybody else needs the room; what they leave of
 * themselves stays taken until then, but for the end of a managed pool's memory. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

#define PAGE ((size_t)64 << 10)

struct sim_residency {
    uint64_t base;
    size_t n_pages;
    struct sim_page *pages;
    struct sim_residency *next;
};

static struct sim_residency *all;
/* Room that pages have left: kept for others until somebody else needs it. */
static size_t kept[SIM_MAX_DEVICES];

struct sim_residency *sim_residency_new(uint64_t base, size_t bytes)
{
    struct sim_residency *residency = calloc(1, sizeof(*residency));
    size_t n = (bytes + PAGE - 1) / PAGE;
    struct sim_page *pages = calloc(n, sizeof(*pages));

    if (!residency || !pages)
        abort();
    *residency = (struct sim_residency){base, n, pages, all};
    all = residency;
    return residency;
}

static void leave(struct sim_page *page, unsigned devices)
{
    for (int device = 0; device < SIM_MAX_DEVICES; device++)
        if (page->on & devices & 1u << device)
            kept[device] += PAGE;
    page->on &= (uint16_t)~devices;
}

void sim_residency_delete(struct sim_residency *residency)
{
    struct sim_residency **link = &all;

    while (*link != residency)
        link = &(*link)->next;
    *link = residency->next;
    for (size_t i = 0; i < residency->n_pages; i++)
        leave(&residency->pages[i], ~0u);
    free(residency->pages);
    free(residency);
}

/* ---- making room ---- */

void sim_residency_give_back(struct sim_residency *residency, int device)
{
    size_t bytes;

    for (size_t i = 0; i < residency->n_pages; i++)
        leave(&residency->pages[i], 1u << device);
    bytes = SIM_MIN(kept[device], residency->n_pages * PAGE);
    kept[device] -= bytes;
    sim_card_give(device, bytes);
}

bool sim_residency_evict(int device, size_t bytes)
{
    size_t gone = SIM_MIN(bytes, kept[device]), n = 0, skip;

    kept[device] -= gone;
    sim_card_give(device, gone);

    for (const struct sim_residency *at = all; at; at = at->next)
        n++;
    skip = n ? sim_random((uint32_t)n) : 0;
    for (unsigned iteration = 0; iteration < 2;
         iteration++) { /* from somewhere, around to there again */
        size_t i = 0;
        for (struct sim_residency *at = all; at; at = at->next, i++) {
            if ((i >= skip) == (iteration == 1))
                continue;
            for (size_t p = 0; p < at->n_pages && gone < bytes; p++) {
                if (!(at->pages[p].on >> device & 1))
                    continue;
                leave(&at->pages[p], 1u << device);
                kept[device] -= PAGE;
                sim_card_give(device, PAGE);
                gone += PAGE;
            }
        }
    }
    return gone > 0;
}

/* The page lies on the device too, if there is any room to make. */
static bool arrive(struct sim_page *page, int device)
{
    if (page->on >> device & 1)
        return true;
    if (kept[device] >= PAGE)
        kept[device] -= PAGE;
    else if (!sim_card_take(device, PAGE) &&
             !(sim_residency_evict(device, PAGE) && sim_card_take(device, PAGE)))
        return false;
    page->on |= (uint16_t)(1u << device);
    page->somewhere = true;
    return true;
}

/* ---- touching and moving ---- */

bool sim_is_host(CUmemLocation location)
{
    return location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
           location.type != CU_MEM_LOCATION_TYPE_INVALID;
}

static bool to_device(CUmemLocation location, int device)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == device;
}

/* Where a page that was never touched comes to be. */
static void populate(struct sim_page *page, int device)
{
    page->somewhere = true;
    if (!sim_is_host(page->preferred))
        (void)arrive(page, page->preferred.type == CU_MEM_LOCATION_TYPE_DEVICE ? page->preferred.id
                                                                               : device);
}

/* Is the page used from where it is? */
static bool stays(const struct sim_page *page, int device)
{
    if (page->accessed_by >> device & 1 && !to_device(page->preferred, device))
        return true;
    if (!page->on)
        return sim_is_host(page->preferred);
    return page->preferred.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           page->on >> page->preferred.id & 1;
}

static void touch(struct sim_page *page, int device, bool write)
{
    unsigned bit = 1u << device;

    if (!page->somewhere)
        populate(page, device);
    if (page->read_mostly && !write) {
        (void)arrive(page, device);
        return;
    }
    if (!(page->on & bit) && !stays(page, device))
        (void)arrive(page, device);
    if (page->on & bit)
        leave(page, ~bit);
}

static void move(struct sim_page *page, CUmemLocation location)
{
    page->somewhere = true;
    if (sim_is_host(location)) {
        if (!page->read_mostly)
            leave(page, ~0u);
        return;
    }
    if (arrive(page, location.id) && !page->read_mostly)
        leave(page, ~(1u << location.id));
}

struct sim_page *sim_residency_pages(struct sim_residency *residency, uint64_t address,
                                     size_t bytes, size_t *ret_n)
{
    size_t first = (address - residency->base) / PAGE;
    size_t last = (address - residency->base + SIM_MAX(bytes, 1u) - 1) / PAGE;

    *ret_n = SIM_MIN(last, residency->n_pages - 1) - first + 1;
    return &residency->pages[first];
}

void sim_residency_touch(struct sim_residency *residency, uint64_t address, size_t bytes,
                         int device, bool write)
{
    size_t n;
    struct sim_page *pages = sim_residency_pages(residency, address, bytes, &n);

    for (size_t i = 0; i < n; i++)
        touch(&pages[i], device, write);
}

void sim_residency_move(struct sim_residency *residency, uint64_t address, size_t bytes,
                        CUmemLocation location)
{
    size_t n;
    struct sim_page *pages = sim_residency_pages(residency, address, bytes, &n);

    for (size_t i = 0; i < n; i++)
        move(&pages[i], location);
}

/* ---- for tests ---- */

struct sim_residency *sim_residency_of(const struct sim_block *block)
{
    if (block->kind == SIM_BLOCK_MANAGED)
        return block->extra;
    return block->kind == SIM_BLOCK_POOL ? sim_pool_residency(block) : NULL;
}

size_t sim_bytes_resident(CUdeviceptr p, size_t bytes, int device)
{
    size_t n = 0, here = 0;

    sim_lock();
    struct sim_block *block = sim_block_at(p);
    struct sim_residency *residency = block ? sim_residency_of(block) : NULL;
    struct sim_page *pages = residency ? sim_residency_pages(residency, p, bytes, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        here += pages[i].on >> device & 1 ? PAGE : 0;
    sim_unlock();
    return here;
}
