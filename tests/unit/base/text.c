/* base/text.c: sizes as people write them, sizes and times as people read them, JSON strings, names
 * that look alike. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

/* Reads numbers as the program's locale writes them: in some, "1.5GiB" would not be one. */
double strtod(const char *text, char **ret_end)
{
    (void)ret_end;
    CHECK_SAID(false, "strtod(\"%s\")", text);
    return 0;
}

static const struct {
    const char *text;
    uint64_t value;
    bool percent;
} good_sizes[] = {
    {"0", 0, false},
    {"1", 1, false},
    {"00012", 12, false},
    {"4096", 4096, false},
    {"4096b", 4096, false},
    {"64k", 64 << 10, false},
    {"64kB", 64 << 10, false},
    {"64KiB", 64 << 10, false},
    {"64kib", 64 << 10, false},
    {"1M", 1 << 20, false},
    {"1MiB", 1 << 20, false},
    {"2GiB", 2ull << 30, false},
    {"1.5GiB", 3ull << 29, false},
    {"0.5k", 512, false},
    {"7.0", 7, false},
    {"3TiB", 3ull << 40, false},
    {"4194303TiB", 4194303ull << 40, false},
    {"0%", 0, true},
    {"25%", 25, true},
    {"99.0%", 99, true},
    {"100%", 100, true},
    {"max", UINT64_MAX, false},
    {"MAX", UINT64_MAX, false},
};

static const char *const bad_sizes[] = {
    "",
    " ",
    " 1",
    "1 ",
    "1 GiB",
    "-1",
    "+1",
    "-0",
    ".5",
    "k",
    "GiB",
    "%",
    "1kk",
    "1kibb",
    "1ki",
    "1bb",
    "1gbi",
    "1x",
    "1iB",
    "1%%",
    "1%k",
    "1k%",
    "100.1%",
    "99.9%",
    "0.5%",
    "0.5",
    "1.9",
    "101%",
    "1e9%",
    "1e3",
    "maximum",
    "max1",
    "1max",
    "ma",
    "nan",
    "inf",
    "infinity",
    "1e",
    "1e999",
    "1e19",
    "99999999999999999999999999",
    "8388608TiB",
    "16777217TiB",
    "1e16TiB",
    "0x10",
    "0X10",
    "0x",
    "1,5k",
    "1'000",
    "1_000",
    "1\n",
    "\t1",
    "1;2",
    "\xff",
    "1\xff",
    "1\xc3\xa9",
    "%s%s%n",
    "1%n",
};

static void reads_sizes(void)
{
    for (size_t i = 0; i < N_OF(good_sizes); i++) {
        uint64_t value = 77;
        bool percent = !good_sizes[i].percent;

        CHECK_SAID(ag_text_parse_size(good_sizes[i].text, &value, &percent) == 0, "\"%s\"",
                   good_sizes[i].text);
        CHECK_SAID(value == good_sizes[i].value && percent == good_sizes[i].percent,
                   "\"%s\" gave %llu", good_sizes[i].text, (unsigned long long)value);
    }
    for (size_t i = 0; i < N_OF(bad_sizes); i++) {
        uint64_t value = 77;
        bool percent = true;

        CHECK_SAID(ag_text_parse_size(bad_sizes[i], &value, &percent) == -EINVAL, "\"%s\"",
                   bad_sizes[i]);
        CHECK_SAID(value == 77 && percent, "\"%s\" touched its results", bad_sizes[i]);
    }
}

/* A very long number, and every short text over an alphabet of what sizes are made of: nothing but
 * 0 and -EINVAL, and no percentage over 100. */
static void reads_hostile_sizes(void)
{
    static const char alphabet[] = "019.%kKiBbmtgxe-+ ";
    const size_t n = sizeof(alphabet) - 1;
    static char long_text[70000];
    uint64_t value = 0;
    bool percent = false;

    memset(long_text, '9', sizeof(long_text) - 1);
    CHECK(ag_text_parse_size(long_text, &value, &percent) == -EINVAL);
    memset(long_text, '0', sizeof(long_text) - 2);
    CHECK(ag_text_parse_size(long_text, &value, &percent) == 0 && value == 9);

    for (size_t i = 0; i < n * n * n * n; i++) {
        const char text[] = {alphabet[i % n], alphabet[i / n % n], alphabet[i / n / n % n],
                             alphabet[i / n / n / n], '\0'};
        int result = ag_text_parse_size(text, &value, &percent);

        CHECK_SAID(result == 0 || result == -EINVAL, "\"%s\"", text);
        CHECK_SAID(result || !percent || value <= 100, "\"%s\"", text);
        CHECK_SAID(result || (text[0] >= '0' && text[0] <= '9'), "\"%s\"", text);
    }
}

