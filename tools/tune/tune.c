/* tune.c: `allograft tune` runs a program under several settings and prints the best. */
#include "tools/tune/tune.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/unused.h"
#include "tools/base/complain.h"
#include "tools/base/html.h"
#include "tools/base/output.h"
#include "tools/line/command_line.h"
#include "tools/run/environment.h"

static struct trial trials[] = {
    {.name = "as it is", .settings = {NULL}},
    {.name = "auto", .settings = {"ALLOGRAFT_POLICY=auto", NULL}},
    {.name = "pool", .settings = {"ALLOGRAFT_POLICY=pool", NULL}},
    {.name = "pool, frees that wait",
     .settings = {"ALLOGRAFT_POLICY=pool", "ALLOGRAFT_FREE=sync", NULL}},
    {.name = "managed", .settings = {"ALLOGRAFT_POLICY=managed", NULL}},
    {.name = "graphs", .settings = {"ALLOGRAFT_POLICY=native", "ALLOGRAFT_GRAPH=all", NULL}},
    {.name = "auto and graphs", .settings = {"ALLOGRAFT_POLICY=auto", "ALLOGRAFT_GRAPH=all", NULL}},
    {.name = "auto, pinned memory kept",
     .settings = {"ALLOGRAFT_POLICY=auto", "ALLOGRAFT_HOST=cache", NULL}},
    {.name = "auto, OOM=error",
     .settings = {"ALLOGRAFT_POLICY=auto", "ALLOGRAFT_OOM=error", NULL},
     .wants_shortage = true},
    {.name = "auto, OOM=spill",
     .settings = {"ALLOGRAFT_POLICY=auto", "ALLOGRAFT_OOM=spill", NULL},
     .wants_shortage = true},
    {.name = "auto, OOM=page",
     .settings = {"ALLOGRAFT_POLICY=auto", "ALLOGRAFT_OOM=page", NULL},
     .wants_shortage = true},
};
#define MOST_TRIALS ((unsigned)(sizeof(trials) / sizeof(trials[0])))
#define MOST_DOUBTS 2u /* more runs as it is, before a different output counts as one */

static struct {
    unsigned runs;
    enum tune_metric metric;
    struct tune_output output;
    uint64_t timeout_ns;
    struct output write, html; /* their paths are NULL unless they were asked for */
    bool json, simulate;
    char **argv;
} options = {
    .runs = 5,
    .write = {.command = "tune", .option = "--write", .kind = OUTPUT_SETTINGS},
    .html = {.command = "tune", .option = "--html", .kind = OUTPUT_PAGE},
};

/* The number of trials: where memory does not run short, the last ones are left out. */
static unsigned n_trials;

static bool simulated; /* the driver is, with or without --simulate: no times are shown */
static bool unused;    /* nothing of the program used CUDA */

static volatile sig_atomic_t stopped;

/* A terminal sends its Ctrl-C to the program as well. */
static void note_stop(int signal)
{
    stopped = 1;
    if (signal != SIGINT)
        tune_run_end(signal);
}

/* Begins or ends catching the signals that stop early; one that is ignored, as nohup has it, stays
 * so. */
static void catch_stops(bool begins)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    static struct sigaction before[sizeof(numbers) / sizeof(numbers[0])];
    const struct sigaction action = {.sa_handler = note_stop};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!begins)
            (void)sigaction(numbers[i], &before[i], NULL);
        else if (!sigaction(numbers[i], NULL, &before[i]) && before[i].sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
    }
}

/* ---- options ---- */

/* stdout, none or file:PATH. */
static int parse_compare(const char *value)
{
    bool is_file = !strncmp(value, "file:", 5) && value[5];

    if (!is_file && strcmp(value, "stdout") != 0 && strcmp(value, "none") != 0) {
        command_complain("tune: --compare=%s is not allowed; allowed: stdout|file:PATH|none",
                         value);
        return STATUS_USAGE;
    }
    options.output.ignored = !strcmp(value, "none");
    options.output.file = is_file ? value + 5 : NULL;
    return STATUS_OK;
}

/* On the simulated driver only memory can be compared. */
static int refuse_times(int status)
{
    command_complain("tune: times mean nothing on the simulated driver; --metric peak compares "
                     "memory");
    return status;
}

