/*
 * libhoma: Homa for programs in C and C++. Remote procedure calls whose tail latency stays flat under load.
 *
 * A host (homa_host) is an address of this machine; a socket (homa_socket) is a port of it that calls and answers; what it receives is a
 * message (homa_message), which the application hands back. Functions return HOMA_OK or why they failed; homa_last_error() says it in
 * words. Times are in nanoseconds, lengths in bytes. Pointers that must not be NULL are checked for that; nothing else about
 * them can be.
 *
 * This file is made from the source of the library.
 */

#ifndef HOMA_H
#define HOMA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * Bytes that the text of any address takes, with its zero byte.
 */
#define HOMA_ADDRESS_TEXT_BYTES 80

/**
 * Server ports are 1 to this; what is above belongs to clients.
 */
#define HOMA_MAX_SERVER_PORT 32767

/**
 * A time in nanoseconds that never passes.
 */
#define HOMA_FOREVER UINT64_MAX

/**
 * What a call came to. Numbers never change their meaning; a later version may add some, so treat one that you do not know as a
 * failure. homa_last_error() tells more.
 */
enum homa_result
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It was done.
   */
  HOMA_OK = 0,
  /**
   * An argument is wrong: NULL where something is needed, out of its range, or used up. Nothing was done.
   */
  HOMA_ARGUMENT = 1,
  /**
   * The system refuses something, such as a descriptor or a port without privilege.
   */
  HOMA_SYSTEM = 2,
  /**
   * The port is taken, by another socket or another process.
   */
  HOMA_IN_USE = 3,
  /**
   * The time that the caller gave has passed. A call that ends so was given up; its request may have run.
   */
  HOMA_TIMED_OUT = 4,
  /**
   * The socket was shut down.
   */
  HOMA_CLOSED = 5,
  /**
   * A limit is reached: wait for RPCs to end.
   */
  HOMA_LIMIT = 6,
  /**
   * The message is empty, or longer than this host or the peer takes.
   */
  HOMA_SIZE = 7,
  /**
   * The network says that no host is there, or that its machine knows no Homa.
   */
  HOMA_UNREACHABLE = 8,
  /**
   * The peer was silent for too long. The request may have run.
   */
  HOMA_SILENT = 9,
  /**
   * The peer has no server on the Homa port.
   */
  HOMA_NO_PORT = 10,
  /**
   * The peer ended, restarted, or gave the RPC up. The request may have run.
   */
  HOMA_PEER_GONE = 11,
  /**
   * The call was cancelled on this side. The request may have run.
   */
  HOMA_CANCELLED = 12,
  /**
   * There is no such call: its outcome was taken, or it never was.
   */
  HOMA_NO_CALL = 13,
  /**
   * A mistake in this library. The process can go on.
   */
  HOMA_INTERNAL = 14,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum homa_result homa_result;
#else
typedef int32_t homa_result;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * One address of this machine with a UDP port, and the protocol's state for all that passes through it. Opaque. Every function may be called
 * with it from any thread at any time, but for homa_host_close().
 */
typedef struct homa_host homa_host;

/**
 * A request to be answered, or what a call came to. Opaque. Its bytes lie where the network's packets were put together, and stay there until
 * homa_message_free(). It may be handed from thread to thread, but only one may use it at a time. It may outlive its socket.
 */
typedef struct homa_message homa_message;

/**
 * A port that calls and answers. Opaque. Every function may be called with it from any thread at any time, but for homa_socket_close().
 */
typedef struct homa_socket homa_socket;

/**
 * Where a server or a client is. A value: copy it as you like.
 */
typedef struct homa_address {
  /**
   * The IP address in network byte order; one of IPv4 as ::ffff:a.b.c.d.
   */
  uint8_t ip[16];
  /**
   * The number of the network device for a link-local IPv6 address, else 0.
   */
  uint32_t scope;
  /**
   * The UDP port of the host.
   */
  uint16_t udp_port;
  /**
   * The Homa port there.
   */
  uint16_t port;
} homa_address;

/**
 * Settings of a host. Fill it by homa_options_init(), then change what you like. Later versions add fields at its end: `size` tells the
 * library which ones the program knows, so that an older program runs with a newer library, and a newer program with an older library as
 * long as it leaves what that does not know alone.
 */
typedef struct homa_options {
  /**
   * sizeof(homa_options) where the program was compiled.
   */
  size_t size;
  /**
   * The IP address and UDP port, such as "10.0.0.7:14600" or "[::]:0"; port 0 is any free one. NULL: any free port on all IPv4 addresses.
   * It is read by homa_host_open() and not kept.
   */
  const char *bind;
  /**
   * How long in nanoseconds a thread that waits polls before it sleeps in the kernel, counted from the last packet; 0: it sleeps at once.
   */
  uint64_t poll_ns;
  /**
   * How long in nanoseconds the end of the host waits at most for its last answers to be acknowledged.
   */
  uint64_t linger_ns;
  /**
   * The longest message in bytes that is sent or accepted, 1 to 2147483647.
   */
  uint64_t max_message;
} homa_options;