static void writes_sizes(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {1 << 20, "1.00 MiB"},
        {3ull << 29, "1.50 GiB"},
        {1ull << 40, "1.00 TiB"},
        {1ull << 50, "1024.00 TiB"},
        {UINT64_MAX, "16777216.00 TiB"},
    };
    char buffer[32], tiny[4] = "zzz";

    for (size_t i = 0; i < N_OF(cases); i++) {
        CHECK(ag_text_size(buffer, sizeof(buffer), cases[i].bytes) == buffer);
        CHECK_SAID(!strcmp(buffer, cases[i].text), "%llu is \"%s\", not \"%s\"",
                   (unsigned long long)cases[i].bytes, buffer, cases[i].text);
    }
    CHECK(!strcmp(ag_text_size(tiny, sizeof(tiny), 123456789), "117"));
}

static void writes_durations(void)
{
    static const struct {
        double nanoseconds;
        const char *text;
    } cases[] = {
        {0, "0 ns"},          {1, "1 ns"},         {999, "999 ns"},
        {1000, "1.00 us"},    {12300, "12.30 us"}, {1e6, "1.00 ms"},
        {1234567, "1.23 ms"}, {1e9, "1.00 s"},     {3.6e12, "3600.00 s"},
    };
    char buffer[32];

    for (size_t i = 0; i < N_OF(cases); i++) {
        CHECK(ag_text_duration(buffer, sizeof(buffer), cases[i].nanoseconds) == buffer);
        CHECK_SAID(!strcmp(buffer, cases[i].text), "%g is \"%s\", not \"%s\"", cases[i].nanoseconds,
                   buffer, cases[i].text);
    }
}

