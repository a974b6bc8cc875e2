/* tune.h: trying settings on a program: one run, many runs, and which is best. */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUNE_MOST_RUNS 99u

enum tune_metric { TUNE_TIME, TUNE_PEAK, TUNE_BOTH };

/* A way to run the program, and how that went. */
struct trial {
    const char *name;        /* for people */
    const char *settings[4]; /* "ALLOGRAFT_POLICY=pool", ..., NULL; none: without the library */
    uint64_t times_ns[TUNE_MOST_RUNS];
    unsigned n;          /* runs that count */
    uint64_t peak_bytes; /* of memory of devices; 0 when not known */
    const char *fault;   /* why it is out of the question, or NULL */
    /* Filled in by tune_judge(): */
    uint64_t median_ns, spread_ns; /* spread: half of what the middle half of the runs covers; an
                                    * eighth of the time where one run tells nothing of it */
};

/* Fills in medians and spreads of all trials; the first one is the program as it is. Which is best,
 * by index: 0 unless another is better by more than chance would have it (2 %, or twice the larger
 * spread), and of those about as good (1 %, or the spread) the first. */
unsigned tune_judge(struct trial *trials, unsigned n, enum tune_metric metric);
/* How much better than the first: 2 is twice as good; 0 when that cannot be told. */
double tune_gain(const struct trial *trials, unsigned i, enum tune_metric metric);

/* Where nothing is better by more than chance: the one that looked so most, or 0 when none did. */
unsigned tune_unsure(const struct trial *trials, unsigned n, enum tune_metric metric);

/* What one run wrote: a hash for each line, or one for all of it. */
struct tune_text {
    uint64_t *lines; /* 0 for one that tells a time: it is not compared */
    size_t n, room;
};

/* Reads it from the file's begin; `whole`: as one line. False, and nothing is kept, when it cannot
 * be read. */
bool tune_text_read(int fd, bool whole, struct tune_text *ret);
void tune_text_free(struct tune_text *text);
/* Has the line a number, and a word or a unit of times and rates? */
bool tune_tells_time(const char *line, size_t n);

/* What is compared, and with what it was as the program is. */
struct tune_output {
    const char *file; /* a file that the program writes; NULL: its standard output */
    bool ignored, known;
    struct tune_text text;
    int status; /* of the program */
};

/* The program as it is wrote this. Lines that differ from what it wrote before are compared no
 * more; where none is left, or their number differs, the output is ignored. The first text is taken
 * over, and what is left in its place is empty. */
void tune_output_learn(struct tune_output *output, struct tune_text *text);
/* Does it differ where the program as it is always writes the same? */
bool tune_output_differs(const struct tune_output *output, const struct tune_text *text);
/* Lines that are not compared, of output->text.n. */
size_t tune_output_left_out(const struct tune_output *output);

/* One run of the program. Its standard output is looked at and not shown. */
struct tune_run {
    uint64_t ns, peak_bytes;
    bool simulated;        /* a report tells of the simulated driver, whose times mean nothing */
    struct tune_text text; /* the caller frees it */
    int status;            /* as waitpid() has it */
    unsigned n_reports;    /* of processes that used CUDA, if they were counted */
    bool timed_out, has_output;
    char complaint[200]; /* the last line of its standard error */
};

/* Puts the file that is compared aside, before anything ran: it may be an old one, or what the
 * program reads, named by mistake. False after a line on stderr. */
bool tune_set_aside(const char *path);
/* Afterwards: it may go where the program wrote a new one, else it comes back. */
void tune_settle(const char *path, bool written);

/* Runs argv with the settings, for at most `timeout_ns`; `library` is preloaded unless NULL. Its
 * reports, if `counts`, tell the peak. False when it could not be started. */
bool tune_run(char **argv, const char *library, const char *const *settings, bool counts,
              const char *output_file, uint64_t timeout_ns, struct tune_run *ret);

#endif
