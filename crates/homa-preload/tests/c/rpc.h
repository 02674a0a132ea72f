/* Shared by the test programs: a socket with its buffers, messages whose bytes depend on their position, and
 * checks that print their line number. */
#ifndef RPC_H
#define RPC_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "homa_socket.h"

#define CHECK(what)                                                                          \
	do {                                                                                 \
		if (!(what)) {                                                               \
			fprintf(stderr, "%s:%d: not so: %s (errno %d: %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

/* Checks that the call fails with this errno. */
#define FAILS(call, number)                                                                  \
	do {                                                                                 \
		errno = 0;                                                                   \
		long result_ = (long)(call);                                                 \
		if (result_ != -1 || errno != (number)) {                                    \
			fprintf(stderr, "%s:%d: %s: %ld with errno %d (%s), and not -1 with %d (%s)\n", __FILE__, __LINE__, #call, result_, errno, \
				strerror(errno), (number), strerror(number));                \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

/* Kills the test if it hangs, after a time that suffices on the slowest machine. */
static inline void end_if_it_hangs(void)
{
	alarm(900);
}

#define REGION_BYTES (64UL << 20)

struct port {
	int fd;
	char *region;
};

/* An IPv4 or IPv6 address; only the error tests use other families. */
union address {
	struct sockaddr any;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};

static inline socklen_t length_of(const union address *address)
{
	return address->any.sa_family == AF_INET6 ? sizeof(address->in6) : sizeof(address->in4);
}

static inline union address address_of(const char *host, int port)
{
	union address address;

	memset(&address, 0, sizeof(address));
	if (inet_pton(AF_INET6, host, &address.in6.sin6_addr) == 1) {
		address.in6.sin6_family = AF_INET6;
		address.in6.sin6_port = htons(port);
	} else {
		CHECK(inet_pton(AF_INET, host, &address.in4.sin_addr) == 1);
		address.in4.sin_family = AF_INET;
		address.in4.sin_port = htons(port);
	}
	return address;
}

static inline int port_of(int fd)
{
	struct sockaddr_in6 name;
	socklen_t length = sizeof(name);

	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
	return ntohs(name.sin6_port);
}

static inline void give_buffers(struct port *port)
{
	port->region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(port->region != MAP_FAILED);
	struct homa_rcvbuf_args args = {(uint64_t)(uintptr_t)port->region, REGION_BYTES};
	CHECK(setsockopt(port->fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)) == 0);
}

static inline struct port open_client(int family)
{
	struct port port = {socket(family, SOCK_DGRAM, IPPROTO_HOMA), NULL};

	CHECK(port.fd >= 0);
	give_buffers(&port);
	return port;
}

static inline struct port open_server(const char *host, int number)
{
	union address any = address_of(strchr(host, ':') ? "::" : "0.0.0.0", number);
	struct port port = {socket(any.any.sa_family, SOCK_DGRAM, IPPROTO_HOMA), NULL};

	CHECK(port.fd >= 0);
	CHECK(bind(port.fd, &any.any, length_of(&any)) == 0);
	give_buffers(&port);
	return port;
}

/* Sends a request (id 0) or a response; returns the result of sendmsg. */
static inline long send_pieces(int fd, const union address *to, struct iovec *pieces, size_t count, struct homa_sendmsg_args *args)
{
	struct msghdr message = {
		.msg_name = (void *)to, .msg_namelen = length_of(to), .msg_iov = pieces, .msg_iovlen = count, .msg_control = args, .msg_controllen = 0};

	return sendmsg(fd, &message, 0);
}

static inline uint64_t send_request(int fd, const union address *to, const void *data, size_t length, uint64_t cookie, uint32_t flags)
{
	struct homa_sendmsg_args args = {0, cookie, flags, 0};
	struct iovec piece = {(void *)data, length};

	CHECK(send_pieces(fd, to, &piece, 1, &args) == 0);
	CHECK(args.id != 0 && args.id % 2 == 0);
	return args.id;
}

/* Receives a message, and gives back the pages of the previous message in `args`. */
static inline long receive(int fd, struct homa_recvmsg_args *args, union address *from, int flags)
{
	struct msghdr message = {.msg_name = from, .msg_namelen = sizeof(*from), .msg_control = args, .msg_controllen = sizeof(*args)};
	long length = recvmsg(fd, &message, flags);

	if (length >= 0) {
		CHECK(message.msg_controllen == 0);
		CHECK(message.msg_namelen == length_of(from));
	} else if (errno == EAGAIN) {
		CHECK(message.msg_controllen == sizeof(*args));
	}
	return length;
}

/* Fills in the pieces of a message in the buffers, and returns their number. */
static inline size_t pieces_of(const struct port *port, const struct homa_recvmsg_args *args, size_t length, struct iovec *pieces)
{
	size_t at = 0;

	for (; length > 0; at++) {
		size_t piece = length < HOMA_BPAGE_SIZE ? length : HOMA_BPAGE_SIZE;

		CHECK(at < args->num_bpages);
		pieces[at] = (struct iovec){port->region + args->bpage_offsets[at], piece};
		length -= piece;
	}
	CHECK(at == args->num_bpages);
	return at;
}

static inline void fill(unsigned char *data, size_t length, uint32_t tag)
{
	for (size_t i = 0; i < length; i++)
		data[i] = (unsigned char)((i >> 3) * 31 + i * 7 + tag);
}

/* Checks that the message in the buffers has the bytes that fill() produces. */
static inline void check_message(const struct port *port, const struct homa_recvmsg_args *args, size_t length, uint32_t tag)
{
	struct iovec pieces[HOMA_MAX_BPAGES];
	size_t count = pieces_of(port, args, length, pieces), offset = 0;
	static __thread unsigned char expected[HOMA_MAX_MESSAGE_LENGTH];

	fill(expected, length, tag);
	for (size_t at = 0; at < count; offset += pieces[at++].iov_len)
		CHECK(memcmp(pieces[at].iov_base, expected + offset, pieces[at].iov_len) == 0);
}

static inline void give_back(const struct port *port, struct homa_recvmsg_args *args)
{
	union address from;

	args->id = 0;
	FAILS(receive(port->fd, args, &from, MSG_DONTWAIT), EAGAIN);
	CHECK(args->num_bpages == 0);
}

/* The data to send. */
static unsigned char data[HOMA_MAX_MESSAGE_LENGTH];

/* Makes one call, with a blocking recvmsg. */
static inline void call(struct port *port, const union address *to, size_t length, uint32_t tag, struct homa_recvmsg_args *args)
{
	union address from;

	fill(data, length, tag);
	uint64_t id = send_request(port->fd, to, data, length, 1000 + tag, 0);
	args->id = 0;
	if (receive(port->fd, args, &from, 0) != (long)length) {
		int error = errno;
		struct homa_info info = {0};

		CHECK(ioctl(port->fd, HOMAIOCINFO, &info) == 0);
		fprintf(stderr, "a call failed: %s (%s)\n", strerror(error), info.error_msg);
		exit(1);
	}
	CHECK(args->id == id && args->completion_cookie == 1000 + tag);
	CHECK(memcmp(&from, to, length_of(to)) == 0);
	check_message(port, args, length, tag);
}

/* Waits for a message with poll, for at most a minute. */
static inline void await_message(int fd)
{
	struct pollfd entry = {fd, POLLIN, 0};

	CHECK(poll(&entry, 1, 60000) == 1 && entry.revents == POLLIN);
}

/* Returns whether there is a message now. In these tests, a socket is always writable. */
static inline int readable(int fd)
{
	struct pollfd entry = {fd, POLLIN | POLLOUT, 0};

	CHECK(poll(&entry, 1, 0) == 1);
	CHECK(entry.revents & POLLOUT);
	return (entry.revents & POLLIN) != 0;
}

#endif
