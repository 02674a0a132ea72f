/*
 * libhoma: Homa for programs in C and C++. Remote procedure calls whose tail latency stays flat under load.
 *
 * A host (homa_host) is an address of this machine; a socket (homa_socket) is a port of it that calls and answers; what it receives is a
 * message (homa_message), which the application hands back. Functions return HOMA_OK or why they failed; homa_last_error() says it in
 * words. Times are in nanoseconds, lengths in bytes.
 *
 * Handles (homa_options, homa_host, homa_socket, homa_message) have the form of pointers and are none: a handle that was handed back, that
 * is of another kind, a parent process's or no handle at all is an error, also while other threads use it. Other pointers must point at
 * what they are said to; that they are not NULL is checked where they must not be.
 *
 * Every function may be called by any thread, for which 128 KiB of stack are enough, and none in a signal handler. None is left by
 * longjmp(). homa_call() and homa_receive() are cancellation points, and no other is: a thread that pthread_cancel() ends while it waits
 * in one of them ends within 100 ms. What errno is afterwards means nothing. After fork() a child has none of its parent's
 * handles, and opens its own.
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
 * A socket's own choice of a port is 1 to this; what is above is given to those that choose none.
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
   * It was done. Of bytes that came back (HOMA_RETURNED): the client has acknowledged the answer, as it does as well where it had given
   * the call up.
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
   * The network says that no host is there, or that its machine knows no Homa. If one has just ended there, the request may have run.
   */
  HOMA_UNREACHABLE = 8,
  /**
   * The peer was silent for too long. The request may have run.
   */
  HOMA_SILENT = 9,
  /**
   * The peer has no server on the Homa port. The request has not run.
   */
  HOMA_NO_PORT = 10,
  /**
   * The peer ended, restarted, gave the RPC up, or knows nothing of it any more. A request may have run, and an answer have arrived.
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
 * What a message is. A later version may add some: hand back those that you do not know.
 */
enum homa_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * No message at all.
   */
  HOMA_NO_MESSAGE = 0,
  /**
   * A request, to be answered by homa_reply() or homa_reply_lent().
   */
  HOMA_REQUEST = 1,
  /**
   * What a call came to: a response, or why there is none.
   */
  HOMA_OUTCOME = 2,
  /**
   * The bytes of an answer that homa_reply_lent() was given with this cookie: they are the caller's again.
   */
  HOMA_RETURNED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum homa_kind homa_kind;
#else
typedef int32_t homa_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * One address of this machine, with a UDP port where the driver has any, and the protocol's state for all that passes through it. Opaque.
 * Every function may be called with it from any thread at any time.
 */
typedef struct homa_host homa_host;

/**
 * A request to be answered, what a call came to, or bytes that homa_reply_lent() had. Opaque. Its bytes lie where the network's packets
 * were put together, and stay there until homa_message_free(). Every function may be called with it from any thread at any time; its
 * bytes are only read. It may outlive its socket and its host.
 */
typedef struct homa_message homa_message;

/**
 * Settings of a host. Opaque. Options have names, and values that are texts, so that later versions can have more of them and programs can
 * pass on what their users say. Every function may be called with it from any thread at any time.
 */
typedef struct homa_options homa_options;

/**
 * A port that calls and answers. Opaque. Every function may be called with it from any thread at any time.
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
   * The UDP port of the host; 0 where the host is one of raw IP, which has none.
   */
  uint16_t udp_port;
  /**
   * The Homa port there.
   */
  uint16_t port;
} homa_address;

/**
 * An option.
 */
typedef struct homa_option {
  /**
   * Its name, such as "poll-us". It lives as long as the process.
   */
  const char *name;
  /**
   * What it means, and the values that it takes. It lives as long as the process.
   */
  const char *meaning;
  /**
   * The value of an option that nobody sets; empty where it then has none. It lives as long as the process.
   */
  const char *value;
} homa_option;

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
 * Reads a server's address, "HOST:UDP_PORT/HOMA_PORT", such as "10.0.0.7:14600/99" or "[::1]:14600/99". Both ports may be left out, and
 * are 14600 and 99 then. Host names are not looked up.
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
 * `address` is only read. `text` belongs to the caller and has `room` bytes; HOMA_ADDRESS_TEXT_BYTES are enough for any address. It is
 * written to on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the room too small.
 */