/* The other values have been checked against commands.def. */
static int read_tune_words(const struct command_line *line)
{
    int status = STATUS_OK;

    options.argv = line->words;
    for (size_t i = 0; status == STATUS_OK && i < line->n_given; i++) {
        const char *value = line->given[i].value;

        switch (line->given[i].option) {
        case OPTION_tune_runs:
            options.runs = (unsigned)atoi(value);
            break;
        case OPTION_tune_timeout:
            options.timeout_ns = strtoull(value, NULL, 10) * 1000000000u;
            break;
        case OPTION_tune_metric:
            options.metric = (enum tune_metric)ag_text_choice(value, "time|peak|both");
            break;
        case OPTION_tune_compare:
            status = parse_compare(value);
            break;
        case OPTION_tune_write:
            options.write.path = value;
            break;
        case OPTION_tune_html:
            options.html.path = value;
            break;
        case OPTION_tune_force:
            options.write.force = options.html.force = true;
            break;
        case OPTION_tune_simulate:
            options.simulate = true;
            break;
        default:
            options.json = true;
        }
    }
    if (status == STATUS_OK && options.simulate && options.metric != TUNE_PEAK)
        return refuse_times(STATUS_USAGE);
    return status;
}

/* ---- running ---- */

static void show_progress(unsigned done, unsigned all, uint64_t began, const char *name)
{
    char bar[31], left[32] = "";
    unsigned length = done < all ? done * 30 / all : 30;

    if (!isatty(STDERR_FILENO))
        return;
    memset(bar, '-', 30);
    memset(bar, '#', length);
    bar[30] = '\0';
    if (done && done < all)
        ag_text_duration(left, sizeof(left), (double)(ag_clock_ns() - began) / done * (all - done));
    fprintf(stderr, "\r\033[K[%s] %u of %u%s%s%s  %s", bar, done, all, *left ? ", about " : "",
            left, *left ? " left" : "", name);
    if (done == all)
        fputs("\r\033[K", stderr);
    fflush(stderr);
}

/* Runs the program as it is once more, to learn which lines are always the same. */
static bool learn_same_lines(void)
{
    static const char *const none[] = {NULL};
    struct tune_run run;

    if (!tune_run(options.argv, NULL, none, false, options.output.file, options.timeout_ns, &run))
        return false;
    if (!stopped && !run.timed_out && run.status == options.output.status)
        tune_output_learn(&options.output, &run.text);
    tune_text_free(&run.text);
    return !stopped;
}

/* Why the run does not count, or NULL. A different output is a fault only if further runs of the
 * program as it is do not differ there, too. */
static const char *fault_of(const struct tune_run *run)
{
    if (run->timed_out)
        return "took too long";
    if (run->status != options.output.status)
        return WIFSIGNALED(run->status) ? "ended by a signal" : "different exit status";
    for (unsigned i = 0; i < MOST_DOUBTS && tune_output_differs(&options.output, &run->text); i++) {
        if (!learn_same_lines())
            break;
    }
    return !stopped && tune_output_differs(&options.output, &run->text) ? "DIFFERENT OUTPUT" : NULL;
}

static bool is_usable(const struct tune_run *run)
{
    bool signalled = WIFSIGNALED(run->status);

    if (run->status)
        command_complain("tune: %s fails without Allograft (%s %d)%s%s", options.argv[0],
                         signalled ? "signal" : "exit status",
                         signalled ? WTERMSIG(run->status) : WEXITSTATUS(run->status),
                         *run->complaint ? ": " : "", run->complaint);
    else if (options.output.file && !run->has_output)
        command_complain("tune: %s did not write %s", options.argv[0], options.output.file);
    else
        return true;
    return false;
}

static void complain_of_start(const struct tune_run *run)
{
    command_complain("tune: %s could not be started: %s", options.argv[0],
                     *run->complaint ? run->complaint : strerror(errno));
}

