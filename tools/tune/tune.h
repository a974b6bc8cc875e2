/* tune.h: the trials of `allograft tune`: one run, the comparison of outputs, and the judgement. */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/base/text.h"

#define TUNE_MOST_RUNS 99u

enum tune_metric { TUNE_TIME, TUNE_PEAK, TUNE_BOTH };

/* One set of settings, and the results of its runs. */
struct trial {
    const char *name;        /* for people */
    const char *settings[4]; /* "ALLOGRAFT_POLICY=pool", ..., NULL; none: without the library */
    bool wants_shortage;     /* it differs only where an allocation finds no memory */
    uint64_t times_ns[TUNE_MOST_RUNS];
    unsigned n;          /* runs that count */
    uint64_t peak_bytes; /* of device memory; 0: not known */
    const char *fault;   /* why it is disqualified, or NULL */
    /* Filled in by tune_judge(): */
    uint64_t median_ns, spread_ns; /* spread: half the interquartile range; with one run, an eighth
                                    * of its time */
};

/* Fills in the medians and spreads of all trials, the first of which is the program as it is.
 * Returns the index of the best: 0 unless another is better by more than chance explains (2 %, or
 * twice the larger spread). Ties (within 1 %, or the spread) go to the first, which is simpler. */
unsigned tune_judge(struct trial *trials, unsigned n, enum tune_metric metric);
/* How much better than the first trial: 2 is twice as good; 0: not known. */
double tune_gain(const struct trial *trials, unsigned i, enum tune_metric metric);

/* The trial that looked best, where none is better by more than chance; 0 if none did. */
unsigned tune_unsure(const struct trial *trials, unsigned n, enum tune_metric metric);

/* What the trials came to. */
struct tune_result {
    const struct trial *trials; /* judged */
    unsigned n, best, runs;
    enum tune_metric metric;
    bool is_unused;   /* nothing of the program used CUDA */
    bool was_stopped; /* before all runs were done */
    char **argv;      /* the program and its arguments */
};

/* What the trials came to in words, a line each; never empty unless memory ran out. */
struct tune_verdict {
    struct ag_text gained, held_back, to_try;
};

/* Pure; the caller finishes the verdict. */
void tune_verdict_find(const struct tune_result *result, struct tune_verdict *ret);
void tune_verdict_finish(struct tune_verdict *verdict);

/* The output of one run: a hash of each line, or of all of it. */
struct tune_text {
    uint64_t *lines; /* 0 for a line that reports a time, which is not compared */
    size_t n, room;
};

/* Reads the file from its beginning; `whole`: as one line. False, with *ret empty, if it cannot be
 * read. */
bool tune_text_read(int fd, bool whole, struct tune_text *ret);
void tune_text_free(struct tune_text *text);
/* Does the line have a number, and a word or a unit of times or rates? */
bool tune_reports_time(const char *line, size_t n);

/* The output that is compared, and what the program as it is writes. */
struct tune_output {
    const char *file; /* a file that the program writes; NULL: its standard output */
    bool ignored, known;
    struct tune_text text;
    int status; /* exit status of the program */
};

/* Learns from another output of the program as it is: lines that differ from earlier outputs are no
 * longer compared. If no line is left, or the number of lines differs, the output is ignored. The
 * first text is moved from, which leaves it empty. */
void tune_output_learn(struct tune_output *output, struct tune_text *text);
/* Does the text differ in a line that the program as it is always writes alike? */
bool tune_output_differs(const struct tune_output *output, const struct tune_text *text);
/* The number of lines that are not compared, of output->text.n. */
size_t tune_output_left_out(const struct tune_output *output);

/* One run of the program. Its standard output is read and not shown. */
struct tune_run {
    uint64_t ns, peak_bytes;
    bool simulated;        /* it ran on the simulated driver, whose times mean nothing */
    bool ran_short;        /* some allocation found no memory of the device, if that was counted */
    struct tune_text text; /* the caller frees it */
    int status;            /* as waitpid() has it */
    unsigned n_reports;    /* how many processes used CUDA, if that was counted */
    bool timed_out, has_output;
    char complaint[200]; /* the last line of its standard error, or why it did not start */
};

/* Renames the file that is to be compared, before the program runs: it may be an old one, or an
 * input of the program that was named by mistake. False after a line on stderr. */
bool tune_set_aside(const char *path);
/* Removes that file if the program wrote a new one, else renames it back; called afterwards. */
void tune_set_back(const char *path, bool written);

/* Runs argv with the settings, for at most `timeout_ns`; `library` is preloaded unless NULL. With
 * `counts`, the peak is read from the reports. False if it could not be started. */
bool tune_run(char **argv, const char *library, const char *const *settings, bool counts,
              const char *output_file, uint64_t timeout_ns, struct tune_run *ret);
/* In a signal handler: what runs gets this signal, now or as soon as it is started. */
void tune_run_end(int signal);

#endif
