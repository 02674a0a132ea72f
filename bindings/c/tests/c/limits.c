/* Tests a process with few descriptors, threads with small stacks, and cancelled threads. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

/* The stack size that homa.h promises to suffice. */
enum { STACK_BYTES = 128 * 1024 };

/* Length in bytes of a message of several packets. */
enum { LONG = 100000 };

static int descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Raises the descriptor limit by one at a time. Until the limit suffices, opening fails with an
 * error that states the reason, and leaks nothing. */
static void few_descriptors(void) {
    struct rlimit before, few;
    int begin = descriptors(), done = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    for (int more = 0; !done; more++) {
        homa_options *options = local_options();
        homa_host *host = NULL;
        homa_socket *socket = NULL;
        int fd = -1;
        CHECK(more < 100);
        few.rlim_cur = (rlim_t)(begin + more);
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        homa_result result = homa_host_open(options, &host);
        if (result == HOMA_OK) result = homa_socket_open(host, 0, &socket);
        if (result == HOMA_OK) result = homa_socket_fd(socket, &fd);
        done = result == HOMA_OK;
        CHECK(done || (result == HOMA_SYSTEM && *homa_last_error() != '\0'));
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        OK(homa_options_free(options));
        OK(homa_socket_close(socket));
        OK(homa_host_close(host));
        CHECK(homa_open_handles() == 0 && descriptors() == begin);
    }
}

struct echo {
    homa_socket *server, *client;
    homa_address address;
};

static void *serve(void *argument) {
    struct echo *echo = argument;
    homa_message *request = NULL;
    while (homa_receive(echo->server, HOMA_FOREVER, &request) == HOMA_OK) {
        size_t length = 0;
        const void *data = homa_message_data(request, &length);
        OK(homa_reply(echo->server, request, data, length));
        OK(homa_message_free(request));
    }
    return NULL;
}

static void *call(void *argument) {
    struct echo *echo = argument;
    homa_message *response = NULL;
    char *data = calloc(1, 1000000);
    CHECK(data != NULL);
    OK(homa_call(echo->client, &echo->address, data, 1000000, HOMA_FOREVER, &response));
    OK(homa_message_free(response));
    free(data);
    return NULL;
}

static void little_stack(void) {
    homa_host *host = local_host(), *other = local_host();
    struct echo echo;
    pthread_attr_t small;
    pthread_t server, client;
    OK(homa_socket_open(host, 9, &echo.server));
    OK(homa_socket_open(other, 0, &echo.client));
    OK(homa_socket_address(echo.server, &echo.address));
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, STACK_BYTES) == 0);
    CHECK(pthread_create(&server, &small, serve, &echo) == 0);
    CHECK(pthread_create(&client, &small, call, &echo) == 0);
    CHECK(pthread_join(client, NULL) == 0);
    OK(homa_socket_shutdown(echo.server));
    CHECK(pthread_join(server, NULL) == 0);
    pthread_attr_destroy(&small);
    OK(homa_socket_close(echo.client));
    OK(homa_socket_close(echo.server));
    OK(homa_host_close(other));
    OK(homa_host_close(host));
}

static int cleaned;

static void clean(void *memory) {
    free(memory);
    cleaned++;
}

static void *receive_for_ever(void *socket) {
    homa_message *message = NULL;
    pthread_cleanup_push(clean, NULL);
    homa_receive(socket, HOMA_FOREVER, &message);
    pthread_cleanup_pop(0);
    return NULL;
}

/* The thread's cleanup handler frees the request. */
static void *call_for_ever(void *argument) {
    struct echo *echo = argument;
    homa_message *message = NULL;
    char *request = malloc(LONG);
    CHECK(request != NULL);
    memset(request, 1, LONG);
    pthread_cleanup_push(clean, request);
    homa_call(echo->client, &echo->address, request, LONG, HOMA_FOREVER, &message);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels a thread after a pause, which is likely long enough for it to sleep in its call. */
static void cancel(void *(*body)(void *), void *argument, int pause_us) {
    pthread_t thread;
    void *end = NULL;
    cleaned = 0;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    CHECK(pause_us == 0 || usleep(pause_us) == 0);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED && cleaned == 1);
}

/* Cancels threads before they wait, and while they sleep in the kernel; the socket must be unaffected. */
static void cancelled(void) {
    homa_options *options = local_options();
    homa_host *host = NULL;
    struct echo echo;
    homa_message *message = NULL;
    memset(&echo, 0, sizeof(echo));
    OK(homa_options_set(options, "poll-us", "0"));
    OK(homa_host_open(options, &host));
    OK(homa_options_free(options));
    OK(homa_socket_open(host, 9, &echo.server));
    OK(homa_socket_open(host, 0, &echo.client));
    OK(homa_socket_address(echo.server, &echo.address));
    for (int pause_us = 0; pause_us <= 150000; pause_us += 150000) {
        cancel(receive_for_ever, echo.server, pause_us);
        cancel(call_for_ever, &echo, pause_us);
        size_t length = 0;
        OK(homa_start(echo.client, &echo.address, "x", 1, HOMA_FOREVER, 0, NULL));
        /* A request of a cancelled thread may have arrived first. */
        while (length != 1) {
            OK(homa_receive(echo.server, HOMA_FOREVER, &message));
            homa_message_data(message, &length);
            OK(homa_message_free(message));
        }
        OK(homa_receive(echo.client, HOMA_FOREVER, &message));
        OK(homa_message_free(message));
    }
    OK(homa_socket_close(echo.client));
    OK(homa_socket_close(echo.server));
    OK(homa_host_close(host));
}

int main(void) {
    alarm(300);
    few_descriptors();
    cancelled();
    little_stack();
    CHECK(homa_open_handles() == 0);
    return 0;
}
