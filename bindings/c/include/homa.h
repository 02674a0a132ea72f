/*
 * libhoma: Homa for programs in C and C++. Remote procedure calls whose tail latency stays flat under load.
 *
 * A host (homa_host) is an address of this machine. A socket (homa_socket) is a port of a host that calls and
 * answers. A received message (homa_message) is freed by the application. Functions return HOMA_OK or the
 * kind of failure; homa_last_error() gives the reason in words. Times are in nanoseconds, lengths in bytes.
 *
 * Handles (homa_options, homa_host, homa_socket, homa_message) have the form of pointers but are never
 * dereferenced. A handle that was freed, is of another kind, belongs to a parent process or never existed is
 * an error, even while other threads use it. Other pointers must point at valid objects of their type; where
 * they must not be NULL, the library checks it.
 *
 * Any thread may call any function, and needs at most 128 KiB of stack for it. Signal handlers must not call
 * any, and no function may be left by longjmp(). homa_call() and homa_receive() are the only cancellation
 * points: a thread that pthread_cancel() cancels while it waits in one of them ends within 100 ms. The value
 * of errno after a call has no meaning. After fork() a child has none of its parent's handles, and opens its
 * own.
 *
 * This file is generated from the source of the library.
 */

#ifndef HOMA_H
#define HOMA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * Bytes of the longest text of an address, with its terminating zero byte.
 */
#define HOMA_ADDRESS_TEXT_BYTES 80

/**
 * Highest Homa port that a socket can choose. Higher ports are assigned to sockets that choose none.
 */
#define HOMA_MAX_SERVER_PORT 32767

/**
 * A timeout in nanoseconds that never expires.
 */
#define HOMA_FOREVER UINT64_MAX

/**
 * The result of a function. Numbers never change their meaning. A later version may add some: treat an
 * unknown number as a failure. homa_last_error() has the details.
 */
enum homa_result
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Success. For returned bytes (HOMA_RETURNED): the client has acknowledged the response, which it also
   * does after giving up the call.
   */
  HOMA_OK = 0,
  /**
   * An argument is wrong: NULL, out of range, or used up. Nothing was done.
   */
  HOMA_ARGUMENT = 1,
  /**
   * The system refuses a resource, such as a descriptor, or a port without privilege.
   */
  HOMA_SYSTEM = 2,
  /**
   * The port is in use by another socket or another process.
   */
  HOMA_IN_USE = 3,
  /**
   * The caller's timeout has expired. A call with this result was given up; its request may have run.
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
   * The message is empty, or exceeds the maximum of this host or of the peer.
   */
  HOMA_SIZE = 7,
  /**
   * The network reports that the host does not exist, or that its machine does not run Homa. If a Homa
   * host has just ended there, the request may have run.
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
   * The peer ended, restarted, gave the RPC up, or has forgotten it. A request may have run, and a
   * response may have arrived.
   */
  HOMA_PEER_GONE = 11,
  /**
   * The call was cancelled on this side. The request may have run.
   */
  HOMA_CANCELLED = 12,
  /**
   * There is no such call: its outcome was received, or it never existed.
   */
  HOMA_NO_CALL = 13,
  /**
   * A bug of this library. The process can continue.
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
 * The kind of a message. A later version may add kinds: free messages of a kind that you do not know.
 */
enum homa_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Not a message.
   */
  HOMA_NO_MESSAGE = 0,
  /**
   * A request, to be answered by homa_reply() or homa_reply_lent().
   */
  HOMA_REQUEST = 1,
  /**
   * The outcome of a call: a response, or the reason why there is none.
   */
  HOMA_OUTCOME = 2,
  /**
   * The bytes that homa_reply_lent() was given with this cookie. They belong to the caller again.
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
 * An address of this machine, with a UDP port if the driver uses UDP, and the protocol state of all its
 * sockets. Opaque. Every function may be called with it from any thread at any time.
 */
