/* tools/base/mapping.c: a mapped file may lose its end, and what is missing reads as zeros; another
 * fault is none of its business. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/check.h"
#include "tools/base/mapping.h"

#define BYTES 300000u /* some pages of any size, and a part of one */

/* A file of `n` letters that has no name any more. */
static int make_file(size_t n)
{
    char path[] = "/tmp/allograft-mapping-XXXXXX";
    int fd = mkstemp(path);
    char *text = malloc(n + 1);

    if (fd < 0 || !text)
        exit(77);
    (void)unlink(path);
    memset(text, 'x', n);
    if (write(fd, text, n) != (ssize_t)n)
        exit(77);
    free(text);
    return fd;
}

static size_t count_letters(const struct mapping *mapping)
{
    size_t n = 0;

    for (size_t i = 0; i < mapping->n; i++)
        n += mapping->bytes[i] == 'x';
    return n;
}

static void test_whole(void)
{
    struct mapping mapping;
    int fd = make_file(BYTES);

    CHECK(!mapping_begin(&mapping, fd));
    CHECK(mapping.n == BYTES && count_letters(&mapping) == BYTES);
    CHECK(!mapping_is_torn(&mapping));
    /* One that grows is read as far as it went. */
    CHECK(!ftruncate(fd, 2 * BYTES) && !mapping_is_torn(&mapping));
    close(fd);
    mapping_end(&mapping);
}

static void test_shortened(size_t left)
{
    struct mapping torn, other;
    int fd = make_file(BYTES), other_fd = make_file(BYTES);

    CHECK(!mapping_begin(&torn, fd) && !mapping_begin(&other, other_fd));
    CHECK(!ftruncate(fd, (off_t)left));
    CHECK(count_letters(&torn) == left && count_letters(&other) == BYTES);
    CHECK(mapping_is_torn(&torn) && !mapping_is_torn(&other));
    /* Also when it is as long as before again. */
    CHECK(!ftruncate(fd, BYTES));
    CHECK(left + 65536 > BYTES || mapping_is_torn(&torn));
    mapping_end(&torn);
    mapping_end(&other);
    close(fd);
    close(other_fd);
}

static void test_bounds(void)
{
    struct mapping mappings[40];
    int fd = make_file(1), empty = make_file(0), n = 0;

    CHECK(!mapping_begin(&mappings[0], empty) && !mappings[0].n && !mapping_is_torn(&mappings[0]));
    mapping_end(&mappings[0]);
    CHECK(mapping_begin(&mappings[0], -1) == -EBADF);
    while (n < 40 && !mapping_begin(&mappings[n], fd))
        n++;
    CHECK(n >= 17 && n < 40 &&
          mapping_begin(&mappings[39], fd) == -EMFILE); /* the traces of a page, and a module */
    while (n)
        mapping_end(&mappings[--n]);
    CHECK(!mapping_begin(&mappings[0], fd));
    mapping_end(&mappings[0]);
    close(fd);
    close(empty);
}

/* A fault beside what is mapped ends the process as ever. */
static void test_of_others(void)
{
    int fd = make_file(BYTES), status = 0;
    struct mapping mapping;
    pid_t child = fork();

    if (!child) {
        volatile char *others = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);

        if (mapping_begin(&mapping, fd) || others == MAP_FAILED || ftruncate(fd, 0))
            _exit(1);
        _exit(mapping.bytes[BYTES - 1] || others[BYTES - 1]);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    close(fd);
}

int main(void)
{
    test_whole();
    test_shortened(0);
    test_shortened(100000);
    test_shortened(BYTES - 1);
    test_bounds();
    test_of_others();
    return 0;
}