/* Runs the program as it is: it must succeed. */
static int try_as_it_is(void)
{
    static const char *const none[] = {NULL};
    struct tune_run run;
    int result = STATUS_FAILED;

    if (options.output.file && !tune_set_aside(options.output.file))
        return STATUS_FAILED;
    if (!tune_run(options.argv, NULL, none, false, options.output.file, UINT64_MAX / 4, &run)) {
        complain_of_start(&run);
        if (options.output.file)
            tune_set_back(options.output.file, false);
        return STATUS_FAILED;
    }
    if (options.output.file)
        tune_set_back(options.output.file, run.has_output);
    if (!stopped && is_usable(&run)) {
        options.output.status = run.status;
        tune_output_learn(&options.output, &run.text);
        if (!options.timeout_ns)
            options.timeout_ns = 10 * run.ns + 60000000000u;
        result = STATUS_OK;
    }
    tune_text_free(&run.text);
    return result;
}

static void choose_trials(bool ran_short)
{
    n_trials = 0;
    while (n_trials < MOST_TRIALS && (ran_short || !trials[n_trials].wants_shortage))
        n_trials++;
}

/* Runs the program as it is, then once to count its memory, and as it is again if that wrote a
 * different output: the program may never write the same twice. */
static int try_it(const char *library)
{
    static const char *const counted[] = {"ALLOGRAFT_POLICY=native", NULL};
    bool wanted = !options.output.ignored;
    struct tune_run run;
    int result = try_as_it_is();

    if (result != STATUS_OK)
        return result;
    if (!tune_run(options.argv, library, counted, true, options.output.file, options.timeout_ns,
                  &run)) {
        complain_of_start(&run);
        return STATUS_FAILED;
    }
    trials[0].peak_bytes = run.peak_bytes;
    choose_trials(run.ran_short);
    simulated = options.simulate || run.simulated;
    unused = !stopped && !run.n_reports;
    if (unused)
        command_complain(
            "tune: neither %s nor what it started made a CUDA call that came through, so "
            "the settings change nothing. " AG_UNUSED_REASONS,
            options.argv[0]);
    if (!stopped)
        (void)fault_of(&run);
    tune_text_free(&run.text);
    if (simulated && options.metric != TUNE_PEAK)
        return refuse_times(STATUS_FAILED);
    if (wanted && options.output.ignored)
        command_complain("tune: the output of %s cannot be compared: it reports times, or differs "
                         "from run to run even without Allograft (--compare file:PATH compares a "
                         "file instead)",
                         options.argv[0]);
    return STATUS_OK;
}

static void run_trial(struct trial *trial, const char *library)
{
    bool is_native = !trial->settings[0];
    struct tune_run run;

    if (trial->fault)
        return;
    if (!tune_run(options.argv, is_native ? NULL : library, trial->settings, !is_native,
                  options.output.file, options.timeout_ns, &run)) {
        trial->fault = "could not be started";
        return;
    }
    if (stopped) { /* the program got the Ctrl-C, too */
        tune_text_free(&run.text);
        return;
    }
    if (is_native && run.status == options.output.status && !run.timed_out)
        tune_output_learn(&options.output, &run.text);
    else
        trial->fault = fault_of(&run);
    tune_text_free(&run.text);
    trial->times_ns[trial->n++] = run.ns;
    if (run.peak_bytes > trial->peak_bytes)
        trial->peak_bytes = run.peak_bytes;
}

/* Runs all trials in turn, starting with a different one each time, so that drift affects all
 * alike. */
static unsigned run_all(const char *library)
{
    unsigned all = options.runs * n_trials, done = 0, pass = 0;
    uint64_t began = ag_clock_ns();

    for (; pass < options.runs && !stopped; pass++) {
        for (unsigned i = 0; i < n_trials && !stopped; i++) {
            struct trial *trial = &trials[(i + pass) % n_trials];

            show_progress(done++, all, began, trial->name);
            run_trial(trial, library);
        }
    }
    show_progress(all, all, began, "");
    return stopped && pass ? pass - 1 : pass;
}

/* ---- showing ---- */

#define SIMULATED "On the simulated driver, not on a GPU: times mean nothing and are not shown."

/* A time, or "-" if there is none to show. */
static const char *time_text(char *text, size_t capacity, const struct trial *trial, uint64_t ns)
{
    if (trial->n && !simulated)
        return ag_text_duration(text, capacity, (double)ns);
    snprintf(text, capacity, "-");
    return text;
}

