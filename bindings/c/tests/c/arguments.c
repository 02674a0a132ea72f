/* Calls every function with wrong arguments: each call must fail with an error that names the argument, and
 * have no other effect. */
#include "check.h"

#define NULLS(call, name) FAILS(call, HOMA_ARGUMENT, "`" name "` is NULL")

static void of_addresses(void) {
    homa_address address;
    char text[HOMA_ADDRESS_TEXT_BYTES];
    NULLS(homa_address_parse(NULL, &address), "text");
    NULLS(homa_address_parse("127.0.0.1", NULL), "address");
    FAILS(homa_address_parse("nowhere", &address), HOMA_ARGUMENT, "not an IP address");
    FAILS(homa_address_parse("\xff", &address), HOMA_ARGUMENT, "UTF-8");
    OK(homa_address_parse("[::1]", &address));
    CHECK(address.udp_port == 14600 && address.port == 99);
    NULLS(homa_address_format(NULL, text, sizeof text), "address");
    NULLS(homa_address_format(&address, NULL, sizeof text), "text");
    FAILS(homa_address_format(&address, text, strlen("[::1]:14600/99")), HOMA_ARGUMENT, "room");
    OK(homa_address_format(&address, text, sizeof "[::1]:14600/99"));
    CHECK(strcmp(text, "[::1]:14600/99") == 0);
}

static void of_options(void) {
    homa_options *options = NULL;
    homa_option first;
    size_t count = 0;
    NULLS(homa_options_new(NULL), "options");
    OK(homa_options_new(&options));
    NULLS(homa_options_set(NULL, "bind", "127.0.0.1:0"), "options");
    NULLS(homa_options_set(options, NULL, "1"), "name");
    NULLS(homa_options_set(options, "poll-us", NULL), "value");
    FAILS(homa_options_set(options, "poll-us", "\xff"), HOMA_ARGUMENT, "UTF-8");
    FAILS(homa_options_set(options, "poll_us", "1"), HOMA_ARGUMENT, "no option \"poll_us\": choose bind, driver");
    FAILS(homa_options_set(options, "driver", "tcp"), HOMA_ARGUMENT, "udp or raw or linux-udp or packet or xdp");
    FAILS(homa_options_set(options, "max-message", "0"), HOMA_ARGUMENT, "1 to 2147483647");
    FAILS(homa_options_set(options, "max-resends", "256"), HOMA_ARGUMENT, "1 to 255");
    NULLS(homa_option_list(NULL, 1, &count), "into");
    CHECK(count == 0);
    OK(homa_option_list(NULL, 0, NULL));
    OK(homa_option_list(&first, 1, &count));
    CHECK(count > 10 && strcmp(first.name, "bind") == 0 && *first.meaning && strcmp(first.value, "0.0.0.0:0") == 0);
    OK(homa_options_free(options));
    OK(homa_options_free(NULL));
    FAILS(homa_options_free(options), HOMA_ARGUMENT, "handed back before");
    FAILS(homa_options_set(options, "poll-us", "1"), HOMA_ARGUMENT, "handed back before");
}

static void of_hosts(void) {
    homa_options *options = local_options();
    homa_host *host = NULL;
    NULLS(homa_host_open(options, NULL), "host");
    OK(homa_options_set(options, "bind", "192.0.2.1:0"));
    FAILS(homa_host_open(options, &host), HOMA_SYSTEM, "not an address of this host");
    OK(homa_options_set(options, "bind", "127.0.0.1:0"));
    OK(homa_options_set(options, "driver", "packet"));
    OK(homa_options_set(options, "interface", "no-such-device"));
    CHECK(homa_host_open(options, &host) == HOMA_SYSTEM);
    CHECK(host == NULL);
    OK(homa_options_free(options));
    FAILS(homa_host_open(options, &host), HOMA_ARGUMENT, "`options` was handed back before");
    OK(homa_host_open(NULL, &host));
    OK(homa_host_close(host));
    OK(homa_host_close(NULL));
}

