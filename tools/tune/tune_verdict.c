/* tune_verdict.c: says what the trials came to, in three lines. Pure. */
#include "tools/base/shell.h"
#include "tools/tune/tune.h"

static void add_trial_settings(struct ag_text *text, const struct trial *trial)
{
    for (unsigned i = 0; trial->settings[i]; i++)
        ag_text_add(text, "%s%s", i ? " " : "", trial->settings[i]);
}

static void say_gain(struct ag_text *text, const struct tune_result *result)
{
    static const char *const whats[] = {
        [TUNE_TIME] = "as fast",
        [TUNE_PEAK] = "less peak memory",
        [TUNE_BOTH] = "less of time multiplied by peak memory",
    };

    if (!result->best)
        ag_text_add(text, "nothing: no setting is better than none by more than chance");
    else
        ag_text_add(text, "%.2fx %s with \"%s\"",
                    tune_gain(result->trials, result->best, result->metric), whats[result->metric],
                    result->trials[result->best].name);
}

/* Which settings are out, the names first of those with the same fault. */
static void add_faults(struct ag_text *text, const struct tune_result *result)
{
    for (unsigned i = 0; i < result->n; i++) {
        const struct trial *trial = &result->trials[i];

        if (trial->fault)
            ag_text_add(text, "%s\"%s\": %s", text->length ? "; " : "", trial->name, trial->fault);
    }
}

static void say_hindrance(struct ag_text *text, const struct tune_result *result)
{
    unsigned unsure = result->best ? 0 : tune_unsure(result->trials, result->n, result->metric);

    if (result->is_unused)
        ag_text_add(text, "nothing of the program made a CUDA call that came through");
    add_faults(text, result);
    if (unsure)
        ag_text_add(text, "%s\"%s\" looked better, but by no more than its runs vary",
                    text->length ? "; " : "", result->trials[unsure].name);
    if (result->was_stopped)
        ag_text_add(text, "%sit was stopped early", text->length ? "; " : "");
    if (!text->length)
        ag_text_add(text, "nothing that was measured");
}

static void say_remedy(struct ag_text *text, const struct tune_result *result)
{
    unsigned more = result->runs * 3 < TUNE_MOST_RUNS ? result->runs * 3 : TUNE_MOST_RUNS;

    if (result->best) {
        add_trial_settings(text, &result->trials[result->best]);
        ag_text_add(text, " allograft run --");
        for (unsigned i = 0; result->argv[i]; i++) {
            ag_text_add(text, " ");
            shell_add_word(text, result->argv[i]);
        }
    } else if (!result->is_unused && result->runs < TUNE_MOST_RUNS &&
               tune_unsure(result->trials, result->n, result->metric)) {
        ag_text_add(text, "more runs (--runs %u)", more);
    } else {
        ag_text_add(text, "the program as it is");
    }
}

void tune_verdict_find(const struct tune_result *result, struct tune_verdict *ret)
{
    *ret = (struct tune_verdict){0};
    say_gain(&ret->gained, result);
    say_hindrance(&ret->held_back, result);
    say_remedy(&ret->to_try, result);
}

void tune_verdict_finish(struct tune_verdict *verdict)
{
    ag_text_finish(&verdict->gained);
    ag_text_finish(&verdict->held_back);
    ag_text_finish(&verdict->to_try);
}