homa_result homa_address_format(const struct homa_address *address,
                                char *text,
                                size_t room);

/**
 * Makes options with the values that are good for most programs.
 *
 * On success `*options` is a handle that belongs to the caller until homa_options_free().
 *
 * HOMA_ARGUMENT: `options` is NULL.
 */
homa_result homa_options_new(struct homa_options **options);

/**
 * Sets an option, by its name and the text of its value, such as "poll-us" and "20". They are the options of `homa serve`;
 * homa_option_list() tells all of them.
 *
 * `name` and `value` are only read, and not kept.
 *
 * HOMA_ARGUMENT: an argument is NULL, `options` is no options, there is no option of this name, or the value is none that it takes.
 */
homa_result homa_options_set(struct homa_options *options,
                             const char *name,
                             const char *value);

/**
 * Hands options back. A host that was opened with them keeps what they were then. NULL does nothing.
 *
 * HOMA_ARGUMENT: `options` is no options, or was handed back before.
 */
homa_result homa_options_free(struct homa_options *options);

/**
 * Lists the options that there are, for a program that tells its users.
 *
 * `into` has room for `room` of them and belongs to the caller; what has room is written to. `*count` is how many there are in this
 * version of the library: call it with `room` 0, when `into` may be NULL, to learn it. `count` may be NULL.
 *
 * HOMA_ARGUMENT: `into` is NULL although there is room.
 */
homa_result homa_option_list(struct homa_option *into,
                             size_t room,
                             size_t *count);

/**
 * Opens a host.
 *
 * `options` is only read; NULL means what homa_options_new() makes: UDP, any free port, on all IPv4 addresses. On success `*host` is a
 * handle that belongs to the caller until homa_host_close().
 *
 * HOMA_ARGUMENT: `host` is NULL, or `options` no options, or a value does not go with another. HOMA_IN_USE: another process has the UDP
 * port. HOMA_SYSTEM: the address is not this machine's, or the system refuses a socket or what the driver needs.
 */
homa_result homa_host_open(const struct homa_options *options,
                           struct homa_host **host);

/**
 * Gives a host back. Its sockets go on, and the host ends when the last of them is closed; whichever call ends it waits for its last
 * answers to be acknowledged, for at most the option linger-ms. NULL does nothing.
 *
 * HOMA_ARGUMENT: `host` is no host, or was closed before.
 */
homa_result homa_host_close(struct homa_host *host);

/**
 * What `message` is; HOMA_NO_MESSAGE for what is none.
 */
homa_kind homa_message_kind(const struct homa_message *message);

/**
 * Whether `message` is of the kind HOMA_REQUEST. False for what is no message.
 */
bool homa_message_is_request(const struct homa_message *message);

/**
 * What the call or the answer came to: HOMA_OK where the message is a response or a request, or the client has the answer or wants it no
 * more; else why not, which homa_last_error() then says in words.
 *
 * HOMA_ARGUMENT: `message` is no message. HOMA_LIMIT, HOMA_SIZE, HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE,
 * HOMA_TIMED_OUT, HOMA_CANCELLED, HOMA_CLOSED: the call failed. Of the kind HOMA_RETURNED, HOMA_PEER_GONE: the client gave up, restarted
 * or fell silent, and may have the answer or not; HOMA_CLOSED: the host has ended.
 */
homa_result homa_message_result(const struct homa_message *message);

/**
 * The bytes of a request or response, and in `*length` how many; NULL and 0 for a call that failed, for HOMA_RETURNED, and for what is no
 * message.
 *
 * They belong to `message`, and are good until homa_message_free(). `length` may be NULL.
 */
const void *homa_message_data(const struct homa_message *message,
                              size_t *length);

/**
 * The id of the call that `message` is of, as homa_start() gave it, which is even; or of a request or its answer, as the server has it,
 * which is odd. 0 for what is no message.
 */
uint64_t homa_message_id(const struct homa_message *message);

