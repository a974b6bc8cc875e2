/* pickle.h: writes values as Python's pickle, protocol 4, with no more operations than simple
 * readers know: numbers, texts, lists, dictionaries, and what was written before. */
#ifndef TOOLS_PICKLE_H
#define TOOLS_PICKLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pickle {
    FILE *out;
    uint32_t n_kept;
};

/* One value lies between. */
void pickle_begin(struct pickle *pickle, FILE *out);
void pickle_end(struct pickle *pickle);

void pickle_number(struct pickle *pickle, uint64_t number);
void pickle_truth(struct pickle *pickle, bool truth);
/* Bytes that are not UTF-8 become '?'. */
void pickle_text(struct pickle *pickle, const char *text);

/* Keys and values take turns in between. */
void pickle_open_dict(struct pickle *pickle);
void pickle_close_dict(struct pickle *pickle);

/* A list takes its items in portions, since readers have limits: pickle_next() goes after each. */
struct pickle_list {
    unsigned n; /* since the last portion */
};
void pickle_open_list(struct pickle *pickle, struct pickle_list *ret);
void pickle_next(struct pickle *pickle, struct pickle_list *list);
void pickle_close_list(struct pickle *pickle);
/* The two values just written become a pair. */
void pickle_pair(struct pickle *pickle);

/* Keeps the value just written, under the number that it returns; pickle_again() writes it again.
 */
uint32_t pickle_keep(struct pickle *pickle);
void pickle_again(struct pickle *pickle, uint32_t number);

#endif
