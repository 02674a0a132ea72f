/* Tests bytes that are lent to the library. When a loan ends, this program frees the bytes at once, so that
 * valgrind reports any later read. */
#include "check.h"

#include <poll.h>
#include <pthread.h>

enum { LONG = 300000, CALLS = 6, REPLIES = 8 };

static unsigned char *bytes(size_t length, unsigned tag) {
    unsigned char *made = malloc(length);
    CHECK(made != NULL);
    for (size_t at = 0; at < length; at++) made[at] = (unsigned char)(at * 7 + at / 251 + tag);
    return made;
}

static int is(const homa_message *message, size_t length, unsigned tag) {
    size_t got = 0;
    unsigned char *expected = bytes(length, tag);
    const void *data = homa_message_data(message, &got);
    int same = got == length && memcmp(data, expected, length) == 0;
    free(expected);
    return same;
}

static homa_message *received(homa_socket *socket) {
    homa_message *message = NULL;
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    return message;
}

/* Calls that time out before all their bytes are sent, since the peer does not receive them. */
static void call_in_vain(homa_socket *client, const homa_address *silent) {
    for (int at = 0; at < 3; at++) {
        homa_message *response = NULL;
        unsigned char *data = bytes(LONG, 1);
        FAILS(homa_call(client, silent, data, LONG, 3000000, &response), HOMA_TIMED_OUT, "deadline");
        free(data);
    }
}

/* Calls that are answered, cancelled, or time out. */
static void start(homa_socket *client, const homa_address *server, const homa_address *silent) {
    unsigned char *data[CALLS];
    uint64_t ids[CALLS];
    for (unsigned at = 0; at < CALLS; at++) {
        data[at] = bytes(LONG, at);
        uint64_t timeout_ns = at % 3 == 1 ? 2000000 : HOMA_FOREVER;
        OK(homa_start_lent(client, at % 3 == 0 ? server : silent, data[at], LONG, timeout_ns, at, &ids[at]));
        if (at % 3 == 2) OK(homa_cancel(client, ids[at]));
    }
    for (int left = CALLS; left > 0; left--) {
        static const homa_result ends[] = {HOMA_OK, HOMA_TIMED_OUT, HOMA_CANCELLED};
        homa_message *outcome = received(client);
        uint64_t at = homa_message_cookie(outcome);
        CHECK(at < CALLS && data[at] != NULL && homa_message_id(outcome) == ids[at]);
        CHECK(homa_message_kind(outcome) == HOMA_OUTCOME && !homa_message_is_request(outcome));
        CHECK(homa_message_result(outcome) == ends[at % 3]);
        free(data[at]);
        data[at] = NULL;
        if (at % 3 == 0) CHECK(is(outcome, LONG, (unsigned)at + 1));
        OK(homa_message_free(outcome));
    }
    /* Failed calls lend nothing. */
    unsigned char *kept = bytes(1, 1);
    FAILS(homa_start_lent(client, server, NULL, 1, HOMA_FOREVER, 0, NULL), HOMA_ARGUMENT, "`data`");
    FAILS(homa_start_lent(client, NULL, kept, 1, HOMA_FOREVER, 0, NULL), HOMA_ARGUMENT, "`to`");
    FAILS(homa_start_lent(client, server, kept, 0, HOMA_FOREVER, 0, NULL), HOMA_SIZE, "empty");
    FAILS(homa_start_lent(client, server, kept, SIZE_MAX, HOMA_FOREVER, 0, NULL), HOMA_SIZE, "max_message");
    free(kept);
}

/* Answers each request with its own bytes, and frees them when the library returns them. A request of one
 * byte ends the server. */
static void *serve(void *argument) {
    homa_socket *socket = argument;
    unsigned char *lent[REPLIES] = {NULL};
    int over = 0, in_flight = 0;
    while (!over || in_flight > 0) {
        homa_message *message = received(socket);
        if (homa_message_kind(message) == HOMA_RETURNED) {
            size_t length = 1, at = (size_t)homa_message_cookie(message);
            homa_address client;
            CHECK(at < REPLIES && lent[at] != NULL && homa_message_id(message) % 2 == 1);
            CHECK(homa_message_data(message, &length) == NULL && length == 0);
            OK(homa_message_from(message, &client));
            CHECK(client.port > HOMA_MAX_SERVER_PORT && client.udp_port > 0);
            OK(homa_message_result(message));
            FAILS(homa_reply(socket, message, "x", 1), HOMA_ARGUMENT, "no request");
            free(lent[at]);
            lent[at] = NULL;
            in_flight--;
        } else {
            size_t length = 0, at = 0;
            CHECK(homa_message_kind(message) == HOMA_REQUEST);
            const unsigned char *data = homa_message_data(message, &length);
            while (at < REPLIES && lent[at] != NULL) at++;
            CHECK(at < REPLIES);
            over = length == 1;
            lent[at] = bytes(length, data[0] + 1U);
            OK(homa_reply_lent(socket, message, lent[at], length, at));
            in_flight++;
        }
        OK(homa_message_free(message));
    }
    return NULL;
}