static void gain_text(char *text, size_t capacity, unsigned i)
{
    double gain = simulated ? 0 : tune_gain(trials, i, TUNE_TIME);

    snprintf(text, capacity, gain > 0 ? "%.2fx" : "-", gain);
}

static void peak_text(char *text, size_t capacity, const struct trial *trial)
{
    if (trial->peak_bytes)
        ag_text_size(text, capacity, trial->peak_bytes);
    else
        snprintf(text, capacity, "-");
}

static void show_trial_settings(FILE *out, const struct trial *trial, const char *separator)
{
    for (unsigned i = 0; trial->settings[i]; i++)
        fprintf(out, "%s%s", i ? separator : "", trial->settings[i]);
}

/* Says how many lines of the output were not compared; "" if all were. */
static void left_out_text(char *text, size_t capacity)
{
    size_t n = options.output.ignored ? 0 : tune_output_left_out(&options.output);

    text[0] = '\0';
    if (n)
        snprintf(text, capacity,
                 "Lines not compared, since they report times or vary between native runs: "
                 "%zu of %zu.",
                 n, options.output.text.n);
}

static struct tune_verdict verdict_of(unsigned best)
{
    const struct tune_result result = {
        .trials = trials,
        .n = n_trials,
        .best = best,
        .runs = options.runs,
        .metric = options.metric,
        .is_unused = unused,
        .was_stopped = stopped,
        .argv = options.argv,
    };
    struct tune_verdict verdict;

    tune_verdict_find(&result, &verdict);
    return verdict;
}

static const char *text_or_empty(const struct ag_text *text)
{
    return text->data ? text->data : "";
}

static void show_verdict(unsigned best)
{
    struct tune_verdict verdict = verdict_of(best);

    printf("gained:    %s\nheld back: %s\ntry:       %s\n\n", text_or_empty(&verdict.gained),
           text_or_empty(&verdict.held_back), text_or_empty(&verdict.to_try));
    tune_verdict_finish(&verdict);
}

static void show_table(unsigned best, unsigned passes)
{
    char note[160], median[32], spread[32], gain[32], peak[32];

    show_verdict(best);
    printf("Runs of %s, %u with each setting, in turn%s\n", options.argv[0], options.runs,
           stopped || simulated ? "" : "; spread: half the interquartile range");
    printf("%s\n", simulated ? SIMULATED "\n" : "");
    printf("%-24s %12s %12s %9s %12s  %s\n", "", "median", "spread", "speed-up", "peak", "output");
    for (unsigned i = 0; i < n_trials; i++) {
        const struct trial *trial = &trials[i];

        gain_text(gain, sizeof(gain), i);
        peak_text(peak, sizeof(peak), trial);
        printf("%c %-22s %12s %12s %9s %12s  %s\n", i == best && !trials[0].fault ? '*' : ' ',
               trial->name, time_text(median, sizeof(median), trial, trial->median_ns),
               time_text(spread, sizeof(spread), trial, trial->spread_ns), gain, peak,
               trial->fault             ? trial->fault
               : !trial->n              ? "not run"
               : options.output.ignored ? "not compared"
                                        : "the same");
    }
    if (stopped)
        printf("Stopped after %u of %u runs of each setting.\n", passes, options.runs);
    left_out_text(note, sizeof(note));
    if (*note)
        printf("%s\n", note);
    if (best) {
        printf("\nIn a file for ALLOGRAFT_CONFIG (--write FILE):\n  ");
        show_trial_settings(stdout, &trials[best], "\n  ");
        printf("\n");
    }
}

static void add_verdict_json(struct ag_emitter *json, unsigned best)
{
    struct tune_verdict verdict = verdict_of(best);

    ag_emit_object(json, "verdict");
    ag_emit_string(json, "gained", text_or_empty(&verdict.gained));
    ag_emit_string(json, "held_back", text_or_empty(&verdict.held_back));
    ag_emit_string(json, "try", text_or_empty(&verdict.to_try));
    ag_emit_end(json);
    tune_verdict_finish(&verdict);
}

