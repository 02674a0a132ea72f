#include "arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library itself lists its options, so options of a newer version work without a change here. */
static void help(const char *usage, const struct number *numbers, size_t number_count) {
    size_t count = 0;
    must(homa_option_list(NULL, 0, &count), "list the options");
    homa_option *options = calloc(count, sizeof *options);
    if (options == NULL) die("list the options", "no memory");
    must(homa_option_list(options, count, NULL), "list the options");
    printf("%s\n", usage);
    for (size_t at = 0; at < number_count; at++)
        printf("  --%s N  %s [default: %lu]\n", numbers[at].name, numbers[at].meaning, numbers[at].value);
    printf("\nOptions of libhoma %s:\n", homa_version());
    for (size_t at = 0; at < count; at++)
        printf("  --%s VALUE  %s [default: %s]\n", options[at].name, options[at].meaning, options[at].value);
    free(options);
    exit(0);
}

/* Sets the number with this name. Returns whether there is one. */
static int set_number(struct number *numbers, size_t count, const char *name, const char *text) {
    for (size_t at = 0; at < count; at++) {
        if (strcmp(numbers[at].name, name) != 0) continue;
        char *end = NULL;
        errno = 0;
        numbers[at].value = strtoul(text, &end, 10);
        if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || numbers[at].value < numbers[at].least ||
            numbers[at].value > numbers[at].most) {
            fprintf(stderr, "--%s is %s: write a whole number, %lu to %lu\n", name, text, numbers[at].least,
                    numbers[at].most);
            exit(2);
        }
        return 1;
    }
    return 0;
}

void read_arguments(int argc, char **argv, const char *usage, struct number *numbers, size_t number_count,
                    homa_options *options, const char **words, size_t count) {
    size_t found = 0;
    for (int at = 1; at < argc; at++) {
        const char *argument = argv[at];
        if (strcmp(argument, "--help") == 0) help(usage, numbers, number_count);
        if (strncmp(argument, "--", 2) != 0) {
            if (found == count) die("use so many arguments", usage);
            words[found++] = argument;
            continue;
        }
        const char *value = argv[++at];
        if (value == NULL) die(argument, "it needs a value behind it; --help tells more");
        if (set_number(numbers, number_count, argument + 2, value)) continue;
        must(homa_options_set(options, argument + 2, value), "understand the arguments");
    }
    if (found < count) die("do without an argument", usage);
}

void must(homa_result result, const char *what) {
    if (result != HOMA_OK) die(what, homa_last_error());
}

_Noreturn void die(const char *what, const char *why) {
    fprintf(stderr, "cannot %s: %s\n", what, why);
    exit(2);
}