/* Sockets of a host with several endpoints make calls and answer requests. */
static void of_endpoints(homa_host *server) {
    homa_options *options = local_options();
    homa_host *host = NULL;
    homa_socket *answering = NULL, *calling = NULL;
    homa_address to;
    homa_message *message = NULL;
    OK(homa_options_set(options, "endpoints", "3"));
    OK(homa_host_open(options, &host));
    OK(homa_options_free(options));
    for (int turn = 0; turn < 2; turn++) {
        OK(homa_socket_open(turn ? host : server, 0, &calling));
        OK(homa_socket_open(turn ? server : host, 5, &answering));
        OK(homa_socket_address(answering, &to));
        for (uint64_t call = 0; call < 4; call++) OK(homa_start(calling, &to, "x", 1, HOMA_FOREVER, call, NULL));
        for (int call = 0; call < 4; call++) {
            OK(homa_receive(answering, HOMA_FOREVER, &message));
            OK(homa_reply(answering, message, "y", 1));
            OK(homa_message_free(message));
            OK(homa_receive(calling, HOMA_FOREVER, &message));
            OK(homa_message_result(message));
            OK(homa_message_free(message));
        }
        OK(homa_socket_close(calling));
        OK(homa_socket_close(answering));
    }
    OK(homa_host_close(host));
}

static void of_sockets(homa_host *host) {
    homa_socket *socket = NULL, *second = NULL;
    homa_address address;
    homa_host *same = NULL;
    homa_options *options = local_options();
    char bind[32];
    NULLS(homa_socket_open(NULL, 0, &socket), "host");
    NULLS(homa_socket_open(host, 0, NULL), "socket");
    FAILS(homa_socket_open(host, HOMA_MAX_SERVER_PORT + 1, &socket), HOMA_ARGUMENT, "choose 1 to 32767");
    OK(homa_socket_open(host, 5, &socket));
    FAILS(homa_socket_open(host, 5, &second), HOMA_IN_USE, "port 5");
    NULLS(homa_socket_fd(NULL, NULL), "socket");
    NULLS(homa_socket_fd(socket, NULL), "fd");
    NULLS(homa_socket_address(NULL, &address), "socket");
    NULLS(homa_socket_address(socket, NULL), "address");
    OK(homa_socket_address(socket, &address));
    CHECK(address.port == 5 && address.udp_port > 0);
    snprintf(bind, sizeof bind, "127.0.0.1:%u", address.udp_port);
    OK(homa_options_set(options, "bind", bind));
    FAILS(homa_host_open(options, &same), HOMA_IN_USE, "in use");
    OK(homa_options_free(options));
    OK(homa_socket_shutdown(NULL));
    OK(homa_socket_close(NULL));
    OK(homa_socket_close(socket));
}

