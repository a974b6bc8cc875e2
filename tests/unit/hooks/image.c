/* image.c: which fat binaries count as printing, by what their entries hold and how. */
#include "interpose/hooks/image.h"

#include <stdint.h>
#include <string.h>

#include "tests/common/check.h"

#define PTX          1u
#define CUBIN        2u
#define UNCOMPRESSED 0x11u
#define LZ4          0x2011u
#define ZSTD         0x8011u

#define HEADER_BYTES  16u
#define ENTRY_BYTES   64u
#define PAYLOAD_BYTES 64u

struct entry {
    uint16_t kind;
    uint64_t flags;
    const char *text; /* compressed by zstd it would not be legible */
};

static char image[1024];

static size_t build(const struct entry *entries, unsigned n)
{
    const uint32_t magic = 0xba55ed50u, header_bytes = ENTRY_BYTES;
    const uint16_t version = 1, first = HEADER_BYTES;
    const uint64_t bytes = n * (ENTRY_BYTES + PAYLOAD_BYTES), payload_bytes = PAYLOAD_BYTES;

    memset(image, 0, sizeof(image));
    memcpy(image, &magic, sizeof(magic));
    memcpy(image + 4, &version, sizeof(version));
    memcpy(image + 6, &first, sizeof(first));
    memcpy(image + 8, &bytes, sizeof(bytes));
    for (unsigned i = 0; i < n; i++) {
        char *entry = image + HEADER_BYTES + i * (ENTRY_BYTES + PAYLOAD_BYTES);

        memcpy(entry, &entries[i].kind, sizeof(entries[i].kind));
        memcpy(entry + 4, &header_bytes, sizeof(header_bytes));
        memcpy(entry + 8, &payload_bytes, sizeof(payload_bytes));
        memcpy(entry + 40, &entries[i].flags, sizeof(entries[i].flags));
        memcpy(entry + ENTRY_BYTES, entries[i].text, strlen(entries[i].text));
    }
    return HEADER_BYTES + (size_t)bytes;
}

/* Of up to three entries. */
static bool prints(struct entry a, struct entry b, struct entry c)
{
    const struct entry entries[] = {a, b, c};
    unsigned n = !a.kind ? 0 : !b.kind ? 1 : !c.kind ? 2 : 3;
    size_t size = build(entries, n);
    bool result = ag_image_bytes_print(image, size);

    CHECK(ag_image_prints(image) == result);
    return result;
}

int main(void)
{
    const struct entry none = {0}, hidden = {PTX, ZSTD, "?"}, hidden_cubin = {CUBIN, ZSTD, "?"};
    const struct entry quiet = {CUBIN, UNCOMPRESSED, "printf"};
    const struct entry quiet_ptx = {PTX, UNCOMPRESSED, "printf"};
    const struct entry loud = {CUBIN, UNCOMPRESSED, ".nv.info vprintf"};
    const struct entry loud_ptx = {PTX, UNCOMPRESSED, ".extern .func vprintf"};
    const struct entry lz4 = {PTX, LZ4, "?"}, loud_lz4 = {PTX, LZ4, "vprintf"};

    CHECK(!prints(none, none, none));
    /* What can be read decides. */
    CHECK(prints(loud, hidden, none) && prints(hidden, loud, none) && prints(loud_ptx, none, none));
    CHECK(!prints(quiet, hidden, none) && !prints(hidden, quiet, none));
    CHECK(!prints(quiet_ptx, none, none) && !prints(hidden, quiet_ptx, none));
    CHECK(prints(loud_lz4, none, none) && !prints(lz4, none, none));
    /* Nothing but PTX that cannot be read may print. */
    CHECK(prints(hidden, none, none) && prints(hidden, hidden, none));
    /* Compressed cubins, as libraries have: see guarantees.md. */
    CHECK(!prints(hidden_cubin, none, none) && !prints(hidden_cubin, hidden, none));
    CHECK(!prints(hidden, hidden_cubin, none) && prints(hidden_cubin, hidden, loud_ptx));
    /* Cut off, it is as long as it can be read. */
    (void)build(&hidden, 1);
    CHECK(!ag_image_bytes_print(image, HEADER_BYTES + 8));
    return 0;
}