/**
 * What homa_start(), homa_start_lent() or homa_reply_lent() was given as its cookie, of the call or answer that `message` is of. 0 for
 * requests, for responses of homa_call(), and for what is no message.
 */
uint64_t homa_message_cookie(const struct homa_message *message);

/**
 * The other side: the client that sent the request or was answered, or the server that was called. `address` is written to on success.
 *
 * HOMA_ARGUMENT: `message` is no message, or `address` is NULL.
 */
homa_result homa_message_from(const struct homa_message *message,
                              struct homa_address *address);

/**
 * Hands a message back. A request that was not answered is given up, and its client gets an error. NULL does nothing.
 *
 * Its bytes must not be used afterwards, nor by another thread meanwhile.
 *
 * HOMA_ARGUMENT: `message` is no message, or was handed back before.
 */
homa_result homa_message_free(struct homa_message *message);

/**
 * Opens a socket of a host. `port` 1 to HOMA_MAX_SERVER_PORT accepts requests, and calls; 0 is any free client port, which only calls.
 *
 * On success `*socket` is a handle that belongs to the caller until homa_socket_close(). It keeps its host. The library's threads, of
 * which the first socket of a host starts some, take no signals.
 *
 * HOMA_ARGUMENT: `host` is no host, `socket` is NULL, or the port above HOMA_MAX_SERVER_PORT.
 * HOMA_IN_USE: another socket of this host has the port. HOMA_LIMIT: all client ports are open. HOMA_SYSTEM: the system refuses a thread.
 */
homa_result homa_socket_open(const struct homa_host *host,
                             uint16_t port,
                             struct homa_socket **socket);

/**
 * Ends all work of a socket: its calls and the requests that nobody took are given up, and whoever waits with it, or calls it later, gets
 * HOMA_CLOSED. Answers are still delivered. Bytes that were lent to the library by homa_start_lent() and homa_reply_lent() are the
 * caller's again when this returns. Its descriptor is readable from now on. For programs whose threads wait: shut down, let them end,
 * then close. NULL does nothing.
 *
 * HOMA_ARGUMENT: `socket` is no socket, or was closed.
 */
homa_result homa_socket_shutdown(const struct homa_socket *socket);

/**
 * Shuts a socket down and gives it back. Where it is the last of a host that was closed, this waits for the host's last answers to be
 * acknowledged, for at most the option linger-ms. Messages that came by it remain good, and bytes that were lent to the library are the
 * caller's again. A server port is free for another socket of the host once its last answers are acknowledged. NULL does nothing.
 *
 * Its descriptor must not be used afterwards.
 *
 * HOMA_ARGUMENT: `socket` is no socket, or was closed before.
 */
homa_result homa_socket_close(struct homa_socket *socket);

/**
 * The address of the socket: what a client gives to reach it where it has a server port. The IP address is unspecified where the host was
 * bound so.
 * `address` is written to on success.
 *
 * HOMA_ARGUMENT: `socket` is no socket, or `address` is NULL.
 */
homa_result homa_socket_address(const struct homa_socket *socket,
                                struct homa_address *address);

/**
 * Gives in `*fd` a descriptor that is readable exactly while homa_receive() would not have to wait, for poll, epoll and their like. Use
 * it for nothing else: not read, write or close. It is the same each time, belongs to the socket and is gone with it.
 *
 * A program that sleeps on it calls homa_receive() with `timeout_ns` 0 until that returns HOMA_TIMED_OUT, and then sleeps; in this
 * way the network is attended at once while it does.
 *
 * HOMA_ARGUMENT: `socket` is no socket, or `fd` is NULL. HOMA_SYSTEM: the system has no more descriptors.
 */
homa_result homa_socket_fd(const struct homa_socket *socket,
                           int *fd);