typedef struct homa_host homa_host;

/**
 * A request to answer, the outcome of a call, or bytes that homa_reply_lent() returns. Opaque. Its bytes
 * stay where the packets were assembled, until homa_message_free(). Every function may be called with it
 * from any thread at any time; its bytes are only read. It may outlive its socket and its host.
 */
typedef struct homa_message homa_message;

/**
 * Options of a host. Opaque. Names and values are texts: later versions can add options, and programs can
 * pass their users' options on. Every function may be called with it from any thread at any time.
 */
typedef struct homa_options homa_options;

/**
 * A port that sends and receives requests. Opaque. Every function may be called with it from any thread at
 * any time.
 */
typedef struct homa_socket homa_socket;

/**
 * The address of a server or client. It is a value: copy it freely.
 */
typedef struct homa_address {
  /**
   * The IP address in network byte order; an IPv4 address as ::ffff:a.b.c.d.
   */
  uint8_t ip[16];
  /**
   * The number of the network device for a link-local IPv6 address, else 0.
   */
  uint32_t scope;
  /**
   * The UDP port of the host; 0 if the host uses raw IP, which has no UDP ports.
   */
  uint16_t udp_port;
  /**
   * The Homa port.
   */
  uint16_t port;
} homa_address;

/**
 * An option.
 */
typedef struct homa_option {
  /**
   * Its name, such as "poll-us". It remains valid until the process ends.
   */
  const char *name;
  /**
   * Its meaning and its permitted values. It remains valid until the process ends.
   */
  const char *meaning;
  /**
   * The default value; empty if there is none. It remains valid until the process ends.
   */
  const char *value;
} homa_option;

/**
 * A statistic of a host.
 */
typedef struct homa_statistic {
  /**
   * Its name, such as "packets_received". It remains valid until the process ends.
   */
  const char *name;
  /**
   * Its meaning, in one or more sentences. It remains valid until the process ends.
   */
  const char *meaning;
  /**
   * Its current value. The name or the meaning states the unit.
   */
  uint64_t value;
} homa_statistic;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Parses a server's address, "HOST:UDP_PORT/HOMA_PORT", such as "10.0.0.7:14600/99" or "[::1]:14600/99". The
 * UDP port defaults to 14600, the Homa port to 99. Host names are not resolved.
 *
 * `text` is only read. `address` is written to on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the text is no such address.
 */
homa_result homa_address_parse(const char *text, struct homa_address *address);

/**
 * Writes an address in the format of homa_address_parse(), with a terminating zero byte.
 *
 * `address` is only read. `text` belongs to the caller and has `room` bytes; HOMA_ADDRESS_TEXT_BYTES suffice
 * for any address. `text` is written on success.
 *
 * HOMA_ARGUMENT: a pointer is NULL, or the room is too small.
 */
homa_result homa_address_format(const struct homa_address *address, char *text, size_t room);

/**
 * Creates options with defaults that suit most programs.
 *
 * On success `*options` is a handle that belongs to the caller until homa_options_free().
 *
 * HOMA_ARGUMENT: `options` is NULL.
 */
homa_result homa_options_new(struct homa_options **options);

/**
 * Sets an option, by its name and the text of its value, such as "poll-us" and "20". The options are those
 * of `homa serve`; homa_option_list() lists them.
 *
 * `name` and `value` are only read, and are not kept.
 *
 * HOMA_ARGUMENT: an argument is NULL, `options` is not a valid handle, there is no option of this name, or
 * it does not permit the value.
 */
homa_result homa_options_set(struct homa_options *options, const char *name, const char *value);

/**
 * Frees options. A host that was opened with them keeps the values of that moment. NULL does nothing.
 *
 * HOMA_ARGUMENT: `options` is not a valid handle, or was freed before.
 */
homa_result homa_options_free(struct homa_options *options);

