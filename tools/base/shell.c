/* shell.c: quotes words for a shell: see shell.h. */
#include "tools/base/shell.h"

#include <string.h>

void shell_add_word(struct ag_text *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=:,./@%";

    if (*word && !word[strspn(word, plain)]) {
        ag_text_add(text, "%s", word);
        return;
    }
    ag_text_add(text, "'");
    for (; *word; word++)
        ag_text_add(text, "%s", *word == '\'' ? "'\\''" : (char[]){*word, '\0'});
    ag_text_add(text, "'");
}
