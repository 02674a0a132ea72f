/* Misuses handles, and uses them concurrently in many threads: the functions must return errors and have no
 * other effect. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 12 };

/* Values that never were handles, including addresses: the library must not dereference them. */
static void no_handles(void) {
    int local = 0;
    void *wrong[] = {(void *)1, &local, (void *)UINTPTR_MAX, (void *)(UINTPTR_MAX / 2 + 1)};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        homa_message *message = NULL;
        homa_socket *socket = NULL;
        CHECK(homa_receive(wrong[at], 0, &message) == HOMA_ARGUMENT && message == NULL);
        CHECK(homa_socket_open(wrong[at], 0, &socket) == HOMA_ARGUMENT && socket == NULL);
        FAILS(homa_host_close(wrong[at]), HOMA_ARGUMENT, "`host`");
        FAILS(homa_socket_close(wrong[at]), HOMA_ARGUMENT, "`socket`");
        FAILS(homa_socket_shutdown(wrong[at]), HOMA_ARGUMENT, "`socket`");
        FAILS(homa_message_free(wrong[at]), HOMA_ARGUMENT, "`message`");
        FAILS(homa_options_free(wrong[at]), HOMA_ARGUMENT, "`options`");
        CHECK(homa_message_data(wrong[at], NULL) == NULL && homa_message_id(wrong[at]) == 0);
        CHECK(!homa_trace_is_frozen(wrong[at]));
    }
}

/* A freed handle stays invalid, even if a new object occupies its slot. */
static void handed_back(void) {
    homa_host *host = local_host();
    homa_socket *socket = NULL, *next = NULL;
    homa_address address;
    homa_message *message = NULL;
    OK(homa_socket_open(host, 7, &socket));
    OK(homa_socket_address(socket, &address));
    FAILS(homa_receive((homa_socket *)(void *)host, 0, &message), HOMA_ARGUMENT, "`socket` is no homa_socket");
    FAILS(homa_message_free((homa_message *)(void *)socket), HOMA_ARGUMENT, "`message` is no homa_message");
    OK(homa_start(socket, &address, "x", 1, HOMA_FOREVER, 0, NULL));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    OK(homa_message_free(message));
    FAILS(homa_message_free(message), HOMA_ARGUMENT, "`message` was handed back before");
    CHECK(homa_message_data(message, NULL) == NULL);
    FAILS(homa_reply(socket, message, "y", 1), HOMA_ARGUMENT, "`request` was handed back before");
    OK(homa_socket_close(socket));
    OK(homa_socket_open(host, 6, &next));
    CHECK(next != socket);
    FAILS(homa_socket_close(socket), HOMA_ARGUMENT, "`socket` was handed back before");
    FAILS(homa_socket_fd(socket, NULL), HOMA_ARGUMENT, "`socket` was handed back before");
    OK(homa_socket_address(next, &address));

    /* A received message is valid without its socket, but can no longer be answered. */
    OK(homa_start(next, &address, "kept", 4, HOMA_FOREVER, 0, NULL));
    homa_message *stale = message;
    OK(homa_receive(next, HOMA_FOREVER, &message));
    CHECK(message != stale);
    FAILS(homa_message_free(stale), HOMA_ARGUMENT, "`message` was handed back before");
    OK(homa_socket_close(next));
    FAILS(homa_reply(next, message, "y", 1), HOMA_ARGUMENT, "`socket` was handed back before");
    OK(homa_host_close(host));
    FAILS(homa_host_close(host), HOMA_ARGUMENT, "`host` was handed back before");
    size_t length = 0;
    CHECK(memcmp(homa_message_data(message, &length), "kept", 4) == 0 && length == 4);
    OK(homa_message_free(message));
}

struct shared {
    homa_socket *socket;
    homa_address address;
    homa_message *message;
    int freed, replied;
    pthread_mutex_t lock;
};

static void count(struct shared *shared, int *counter, homa_result result) {
    CHECK(result == HOMA_OK || result == HOMA_ARGUMENT || result == HOMA_PEER_GONE);
    if (result != HOMA_OK) return;
    pthread_mutex_lock(&shared->lock);
    (*counter)++;
    pthread_mutex_unlock(&shared->lock);
}

/* Answers and frees the same message as all other threads. */
static void *contend(void *argument) {
    struct shared *shared = argument;
    count(shared, &shared->replied, homa_reply(shared->socket, shared->message, "y", 1));
    count(shared, &shared->freed, homa_message_free(shared->message));
    return NULL;
}

static void run_threads(void *(*body)(void *), void *argument) {
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) CHECK(pthread_create(&threads[at], NULL, body, argument) == 0);
    for (int at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

/* Many threads answer and free one message: exactly one thread succeeds in freeing it, and at most one in
 * answering it. */
static void one_message_for_all(homa_host *host) {
    struct shared shared = {.lock = PTHREAD_MUTEX_INITIALIZER};
    OK(homa_socket_open(host, 8, &shared.socket));
    OK(homa_socket_address(shared.socket, &shared.address));
    for (int round = 1; round <= ROUNDS; round++) {
        OK(homa_start(shared.socket, &shared.address, "x", 1, HOMA_FOREVER, 0, NULL));
        OK(homa_receive(shared.socket, HOMA_FOREVER, &shared.message));
        CHECK(homa_message_is_request(shared.message));
        run_threads(contend, &shared);
        CHECK(shared.freed == round && shared.replied <= round);
        OK(homa_receive(shared.socket, HOMA_FOREVER, &shared.message));
        OK(homa_message_free(shared.message));
    }
    OK(homa_socket_close(shared.socket));
}

/* Makes calls, receives and answers until the socket is closed. */
static void *use(void *argument) {
    struct shared *shared = argument;
    for (;;) {
        homa_message *message = NULL;
        int fd = -1;
        homa_result result = homa_start(shared->socket, &shared->address, "x", 1, 1000000, 0, NULL);
        if (result == HOMA_OK) result = homa_socket_fd(shared->socket, &fd);
        if (result == HOMA_OK) result = homa_receive(shared->socket, HOMA_FOREVER, &message);
        if (message != NULL && homa_message_is_request(message)) homa_reply(shared->socket, message, "y", 1);
        homa_message_free(message);
        if (result == HOMA_CLOSED || result == HOMA_ARGUMENT) return NULL;
        CHECK(result == HOMA_OK);
    }
}

static void *close_it(void *argument) {
    struct shared *shared = argument;
    count(shared, &shared->freed, homa_socket_close(shared->socket));
    return NULL;
}

/* A socket is closed, more than once, while other threads use it; its host was closed before. */
static void closed_under_others(void) {
    for (int round = 0; round < ROUNDS; round++) {
        struct shared shared = {.lock = PTHREAD_MUTEX_INITIALIZER};
        pthread_t users[THREADS];
        homa_host *host = local_host();
        OK(homa_socket_open(host, 9, &shared.socket));
        OK(homa_socket_address(shared.socket, &shared.address));
        OK(homa_host_close(host));
        for (int at = 0; at < THREADS; at++) CHECK(pthread_create(&users[at], NULL, use, &shared) == 0);
        run_threads(close_it, &shared);
        CHECK(shared.freed == 1);
        for (int at = 0; at < THREADS; at++) CHECK(pthread_join(users[at], NULL) == 0);
    }
}

int main(void) {
    no_handles();
    handed_back();
    homa_host *host = local_host();
    one_message_for_all(host);
    OK(homa_host_close(host));
    closed_under_others();
    CHECK(homa_open_handles() == 0);
    return 0;
}
