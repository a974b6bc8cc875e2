/* base/log.c: levels, one write a line, lines that are too long, errno. */
#include "interpose/core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/check.h"

static int ends[2];

/* What was written to stderr since the last call. */
static const char *said(void)
{
    static char text[8192];
    ssize_t got = read(ends[0], text, sizeof(text) - 1);

    text[got > 0 ? got : 0] = '\0';
    return text;
}

static void *const nowhere = NULL;

int main(void)
{
    static char long_text[4000];
    int kept = dup(STDERR_FILENO), saved;
    const char *line;

    CHECK(kept >= 0 && !pipe(ends) && !fcntl(ends[0], F_SETFL, O_NONBLOCK));
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);

    ag_log_info("not said: %d", 1); /* the level is "warn" until somebody sets it */
    ag_log_debug("not said: %d", 1);
    CHECK(!*said());
    ag_log_warn("a %s of %d", "word", 7);
    CHECK(!strcmp(said(), "allograft: a word of 7\n"));
    ag_log_set_level(AG_LOG_DEBUG);
    ag_log_debug("now");
    ag_log_error("and this");
    CHECK(!strcmp(said(), "allograft: now\nallograft: and this\n"));

    memset(long_text, 'x', sizeof(long_text) - 1);
    ag_log_info("%s", long_text);
    line = said();
    CHECK(strlen(line) <= 1024 && strlen(line) > 1000 && line[strlen(line) - 1] == '\n');
    CHECK(strchr(line, '\n') == line + strlen(line) - 1);

    ag_log_set_level(AG_LOG_OFF);
    ag_log_error("not said");
    CHECK(!*said());

    ag_log_set_level(AG_LOG_WARN);
    errno = ENOTTY;
    ag_log_warn("errno stays");
    CHECK(errno == ENOTTY && *said());
    CHECK(!close(STDERR_FILENO));
    ag_log_warn("nobody hears: %p", nowhere);
    saved = errno;
    CHECK(dup2(kept, STDERR_FILENO) == STDERR_FILENO);
    CHECK(saved == ENOTTY);
    return 0;
}