/**
 * Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the network gives up). Signals do
 * not end it.
 *
 * `to` and the `length` bytes at `data` are only read: they are sent from where they lie, no other thread may change them meanwhile, and
 * whatever this returns, nobody reads them any more. On success `*response` is a message that belongs to the caller until
 * homa_message_free(); else it is left alone.
 *
 * HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_TIMED_OUT: the time has passed.
 * HOMA_SIZE: the request is empty, or it or the response is longer than its receiver takes. HOMA_LIMIT: nothing was sent, or there are
 * too many messages that nobody handed back. HOMA_CLOSED: the socket was shut down. HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT,
 * HOMA_PEER_GONE: the server did not answer.
 *
 * This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and its call is given up. The bytes at
 * `data` may be freed by cleanup handlers.
 */
homa_result homa_call(const struct homa_socket *socket,
                      const struct homa_address *to,
                      const void *data,
                      size_t length,
                      uint64_t timeout_ns,
                      struct homa_message **response);

/**
 * Starts a call; what may be sent of the request at once is sent before this returns. What it comes to is received by homa_receive(),
 * exactly once, with `cookie`, also where it fails. Where it takes longer than `timeout_ns` nanoseconds from now it is given up within a
 * millisecond, and fails with HOMA_TIMED_OUT; HOMA_FOREVER: until the network gives up. See also homa_cancel().
 *
 * `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be
 * NULL.
 *
 * HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED:
 * nothing was sent.
 */
homa_result homa_start(const struct homa_socket *socket,
                       const struct homa_address *to,
                       const void *data,
                       size_t length,
                       uint64_t timeout_ns,
                       uint64_t cookie,
                       uint64_t *id);

/**
 * As homa_start(), with the same `timeout_ns` and `cookie`, but without a copy of the bytes: they are sent from where they lie.
 *
 * On success the `length` bytes at `data` are lent to the library, which reads them, also to send again what the network loses: the
 * caller keeps them as they are and where they are until homa_receive() gives what the call came to, also where it was cancelled or its
 * time has passed, or until homa_socket_shutdown() or homa_socket_close() has returned. Where this fails they are the caller's at once.
 * `to` is only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be NULL.
 *
 * For large messages; to copy some kilobytes costs less than to keep account of what is lent.
 *
 * HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED:
 * nothing was sent.
 */
homa_result homa_start_lent(const struct homa_socket *socket,
                            const struct homa_address *to,
                            const void *data,
                            size_t length,
                            uint64_t timeout_ns,
                            uint64_t cookie,
                            uint64_t *id);

/**
 * Gives up the call `id` that homa_start() or homa_start_lent() started and whose outcome nobody has received: its outcome is
 * HOMA_CANCELLED, and is received as any other. The request may have run.
 *
 * HOMA_ARGUMENT: `socket` is no socket. HOMA_NO_CALL: the socket has no such call any more.
 */
homa_result homa_cancel(const struct homa_socket *socket,
                        uint64_t id);

/**
 * Waits for the next request, the next outcome of a call that homa_start() or homa_start_lent() started, or the next bytes that
 * homa_reply_lent() was given to come back, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for ever); 0 only looks. Signals do not
 * end it. homa_message_kind() says which it is.
 *
 * On success `*message` belongs to the caller until homa_message_free(); else it is left alone. A call that failed is a success
 * here: see homa_message_result().
 *
 * HOMA_ARGUMENT: `socket` is no socket, or `message` is NULL. HOMA_TIMED_OUT: nothing came. HOMA_CLOSED: the socket was shut down.
 * HOMA_LIMIT: there are too many messages that nobody handed back, and one was dropped.
 *
 * This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and has taken nothing.
 */
homa_result homa_receive(const struct homa_socket *socket,
                         uint64_t timeout_ns,
                         struct homa_message **message);

/**
 * Answers a request that came by this socket. What may be sent at once is sent before this returns; the rest, and its repetition where the
 * network loses it, is the host's business.
 *
 * The `length` bytes at `data` are only read, and may be changed as soon as this returns, since they are copied; but for bytes of the
 * request itself, all or some in a row, which are sent from where they lie. `request` remains the caller's: hand it back by
 * homa_message_free() afterwards. Whatever this returns but HOMA_ARGUMENT, the request is over.
 *
 * HOMA_ARGUMENT: `socket` is no socket, `data` is NULL, or the message is no request, came by another socket, or was answered. HOMA_SIZE,
 * HOMA_LIMIT: the answer was not taken, and the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the host
 * has ended.
 */
