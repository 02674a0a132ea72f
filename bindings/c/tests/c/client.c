/* Calls the server whose address is the argument, in every way that the library offers. */
#include "check.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { CALLS = 8 };

static const size_t LENGTHS[] = {100, 100000, 1000000};

static unsigned char *bytes(size_t length) {
    unsigned char *data = malloc(length);
    CHECK(data != NULL);
    for (size_t at = 0; at < length; at++) data[at] = (unsigned char)(at * 31 + length);
    return data;
}

static void is_echo(const homa_message *response, const void *data, size_t length) {
    size_t got = 0;
    OK(homa_message_result(response));
    CHECK(!homa_message_is_request(response));
    const void *answer = homa_message_data(response, &got);
    CHECK(got == length && memcmp(answer, data, length) == 0);
}

static void blocking(homa_socket *socket, const homa_address *server) {
    for (size_t at = 0; at < sizeof LENGTHS / sizeof *LENGTHS; at++) {
        unsigned char *data = bytes(LENGTHS[at]);
        homa_message *response = NULL;
        OK(homa_call(socket, server, data, LENGTHS[at], HOMA_FOREVER, &response));
        is_echo(response, data, LENGTHS[at]);
        homa_message_free(response);
        free(data);
    }
}

/* Sleeps in epoll until the socket has a message, and returns it. */
static homa_message *awaited(int epoll, homa_socket *socket) {
    for (;;) {
        homa_message *message = NULL;
        homa_result result = homa_receive(socket, 0, &message);
        if (result == HOMA_OK) return message;
        CHECK(result == HOMA_TIMED_OUT && message == NULL);
        struct epoll_event event;
        CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
    }
}

static void by_epoll(homa_socket *socket, const homa_address *server) {
    unsigned char *data = bytes(LENGTHS[1]);
    uint64_t ids[CALLS];
    int fd = -1, same = -1, seen[CALLS] = {0};
    OK(homa_socket_fd(socket, &fd));
    OK(homa_socket_fd(socket, &same));
    CHECK(fd >= 0 && fd == same);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    for (uint64_t call = 0; call < CALLS; call++) {
        OK(homa_start(socket, server, data, LENGTHS[1] - call, HOMA_FOREVER, call, &ids[call]));
        CHECK(ids[call] % 2 == 0);
    }
    for (int got = 0; got < CALLS; got++) {
        homa_message *response = awaited(epoll, socket);
        homa_address from;
        uint64_t call = homa_message_cookie(response);
        CHECK(call < CALLS && !seen[call] && homa_message_id(response) == ids[call]);
        seen[call] = 1;
        OK(homa_message_from(response, &from));
        CHECK(from.port == server->port && from.udp_port == server->udp_port);
        is_echo(response, data, LENGTHS[1] - call);
        homa_message_free(response);
    }
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);

    /* A cancelled call has an outcome like any other. */
    OK(homa_start(socket, server, "hold", 4, HOMA_FOREVER, 77, &ids[0]));
    OK(homa_cancel(socket, ids[0]));
    homa_message *outcome = awaited(epoll, socket);
    size_t length = 1;
    CHECK(homa_message_cookie(outcome) == 77 && homa_message_data(outcome, &length) == NULL && length == 0);
    FAILS(homa_message_result(outcome), HOMA_CANCELLED, "aborted");
    homa_message_free(outcome);
    FAILS(homa_cancel(socket, ids[0]), HOMA_NO_CALL, "no call of this socket");

    /* A call that exceeds its timeout has an outcome, too. */
    OK(homa_start(socket, server, "hold", 4, 1000000, 78, NULL));
    outcome = awaited(epoll, socket);
    CHECK(homa_message_cookie(outcome) == 78);
    FAILS(homa_message_result(outcome), HOMA_TIMED_OUT, "deadline");
    homa_message_free(outcome);
    close(epoll);
    free(data);
}

static void in_vain(homa_socket *socket, const homa_address *server) {
    homa_message *response = NULL;
    homa_address nobody = *server;
    FAILS(homa_call(socket, server, "hold", 4, 1000000, &response), HOMA_TIMED_OUT, "deadline");
    nobody.port = 7;
    FAILS(homa_call(socket, &nobody, "x", 1, HOMA_FOREVER, &response), HOMA_NO_PORT, "no server on Homa port 7");
    CHECK(response == NULL);
}

static void counted(homa_host *host) {
    size_t count = 0, same = 0;
    OK(homa_statistics(host, NULL, 0, &count));
    CHECK(count > 10);
    homa_statistic *all = calloc(count, sizeof *all);
    CHECK(all != NULL);
    OK(homa_statistics(host, all, count, &same));
    CHECK(same == count);
    uint64_t received = 0;
    for (size_t at = 0; at < count; at++) {
        CHECK(*all[at].name && *all[at].meaning);
        if (strcmp(all[at].name, "packets_received") == 0) received = all[at].value;
    }
    CHECK(received > 0);
    free(all);
}

static void *wait_for_the_end(void *socket) {
    homa_message *message = NULL;
    FAILS(homa_receive(socket, HOMA_FOREVER, &message), HOMA_CLOSED, "shut down");
    return NULL;
}

int main(int count, char **arguments) {
    homa_host *host = local_host();
    homa_socket *socket = NULL;
    homa_address server;
    homa_message *response = NULL;
    pthread_t thread;

    CHECK(count == 2);
    OK(homa_address_parse(arguments[1], &server));
    OK(homa_socket_open(host, 0, &socket));
    blocking(socket, &server);
    by_epoll(socket, &server);
    in_vain(socket, &server);
    counted(host);
    OK(homa_call(socket, &server, "end", 3, HOMA_FOREVER, &response));

    CHECK(pthread_create(&thread, NULL, wait_for_the_end, socket) == 0);
    homa_socket_shutdown(socket);
    CHECK(pthread_join(thread, NULL) == 0);
    homa_host_close(host);
    homa_socket_close(socket);
    /* A message outlives its socket and its host. */
    is_echo(response, "end", 3);
    homa_message_free(response);
    CHECK(homa_open_handles() == 0);
    return 0;
}