/**
 * Lists all options, for the help text of a program.
 *
 * `into` has room for `room` options and belongs to the caller; at most `room` are written. `*count` is the
 * number of options in this version of the library. To learn it, call the function with `room` 0; `into` may
 * then be NULL. `count` may be NULL.
 *
 * HOMA_ARGUMENT: `into` is NULL although there is room.
 */
homa_result homa_option_list(struct homa_option *into, size_t room, size_t *count);

/**
 * Opens a host.
 *
 * `options` is only read. NULL is equivalent to fresh options of homa_options_new(): UDP, any free port, all
 * IPv4 addresses. On success `*host` is a handle that belongs to the caller until homa_host_close().
 *
 * HOMA_ARGUMENT: `host` is NULL, `options` is not a valid handle, or two values contradict each other.
 * HOMA_IN_USE: another process uses the UDP port. HOMA_SYSTEM: the address does not belong to this machine,
 * or the system refuses a socket or a resource of the driver.
 */
homa_result homa_host_open(const struct homa_options *options, struct homa_host **host);

/**
 * Closes a host. Its sockets continue to work, and the host ends when the last of them is closed. The
 * function that ends the host waits until its last responses are acknowledged, for at most the option
 * linger-ms. NULL does nothing.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle, or was closed before.
 */
homa_result homa_host_close(struct homa_host *host);

/**
 * The kind of `message`; HOMA_NO_MESSAGE if it is not a valid handle.
 */
homa_kind homa_message_kind(const struct homa_message *message);

/**
 * Whether `message` is of the kind HOMA_REQUEST. False if it is not a valid handle.
 */
bool homa_message_is_request(const struct homa_message *message);

/**
 * The result of the call or the response. HOMA_OK if the message is a response or a request, or if the
 * client has received the response or no longer wants it. Else the reason, which homa_last_error() then
 * gives in words.
 *
 * HOMA_ARGUMENT: `message` is not a valid handle. HOMA_LIMIT, HOMA_SIZE, HOMA_UNREACHABLE, HOMA_SILENT,
 * HOMA_NO_PORT, HOMA_PEER_GONE, HOMA_TIMED_OUT, HOMA_CANCELLED, HOMA_CLOSED: the call failed. For the kind
 * HOMA_RETURNED, HOMA_PEER_GONE: the client gave up, restarted or fell silent, and may or may not have the
 * response. HOMA_CLOSED: the host has ended.
 */
homa_result homa_message_result(const struct homa_message *message);

/**
 * The bytes of a request or response, with their number in `*length`. NULL and 0 for a failed call, for
 * HOMA_RETURNED, and if `message` is not a valid handle.
 *
 * The bytes belong to `message` and remain valid until homa_message_free(). `length` may be NULL.
 */
const void *homa_message_data(const struct homa_message *message, size_t *length);

/**
 * The id of the RPC of `message`. For a call it is the id from homa_start(), which is even. For a request or
 * its response it is the id at the server, which is odd. 0 if `message` is not a valid handle.
 */
uint64_t homa_message_id(const struct homa_message *message);

/**
 * The cookie that homa_start(), homa_start_lent() or homa_reply_lent() was given for the call or response of
 * `message`. 0 for requests, for responses of homa_call(), and if `message` is not a valid handle.
 */
uint64_t homa_message_cookie(const struct homa_message *message);

/**
 * The address of the peer: the client of a request or response, or the server of a call. `address` is
 * written on success.
 *
 * HOMA_ARGUMENT: `message` is not a valid handle, or `address` is NULL.
 */
homa_result homa_message_from(const struct homa_message *message, struct homa_address *address);

/**
 * Frees a message. An unanswered request is given up, and its client gets an error. NULL does nothing.
 *
 * The bytes of the message must not be used afterwards, and no other thread may be using them.
 *
 * HOMA_ARGUMENT: `message` is not a valid handle, or was freed before.
 */
