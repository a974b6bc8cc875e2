/* Feeds a fuzzer's target every file of the folders named, and variations of each that are the same
 * in every run: the test where libFuzzer is not to be had. AddressSanitizer sees a third of them
 * and the build without it a tenth, or both so many percent as FUZZ_SHARE says. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

#define LONGEST      65536u
#define N_VARIATIONS 3000u
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED false
#endif

static uint64_t state = 1;
static unsigned n_files, n_variations;

static uint64_t chance_below(uint64_t n)
{
    uint64_t mixed = state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) % n;
}

/* One small change: a byte, a bit, a piece left out, doubled, or set to one value. */
static size_t vary(uint8_t *data, size_t size)
{
    size_t at = size ? chance_below(size) : 0, n = size ? 1 + chance_below(size - at) : 0;

    switch (chance_below(6)) {
    case 0:
        if (size)
            data[at] = (uint8_t)chance_below(256);
        return size;
    case 1:
        if (size)
            data[at] ^= (uint8_t)(1u << chance_below(8));
        return size;
    case 2:
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 3:
        if (size + n > LONGEST)
            return size;
        memmove(data + at + n, data + at, size - at);
        return size + n;
    case 4:
        memset(data + at, (int)chance_below(256), n < 8 ? n : 8);
        return size;
    default:
        if (size == LONGEST)
            return size;
        data[size] = "0123456789.%kKMGTiB=\"\\\n*?:;,<>#"[chance_below(31)];
        return size + 1;
    }
}

static void feed(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a byte too far */

    FUZZ_CHECK(exact);
    if (size)
        memcpy(exact, data, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void feed_file(int folder, const char *name)
{
    static uint8_t original[LONGEST], varied[LONGEST];
    int fd = openat(folder, name, O_RDONLY);
    struct stat status;
    ssize_t size;

    FUZZ_CHECK(fd >= 0 && !fstat(fd, &status));
    size = S_ISREG(status.st_mode) ? read(fd, original, sizeof(original)) : -1;
    close(fd);
    if (size < 0)
        return;
    n_files++;
    feed(original, (size_t)size);
    for (unsigned i = 0; i < n_variations; i++) {
        size_t now = (size_t)size;

        memcpy(varied, original, now);
        for (uint64_t n = 1 + chance_below(4); n > 0; n--)
            now = vary(varied, now);
        feed(varied, now);
    }
}

int main(int argc, char **argv)
{
    const char *share = getenv("FUZZ_SHARE");
    unsigned percent = share ? (unsigned)strtoul(share, NULL, 10) : SANITIZED ? 33 : 10;

    n_variations = N_VARIATIONS * percent / 100;
    feed(NULL, 0);
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        const struct dirent *entry;

        FUZZ_CHECK(folder);
        while ((entry = readdir(folder)))
            feed_file(dirfd(folder), entry->d_name);
        closedir(folder);
    }
    printf("%u files\n", n_files);
    return n_files ? 0 : 1;
}
