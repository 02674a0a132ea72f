/* Reads the metrics of a host, and writes its time trace to the file that the argument names. */
#include "check.h"

#include <signal.h>
#include <unistd.h>

static int taken;

static void take(int signal) {
    (void)signal;
    taken = 1;
}

/* Makes one call that is answered, so that the metrics and the trace have content. */
static void call(homa_host *host) {
    homa_socket *socket = NULL;
    homa_address address;
    homa_message *message = NULL;
    OK(homa_socket_open(host, 9, &socket));
    OK(homa_socket_address(socket, &address));
    OK(homa_start(socket, &address, "x", 1, HOMA_FOREVER, 0, NULL));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    OK(homa_reply(socket, message, "y", 1));
    OK(homa_message_free(message));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    OK(homa_message_free(message));
    OK(homa_socket_close(socket));
}

int main(int count, char **arguments) {
    homa_host *host = NULL;
    homa_options *options = local_options();
    size_t length = 0;
    sigset_t blocked;
    CHECK(count == 2);

    /* Below, this thread blocks the signal. If the library's threads did not block it too, the kernel would
     * deliver it to one of them. */
    CHECK(signal(SIGUSR1, take) != SIG_ERR);
    OK(homa_options_set(options, "trace-records", "1024"));
    OK(homa_host_open(options, &host));
    OK(homa_options_free(options));
    call(host);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && kill(getpid(), SIGUSR1) == 0);
    call(host);
    CHECK(!taken && sigpending(&blocked) == 0 && sigismember(&blocked, SIGUSR1) == 1);

    FAILS(homa_metrics_text(host, (char *)&length, 1, &length), HOMA_ARGUMENT, "`room` is 1 bytes");
    CHECK(length > 10000);
    char *text = malloc(length * 2);
    CHECK(text != NULL);
    OK(homa_metrics_text(host, text, length * 2, &length));
    CHECK(strlen(text) == length && strstr(text, "\n# TYPE homa_packets_received_total counter\n") != NULL);
    free(text);

    CHECK(!homa_trace_is_frozen(host));
    OK(homa_trace_freeze(host));
    CHECK(homa_trace_is_frozen(host));
    OK(homa_trace_save(host, arguments[1]));
    OK(homa_trace_unfreeze(host));
    CHECK(!homa_trace_is_frozen(host));
    OK(homa_host_close(host));
    CHECK(homa_open_handles() == 0);
    return 0;
}