homa_result homa_reply(const struct homa_socket *socket,
                       struct homa_message *request,
                       const void *data,
                       size_t length);

/**
 * As homa_reply(), without a copy of the bytes: they are sent from where they lie.
 *
 * On success the `length` bytes at `data` are lent to the library, which reads them, also to send again what the network loses: the
 * caller keeps them as they are and where they are until homa_receive() gives a message of the kind HOMA_RETURNED with this `cookie`,
 * which comes once the client has the answer or is given up, or until homa_socket_shutdown() or homa_socket_close() has returned: those
 * copy what is still to be delivered. Where this fails they are the caller's at once. Bytes of the request itself need no loan: see
 * homa_reply(). `request` remains the caller's: hand it back by homa_message_free() afterwards. Whatever this returns but HOMA_ARGUMENT,
 * the request is over.
 *
 * HOMA_ARGUMENT: `socket` is no socket, `data` is NULL, or the message is no request, came by another socket, or was answered. HOMA_SIZE,
 * HOMA_LIMIT: the answer was not taken, and the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the
 * socket was shut down, and the client gets an error; homa_reply() would still have answered.
 */
homa_result homa_reply_lent(const struct homa_socket *socket,
                            struct homa_message *request,
                            const void *data,
                            size_t length,
                            uint64_t cookie);

/**
 * Reads every number of a host, at one moment. It costs little, whatever the load.
 *
 * `into` has room for `room` numbers and belongs to the caller; what has room is written to. `*count` is how many there are, which is the
 * same for all hosts of this version: call it with `room` 0, when `into` may be NULL, to learn it. `count` may be NULL. A later version
 * may have other numbers: find them by name.
 *
 * HOMA_ARGUMENT: `host` is no host, or `into` is NULL although there is room.
 */
homa_result homa_statistics(const struct homa_host *host,
                            struct homa_statistic *into,
                            size_t room,
                            size_t *count);

/**
 * Writes everything that a host counts, and what it knows of its peers, in the text format of Prometheus, with a zero byte behind it:
 * what `homa serve
 * --metrics ADDR` answers, for a program that has an HTTP server of its own.
 *
 * `text` has `room` bytes and belongs to the caller. `*length` is how many bytes the text has without its zero byte, also where there is
 * no room: some 70,000, and more later, since numbers grow. `length` may be NULL.
 *
 * HOMA_ARGUMENT: `host` is no host, `text` is NULL, or the room too small.
 */
homa_result homa_metrics_text(const struct homa_host *host,
                              char *text,
                              size_t room,
                              size_t *length);

/**
 * Writes the time trace of a host to a file, which the command `homa trace` reads: the last events, as many as the option trace-records
 * has. The recording goes on. A file of this name is replaced, once the new one is whole.
 *
 * `path` is only read.
 *
 * HOMA_ARGUMENT: `host` is no host, or `path` NULL. HOMA_SYSTEM: the file cannot be written.
 */
homa_result homa_trace_save(const struct homa_host *host,
                            const char *path);

/**
 * Freezes the time trace of a host: it stays as it is until homa_trace_unfreeze(). Peers are told where the option trace-freeze-peers
 * says so.
 *
 * HOMA_ARGUMENT: `host` is no host.
 */
homa_result homa_trace_freeze(const struct homa_host *host);

/**
 * Goes on recording.
 *
 * HOMA_ARGUMENT: `host` is no host.
 */
homa_result homa_trace_unfreeze(const struct homa_host *host);

/**
 * Whether the time trace of `host` is frozen: by homa_trace_freeze(), by a slow call (option trace-slower-than), or by a peer (option
 * trace-obey-freeze). False for what is no host.
 */
bool homa_trace_is_frozen(const struct homa_host *host);

/**
 * How many handles of this process are open: hosts, sockets, messages and options together. 0 at the end of a program that handed back
 * everything, which tools that look for lost memory cannot tell, since the library remembers all that is open.
 */
size_t homa_open_handles(void);

extern int pthread_setcancelstate(int state, int *before);

extern void pthread_testcancel(void);

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
