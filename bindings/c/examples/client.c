/*
 * A client that keeps many calls in flight from one thread, in its own poll() loop. It shuts down cleanly on
 * SIGINT (ctrl-C).
 *
 *   client 127.0.0.1:14600/99
 *   client 10.0.0.7 --calls 100000 --in-flight 20 --size 5000 --deadline-ms 100
 *
 * The exit code is 0 if every call was answered with its own bytes, 1 if some call was not, and 2 for any
 * other failure.
 */
#define _GNU_SOURCE
#include "arguments.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { CALLS, IN_FLIGHT, SIZE, DEADLINE_MS, NUMBERS };

static struct number numbers[NUMBERS] = {
    [CALLS] = {"calls", "calls to make", 1, 10000000, 1000},
    [IN_FLIGHT] = {"in-flight", "calls in flight at a time", 1, 10000, 8},
    [SIZE] = {"size", "bytes of a request", 1, 1000000, 100},
    [DEADLINE_MS] = {"deadline-ms", "milliseconds that a call may take", 1, 1000000, 1000},
};

static const char usage[] = "client SERVER [--NAME VALUE]...  calls an echo server, such as 10.0.0.7:14600/99, many times";

/* A call in flight; its index is its cookie. */
struct call {
    uint64_t id;
    uint64_t started_ns;
};

struct client {
    homa_socket *socket;
    homa_address server;
    unsigned char *request;
    size_t size;
    struct call *calls;
    uint64_t *times_ns; /* round-trip times of the answered calls */
    unsigned long started, answered, failed, in_flight;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void start(struct client *client, uint64_t cookie) {
    struct call *call = &client->calls[cookie];
    call->started_ns = now_ns();
    /* The bytes are copied, so they may be changed as soon as this returns. */
    must(homa_start(client->socket, &client->server, client->request, client->size,
                    numbers[DEADLINE_MS].value * 1000000, cookie, &call->id),
         "start a call");
    client->started++;
    client->in_flight++;
}

/* Records the outcome of a call. Returns the call's cookie, which can be used again. */
static uint64_t finish(struct client *client, homa_message *outcome) {
    uint64_t cookie = homa_message_cookie(outcome);
    size_t length = 0;
    const void *data = homa_message_data(outcome, &length);
    if (homa_message_result(outcome) != HOMA_OK) {
        /* Only the first failure is printed; it suffices to show what is wrong. */
        if (client->failed++ == 0) fprintf(stderr, "a call failed: %s\n", homa_last_error());
    } else if (length != client->size || memcmp(data, client->request, length) != 0) {
        if (client->failed++ == 0) fprintf(stderr, "an answer is not the request's bytes\n");
    } else {
        client->times_ns[client->answered++] = now_ns() - client->calls[cookie].started_ns;
    }
    client->in_flight--;
    /* The bytes at `data` belong to the message and are freed with it. */
    homa_message_free(outcome);
    return cookie;
}

static void cancel_all(struct client *client) {
    /* homa_cancel() fails for calls that are already over, which is harmless. */
    for (unsigned long at = 0; at < numbers[IN_FLIGHT].value; at++) homa_cancel(client->socket, client->calls[at].id);
}

/* Receives all outcomes that have arrived. If `more`, starts a new call for each of them. */
static void receive(struct client *client, int more) {
    homa_message *outcome = NULL;
    homa_result result;
    while ((result = homa_receive(client->socket, 0, &outcome)) == HOMA_OK) {
        uint64_t cookie = finish(client, outcome);
        if (more && client->started < numbers[CALLS].value) start(client, cookie);
    }
    /* Nothing is left to receive: the library now expects this thread to sleep on the descriptor. */
    if (result != HOMA_TIMED_OUT) must(result, "receive");
}

/* Makes the calls. Returns whether SIGINT ended them early. */
static int make_calls(struct client *client, int signals) {
    struct pollfd both[2] = {{.events = POLLIN}, {.fd = signals, .events = POLLIN}};
    int interrupted = 0;
    must(homa_socket_fd(client->socket, &both[0].fd), "get a descriptor");
    while (client->started < numbers[CALLS].value && client->in_flight < numbers[IN_FLIGHT].value)
        start(client, client->in_flight);
    for (;;) {
        receive(client, !interrupted);
        if (client->in_flight == 0) return interrupted;
        if (poll(both, interrupted ? 1 : 2, -1) < 0 && errno != EINTR) die("sleep", strerror(errno));
        if (!interrupted && both[1].revents != 0) {
            interrupted = 1;
            cancel_all(client);
        }
    }
}

static int by_size(const void *one, const void *other) {
    uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
    return (left > right) - (left < right);
}

static void report(struct client *client) {
    printf("%lu calls of %zu bytes: %lu answered, %lu failed", client->started, client->size, client->answered,
           client->failed);
    if (client->answered > 0) {
        qsort(client->times_ns, client->answered, sizeof *client->times_ns, by_size);
        double median = (double)client->times_ns[client->answered / 2];
        double p99 = (double)client->times_ns[client->answered * 99 / 100];
        printf("; median %.1f us, P99 %.1f us", median / 1000, p99 / 1000);
    }
    printf("\n");
}

/* Returns a descriptor through which poll() reports SIGINT. The signal is blocked in all
 * threads, since they inherit the mask. */
static int signal_descriptor(void) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    if (sigprocmask(SIG_BLOCK, &ends, NULL) != 0) die("block SIGINT", strerror(errno));
    int signals = signalfd(-1, &ends, SFD_CLOEXEC);
    if (signals < 0) die("wait for SIGINT", strerror(errno));
    return signals;
}

int main(int argc, char **argv) {
    homa_options *options = NULL;
    homa_host *host = NULL;
    struct client client = {0};
    const char *server = NULL;

    must(homa_options_new(&options), "make options");
    read_arguments(argc, argv, usage, numbers, NUMBERS, options, &server, 1);
    must(homa_address_parse(server, &client.server), "understand the server's address");
    int signals = signal_descriptor();

    must(homa_host_open(options, &host), "open a host");
    homa_options_free(options);
    must(homa_socket_open(host, 0, &client.socket), "open a socket");

    client.size = numbers[SIZE].value;
    client.request = malloc(client.size);
    client.calls = calloc(numbers[IN_FLIGHT].value, sizeof *client.calls);
    client.times_ns = calloc(numbers[CALLS].value, sizeof *client.times_ns);
    if (client.request == NULL || client.calls == NULL || client.times_ns == NULL) die("begin", "no memory");
    for (size_t at = 0; at < client.size; at++) client.request[at] = (unsigned char)(at * 7);

    /* The simplest way to make a call: homa_call() waits for the response. */
    homa_message *response = NULL;
    must(homa_call(client.socket, &client.server, "hello", 5, numbers[DEADLINE_MS].value * 1000000, &response),
         "call the server");
    homa_message_free(response);
    printf("calling %s\n", server);
    fflush(stdout);

    int interrupted = make_calls(&client, signals);
    report(&client);
    int good = interrupted || client.failed == 0;

    homa_socket_close(client.socket);
    homa_host_close(host);
    close(signals);
    free(client.request);
    free(client.calls);
    free(client.times_ns);
    return good && homa_open_handles() == 0 ? 0 : 1;
}