static void writes_json_strings(void)
{
#define BAD "\\ufffd"
    static const struct {
        const char *value, *json;
    } cases[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\""},
        {"\x01\n\t\x1f\x7f", "\"\\u0001\\u000a\\u0009\\u001f\\u007f\""},
        {"\xc3\xa9", "\"\xc3\xa9\""},                    /* two bytes */
        {"\xe2\x82\xac", "\"\xe2\x82\xac\""},            /* three */
        {"\xf0\x9f\x8e\x89", "\"\xf0\x9f\x8e\x89\""},    /* four */
        {"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""},    /* the last code point */
        {"\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""}, /* one behind it */
        {"\xed\x9f\xbf", "\"\xed\x9f\xbf\""},            /* before the surrogates */
        {"\xed\xa0\x80", "\"" BAD BAD BAD "\""},         /* a surrogate */
        {"\xc0\x80", "\"" BAD BAD "\""},                 /* NUL, written too long */
        {"\xc1\xbf", "\"" BAD BAD "\""},
        {"\xe0\x9f\xbf", "\"" BAD BAD BAD "\""},
        {"\xf0\x8f\xbf\xbf", "\"" BAD BAD BAD BAD "\""},
        {"\x80", "\"" BAD "\""}, /* alone */
        {"\xff\xfe", "\"" BAD BAD "\""},
        {"\xc3", "\"" BAD "\""}, /* cut off at the end */
        {"\xe2\x82", "\"" BAD BAD "\""},
        {"\xf0\x9f\x8e", "\"" BAD BAD BAD "\""},
        {"a\xc3"
         "b",
         "\"a" BAD "b\""},
        {"%s%n%d", "\"%s%n%d\""},
    };
#undef BAD

    for (size_t i = 0; i < N_OF(cases); i++) {
        struct ag_text text = {0};

        ag_text_add_json(&text, cases[i].value);
        CHECK_SAID(!strcmp(text.data, cases[i].json), "case %zu gave %s", i, text.data);
        CHECK(text.length == strlen(cases[i].json));
        ag_text_finish(&text);
        CHECK(text.data == NULL && text.length == 0);
    }
}

static void grows_and_writes(void)
{
    const char name[] = "unit_text.out";
    struct ag_text text = {0};
    char *back = malloc(4 << 20);
    size_t total = 0;
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

    CHECK(back && fd >= 0);
    CHECK(ag_text_write(&text, fd) == 0); /* nothing yet */
    for (unsigned i = 0; total < (2 << 20); i++) {
        total += (size_t)snprintf(back + total, 64, "line %u of %s\n", i, "several");
        ag_text_add(&text, "line %u of %s\n", i, "several");
    }
    CHECK(text.length == total && !text.truncated && text.capacity > total);
    CHECK(!memcmp(text.data, back, total) && !text.data[total]);
    CHECK(ag_text_write(&text, fd) == 0);
    memset(back, 0, total);
    CHECK(pread(fd, back, total, 0) == (ssize_t)total && !memcmp(text.data, back, total));
    close(fd);
    unlink(name);
    CHECK(ag_text_write(&text, fd) == -EBADF);
    fd = open("/dev/full", O_WRONLY);
    CHECK(fd < 0 || ag_text_write(&text, fd) == -ENOSPC);
    if (fd >= 0)
        close(fd);
    ag_text_finish(&text);
    ag_text_finish(&text);
    free(back);
}

/* A pipe that nobody reads, and one that somebody reads meanwhile. */
static void waits_for_a_reader_only_so_long(void)
{
    static char bytes[100000], back[sizeof(bytes)];
    size_t got = 0;
    int ends[2], status = 0;
    pid_t writer;

    memset(bytes, 'x', sizeof(bytes));
    CHECK(!pipe(ends) && fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
    CHECK(ag_text_write_within(ends[1], bytes, 10, 0) == 0);
    CHECK(ag_text_write_within(ends[1], bytes, sizeof(bytes), 20) == -ETIMEDOUT);
    while (got < 10)
        got += (size_t)read(ends[0], back, 10 - got);
    writer = fork();
    if (!writer)
        _exit(ag_text_write_within(ends[1], bytes, sizeof(bytes), 60000) != 0);
    close(ends[1]);
    for (ssize_t n = 1; n > 0; got += (size_t)n)
        n = read(ends[0], back, sizeof(back));
    CHECK(waitpid(writer, &status, 0) == writer && status == 0);
    CHECK(got >= 10 + sizeof(bytes) && got < 10 + 2 * sizeof(bytes));
    close(ends[0]);
    CHECK(ag_text_write_within(ends[1], bytes, 1, 0) == -EBADF);
    CHECK(!pipe(ends) && !close(ends[0]));
    CHECK(ag_text_write_within(ends[1], bytes, 1, 60000) == -EPIPE);
    close(ends[1]);
}

/* The textbook's recursion, as a judge over short words. */
static unsigned slow_distance(const char *a, const char *b)
{
    unsigned change, add, take, best;

    if (!*a || !*b)
        return (unsigned)(strlen(a) + strlen(b));
    change = slow_distance(a + 1, b + 1) + ((*a | 32) != (*b | 32));
    add = slow_distance(a, b + 1) + 1;
    take = slow_distance(a + 1, b) + 1;
    best = change < add ? change : add;
    best = best < take ? best : take;
    if ((a[0] | 32) == (b[1] | 32) && (a[1] | 32) == (b[0] | 32)) {
        unsigned swap = slow_distance(a + 2, b + 2) + 1;

        best = swap < best ? swap : best;
    }
    return best;
}

static void compares_english_letters(void)
{
    for (int i = 1; i < 256; i++) {
        const char a[] = {(char)i, '\0'};

        for (int j = 1; j < 256; j++) {
            const char b[] = {(char)j, '\0'};
            bool letters = ((i | 32) >= 'a' && (i | 32) <= 'z' && (i | 32) == (j | 32));

            CHECK_SAID(ag_text_same(a, b) == (i == j || letters), "%d and %d", i, j);
        }
    }
    CHECK(ag_text_same("", "") && !ag_text_same("", "a") && !ag_text_same("ab", "A"));
    CHECK(ag_text_begins("NVTX:step", "nvtx:") && ag_text_begins("nvtx:", "NVTX:"));
    CHECK(!ag_text_begins("nvtx", "nvtx:") && ag_text_begins("", "") && !ag_text_begins("", "a"));
}

static void measures_distance(void)
{
    uint64_t state = 1;
    char at_limit[64], over[65];

    CHECK(ag_text_distance("", "") == 0);
    CHECK(ag_text_distance("ALLOGRAFT_POLICY", "allograft_policy") == 0);
    CHECK(ag_text_distance("ALLOGRAFT_POLYCI", "ALLOGRAFT_POLICY") == 2);
    CHECK(ag_text_distance("ALLOGRAFT_POLCIY", "ALLOGRAFT_POLICY") == 1);
    CHECK(ag_text_distance("kitten", "sitting") == 3);
    memset(at_limit, 'a', sizeof(at_limit) - 1);
    at_limit[sizeof(at_limit) - 1] = '\0';
    memset(over, 'a', sizeof(over) - 1);
    over[sizeof(over) - 1] = '\0';
    CHECK(ag_text_distance(at_limit, "") == 63 && ag_text_distance("", at_limit) == 63);
    CHECK(ag_text_distance(at_limit, at_limit) == 0);
    CHECK(ag_text_distance(over, "a") == UINT_MAX && ag_text_distance("a", over) == UINT_MAX);
    for (unsigned i = 0; i < 3000; i++) {
        char a[7] = "", b[7] = "";

        for (size_t j = chance_below(&state, sizeof(a)); j-- > 0;)
            a[j] = "abcABC"[chance_below(&state, 6)];
        for (size_t j = chance_below(&state, sizeof(b)); j-- > 0;)
            b[j] = "abcABC"[chance_below(&state, 6)];
        CHECK_SAID(ag_text_distance(a, b) == slow_distance(a, b), "\"%s\" and \"%s\"", a, b);
    }
}

static void finds_near_names(void)
{
    static const struct {
        const char *written, *expected;
    } cases[] = {{"polcy", "policy"}, {"ste", "set"},     {"gra", "graph"},  {"POLICY", "policy"},
                 {"pounds", NULL},    {"xyz", NULL},      {"", NULL},        {"se", "set"},
                 {"p", NULL},         {"stats", "stats"}, {"statt", "stats"}};
    static const char *const names[] = {"policy", "stats", "graph", "set"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ag_text_nearest nearest = {.written = cases[i].written};

        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
            ag_text_nearest_try(&nearest, names[k]);
        CHECK_SAID(!nearest.name == !cases[i].expected &&
                       (!nearest.name || !strcmp(nearest.name, cases[i].expected)),
                   "\"%s\": %s", cases[i].written, nearest.name ? nearest.name : "none");
    }
}

static void suggests_words(void)
{
    static const struct {
        const char *written, *allowed, *expected;
    } cases[] = {
        {"hots", "device|host|numa:N|none|1..9|off", "; did you mean host?"},
        {"devcie", "device|host|numa:N|none|1..9|off", "; did you mean device?"},
        {"of", "device|host|numa:N|none|1..9|off", "; did you mean off?"},
        {"nmua:3", "device|host|numa:N|none", "; did you mean numa:N?"},
        {"numa:x", "device|host|numa:N|none", ""},
        {"1..8", "1..9|BYTES|N%", ""},
        {"natve", "auto, pool, native, managed, backend=", "; did you mean native?"},
        {"backend", "auto, pool, native, managed, backend=", "; did you mean backend=?"},
        {"", "a|b", ""},
        {"x", "", ""},
    };
    char text[80];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK(ag_text_suggest(text, sizeof(text), cases[i].written, cases[i].allowed) == text);
        CHECK_SAID(!strcmp(text, cases[i].expected), "\"%s\": \"%s\"", cases[i].written, text);
    }
}

/* A file that is longer than the room, and none. */
static void reads_small_files(void)
{
    char text[8], none[4] = "abc";

    ag_text_read_file("/proc/version", text, sizeof(text));
    CHECK(!strcmp(text, "Linux v")); /* cut: there is a NUL behind it */
    ag_text_read_file("/proc/self/nothing", none, sizeof(none));
    CHECK(!*none);
}

int main(void)
{
    reads_small_files();
    finds_near_names();
    suggests_words();
    reads_sizes();
    reads_hostile_sizes();
    writes_sizes();
    writes_durations();
    writes_json_strings();
    grows_and_writes();
    compares_english_letters();
    waits_for_a_reader_only_so_long();
    measures_distance();
    return 0;
}
