/* arena.c: device addresses, the bytes behind them, and how much the card holds.
 *
 * Each device has a range of addresses that is mapped without any access rights, so a host that
 * dereferences a device pointer faults as it would on a real machine. The bytes themselves lie in
 * a memory file that only the simulation maps, at a constant distance from the addresses. */
#include "tests/sim/sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT 512u
#define HUGE ((size_t)2 << 20) /* a huge page; also what addresses of devices are aligned to */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

struct range {
    uint64_t at, bytes;
};

struct arena {
    uint64_t base, bytes;
    unsigned char *shadow;
    bool *is_huge; /* the bytes, a flag for each HUGE of them: they need not be gathered again */
    int fd;
    struct range *free; /* sorted, never adjacent */
    size_t n_free, capacity;
    size_t card_used, card_most;
};

static struct arena arenas[SIM_MAX_DEVICES];

static void insert(struct arena *arena, size_t i, struct range range)
{
    if (arena->n_free == arena->capacity) {
        arena->capacity = arena->capacity ? arena->capacity * 2 : 64;
        arena->free = realloc(arena->free, arena->capacity * sizeof(*arena->free));
        if (!arena->free)
            abort();
    }
    memmove(&arena->free[i + 1], &arena->free[i], (arena->n_free - i) * sizeof(range));
    arena->free[i] = range;
    arena->n_free++;
}

static void erase(struct arena *arena, size_t i)
{
    arena->n_free--;
    memmove(&arena->free[i], &arena->free[i + 1], (arena->n_free - i) * sizeof(arena->free[0]));
}

/* Addresses of which the first is a multiple of HUGE, or NULL. */
static unsigned char *reserve(size_t bytes)
{
    unsigned char *addresses =
        mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return addresses == MAP_FAILED ? NULL : addresses + -(uintptr_t)addresses % HUGE;
}

static struct arena *arena_of(int device)
{
    struct arena *arena = &arenas[device];

    if (arena->base)
        return arena;
    arena->bytes =
        ((uint64_t)sim_settings()->memory_bytes * 4 + ((uint64_t)32 << 30)) / HUGE * HUGE;
    unsigned char *addresses = reserve(arena->bytes), *shadow = reserve(arena->bytes);
    char name[32];
    (void)snprintf(name, sizeof(name), "sim-card-%d", device);
    arena->fd = memfd_create(name, MFD_CLOEXEC);
    if (!addresses || !shadow || arena->fd < 0 || ftruncate(arena->fd, (off_t)arena->bytes)) {
        fprintf(stderr, "sim: no address space for device %d: %s\n", device, strerror(errno));
        abort();
    }
    arena->shadow = mmap(shadow, arena->bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_NORESERVE | MAP_FIXED, arena->fd, 0);
    if (arena->shadow == MAP_FAILED) {
        fprintf(stderr, "sim: cannot map the memory of device %d: %s\n", device, strerror(errno));
        abort();
    }
    arena->is_huge = calloc(arena->bytes / HUGE, sizeof(*arena->is_huge));
    if (!arena->is_huge)
        abort();
    arena->base = (uintptr_t)addresses;
    insert(arena, 0, (struct range){arena->base, arena->bytes});
    return arena;
}

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void carve(struct arena *arena, size_t i, uint64_t at, uint64_t bytes)
{
    struct range range = arena->free[i];

    erase(arena, i);
    if (at + bytes < range.at + range.bytes)
        insert(arena, i, (struct range){at + bytes, range.at + range.bytes - at - bytes});
    if (range.at < at)
        insert(arena, i, (struct range){range.at, at - range.at});
}

uint64_t sim_arena_take(int device, size_t bytes, size_t align)
{
    struct arena *arena = arena_of(device);
    /* Mostly the lowest place, which is what was freed last as often as not; now and then
     * another one. */
    size_t skip = sim_chance(32) ? sim_random(4) : 0;
    size_t found = SIZE_MAX;

    bytes = round_up(SIM_MAX(bytes, 1u), UNIT);
    for (size_t i = 0; i < arena->n_free; i++) {
        struct range range = arena->free[i];
        uint64_t at = round_up(range.at, align);
        if (at + bytes < at || at + bytes > range.at + range.bytes)
            continue;
        found = i;
        if (!skip--)
            break;
    }
    if (found == SIZE_MAX)
        return 0;
    uint64_t at = round_up(arena->free[found].at, align);
    carve(arena, found, at, bytes);
    return at;
}

bool sim_arena_take_at(int device, uint64_t address, size_t bytes)
{
    struct arena *arena = arena_of(device);

    bytes = round_up(bytes, UNIT);
    for (size_t i = 0; i < arena->n_free; i++) {
        struct range range = arena->free[i];
        if (address < range.at || address + bytes > range.at + range.bytes)
            continue;
        carve(arena, i, address, bytes);
        return true;
    }
    return false;
}

void sim_arena_give(int device, uint64_t address, size_t bytes)
{
    struct arena *arena = arena_of(device);
    struct range range = {address, round_up(SIM_MAX(bytes, 1u), UNIT)};
    size_t i = 0;

    while (i < arena->n_free && arena->free[i].at < address)
        i++;
    if (i < arena->n_free && range.at + range.bytes == arena->free[i].at) {
        range.bytes += arena->free[i].bytes;
        erase(arena, i);
    }
    if (i > 0 && arena->free[i - 1].at + arena->free[i - 1].bytes == range.at) {
        arena->free[i - 1].bytes += range.bytes;
        return;
    }
    insert(arena, i, range);
}

unsigned char *sim_arena_bytes(int device, uint64_t address)
{
    struct arena *arena = arena_of(device);

    return arena->shadow + (address - arena->base);
}

