/* Shared by the test programs: a check that prints its line number and ends the program if it fails. */
#ifndef CHECK_H
#define CHECK_H

#include <homa.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                                     \
    do {                                                                                                 \
        if (!(holds)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__, #holds,            \
                    homa_last_error());                                                                  \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define OK(call) CHECK((call) == HOMA_OK)

/* Checks the result of a function, and that the text of the last error contains `word`. */
#define FAILS(call, result, word)                                                                        \
    do {                                                                                                 \
        CHECK((call) == (result));                                                                       \
        CHECK(strstr(homa_last_error(), (word)) != NULL);                                                \
    } while (0)

/* Options of a host on loopback, with the number of endpoints that the test sets. The host's calls fail only
 * after twelve seconds of silence: under valgrind on a busy machine, a server may be silent for more than
 * half a second. */
static inline homa_options *local_options(void) {
    homa_options *options = NULL;
    const char *endpoints = getenv("HOMA_TEST_ENDPOINTS");
    OK(homa_options_new(&options));
    OK(homa_options_set(options, "bind", "127.0.0.1:0"));
    OK(homa_options_set(options, "max-resends", "255"));
    if (endpoints != NULL) OK(homa_options_set(options, "endpoints", endpoints));
    return options;
}

/* A host on loopback. */
static inline homa_host *local_host(void) {
    homa_options *options = local_options();
    homa_host *host = NULL;
    OK(homa_host_open(options, &host));
    OK(homa_options_free(options));
    return host;
}

#endif