homa_result homa_message_free(struct homa_message *message);

/**
 * Opens a socket of a host. A `port` from 1 to HOMA_MAX_SERVER_PORT receives requests and can also call.
 * Port 0 stands for any free client port, which can only call.
 *
 * On success `*socket` is a handle that belongs to the caller until homa_socket_close(). The socket keeps
 * its host open. The first socket of a host starts threads of the library, which take no signals.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle, `socket` is NULL, or the port is above HOMA_MAX_SERVER_PORT.
 * HOMA_IN_USE: another socket of this host has the port. HOMA_LIMIT: all client ports are open. HOMA_SYSTEM:
 * the system refuses a thread.
 */
homa_result homa_socket_open(const struct homa_host *host, uint16_t port, struct homa_socket **socket);

/**
 * Ends all work of a socket. Its calls and its unreceived requests are given up. Threads that wait with it,
 * or call it later, get HOMA_CLOSED. Responses are still delivered. Bytes that homa_start_lent() and
 * homa_reply_lent() lent to the library belong to the caller again when this returns. The descriptor is
 * readable from now on. If threads wait with the socket, shut it down, let them end, then close it. NULL
 * does nothing.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, or was closed.
 */
homa_result homa_socket_shutdown(const struct homa_socket *socket);

/**
 * Shuts a socket down and closes it. If it is the last socket of a closed host, this waits until the host's
 * last responses are acknowledged, for at most the option linger-ms. Received messages remain valid, and
 * bytes that were lent to the library belong to the caller again. Another socket of the host can have a
 * server port once the last responses of this socket are acknowledged. NULL does nothing.
 *
 * The descriptor of the socket must not be used afterwards.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, or was closed before.
 */
homa_result homa_socket_close(struct homa_socket *socket);

/**
 * The address of the socket. If it has a server port, clients reach it by this address. The IP address is
 * unspecified if the host was bound to an unspecified one. `address` is written on success.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, or `address` is NULL.
 */
homa_result homa_socket_address(const struct homa_socket *socket, struct homa_address *address);

/**
 * Writes to `*fd` a descriptor for poll(), epoll and similar functions. It is readable exactly while
 * homa_receive() would not have to wait. Do not read, write or close it. It is the same each time, belongs
 * to the socket and is closed with it.
 *
 * Before it sleeps on the descriptor, a program calls homa_receive() with `timeout_ns` 0 until that returns
 * HOMA_TIMED_OUT. The library then handles the network promptly while the program sleeps.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, or `fd` is NULL. HOMA_SYSTEM: the system has no more
 * descriptors.
 */
homa_result homa_socket_fd(const struct homa_socket *socket, int *fd);

/**
 * Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the
 * network gives up). Signals do not interrupt it.
 *
 * `to` and the `length` bytes at `data` are only read. The bytes are sent from where they lie: no other
 * thread may change them meanwhile. When this returns, with any result, the library has read them for the
 * last time. On success `*response` is a message that belongs to the caller until homa_message_free(); else
 * it is not written.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, another pointer is NULL, or `to` is not the address of a
 * server. HOMA_TIMED_OUT: the timeout has expired. HOMA_SIZE: the request is empty, or it or the response
 * exceeds its receiver's maximum. HOMA_LIMIT: nothing was sent, or there are too many messages that were not
 * freed. HOMA_CLOSED: the socket was shut down. HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE:
 * the server did not answer.
 *
 * This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and its call
 * is given up. Cleanup handlers may free the bytes at `data`.
 */
homa_result homa_call(const struct homa_socket *socket,
                      const struct homa_address *to,
                      const void *data,
                      size_t length,
                      uint64_t timeout_ns,
                      struct homa_message **response);

