/* screen.c: shows a full-screen page on the terminal, and restores the terminal: see top.h.
 *
 * Signal handlers only set flags. Signals are blocked except in ppoll(), so that none is lost
 * between the check of the flags and the wait. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "tools/top/top.h"

const char screen_line_end[] = "\033[K\n"; /* clears the rest of the line */

/* Alternate screen, no cursor, no wrapping; and back. */
static const char enter[] = "\033[?1049h\033[?25l\033[?7l\033[H\033[J";
static const char leave[] = "\033[?7h\033[?25h\033[?1049l";

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};
#define N_WATCHED (sizeof(watched) / sizeof(watched[0]))

static struct termios before;
static struct sigaction actions_before[N_WATCHED];
static sigset_t mask_before;
static volatile sig_atomic_t came[N_WATCHED];

static void note_signal(int signal)
{
    for (size_t i = 0; i < N_WATCHED; i++) {
        if (watched[i] == signal)
            came[i] = 1;
    }
}

static bool write_terminal(const char *bytes, size_t n)
{
    while (n) {
        ssize_t written = ag_text_write_bytes(STDOUT_FILENO, bytes, n);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

static void enter_screen(void)
{
    struct termios mode = before;

    mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    mode.c_cc[VMIN] = 0;
    mode.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &mode);
    (void)write_terminal(enter, strlen(enter));
}

static void leave_screen(void)
{
    (void)write_terminal(leave, strlen(leave));
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

bool screen_begin(void)
{
    struct sigaction action = {.sa_handler = note_signal};
    sigset_t blocked;

    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before))
        return false;
    (void)sigemptyset(&blocked);
    for (size_t i = 0; i < N_WATCHED; i++) {
        (void)sigaddset(&blocked, watched[i]);
        (void)sigaction(watched[i], &action, &actions_before[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &blocked, &mask_before);
    enter_screen();
    return true;
}

void screen_end(void)
{
    leave_screen();
    for (size_t i = 0; i < N_WATCHED; i++)
        (void)sigaction(watched[i], &actions_before[i], NULL);
    (void)sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

void screen_size(unsigned *ret_columns, unsigned *ret_lines)
{
    struct winsize size = {0};

    *ret_columns = 80;
    *ret_lines = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row)
        return;
    *ret_columns = size.ws_col;
    *ret_lines = size.ws_row;
}

bool screen_show(const struct ag_text *text)
{
    static const char home[] = "\033[H", rest[] = "\033[J";
    struct ag_text page = {0};
    size_t length = text->length;
    bool good;

    /* A newline in the last line would scroll the screen. */
    if (length)
        length--;
    ag_text_add(&page, "%s%.*s%s", home, (int)length, text->data ? text->data : "", rest);
    good = !page.truncated && write_terminal(page.data, page.length);
    ag_text_finish(&page);
    return good;
}

/* Stops the process as SIGTSTP does by default; the shell has the terminal meanwhile. */
static void stop_process(void)
{
    leave_screen();
    (void)kill(getpid(), SIGSTOP);
    enter_screen();
}

static enum screen_event read_flags(void)
{
    enum screen_event event = SCREEN_TIME;

    for (size_t i = 0; i < N_WATCHED; i++) {
        if (!came[i])
            continue;
        came[i] = 0;
        if (watched[i] == SIGTSTP)
            stop_process();
        if (watched[i] != SIGTSTP && watched[i] != SIGWINCH)
            return SCREEN_QUIT;
        event = SCREEN_RESIZED;
    }
    return event;
}

/* Was q pressed? A terminal that went away quits, too. */
static bool asks_to_quit(void)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

    return n <= 0 ? n == 0 || errno != EAGAIN
                  : memchr(keys, 'q', (size_t)n) || memchr(keys, 'Q', (size_t)n);
}

enum screen_event screen_wait(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)},
                    begin, now;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    double elapsed;
    int ready;

    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        enum screen_event event;

        ready = ppoll(&input, 1, &left, &mask_before);
        event = read_flags();
        if (event != SCREEN_TIME)
            return event;
        if (ready > 0 && asks_to_quit())
            return SCREEN_QUIT;
        if (!ready)
            return SCREEN_TIME;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        elapsed = (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9;
        if (elapsed >= seconds)
            return SCREEN_TIME;
        left.tv_sec = (time_t)(seconds - elapsed);
        left.tv_nsec = (long)((seconds - elapsed - (double)left.tv_sec) * 1e9);
    }
}