/**
 * One number of a host.
 */
typedef struct homa_statistic {
  /**
   * Its name, such as "packets_received". It lives as long as the process.
   */
  const char *name;
  /**
   * What it means, in a sentence or more. It lives as long as the process.
   */
  const char *meaning;
  /**
   * Its value now. Units are in the name or the meaning.
   */
  uint64_t value;
} homa_statistic;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Reads a server's address, "HOST:UDP_PORT/HOMA_PORT", such as "10.0.0.7:14600/99" or "[::1]:14600/99". Both ports may be left out, and are
 * 14600 and 99 then. Host names are not looked up.
 *
 * `text` is only read. `address` is written to on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the text is no such address.
 */
homa_result homa_address_parse(const char *text,
                               struct homa_address *address);

/**
 * Writes an address as homa_address_parse() reads it, with a zero byte at its end.
 *
 * `text` has `room` bytes; HOMA_ADDRESS_TEXT_BYTES are enough for any address. It is written to on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the room too small.
 */
homa_result homa_address_format(const struct homa_address *address, char *text, size_t room);

/**
 * Fills `options` with what is good for most programs. `size` is sizeof(homa_options).
 *
 * `options` belongs to the caller, who may drop it as soon as homa_host_open() has returned.
 *
 * HOMA_ARGUMENT: `options` is NULL, or `size` no size of any version.
 */
homa_result homa_options_init(struct homa_options *options, size_t size);

/**
 * Opens a host over UDP, which takes no privileges.
 *
 * `options` is only read; NULL means what homa_options_init() would set. On success `*host` is a handle that belongs to the caller until
 * homa_host_close().
 *
 * HOMA_ARGUMENT: `host` is NULL, or a setting is wrong. HOMA_IN_USE: another process has the UDP port. HOMA_SYSTEM: the address is
 * not this machine's, or the system refuses a socket.
 */
homa_result homa_host_open(const struct homa_options *options,
                           struct homa_host **host);

/**
 * Gives a host back. Its sockets go on, and the host ends when the last of them is closed; whichever call ends it waits for its last answers to
 * be acknowledged, for at most `linger_ns`. NULL does nothing.
 *
 * `host` must not be used afterwards, nor by another thread meanwhile.
 */
void homa_host_close(struct homa_host *host);

/**
 * Whether it is a request, to be answered by homa_reply(); else it is what a call came to. False for NULL.
 */
bool homa_message_is_request(const struct homa_message *message);

/**
 * What the call came to: HOMA_OK where the message is a response (or a request), else why there is none, which homa_last_error() then
 * says in words.
 *
 * HOMA_ARGUMENT: `message` is NULL. HOMA_LIMIT, HOMA_SIZE, HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE, HOMA_CANCELLED, HOMA_CLOSED:
 * the call failed.
 */
homa_result homa_message_result(const struct homa_message *message);

/**
 * The bytes of a request or response, and in `*length` how many; NULL and 0 for a call that failed, and for NULL.
 *
 * They belong to the message, and are good until homa_message_free(). `length` may be NULL.
 */
const void *homa_message_data(const struct homa_message *message,
                              size_t *length);

/**
 * The id of a call, as homa_start() gave it, which is even; or of a request, as the server has it, which is odd. 0 for NULL.
 */
uint64_t homa_message_id(const struct homa_message *message);

/**
 * What homa_start() was given as `cookie`. 0 for requests, for responses of homa_call(), and for NULL.
 */
uint64_t homa_message_cookie(const struct homa_message *message);

/**
 * The other side: the client that sent the request, or the server that was called. `address` is written to on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL.
 */
homa_result homa_message_from(const struct homa_message *message,
                              struct homa_address *address);

/**
 * Hands a message back. A request that was not answered is given up, and its client gets an error. NULL does nothing.
 *
 * `message` and its bytes must not be used afterwards.
 */
void homa_message_free(struct homa_message *message);

/**
 * Opens a socket of a host. `port` 1 to HOMA_MAX_SERVER_PORT accepts requests, and calls; 0 is any free client port, which only calls.
 *
 * On success `*socket` is a handle that belongs to the caller until homa_socket_close(). It keeps its host.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the port above HOMA_MAX_SERVER_PORT. HOMA_IN_USE: another socket of this host has the port.
 * HOMA_LIMIT: all client ports are open. HOMA_SYSTEM: the system refuses a thread.
 */
homa_result homa_socket_open(const struct homa_host *host,
                             uint16_t port,
                             struct homa_socket **socket);

/**
 * Ends all work of a socket: its calls and the requests that nobody took are given up, and whoever waits with it, or calls it later, gets
 * HOMA_CLOSED. Its descriptor is readable from now on. For programs whose threads wait: shut down, let them end, then close. NULL does nothing.
 */
void homa_socket_shutdown(const struct homa_socket *socket);

