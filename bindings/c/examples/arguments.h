/* What both examples do with their command lines, and with errors. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <homa.h>

/* An option of the example itself: a number. */
struct number {
    const char *name;
    const char *meaning;
    unsigned long least, most;
    unsigned long value; /* beforehand the one without the option */
};

/* Reads the arguments: `--NAME VALUE` for numbers of the example, and for options of the library, which go into `options`; the other arguments go
 * into `words`, of which there must be `count`. `--help` prints `usage` and all options, and ends the program; so does what is wrong. */
void read_arguments(int argc, char **argv, const char *usage, struct number *numbers, size_t number_count,
                    homa_options *options, const char **words, size_t count);

/* Ends the program with a line that says what could not be done, and why, where a function of the library fails. */
void must(homa_result result, const char *what);

/* The same for the program's own reasons. */
_Noreturn void die(const char *what, const char *why);

#endif