/**
 * Starts a call. Packets that may be sent at once are sent before this returns. homa_receive() delivers the
 * outcome exactly once, with `cookie`, also if the call fails. If the call takes longer than `timeout_ns`
 * nanoseconds from now, it is given up within a millisecond and fails with HOMA_TIMED_OUT. HOMA_FOREVER:
 * until the network gives up. See also homa_cancel().
 *
 * `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is
 * the id of the call; `id` may be NULL.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, another pointer is NULL, or `to` is not the address of a
 * server. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
 */
homa_result homa_start(const struct homa_socket *socket,
                       const struct homa_address *to,
                       const void *data,
                       size_t length,
                       uint64_t timeout_ns,
                       uint64_t cookie,
                       uint64_t *id);

/**
 * Like homa_start(), with the same `timeout_ns` and `cookie`, but the bytes are sent from where they lie,
 * without a copy.
 *
 * On success the `length` bytes at `data` are lent to the library, which reads them for transmissions and
 * retransmissions. The caller must neither change nor move nor free them until homa_receive() delivers the
 * outcome, also after a cancellation or timeout. The loan also ends when homa_socket_shutdown() or
 * homa_socket_close() returns. If this fails, they belong to the caller at once. `to` is only read, and may
 * be changed as soon as this returns. `*id` is the id of the call; `id` may be NULL.
 *
 * Use it for large messages: copying a few kilobytes costs less than keeping track of a loan.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, another pointer is NULL, or `to` is not the address of a
 * server. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
 */
homa_result homa_start_lent(const struct homa_socket *socket,
                            const struct homa_address *to,
                            const void *data,
                            size_t length,
                            uint64_t timeout_ns,
                            uint64_t cookie,
                            uint64_t *id);

/**
 * Gives up the call `id` that homa_start() or homa_start_lent() started, if its outcome was not received
 * yet. Its outcome is then HOMA_CANCELLED, and is received like any other. The request may have run.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle. HOMA_NO_CALL: the socket no longer has such a call.
 */
homa_result homa_cancel(const struct homa_socket *socket, uint64_t id);

/**
 * Waits for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for ever; 0: does not wait) for the next
 * message. It is a request, the outcome of a call of homa_start() or homa_start_lent(), or returned bytes of
 * homa_reply_lent(). Signals do not interrupt it. homa_message_kind() distinguishes the three.
 *
 * On success `*message` belongs to the caller until homa_message_free(); else it is not written. A failed
 * call is a success here: see homa_message_result().
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, or `message` is NULL. HOMA_TIMED_OUT: nothing arrived.
 * HOMA_CLOSED: the socket was shut down. HOMA_LIMIT: there are too many messages that were not freed, and
 * one was dropped.
 *
 * This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and has
 * received nothing.
 */
homa_result homa_receive(const struct homa_socket *socket,
                         uint64_t timeout_ns,
                         struct homa_message **message);

/**
 * Answers a request that this socket received. Packets that may be sent at once are sent before this
 * returns. The host sends the rest, and retransmits lost packets.
 *
 * The `length` bytes at `data` are only read, and may be changed as soon as this returns, since they are
 * copied. Exception: a contiguous part of the request itself, or all of it, is sent from where it lies.
 * `request` remains the caller's: free it by homa_message_free() afterwards. With any result except
 * HOMA_ARGUMENT, the request is over.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, `data` is NULL, or the message is not a request, was
 * received by another socket, or was answered. HOMA_SIZE, HOMA_LIMIT: the response was refused, and the
 * client gets an error. HOMA_PEER_GONE: the client no longer waits. HOMA_CLOSED: the host has ended.
 */
homa_result homa_reply(const struct homa_socket *socket,
                       struct homa_message *request,
                       const void *data,
                       size_t length);