static void of_calls(homa_host *host) {
    homa_socket *socket = NULL;
    homa_address to;
    homa_message *message = NULL;
    char *large = calloc(1, 1000001);
    CHECK(large != NULL);
    OK(homa_socket_open(host, 6, &socket));
    OK(homa_socket_address(socket, &to));
    NULLS(homa_call(NULL, &to, "x", 1, 0, &message), "socket");
    NULLS(homa_call(socket, NULL, "x", 1, 0, &message), "to");
    NULLS(homa_call(socket, &to, NULL, 1, 0, &message), "data");
    NULLS(homa_call(socket, &to, "x", 1, 0, NULL), "response");
    FAILS(homa_call(socket, &to, "x", SIZE_MAX, 0, &message), HOMA_SIZE, "max_message");
    FAILS(homa_start(socket, &to, "x", (size_t)1 << 60, 0, 0, NULL), HOMA_SIZE, "max_message");
    FAILS(homa_call(socket, &to, NULL, 0, 0, &message), HOMA_SIZE, "empty");
    FAILS(homa_call(socket, &to, large, 1000001, 0, &message), HOMA_SIZE, "max_message");
    NULLS(homa_start(NULL, &to, "x", 1, HOMA_FOREVER, 0, NULL), "socket");
    NULLS(homa_start(socket, NULL, "x", 1, HOMA_FOREVER, 0, NULL), "to");
    NULLS(homa_start(socket, &to, NULL, 1, HOMA_FOREVER, 0, NULL), "data");
    FAILS(homa_start(socket, &to, "", 0, HOMA_FOREVER, 0, NULL), HOMA_SIZE, "empty");
    NULLS(homa_cancel(NULL, 2), "socket");
    FAILS(homa_cancel(socket, 2), HOMA_NO_CALL, "id 2");
    NULLS(homa_receive(NULL, 0, &message), "socket");
    NULLS(homa_receive(socket, 0, NULL), "message");
    FAILS(homa_receive(socket, 0, &message), HOMA_TIMED_OUT, "nothing arrived");
    to.port = 0;
    FAILS(homa_start(socket, &to, "x", 1, HOMA_FOREVER, 0, NULL), HOMA_ARGUMENT, "Homa port 0");
    to.port = 6;
    to.udp_port = 0;
    FAILS(homa_start(socket, &to, "x", 1, HOMA_FOREVER, 0, NULL), HOMA_ARGUMENT, "UDP port");
    CHECK(message == NULL);

    /* A socket calls itself; a response cannot be answered. */
    OK(homa_socket_address(socket, &to));
    OK(homa_start(socket, &to, "x", 1, HOMA_FOREVER, 3, NULL));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    NULLS(homa_reply(NULL, message, "y", 1), "socket");
    NULLS(homa_reply(socket, NULL, "y", 1), "request");
    NULLS(homa_reply(socket, message, NULL, 1), "data");
    OK(homa_reply(socket, message, "y", 1));
    OK(homa_message_free(message));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    CHECK(homa_message_cookie(message) == 3);
    FAILS(homa_reply(socket, message, "y", 1), HOMA_ARGUMENT, "no request");
    NULLS(homa_message_from(message, NULL), "address");
    CHECK(homa_message_data(message, NULL) != NULL);
    OK(homa_message_free(message));

    /* If a response is too long, the client gets an error. */
    OK(homa_start(socket, &to, "x", 1, HOMA_FOREVER, 4, NULL));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    FAILS(homa_reply(socket, message, "y", SIZE_MAX), HOMA_SIZE, "max_message");
    FAILS(homa_reply(socket, message, "y", 1), HOMA_ARGUMENT, "answered before");
    OK(homa_message_free(message));
    OK(homa_receive(socket, HOMA_FOREVER, &message));
    CHECK(homa_message_cookie(message) == 4);
    FAILS(homa_message_result(message), HOMA_PEER_GONE, "request");
    OK(homa_message_free(message));

    OK(homa_socket_shutdown(socket));
    FAILS(homa_start(socket, &to, "x", 1, HOMA_FOREVER, 0, NULL), HOMA_CLOSED, "shut down");
    FAILS(homa_receive(socket, 0, &message), HOMA_CLOSED, "shut down");
    OK(homa_socket_close(socket));
    free(large);
}

static void of_messages(void) {
    homa_address address;
    size_t length = 1;
    CHECK(!homa_message_is_request(NULL));
    CHECK(homa_message_data(NULL, &length) == NULL && length == 0);
    CHECK(homa_message_data(NULL, NULL) == NULL);
    CHECK(homa_message_id(NULL) == 0 && homa_message_cookie(NULL) == 0);
    NULLS(homa_message_result(NULL), "message");
    NULLS(homa_message_from(NULL, &address), "message");
    OK(homa_message_free(NULL));
}

static void of_statistics(homa_host *host) {
    NULLS(homa_statistics(NULL, NULL, 0, NULL), "host");
    NULLS(homa_statistics(host, NULL, 1, NULL), "into");
    OK(homa_statistics(host, NULL, 0, NULL));
    NULLS(homa_metrics_text(NULL, NULL, 0, NULL), "host");
    NULLS(homa_metrics_text(host, NULL, 0, NULL), "text");
    NULLS(homa_trace_save(NULL, "x"), "host");
    NULLS(homa_trace_save(host, NULL), "path");
    FAILS(homa_trace_save(host, "/nowhere/x.trace"), HOMA_SYSTEM, "/nowhere/x.trace");
    FAILS(homa_trace_save(host, "/"), HOMA_SYSTEM, "names no file");
    NULLS(homa_trace_freeze(NULL), "host");
    NULLS(homa_trace_unfreeze(NULL), "host");
    CHECK(!homa_trace_is_frozen(NULL));
}

int main(void) {
    CHECK(*homa_last_error() == '\0' && *homa_version() != '\0');
    homa_host *host = local_host();
    of_addresses();
    of_options();
    of_hosts();
    of_endpoints(host);
    of_sockets(host);
    of_calls(host);
    of_messages();
    of_statistics(host);
    OK(homa_host_close(host));
    CHECK(homa_open_handles() == 0);
    return 0;
}