static void add_trial_json(struct ag_emitter *json, const struct trial *trial)
{
    ag_emit_line(json, 1);
    ag_emit_object(json, NULL);
    ag_emit_string(json, "name", trial->name);
    ag_emit_array(json, "settings");
    for (unsigned i = 0; trial->settings[i]; i++)
        ag_emit_string(json, NULL, trial->settings[i]);
    ag_emit_end(json);
    ag_emit_number(json, "runs", trial->n);
    if (simulated) {
        ag_emit_raw(json, "median_ns", "null");
        ag_emit_raw(json, "spread_ns", "null");
    } else {
        ag_emit_number(json, "median_ns", trial->median_ns);
        ag_emit_number(json, "spread_ns", trial->spread_ns);
    }
    ag_emit_number(json, "peak_bytes", trial->peak_bytes);
    if (trial->fault)
        ag_emit_string(json, "fault", trial->fault);
    else
        ag_emit_raw(json, "fault", "null");
    ag_emit_end(json);
}

static void show_trials_json(unsigned best, unsigned passes)
{
    struct ag_text text = {0};
    struct ag_emitter json = {.text = &text};

    ag_emit_object(&json, NULL);
    ag_emit_string(&json, "schema", "allograft-tune/1");
    ag_emit_string(&json, "version", ALLOGRAFT_VERSION);
    add_verdict_json(&json, best);
    ag_emit_number(&json, "runs", passes);
    ag_emit_bool(&json, "complete", !stopped);
    ag_emit_bool(&json, "simulated", simulated);
    ag_emit_bool(&json, "compared", !options.output.ignored);
    ag_emit_number(&json, "lines", options.output.text.n);
    ag_emit_number(&json, "lines_left_out", tune_output_left_out(&options.output));
    ag_emit_number(&json, "best", best);
    ag_emit_array(&json, "trials");
    for (unsigned i = 0; i < n_trials; i++)
        add_trial_json(&json, &trials[i]);
    ag_emit_end(&json);
    ag_emit_end(&json);
    puts(text.data ? text.data : "{}");
    ag_text_finish(&text);
}

/* Adds the result in a sentence or two. */
static void add_outcome(struct ag_text *text, unsigned best)
{
    unsigned unsure = best ? 0 : tune_unsure(trials, n_trials, options.metric);
    char note[160];

    left_out_text(note, sizeof(note));
    if (!best)
        ag_text_add(text, "<p>Best as it is: no setting is better by more than chance.");
    else
        ag_text_add(text, "<p>Best: %s, <code>", trials[best].name);
    for (unsigned i = 0; trials[best].settings[i]; i++)
        ag_text_add(text, "%s%s", i ? " " : "", trials[best].settings[i]);
    if (best)
        ag_text_add(text, "</code>");
    if (unsure)
        ag_text_add(text,
                    " \"%s\" looked better, but by no more than its runs vary: try more of them.",
                    trials[unsure].name);
    ag_text_add(text, "%s%s</p>\n", *note ? " " : "", note);
}

/* Adds a bar for the time, or for memory where times mean nothing. */
static void add_trial(struct ag_text *text, unsigned i, unsigned best, double most)
{
    const struct trial *trial = &trials[i];
    const char *ending = i == best ? " (best)" : "", *fault = trial->fault ? trial->fault : "";
    const char *comma = trial->fault ? ", " : "", *colour = i == best ? "c1" : "c0";
    char label[256], spread[32], gain[32], peak[32];

    if (simulated) {
        snprintf(label, sizeof(label), "%s%s%s%s", trial->name, ending, comma, fault);
        html_bar(text, colour, label, UNIT_BYTES, (double)trial->peak_bytes, most,
                 (double)trials[0].peak_bytes);
        return;
    }
    gain_text(gain, sizeof(gain), i);
    peak_text(peak, sizeof(peak), trial);
    snprintf(label, sizeof(label), "%s%s: %s, spread %s, peak %s%s%s", trial->name, ending, gain,
             ag_text_duration(spread, sizeof(spread), (double)trial->spread_ns), peak, comma,
             fault);
    html_bar(text, colour, label, UNIT_NS, (double)trial->median_ns, most,
             (double)trials[0].median_ns);
}

