/* ELF files that a trace names: whatever the bytes, what is found lies in them. */
#include "tools/trace/elf_symbols.h"

#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t offsets[] = {0, 0x10, 0x1000, 0x1010, 0x1130, 1u << 20, UINT64_MAX};
    const struct elf_file file = {(const char *)data, size};
    char id[32];

    (void)elf_is_one(&file);
    memset(id, 'x', sizeof(id));
    elf_build_id(&file, id, sizeof(id));
    FUZZ_CHECK(strnlen(id, sizeof(id)) < sizeof(id) && strlen(id) % 2 == 0);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        const char *name = elf_function_at(&file, offsets[i]);

        FUZZ_CHECK(!name || (name >= file.bytes && name + strlen(name) < file.bytes + size));
    }
    return 0;
}
