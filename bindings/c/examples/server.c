/*
 * An echo server whose threads wait for requests. It shuts down cleanly on SIGINT (ctrl-C) or SIGTERM.
 *
 *   server                                  on UDP port 14600 of all addresses, Homa port 99
 *   server --bind 127.0.0.1:0 --threads 4
 *   server --driver raw --bind 10.0.0.7     in IP itself, for Linux Homa too; as root
 */
#define _GNU_SOURCE
#include "arguments.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT, THREADS, NUMBERS };

static struct number numbers[NUMBERS] = {
    [PORT] = {"port", "the Homa port", 1, HOMA_MAX_SERVER_PORT, 99},
    [THREADS] = {"threads", "threads that answer", 1, 64, 1},
};

static const char usage[] = "server [--NAME VALUE]...  answers each request with its own bytes";

/* Answers requests until the socket is shut down. Any number of threads may do so on one socket. */
static void *serve(void *socket) {
    for (;;) {
        homa_message *request = NULL;
        homa_result result = homa_receive(socket, HOMA_FOREVER, &request);
        if (result == HOMA_CLOSED) return NULL;
        must(result, "receive");

        size_t length = 0;
        const void *data = homa_message_data(request, &length);
        /* The bytes belong to the message until it is freed. They may be passed as the response, as here. */
        result = homa_reply(socket, request, data, length);
        /* The server continues if a client gave up or is gone. */
        if (result != HOMA_OK) fprintf(stderr, "a request was not answered: %s\n", homa_last_error());
        homa_message_free(request);
    }
}

/* Prints the statistics of the host, except those that are 0. */
static void print_statistics(const homa_host *host) {
    size_t count = 0;
    must(homa_statistics(host, NULL, 0, &count), "count");
    homa_statistic *all = calloc(count, sizeof *all);
    if (all == NULL) die("count", "no memory");
    must(homa_statistics(host, all, count, NULL), "count");
    for (size_t at = 0; at < count; at++) {
        if (all[at].value > 0) printf("%s %" PRIu64 "\n", all[at].name, all[at].value);
    }
    free(all);
}

int main(int argc, char **argv) {
    homa_options *options = NULL;
    homa_host *host = NULL;
    homa_socket *socket = NULL;

    must(homa_options_new(&options), "make options");
    must(homa_options_set(options, "bind", "0.0.0.0:14600"), "set options");
    read_arguments(argc, argv, usage, numbers, NUMBERS, options, NULL, 0);

    /* These signals are blocked in all threads, which inherit the mask, and are left to sigwait() below: a
     * signal handler must not call the library. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &ends, NULL) != 0) die("block signals", "the system refuses");

    must(homa_host_open(options, &host), "open a host");
    homa_options_free(options);
    must(homa_socket_open(host, (uint16_t)numbers[PORT].value, &socket), "open a socket");

    homa_address address;
    char text[HOMA_ADDRESS_TEXT_BYTES];
    must(homa_socket_address(socket, &address), "tell the address");
    must(homa_address_format(&address, text, sizeof text), "tell the address");
    printf("serving %s\n", text);
    fflush(stdout);

    pthread_t threads[64];
    for (unsigned long at = 0; at < numbers[THREADS].value; at++) {
        int error = pthread_create(&threads[at], NULL, serve, socket);
        if (error != 0) die("start a thread", strerror(error));
    }

    int signal = 0;
    sigwait(&ends, &signal);
    /* homa_receive() now returns HOMA_CLOSED to the waiting threads. */
    homa_socket_shutdown(socket);
    for (unsigned long at = 0; at < numbers[THREADS].value; at++) pthread_join(threads[at], NULL);
    homa_socket_close(socket);
    print_statistics(host);
    /* The last responses are delivered before this returns. */
    homa_host_close(host);
    return homa_open_handles() == 0 ? 0 : 1;
}