/**
 * Shuts a socket down and gives it back. Where it is the last of a host that was closed, this waits for the host's last answers to be acknowledged,
 * for at most the host's `linger_ns`. NULL does nothing.
 *
 * `socket` and its descriptor must not be used afterwards, nor by another thread meanwhile. Messages that came by it remain good.
 */
void homa_socket_close(struct homa_socket *socket);

/**
 * The address of the socket: what a client gives to reach it where it has a server port. The IP address is unspecified where the host was bound so.
 * `address` is written to on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL.
 */
homa_result homa_socket_address(const struct homa_socket *socket,
                                struct homa_address *address);

/**
 * Gives in `*fd` a descriptor that is readable exactly while homa_receive() would not have to wait, for poll, epoll and their like. Use it for
 * nothing else: not read, write or close. It is the same each time, belongs to the socket and is gone with it.
 *
 * A program that sleeps on it calls homa_receive() with `timeout_ns` 0 until that returns HOMA_TIMED_OUT, and then sleeps; in this
 * way the network is attended at once while it does.
 *
 * HOMA_ARGUMENT: a pointer is NULL. HOMA_SYSTEM: the system has no more descriptors.
 */
homa_result homa_socket_fd(const struct homa_socket *socket,
                           int *fd);

/**
 * Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the network gives up).
 *
 * `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. On success `*response` is a message
 * that belongs to the caller until homa_message_free(); else it is left alone.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or `to` is no server's address. HOMA_TIMED_OUT: the time has passed. HOMA_SIZE: the request is empty, or
 * it or the response is longer than its receiver takes. HOMA_LIMIT: nothing was sent. HOMA_CLOSED: the socket was shut down.
 * HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE: the server did not answer.
 */
homa_result homa_call(const struct homa_socket *socket,
                      const struct homa_address *to,
                      const void *data,
                      size_t length,
                      uint64_t timeout_ns,
                      struct homa_message **response);

/**
 * Starts a call; what may be sent of the request at once is sent before this returns. What it comes to is received by homa_receive(), exactly
 * once, with `cookie`, also where it fails. It has no deadline but that of the network: see homa_cancel().
 *
 * `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be NULL.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
 */
homa_result homa_start(const struct homa_socket *socket,
                       const struct homa_address *to,
                       const void *data,
                       size_t length,
                       uint64_t cookie,
                       uint64_t *id);

/**
 * Gives up a call that homa_start() started and whose outcome nobody has received: its outcome is HOMA_CANCELLED, and is received as any other.
 * The request may have run.
 *
 * HOMA_ARGUMENT: `socket` is NULL. HOMA_NO_CALL: the socket has no such call any more.
 */
homa_result homa_cancel(const struct homa_socket *socket,
                        uint64_t id);

/**
 * Waits for the next request, or the next outcome of a call that homa_start() started, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for
 * ever); 0 only looks.
 *
 * On success `*message` belongs to the caller until homa_message_free(); else it is left alone. A call that failed is a success
 * here: see homa_message_result().
 *
 * HOMA_ARGUMENT: a pointer is NULL. HOMA_TIMED_OUT: nothing came. HOMA_CLOSED: the socket was shut down.
 */
homa_result homa_receive(const struct homa_socket *socket,
                         uint64_t timeout_ns,
                         struct homa_message **message);

/**
 * Answers a request that came by this socket. What may be sent at once is sent before this returns; the rest, and its repetition where the
 * network loses it, is the host's business.
 *
 * The `length` bytes at `data` are only read, may be those of the request, and may be changed as soon as this returns. `request` remains the
 * caller's: hand it back by homa_message_free() afterwards. Whatever this returns but HOMA_ARGUMENT, the request is over.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the message is no request, or was answered. HOMA_SIZE, HOMA_LIMIT: the answer was not taken, and
 * the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the host has ended.
 */
homa_result homa_reply(const struct homa_socket *socket,
                       struct homa_message *request,
                       const void *data,
                       size_t length);

/**
 * Reads every number of a host, at one moment. It costs little, whatever the load.
 *
 * `into` has room for `room` numbers and belongs to the caller; what has room is written to. `*count` is how many there are, which is the same for
 * all hosts of this version: call it with `room` 0, when `into` may be NULL, to learn it. `count` may be NULL. A later version may have other
 * numbers: find them by name.
 *
 * HOMA_ARGUMENT: `host` is NULL, or `into` is although there is room.
 */
homa_result homa_statistics(const struct homa_host *host,
                            struct homa_statistic *into,
                            size_t room,
                            size_t *count);

/**
 * Why the last call of this thread that did not return HOMA_OK failed: one line that says what is wrong and what to do about it. Empty
 * where none has failed yet. The text belongs to the library, and is good until this thread calls this function again or ends.
 */
const char *homa_last_error(void);

/**
 * The version of this library, such as "0.1.0". The text lives as long as the process.
 */
const char *homa_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOMA_H */
