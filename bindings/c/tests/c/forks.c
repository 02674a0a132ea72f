/* A forked child cannot use its parent's handles; in the child, the library starts without handles. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int over;

/* Keeps the library's locks busy while the main thread forks. */
static void *call(void *argument) {
    homa_socket *socket = argument;
    homa_address address;
    OK(homa_socket_address(socket, &address));
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        homa_message *message = NULL;
        OK(homa_start(socket, &address, "x", 1, HOMA_FOREVER, 0, NULL));
        OK(homa_receive(socket, HOMA_FOREVER, &message));
        OK(homa_reply(socket, message, "y", 1));
        OK(homa_message_free(message));
        OK(homa_receive(socket, HOMA_FOREVER, &message));
        OK(homa_message_result(message));
        OK(homa_message_free(message));
    }
    return NULL;
}

static void child(homa_host *host, homa_socket *socket, const homa_address *server) {
    homa_host *own = NULL;
    homa_socket *calling = NULL;
    homa_message *message = NULL;
    CHECK(homa_open_handles() == 0);
    FAILS(homa_receive(socket, 0, &message), HOMA_ARGUMENT, "`socket` is the parent process's");
    FAILS(homa_socket_open(host, 0, &calling), HOMA_ARGUMENT, "after fork() a child opens a host of its own");
    FAILS(homa_socket_close(socket), HOMA_ARGUMENT, "parent");
    FAILS(homa_host_close(host), HOMA_ARGUMENT, "parent");
    own = local_host();
    OK(homa_socket_open(own, 0, &calling));
    OK(homa_call(calling, server, "child", 5, HOMA_FOREVER, &message));
    OK(homa_message_free(message));
    OK(homa_socket_close(calling));
    OK(homa_host_close(own));
    CHECK(homa_open_handles() == 0);
}

int main(void) {
    enum { CHILDREN = 10 };
    homa_host *host = local_host();
    homa_socket *socket = NULL, *busy = NULL;
    homa_address server;
    pthread_t thread;
    OK(homa_socket_open(host, 9, &socket));
    OK(homa_socket_open(host, 10, &busy));
    OK(homa_socket_address(socket, &server));
    CHECK(pthread_create(&thread, NULL, call, busy) == 0);
    for (int at = 0; at < CHILDREN; at++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(host, socket, &server);
            _exit(0);
        }
        homa_message *request = NULL;
        int status = -1;
        OK(homa_receive(socket, HOMA_FOREVER, &request));
        OK(homa_reply(socket, request, "parent", 6));
        OK(homa_message_free(request));
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(homa_socket_close(busy));
    OK(homa_socket_close(socket));
    OK(homa_host_close(host));
    CHECK(homa_open_handles() == 0);
    return 0;
}
