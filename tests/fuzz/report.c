/* Reports as JSON, and traces on their pages: whatever the bytes, no crash; what is read of a
 * report is written and read again the same, and no text steers a terminal or becomes markup. */
#include <stdarg.h>
#include <string.h>

#include "fuzz.h"
#include "tools/base/complain.h"
#include "tools/report/job.h"
#include "tools/trace/html_trace.h"

/* Of the command; nothing here complains. */
void command_complain(const char *format, ...)
{
    (void)format;
    FUZZ_CHECK(!"said something");
}

static bool read_report(const char *text, size_t length, struct process *process)
{
    char why[256] = "";
    bool good;

    *process = (struct process){.stats = process_new_stats(), .is_plain = true};
    process->holders = process_new_holders();
    FUZZ_CHECK(process->stats && process->holders);
    good = stats_from_json(text, length, process, why, sizeof(why));
    FUZZ_CHECK(good == !*why);
    if (good)
        process_make_texts_safe(process->stats);
    else
        process_finish(process);
    if (good)
        process_make_holders_safe(process->holders);
    return good;
}

static void check_text(const struct ag_text *text)
{
    FUZZ_CHECK(!text->truncated && text->length == strlen(text->data));
    for (size_t i = 0; i < text->length; i++)
        FUZZ_CHECK((unsigned char)text->data[i] >= 0x20 || text->data[i] == '\n');
}

static void check_again(const struct process *process)
{
    struct ag_text first = {0}, second = {0};
    struct process again;

    const struct ag_holders_view view = {.holders =
                                             *process->holders->magic ? process->holders : NULL};
    struct ag_holders_view view_again = {.holders = NULL};

    ag_render_json(&first, process->stats, &process->moment, &view);
    check_text(&first);
    if (read_report(first.data, first.length, &again)) { /* sums may be too large to be read */
        view_again.holders = *again.holders->magic ? again.holders : NULL;
        ag_render_json(&second, again.stats, &again.moment, &view_again);
        FUZZ_CHECK(!strcmp(first.data, second.data));
        process_finish(&again);
    }
    ag_text_finish(&first);
    ag_text_finish(&second);
}

/* A page has one script, which is empty here, a part of it none, and both data of ours: text of a
 * report or trace made none. */
static void check_scripts(const char *page, unsigned n_scripts)
{
    static const char begin[] = "<script", empty[] = "<script></script>",
                      data[] = "<script type=\"application/json\">{\"";
    unsigned n_empty = 0, n_data = 0;

    for (; (page = strstr(page, begin)); page++) {
        bool is_empty = !strncmp(page, empty, strlen(empty));

        n_empty += is_empty;
        n_data += !is_empty;
        FUZZ_CHECK(is_empty || !strncmp(page, data, strlen(data)));
    }
    FUZZ_CHECK(n_empty == n_scripts && n_data <= 2);
}

/* Takes the process over. */
static void check_job(struct process *process)
{
    struct ag_text text = {0}, page = {0};
    struct job job = {0};

    FUZZ_CHECK(job_add(&job, process) && job_add_up(&job));
    job_render_text(&text, &job);
    check_text(&text);
    job_render_html(&page, &job);
    check_text(&page);
    check_scripts(page.data, 1);
    ag_text_finish(&text);
    ag_text_finish(&page);
    job_finish(&job);
}

static void check_trace(const uint8_t *data, size_t size)
{
    struct ag_text page = {0};
    char why[256];
    struct trace *trace = trace_of_bytes(data, size, why, sizeof(why));

    if (!trace)
        return;
    FUZZ_CHECK(html_add_trace(&page, trace, NULL, 0));
    check_text(&page);
    check_scripts(page.data, 0);
    ag_text_finish(&page);
    trace_close(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct process process;
    unsigned sum = 0;

    /* What takes its time is done with some of the inputs only. */
    for (size_t i = 0; i < size; i++)
        sum += data[i];
    if (size && *data == 'A') {
        if (sum % 8 == 0)
            check_trace(data, size);
        return 0;
    }
    if (!read_report((const char *)data, size, &process))
        return 0;
    if (sum % 4 == 0) {
        check_job(&process);
        return 0;
    }
    if (sum % 4 == 1)
        check_again(&process);
    process_finish(&process);
    return 0;
}
