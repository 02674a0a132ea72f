/* An echo server, which first prints its address. It does not answer a request "hold", and frees it when the
 * next request arrives. A request "end" ends the server. */
#include "check.h"

static int says(const void *data, size_t length, const char *word) {
    return length == strlen(word) && memcmp(data, word, length) == 0;
}

int main(void) {
    homa_host *host = local_host();
    homa_socket *socket = NULL;
    homa_address address;
    char text[HOMA_ADDRESS_TEXT_BYTES];
    homa_message *held = NULL;

    OK(homa_socket_open(host, 99, &socket));
    OK(homa_socket_address(socket, &address));
    OK(homa_address_format(&address, text, sizeof text));
    printf("%s\n", text);
    fflush(stdout);

    for (int over = 0; !over;) {
        homa_message *request = NULL;
        size_t length = 0;
        OK(homa_receive(socket, HOMA_FOREVER, &request));
        CHECK(homa_message_is_request(request) && homa_message_id(request) % 2 == 1);
        OK(homa_message_from(request, &address));
        CHECK(address.udp_port > 0 && address.port > HOMA_MAX_SERVER_PORT);
        homa_message_free(held);
        held = NULL;
        const void *data = homa_message_data(request, &length);
        if (says(data, length, "hold")) {
            held = request;
            continue;
        }
        over = says(data, length, "end");
        OK(homa_reply(socket, request, data, length));
        FAILS(homa_reply(socket, request, data, length), HOMA_ARGUMENT, "answered before");
        homa_message_free(request);
    }
    homa_socket_close(socket);
    homa_host_close(host);
    CHECK(homa_open_handles() == 0);
    return 0;
}
