/* Command-line parsing and error messages, shared by both examples. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <homa.h>

/* A numeric option of the example itself. */
struct number {
    const char *name;
    const char *meaning;
    unsigned long least, most;
    unsigned long value; /* initially the default */
};

/* Parses the arguments. `--NAME VALUE` sets a number of the example, or an option of the library in
 * `options`. All other arguments are stored in `words`; there must be `count` of them. `--help` prints
 * `usage` and all options, and ends the program. A wrong argument ends the program with an error. */
void read_arguments(int argc, char **argv, const char *usage, struct number *numbers, size_t number_count,
                    homa_options *options, const char **words, size_t count);

/* If a function of the library failed, ends the program with a line that names the action and the reason. */
void must(homa_result result, const char *what);

/* Ends the program with such a line, for a failure that is not the library's. */
_Noreturn void die(const char *what, const char *why);

#endif