bool sim_arena_has(uint64_t address, int *ret_device)
{
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        if (!arenas[i].base || address < arenas[i].base ||
            address >= arenas[i].base + arenas[i].bytes)
            continue;
        if (ret_device)
            *ret_device = i;
        return true;
    }
    return false;
}

/* The file behind the bytes at an address, if they are the arena's; of n bytes how many it has. */
static int file_behind(uint64_t address, const unsigned char *bytes, uint64_t *ret_offset,
                       size_t *n)
{
    const struct sim_block *block = sim_block_at(address);
    int device;

    if (!sim_arena_has(address, &device) || sim_arena_bytes(device, address) != bytes)
        return -1;
    if (!block || block->kind != SIM_BLOCK_MAPPED)
        return sim_arena_fd(device, address, ret_offset);
    *n = SIM_MIN(*n, block->size - (address - block->base));
    return sim_mapped_fd(block, address, ret_offset);
}

size_t sim_arena_run_of(uint64_t address, const unsigned char *bytes, size_t n, bool *ret_is_empty)
{
    uint64_t offset;
    int fd = file_behind(address, bytes, &offset, &n);
    off_t data = fd < 0 ? -1 : lseek(fd, (off_t)offset, SEEK_DATA);

    *ret_is_empty = fd >= 0 && (data < 0 ? errno == ENXIO : data > (off_t)offset);
    if (data < 0)
        return n;
    off_t end = *ret_is_empty ? data : lseek(fd, (off_t)offset, SEEK_HOLE);
    return end < 0 ? n : SIM_MIN(n, (size_t)(end - (off_t)offset));
}

static void forget_huge(struct arena *arena, uint64_t address, size_t bytes)
{
    size_t first = (address - arena->base) / HUGE;
    size_t last = (address - arena->base + bytes - 1) / HUGE;

    memset(&arena->is_huge[first], 0, (last - first + 1) * sizeof(*arena->is_huge));
}

/* A huge page comes from what is there of it, which must be something. */
void sim_arena_gather(uint64_t address, unsigned char *bytes, size_t n)
{
    static bool is_refused;
    size_t before = -(uintptr_t)bytes % HUGE;
    int device;

    if (n < before + HUGE || is_refused || !sim_arena_has(address, &device) ||
        sim_arena_bytes(device, address) != bytes)
        return;
    bool *is_huge = &arenas[device].is_huge[(address + before - arenas[device].base) / HUGE];
    n = (n - before) / HUGE;
    for (size_t i = 0, end; i < n && !is_refused; i = end + 1) {
        unsigned char *page = bytes + before + i * HUGE;
        for (end = i; end < n && !is_huge[end]; end++) {
            (void)*(volatile unsigned char *)(page + (end - i) * HUGE);
            is_huge[end] = true;
        }
        is_refused = end > i && madvise(page, (end - i) * HUGE, MADV_COLLAPSE) != 0;
    }
}

void sim_arena_zero(int device, uint64_t address, size_t bytes)
{
    struct arena *arena = arena_of(device);
    off_t offset = (off_t)(address - arena->base);

    forget_huge(arena, address, bytes);
    if (fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes))
        memset(arena->shadow + offset, 0, bytes);
}

/* The bytes of a file stand behind the addresses, of device 0; no longer. */
bool sim_arena_show(uint64_t address, size_t bytes, int fd, uint64_t offset)
{
    forget_huge(&arenas[0], address, bytes);
    return mmap(sim_arena_bytes(0, address), bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, (off_t)offset) != MAP_FAILED;
}

/* The host may use them, too, by the very addresses. */
void sim_arena_show_host(uint64_t address, size_t bytes, int fd, uint64_t offset, int protection)
{
    if (mmap((void *)(uintptr_t)address, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             fd, (off_t)offset) == MAP_FAILED)
        abort();
}

void sim_arena_hide(uint64_t address, size_t bytes)
{
    const struct arena *arena = arena_of(0);

    if (!sim_arena_show(address, bytes, arena->fd, address - arena->base) ||
        mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
}

int sim_arena_fd(int device, uint64_t address, uint64_t *ret_offset)
{
    struct arena *arena = arena_of(device);

    *ret_offset = address - arena->base;
    return arena->fd;
}

bool sim_card_take(int device, size_t bytes)
{
    struct arena *arena = arena_of(device);

    if (bytes > sim_settings()->memory_bytes - arena->card_used)
        return false;
    arena->card_used += bytes;
    arena->card_most = SIM_MAX(arena->card_most, arena->card_used);
    return true;
}

bool sim_card_claim(int device, size_t bytes)
{
    if (sim_card_take(device, bytes) || (sim_pools_squeeze(device) && sim_card_take(device, bytes)))
        return true;
    return sim_residency_evict(device, bytes) && sim_card_take(device, bytes);
}

void sim_card_give(int device, size_t bytes)
{
    arenas[device].card_used -= bytes;
}

size_t sim_bytes_of_card(int device, size_t *ret_most)
{
    size_t now;

    sim_lock();
    now = arenas[device].card_used;
    if (ret_most)
        *ret_most = arenas[device].card_most;
    sim_unlock();
    return now;
}

bool sim_neighbour_take(int device, size_t bytes)
{
    bool taken;

    sim_lock();
    taken = sim_card_take(device, bytes);
    sim_unlock();
    return taken;
}

void sim_neighbour_give(int device, size_t bytes)
{
    sim_lock();
    sim_card_give(device, bytes);
    sim_unlock();
}

size_t sim_card_free(int device)
{
    return sim_settings()->memory_bytes - arenas[device].card_used;
}
