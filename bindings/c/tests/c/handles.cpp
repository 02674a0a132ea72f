// Uses the interface from C++: handles that free themselves, threads that answer, and objects that are
// destroyed at program exit.
#include <homa.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

void ok(homa_result result) {
    if (result != HOMA_OK) throw std::runtime_error(homa_last_error());
}

template <typename T, homa_result (*release)(T *)>
struct Release {
    void operator()(T *handle) const { release(handle); }
};

using Options = std::unique_ptr<homa_options, Release<homa_options, homa_options_free>>;
using Host = std::unique_ptr<homa_host, Release<homa_host, homa_host_close>>;
using Socket = std::unique_ptr<homa_socket, Release<homa_socket, homa_socket_close>>;
using Message = std::unique_ptr<homa_message, Release<homa_message, homa_message_free>>;

Host host() {
    homa_options *made = nullptr;
    homa_host *opened = nullptr;
    ok(homa_options_new(&made));
    Options options(made);
    ok(homa_options_set(options.get(), "bind", "127.0.0.1:0"));
    ok(homa_options_set(options.get(), "max-resends", "255"));
    ok(homa_host_open(options.get(), &opened));
    return Host(opened);
}

Socket socket(const Host &host, uint16_t port) {
    homa_socket *opened = nullptr;
    ok(homa_socket_open(host.get(), port, &opened));
    return Socket(opened);
}

std::string text(const Message &message) {
    size_t length = 0;
    const void *data = homa_message_data(message.get(), &length);
    return std::string(static_cast<const char *>(data), length);
}

void serve(const Socket &socket) {
    homa_message *received = nullptr;
    while (homa_receive(socket.get(), HOMA_FOREVER, &received) == HOMA_OK) {
        Message request(received);
        std::string answer = "so you say " + text(request);
        ok(homa_reply(socket.get(), request.get(), answer.data(), answer.size()));
    }
}

void calls() {
    Host here = host(), there = host();
    Socket server = socket(there, 9), client = socket(here, 0);
    homa_address address;
    homa_message *response = nullptr;
    ok(homa_socket_address(server.get(), &address));
    std::thread thread([&server] { serve(server); });
    homa_result result = homa_call(client.get(), &address, "hello", 5, HOMA_FOREVER, &response);
    ok(homa_socket_shutdown(server.get()));
    thread.join();
    ok(result);
    if (text(Message(response)) != "so you say hello") throw std::runtime_error("another answer");
}

// Destroyed after the thread-local storage of the main thread.
struct Lasting {
    Host here, there;
    Socket waited, silent, client;
    std::thread waits;

    void open() {
        here = host(), there = host();
        waited = socket(here, 9), client = socket(here, 0), silent = socket(there, 9);
        waits = std::thread([this] {
            homa_message *none = nullptr;
            if (homa_receive(waited.get(), HOMA_FOREVER, &none) != HOMA_CLOSED) std::_Exit(1);
        });
    }

    // Called while another thread drives the network.
    homa_result call() const {
        homa_address address;
        homa_message *none = nullptr;
        ok(homa_socket_address(silent.get(), &address));
        return homa_call(client.get(), &address, "hello", 5, 20000000, &none);
    }

    ~Lasting() {
        if (call() != HOMA_TIMED_OUT || homa_socket_shutdown(waited.get()) != HOMA_OK) std::_Exit(1);
        waits.join();
    }
} lasting;

}  // namespace

int main() {
    calls();
    if (homa_open_handles() != 0) return 1;
    lasting.open();
    return lasting.call() == HOMA_TIMED_OUT ? 0 : 1;
}