/**
 * Like homa_reply(), but the bytes are sent from where they lie, without a copy.
 *
 * On success the `length` bytes at `data` are lent to the library, which reads them for transmissions and
 * retransmissions. The caller must neither change nor move nor free them until homa_receive() delivers a
 * message of the kind HOMA_RETURNED with this `cookie`. It arrives once the client has the response or is
 * given up. The loan also ends when homa_socket_shutdown() or homa_socket_close() returns; those copy what
 * is not delivered yet. If this fails, the bytes belong to the caller at once. Bytes of the request itself
 * need no loan: see homa_reply(). `request` remains the caller's: free it by homa_message_free() afterwards.
 * With any result except HOMA_ARGUMENT, the request is over.
 *
 * HOMA_ARGUMENT: `socket` is not a valid handle, `data` is NULL, or the message is not a request, was
 * received by another socket, or was answered. HOMA_SIZE, HOMA_LIMIT: the response was refused, and the
 * client gets an error. HOMA_PEER_GONE: the client no longer waits. HOMA_CLOSED: the socket was shut down,
 * and the client gets an error; homa_reply() would still have answered.
 */
homa_result homa_reply_lent(const struct homa_socket *socket,
                            struct homa_message *request,
                            const void *data,
                            size_t length,
                            uint64_t cookie);

/**
 * Reads all statistics of a host, as of one moment. It is cheap at any load.
 *
 * `into` has room for `room` statistics and belongs to the caller; at most `room` are written. `*count` is
 * the number of statistics, which is the same for all hosts of this version. To learn it, call the function
 * with `room` 0; `into` may then be NULL. `count` may be NULL. A later version may have other statistics:
 * find them by name.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle, or `into` is NULL although `room` is not 0.
 */
homa_result homa_statistics(const struct homa_host *host,
                            struct homa_statistic *into,
                            size_t room,
                            size_t *count);

/**
 * Writes all statistics of a host and of its peers in the text format of Prometheus, with a terminating zero
 * byte. The text is that of `homa serve --metrics ADDR`. It is for programs that have an HTTP server of
 * their own.
 *
 * `text` has `room` bytes and belongs to the caller. `*length` is the length of the text in bytes without
 * its zero byte, also if the room is too small. It is some 70,000 and increases as values grow. `length` may
 * be NULL.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle, `text` is NULL, or the room is too small.
 */
homa_result homa_metrics_text(const struct homa_host *host, char *text, size_t room, size_t *length);

/**
 * Writes the time trace of a host to a file for the command `homa trace`: the last events, as many as the
 * option trace-records sets. Recording continues. An existing file is replaced once the new one is complete.
 *
 * `path` is only read.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle, or `path` is NULL. HOMA_SYSTEM: the file cannot be written.
 */
homa_result homa_trace_save(const struct homa_host *host, const char *path);

/**
 * Freezes the time trace of a host until homa_trace_unfreeze(). Peers are notified if the option
 * trace-freeze-peers is set.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle.
 */
homa_result homa_trace_freeze(const struct homa_host *host);

/**
 * Resumes recording.
 *
 * HOMA_ARGUMENT: `host` is not a valid handle.
 */
homa_result homa_trace_unfreeze(const struct homa_host *host);

/**
 * Whether the time trace of `host` is frozen: by homa_trace_freeze(), by a slow call (option
 * trace-slower-than), or by a peer (option trace-obey-freeze). False if `host` is not a valid handle.
 */
bool homa_trace_is_frozen(const struct homa_host *host);

/**
 * The number of open handles of this process: hosts, sockets, messages and options together. 0 at the end of
 * a program that has freed everything. Leak checkers cannot report this, since the library keeps references
 * to all open objects.
 */
size_t homa_open_handles(void);

extern int pthread_setcancelstate(int state, int *before);

extern void pthread_testcancel(void);

/**
 * The reason why this thread's last function that did not return HOMA_OK failed: one line with the error and
 * its remedy. Empty if none has failed yet. The text belongs to the library. It remains valid until this
 * thread calls this function again or ends.
 */
const char *homa_last_error(void);

/**
 * The version of this library, such as "0.1.0". The text remains valid until the process ends.
 */
const char *homa_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOMA_H */