/* Adds the card's heading and the text above the bars. */
static void begin_trials_card(struct ag_text *text, unsigned best)
{
    html_card_begin(text, true, simulated ? "Peak device memory" : "Time of a run", NULL);
    ag_text_add(
        text,
        "<p class=\"note\">%u run%s with each setting, in turn%s. Shares are relative to the "
        "program as it is%s</p>\n",
        options.runs, options.runs == 1 ? "" : "s", stopped ? ", stopped early" : "",
        simulated ? "." : "; the spread is half the interquartile range.");
    add_outcome(text, best);
    html_bars_begin(text, "", "setting", simulated ? "peak" : "median");
}

static int write_html(unsigned best)
{
    struct ag_text text = {0};
    uint64_t most = 0;
    int status;

    for (unsigned i = 0; i < n_trials; i++) {
        uint64_t length = simulated ? trials[i].peak_bytes : trials[i].median_ns;

        most = length > most ? length : most;
    }
    html_begin(&text, "allograft tune");
    ag_text_add(&text, "<header>\n<h1>allograft tune</h1>\n<p class=\"soft\" "
                       "style=\"margin:0\"><code>");
    for (unsigned i = 0; options.argv[i]; i++) {
        ag_text_add(&text, i ? " " : "");
        html_add(&text, options.argv[i]);
    }
    ag_text_add(&text, "</code></p>\n</header>\n%s<div class=\"cards\">\n",
                simulated ? "<ul class=\"warnings\">\n<li>" SIMULATED "</li>\n</ul>\n" : "");
    begin_trials_card(&text, best);
    for (unsigned i = 0; i < n_trials; i++)
        add_trial(&text, i, best, (double)most);
    html_bars_end(&text);
    html_card_end(&text);
    ag_text_add(&text, "</div>\n");
    html_end(&text, false);
    status = output_write(&options.html, text.data ? text.data : "", text.length);
    ag_text_finish(&text);
    return status;
}

static int write_config(unsigned best)
{
    struct ag_text text = {0};
    int status;

    ag_text_add(&text, "# Best of `allograft tune`: %s\n", trials[best].name);
    for (unsigned i = 0; trials[best].settings[i]; i++)
        ag_text_add(&text, "%s\n", trials[best].settings[i]);
    if (!best)
        ag_text_add(&text, "# No setting was better than the program as it is: none is set.\n");
    status = output_write(&options.write, text.data ? text.data : "", text.length);
    ag_text_finish(&text);
    return status;
}

/* Called before the program runs: the output files must not overwrite it or a file that it is
 * given. */
static int check_outputs(void)
{
    const char *config = getenv("ALLOGRAFT_CONFIG");
    int status;

    for (unsigned i = 0; options.argv[i]; i++)
        output_keep_path(options.argv[i]);
    if (config)
        output_keep_path(config);
    if ((options.write.path && output_check(&options.write)) ||
        (options.html.path && output_check(&options.html)))
        return STATUS_FAILED;
    status = output_check_apart(&options.html, &options.write);
    if (!status && options.json)
        status = output_check_alone(&options.write, "--json");
    if (!status && options.json)
        status = output_check_alone(&options.html, "--json");
    return status;
}

int command_tune(const struct command_line *line)
{
    char library[PATH_MAX], driver[PATH_MAX + 64];
    unsigned best, passes;
    int status = read_tune_words(line);

    if (status)
        return status;
    if (settings_check_environment())
        return STATUS_USAGE;
    if (locate_library(library, sizeof(library)) != STATUS_OK ||
        preload_check(library) != STATUS_OK)
        return STATUS_FAILED;
    status = check_outputs();
    if (status)
        return status;
    if (options.simulate && simulate_driver(library, driver, sizeof(driver)) != STATUS_OK)
        return STATUS_FAILED;
    catch_stops(true);
    status = try_it(library);
    passes = status == STATUS_OK ? run_all(library) : 0;
    catch_stops(false);
    if (status != STATUS_OK)
        return status;
    best = tune_judge(trials, n_trials, options.metric);
    if (unused) /* what looks better is so by chance */
        best = 0;
    if (options.json)
        show_trials_json(best, passes);
    else if (!output_is_stdout(&options.write) && !output_is_stdout(&options.html))
        show_table(best, passes);
    if (options.write.path)
        status = write_config(best);
    if (options.html.path && status == STATUS_OK)
        status = write_html(best);
    return status;
}