/* Responses that are in flight when their socket is shut down still arrive, although their lent bytes may be
 * freed at once. */
static void shut_down(homa_socket *client) {
    homa_host *host = local_host();
    homa_socket *server = NULL, *other = NULL;
    homa_address address;
    unsigned char *data = bytes(LONG, 0), *lent = bytes(LONG, 9);
    OK(homa_socket_open(host, 8, &server));
    OK(homa_socket_open(host, 9, &other));
    OK(homa_socket_address(server, &address));
    OK(homa_start_lent(client, &address, data, LONG, HOMA_FOREVER, 0, NULL));
    OK(homa_start(client, &address, "late", 4, HOMA_FOREVER, 1, NULL));
    homa_message *first = received(server), *second = received(server), *swap = first;
    if (homa_message_data(first, NULL) != NULL && is(second, LONG, 0)) first = second, second = swap;
    FAILS(homa_reply_lent(other, first, lent, LONG, 0), HOMA_ARGUMENT, "came by another socket");
    FAILS(homa_reply(other, first, lent, LONG), HOMA_ARGUMENT, "came by another socket");
    OK(homa_reply_lent(server, first, lent, LONG, 0));
    OK(homa_socket_shutdown(server));
    memset(lent, 0, LONG);
    free(lent);
    lent = bytes(4, 0);
    FAILS(homa_reply_lent(server, second, lent, 4, 0), HOMA_CLOSED, "shut down");
    free(lent);
    for (int left = 2; left > 0; left--) {
        homa_message *outcome = received(client);
        if (homa_message_cookie(outcome) == 0) CHECK(is(outcome, LONG, 9));
        else CHECK(homa_message_result(outcome) == HOMA_PEER_GONE);
        OK(homa_message_free(outcome));
    }
    free(data);
    OK(homa_message_free(first));
    OK(homa_message_free(second));
    OK(homa_socket_close(other));
    OK(homa_socket_close(server));
    OK(homa_host_close(host));
}

/* Closes a socket with calls in flight; their lent bytes may then be freed. */
static void close_with_calls(homa_host *host, const homa_address *silent) {
    homa_socket *socket = NULL;
    unsigned char *data = bytes(LONG, 3);
    OK(homa_socket_open(host, 0, &socket));
    for (int at = 0; at < 3; at++)
        OK(homa_start_lent(socket, silent, data, LONG, HOMA_FOREVER, 0, NULL));
    OK(homa_socket_close(socket));
    free(data);
}

/* The descriptor of a server's socket becomes readable when lent bytes are returned. */
static void by_descriptor(homa_socket *client) {
    homa_host *host = local_host();
    homa_socket *server = NULL;
    homa_address address;
    unsigned char *lent = bytes(LONG, 2);
    struct pollfd ready = {.events = POLLIN};
    OK(homa_socket_open(host, 8, &server));
    OK(homa_socket_address(server, &address));
    OK(homa_socket_fd(server, &ready.fd));
    OK(homa_start(client, &address, "x", 1, HOMA_FOREVER, 0, NULL));
    homa_message *request = received(server), *message = NULL;
    OK(homa_reply_lent(server, request, lent, LONG, 7));
    OK(homa_message_free(request));
    OK(homa_message_free(received(client)));
    while (homa_receive(server, 0, &message) == HOMA_TIMED_OUT) CHECK(poll(&ready, 1, -1) == 1);
    CHECK(homa_message_kind(message) == HOMA_RETURNED && homa_message_cookie(message) == 7);
    free(lent);
    OK(homa_message_free(message));
    CHECK(poll(&ready, 1, 0) == 0);
    OK(homa_socket_close(server));
    OK(homa_host_close(host));
}

int main(void) {
    homa_host *here = local_host(), *there = local_host();
    homa_socket *client = NULL, *server = NULL, *silent = NULL;
    homa_address to, to_silent;
    homa_message *response = NULL;
    pthread_t thread;
    OK(homa_socket_open(here, 0, &client));
    OK(homa_socket_open(there, 8, &server));
    OK(homa_socket_open(there, 9, &silent));
    OK(homa_socket_address(server, &to));
    OK(homa_socket_address(silent, &to_silent));
    CHECK(homa_message_kind(NULL) == HOMA_NO_MESSAGE);
    CHECK(pthread_create(&thread, NULL, serve, server) == 0);
    call_in_vain(client, &to_silent);
    start(client, &to, &to_silent);
    close_with_calls(here, &to_silent);
    OK(homa_call(client, &to, "e", 1, HOMA_FOREVER, &response));
    OK(homa_message_free(response));
    CHECK(pthread_join(thread, NULL) == 0);
    shut_down(client);
    by_descriptor(client);
    OK(homa_socket_close(client));
    OK(homa_socket_close(server));
    OK(homa_socket_close(silent));
    OK(homa_host_close(here));
    OK(homa_host_close(there));
    CHECK(homa_open_handles() == 0);
    return 0;
}
