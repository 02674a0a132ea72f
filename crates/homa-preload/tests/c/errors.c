/* Every call with wrong arguments must fail with the same error as on the kernel's Homa. */
#include "rpc.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

static int base = 3100;

static const struct {
	int family;
	const char *loopback;
} families[] = {{AF_INET, "127.0.0.1"}, {AF_INET6, "::1"}};

static void making(int family)
{
	FAILS(socket(family, SOCK_STREAM, IPPROTO_HOMA), EPROTONOSUPPORT);
	for (int i = 0; i < 3; i++) {
		int fd = socket(family, SOCK_DGRAM, IPPROTO_HOMA);

		CHECK(fd >= 0 && port_of(fd) >= 32768);
		CHECK(close(fd) == 0);
		FAILS(close(fd), EBADF);
	}
	FAILS(socket(AF_UNIX, SOCK_DGRAM, IPPROTO_HOMA), EPROTONOSUPPORT);
}

static void naming(int family, const char *loopback)
{
	int fd = socket(family, SOCK_DGRAM, IPPROTO_HOMA), other = socket(family, SOCK_DGRAM, IPPROTO_HOMA);
	union address at = address_of(loopback, 0);
	socklen_t length = length_of(&at);

	CHECK(port_of(fd) != port_of(other));
	FAILS(bind(fd, &at.any, length), EINVAL);
	at.in4.sin_port = htons(32768);
	FAILS(bind(fd, &at.any, length), EINVAL);
	struct homa_info info;
	memset(&info, 0, sizeof(info));
	CHECK(ioctl(fd, HOMAIOCINFO, &info) == 0);
	CHECK(strcmp(info.error_msg, "port number invalid: in the automatically assigned range") == 0);
	at.in4.sin_port = htons(base);
	FAILS(bind(fd, &at.any, length - 1), EINVAL);
	at.any.sa_family = AF_UNIX;
	FAILS(bind(fd, &at.any, length), EAFNOSUPPORT);
	at.any.sa_family = family;
	FAILS(bind(fd, NULL, length), EFAULT);
	CHECK(bind(fd, &at.any, length) == 0 && port_of(fd) == base);
	CHECK(bind(fd, &at.any, length) == 0);
	FAILS(bind(other, &at.any, length), EADDRINUSE);
	CHECK(close(fd) == 0);
	CHECK(bind(other, &at.any, length) == 0 && port_of(other) == base);

	struct sockaddr_in6 name;
	length = 4;
	CHECK(getsockname(other, (struct sockaddr *)&name, &length) == 0 && length == length_of(&at));
	FAILS(getsockname(other, (struct sockaddr *)&name, NULL), EFAULT);
	length = sizeof(name);
	FAILS(getsockname(other, NULL, &length), EFAULT);
	FAILS(getpeername(other, (struct sockaddr *)&name, &length), ENOTCONN);
	CHECK(connect(other, &at.any, length_of(&at)) == 0);
	FAILS(listen(other, 5), EOPNOTSUPP);
	FAILS(accept(other, NULL, NULL), EOPNOTSUPP);
	CHECK(close(other) == 0);
	FAILS(bind(other, &at.any, length_of(&at)), EBADF);
	FAILS(getsockname(other, (struct sockaddr *)&name, &length), EBADF);
}

static void options(int family)
{
	int fd = socket(family, SOCK_DGRAM, IPPROTO_HOMA), value = -1;
	socklen_t length = sizeof(value);
	char *region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *constant = mmap(NULL, REGION_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct homa_rcvbuf_args args = {(uint64_t)(uintptr_t)region, REGION_BYTES}, told;

	CHECK(region != MAP_FAILED && constant != MAP_FAILED);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_DGRAM);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == IPPROTO_HOMA);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == family);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
	FAILS(getsockopt(fd, IPPROTO_UDP, 1, &value, &length), ENOPROTOOPT);
	/* Generic socket options. */
	struct timeval time = {7, 5}, kept;
	length = sizeof(kept);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kept, &length) == 0 && length == sizeof(kept) && kept.tv_sec == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kept, &length) == 0 && kept.tv_sec == 7 && kept.tv_usec == 5);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time) - 1), EINVAL);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, NULL, sizeof(time)), EFAULT);
	time.tv_usec = 1000000;
	FAILS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)), EDOM);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, 3), EINVAL);
	length = sizeof(value);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, &length) == 0 && value == 0);
	value = 1;
	CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, length) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, &length) == 0 && value == 1);
	FAILS(getsockopt(fd, IPPROTO_HOMA, 99, &value, &length), ENOPROTOOPT);
	FAILS(setsockopt(fd, IPPROTO_HOMA, 99, &value, length), ENOPROTOOPT);
	FAILS(setsockopt(fd, IPPROTO_UDP, 1, &value, length), ENOPROTOOPT);

	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args) - 1), EINVAL);
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, NULL, sizeof(args)), EFAULT);
	args.start += 8;
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)), EINVAL);
	args = (struct homa_rcvbuf_args){(uint64_t)(uintptr_t)region, 1 << 20};
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)), EINVAL);
	args.length = 0x100000001;
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)), EINVAL);
	args = (struct homa_rcvbuf_args){(uint64_t)(uintptr_t)constant, REGION_BYTES};
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)), EFAULT);
	args.start = 0;
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)), EFAULT);
	length = sizeof(told);
	CHECK(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &told, &length) == 0 && told.start == 0 && told.length == 0);
	args = (struct homa_rcvbuf_args){(uint64_t)(uintptr_t)region, REGION_BYTES};
	CHECK(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)) == 0);
	CHECK(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &told, &length) == 0 && length == sizeof(told));
	CHECK(told.start == args.start && told.length == args.length);
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &args, sizeof(args)), EINVAL);
	length = 15;
	FAILS(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &told, &length), EINVAL);
	FAILS(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &told, NULL), EFAULT);

	/* bind turns a client socket into a server socket, and the option can turn requests off. */
	length = sizeof(value);
	CHECK(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, &length) == 0 && value == 0);
	union address at = address_of(family == AF_INET ? "0.0.0.0" : "::", base + 1);
	CHECK(bind(fd, &at.any, length_of(&at)) == 0);
	CHECK(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, &length) == 0 && value == 1);
	value = 0;
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, 2), EINVAL);
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, NULL, sizeof(value)), EFAULT);
	CHECK(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, sizeof(value)) == 0);
	CHECK(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, &length) == 0 && value == 0);
	length = 3;
	FAILS(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, &length), EINVAL);
	CHECK(munmap(constant, REGION_BYTES) == 0 && close(fd) == 0 && munmap(region, REGION_BYTES) == 0);
}

static void sending(int family, const char *loopback)
{
	struct port port = open_client(family);
	union address to = address_of(loopback, base + 2), wrong = address_of(family == AF_INET ? "::1" : "127.0.0.1", base + 2);
	static char data[HOMA_MAX_MESSAGE_LENGTH + 1];
	struct iovec pieces[2] = {{data, 1}, {data, HOMA_MAX_MESSAGE_LENGTH}};
	struct homa_sendmsg_args args;
	struct msghdr message;

#define ARGS(...) (args = (struct homa_sendmsg_args){__VA_ARGS__}, &args)
	FAILS(send_pieces(port.fd, &to, pieces, 0, ARGS(0)), EINVAL);
	FAILS(send_pieces(port.fd, &to, pieces, 2, ARGS(0)), EINVAL);
	FAILS(send_pieces(port.fd, &to, pieces, 1, ARGS(.reserved = 1)), EINVAL);
	FAILS(send_pieces(port.fd, &to, pieces, 1, ARGS(.flags = 2)), EINVAL);
	FAILS(send_pieces(port.fd, &to, pieces, 1, NULL), EFAULT);
	FAILS(send_pieces(port.fd, &wrong, pieces, 1, ARGS(0)), EAFNOSUPPORT);
	FAILS(send_pieces(port.fd, &to, (struct iovec[]){{NULL, 10}}, 1, ARGS(0)), EFAULT);
	FAILS(send_pieces(port.fd, &to, NULL, 1, ARGS(0)), EFAULT);
	message = (struct msghdr){.msg_name = &to, .msg_namelen = length_of(&to) - 1, .msg_iov = pieces, .msg_iovlen = 1, .msg_control = ARGS(0)};
	FAILS(sendmsg(port.fd, &message, 0), EINVAL);
	message.msg_namelen = length_of(&to);
	message.msg_controllen = sizeof(args);
	FAILS(sendmsg(port.fd, &message, 0), EINVAL);
	message.msg_controllen = 0;
	message.msg_iovlen = 1025;
	FAILS(sendmsg(port.fd, &message, 0), EMSGSIZE);
	message = (struct msghdr){.msg_iov = pieces, .msg_iovlen = 1, .msg_control = ARGS(0)};
	FAILS(sendmsg(port.fd, &message, 0), EINVAL);
	FAILS(sendmsg(port.fd, NULL, 0), EFAULT);
	message = (struct msghdr){.msg_name = &to, .msg_namelen = -1, .msg_iov = pieces, .msg_iovlen = 1, .msg_control = ARGS(0)};
	FAILS(sendmsg(port.fd, &message, 0), EINVAL);
	/* Answering an unknown ID is not an error, since the client may have given up. */
	CHECK(send_pieces(port.fd, &to, pieces, 1, ARGS(.id = 12345)) == 0);
	FAILS(send_pieces(port.fd, &to, pieces, 1, ARGS(.id = 12345, .completion_cookie = 1)), EINVAL);
	/* A message may be passed in pieces, some of them empty. */
	struct iovec three[3] = {{data, 5}, {NULL, 0}, {data, 7}};
	CHECK(send_pieces(port.fd, &to, three, 3, ARGS(0)) == 0 && args.id != 0);

	char byte = 0;
	FAILS(send(port.fd, &byte, 1, 0), EINVAL);
	FAILS(sendto(port.fd, &byte, 1, 0, &to.any, length_of(&to)), EINVAL);
	FAILS(write(port.fd, &byte, 1), EINVAL);
	FAILS(writev(port.fd, pieces, 1), EINVAL);
	FAILS(recv(port.fd, &byte, 1, MSG_DONTWAIT), EINVAL);
	FAILS(recvfrom(port.fd, &byte, 1, MSG_DONTWAIT, NULL, NULL), EINVAL);
	FAILS(read(port.fd, &byte, 1), EINVAL);
	FAILS(readv(port.fd, pieces, 1), EINVAL);
	struct mmsghdr several[2] = {{.msg_hdr = {.msg_name = &to, .msg_namelen = length_of(&to), .msg_iov = pieces, .msg_iovlen = 1, .msg_control = ARGS(0)}}};
	CHECK(sendmmsg(port.fd, several, 2, 0) == 1);
	FAILS(sendmmsg(port.fd, several + 1, 1, 0), EINVAL);
	CHECK(close(port.fd) == 0);
}

static void receiving(int family)
{
	struct port port = {socket(family, SOCK_DGRAM, IPPROTO_HOMA), NULL};
	union address from;
	struct homa_recvmsg_args args;
	struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_control = &args, .msg_controllen = sizeof(args)};

	memset(&args, 0, sizeof(args));
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EINVAL);
	give_buffers(&port);
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
	message.msg_controllen = sizeof(args) - 1;
	FAILS(recvmsg(port.fd, &message, MSG_DONTWAIT), EINVAL);
	message.msg_controllen = 0;
	FAILS(recvmsg(port.fd, &message, MSG_DONTWAIT), EINVAL);
	message.msg_controllen = sizeof(args);
	message.msg_control = NULL;
	FAILS(recvmsg(port.fd, &message, MSG_DONTWAIT), EINVAL);
	message.msg_control = (void *)8;
	FAILS(recvmsg(port.fd, &message, MSG_DONTWAIT), EFAULT);
	FAILS(recvmsg(port.fd, NULL, MSG_DONTWAIT), EFAULT);
	message.msg_control = &args;
	message.msg_namelen = -1;
	FAILS(recvmsg(port.fd, &message, MSG_DONTWAIT), EINVAL);
	message.msg_namelen = sizeof(from);
	message.msg_iovlen = 1025;
	FAILS(recvmsg(port.fd, &message, MSG_DONTWAIT), EMSGSIZE);
	message.msg_iovlen = 0;
	args.num_bpages = HOMA_MAX_BPAGES + 1;
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EINVAL);
	args.num_bpages = 1;
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EINVAL);
	args.num_bpages = 1;
	args.bpage_offsets[0] = 0xffff0000;
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EINVAL);
	args.num_bpages = 0;
	args.reserved = 1;
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EINVAL);
	args.reserved = 0;
	args.id = 77;
	FAILS(receive(port.fd, &args, &from, 0), EINVAL);
	args.id = 0;
	CHECK(recvmmsg(port.fd, &(struct mmsghdr){.msg_hdr = message}, 0, MSG_DONTWAIT, NULL) == 0);
	CHECK(close(port.fd) == 0);
}

static void controlling(int family, const char *loopback)
{
	struct port port = open_client(family);
	union address to = address_of(loopback, base + 2);
	struct homa_abort_args abort = {1234, 0, 0, {0, 0}};
	struct homa_info info;

	FAILS(ioctl(port.fd, HOMAIOCABORT, &abort), EINVAL);
	FAILS(ioctl(port.fd, HOMAIOCABORT, NULL), EFAULT);
	abort = (struct homa_abort_args){0, 0, 1, {0, 0}};
	FAILS(ioctl(port.fd, HOMAIOCABORT, &abort), EINVAL);
	abort = (struct homa_abort_args){0, 0, 0, {0, 1}};
	FAILS(ioctl(port.fd, HOMAIOCABORT, &abort), EINVAL);
	abort = (struct homa_abort_args){0, 0, 0, {0, 0}};
	CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
	FAILS(ioctl(port.fd, HOMAIOCINFO, NULL), EFAULT);
	FAILS(ioctl(port.fd, _IO('h', 0x93)), EINVAL);
	/* Programs built with older headers use other numbers for the same requests. */
	CHECK(ioctl(port.fd, HOMAIOCABORT_FIRST, &abort) == 0 && ioctl(port.fd, HOMAIOCABORT_OF_2025, &abort) == 0);
	CHECK(ioctl(port.fd, HOMAIOCFREEZE_FIRST) == 0 && ioctl(port.fd, HOMAIOCFREEZE_OF_2025) == 0);
	FAILS(ioctl(port.fd, HOMAIOCABORT_FIRST, NULL), EFAULT);
	memset(&info, 0, sizeof(info));
	CHECK(ioctl(port.fd, HOMAIOCINFO_OF_2025, &info) == 0 && info.port == (uint32_t)port_of(port.fd));
	/* In older headers, the field of the error text is shorter. */
	CHECK(strnlen(info.error_msg, 100) < 100);
	FAILS(ioctl(port.fd, _IO('h', 4)), EINVAL);
	memset(&info, 0xff, sizeof(info));
	info.rpc_info = 0;
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 0 && info.error_msg[sizeof(info.error_msg) - 1] == 0);
	/* The information about an RPC begins with its ID and its peer. */
	uint64_t id = send_request(port.fd, &to, "x", 1, 5, HOMA_SENDMSG_PRIVATE);
	struct homa_rpc_info rpcs[2];
	memset(rpcs, 0, sizeof(rpcs));
	info.rpc_info = (uint64_t)(uintptr_t)rpcs;
	info.rpc_info_length = sizeof(rpcs[0]);
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0);
	/* The port has no server, so the call may be over already. */
	CHECK(info.num_rpcs == 1 && (rpcs[0].id == 0 || (rpcs[0].id == id && rpcs[0].completion_cookie == 5 && rpcs[0].tx_length == 1 && memcmp(&rpcs[0].peer, &to, 8) == 0)));
	CHECK(rpcs[1].id == 0 && close(port.fd) == 0);
	FAILS(ioctl(port.fd, HOMAIOCINFO, &info), EBADF);
}

/* Every call on the closed descriptor of a Homa socket. */
static void closed(int family, const char *loopback)
{
	struct port port = open_client(family);
	union address at = address_of(loopback, base + 3);
	struct homa_sendmsg_args send_args = {0, 0, 0, 0};
	struct homa_recvmsg_args receive_args;
	struct iovec piece = {&at, 1};
	struct mmsghdr several = {.msg_hdr = {.msg_name = &at, .msg_namelen = length_of(&at), .msg_iov = &piece, .msg_iovlen = 1}};
	struct epoll_event event = {EPOLLIN, {.u64 = 0}};
	int fd = port.fd, value = 0, epoll = epoll_create1(0);
	socklen_t length = sizeof(at), size = sizeof(value);
	fd_set set;

	memset(&receive_args, 0, sizeof(receive_args));
	CHECK(close(fd) == 0);
	FAILS(bind(fd, &at.any, length_of(&at)), EBADF);
	FAILS(connect(fd, &at.any, length_of(&at)), EBADF);
	FAILS(listen(fd, 1), EBADF);
	FAILS(accept(fd, NULL, NULL), EBADF);
	FAILS(accept4(fd, NULL, NULL, SOCK_CLOEXEC), EBADF);
	FAILS(getsockname(fd, &at.any, &length), EBADF);
	FAILS(getpeername(fd, &at.any, &length), EBADF);
	FAILS(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size), EBADF);
	FAILS(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, size), EBADF);
	FAILS(shutdown(fd, SHUT_RDWR), EBADF);
	FAILS(send_pieces(fd, &at, &piece, 1, &send_args), EBADF);
	FAILS(receive(fd, &receive_args, &at, MSG_DONTWAIT), EBADF);
	FAILS(sendmmsg(fd, &several, 1, 0), EBADF);
	FAILS(recvmmsg(fd, &several, 1, MSG_DONTWAIT, NULL), EBADF);
	FAILS(send(fd, &value, 1, 0), EBADF);
	FAILS(sendto(fd, &value, 1, 0, &at.any, length_of(&at)), EBADF);
	FAILS(recv(fd, &value, 1, 0), EBADF);
	FAILS(recvfrom(fd, &value, 1, 0, NULL, NULL), EBADF);
	FAILS(read(fd, &value, 1), EBADF);
	FAILS(readv(fd, &piece, 1), EBADF);
	FAILS(write(fd, &value, 1), EBADF);
	FAILS(writev(fd, &piece, 1), EBADF);
	FAILS(ioctl(fd, HOMAIOCFREEZE), EBADF);
	FAILS(ioctl(fd, FIONBIO, &value), EBADF);
	FAILS(fcntl(fd, F_GETFL), EBADF);
	FAILS(fcntl(fd, F_DUPFD, 0), EBADF);
	FAILS(dup(fd), EBADF);
	FAILS(dup2(fd, 300), EBADF);
	FAILS(dup3(fd, 300, O_CLOEXEC), EBADF);
	FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), EBADF);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	FAILS(select(fd + 1, &set, NULL, NULL, &(struct timeval){0, 0}), EBADF);
	FAILS(close(fd), EBADF);
	CHECK(close(epoll) == 0 && munmap(port.region, REGION_BYTES) == 0);
}

/* Arguments that the kernel checks before Homa does. */
static void generic(int family, const char *loopback)
{
	struct port port = open_client(family);
	union address to = address_of(loopback, base + 2);
	struct timespec wrong = {0, 1000000000}, some = {0, 1};
	struct mmsghdr several = {0};
	socklen_t negative = -1;
	void *volatile nowhere = (void *)8;
	int value = 0;

	CHECK(connect(port.fd, &to.any, length_of(&to)) == 0 && connect(port.fd, NULL, 0) == 0);
	FAILS(connect(port.fd, NULL, length_of(&to)), EFAULT);
	FAILS(connect(port.fd, &to.any, sizeof(struct sockaddr_storage) + 1), EINVAL);
	FAILS(accept4(port.fd, NULL, NULL, 1), EINVAL);
	FAILS(accept4(port.fd, NULL, NULL, SOCK_NONBLOCK), EOPNOTSUPP);
	FAILS(setsockopt(port.fd, SOL_SOCKET, SO_REUSEADDR, &value, negative), EINVAL);
	FAILS(getsockopt(port.fd, SOL_SOCKET, SO_TYPE, &value, &negative), EINVAL);
	FAILS(getsockopt(port.fd, SOL_SOCKET, SO_TYPE, NULL, &(socklen_t){sizeof(value)}), EFAULT);
	FAILS(getsockname(port.fd, &to.any, &negative), EINVAL);
	FAILS(recvmmsg(port.fd, &several, 1, MSG_DONTWAIT, &wrong), EINVAL);
	FAILS(recvmmsg(port.fd, &several, 1, MSG_DONTWAIT, nowhere), EFAULT);
	FAILS(recvmmsg(port.fd, NULL, 1, MSG_DONTWAIT, &some), EFAULT);
	FAILS(sendmmsg(port.fd, NULL, 1, 0), EFAULT);
	FAILS(ioctl(port.fd, FIONBIO, NULL), EFAULT);
	FAILS(dup2(port.fd, -1), EBADF);
	FAILS(dup3(port.fd, port.fd, 0), EINVAL);
	FAILS(fcntl(port.fd, F_DUPFD, -1), EINVAL);
	FAILS(poll(nowhere, 1, 0), EFAULT);
	FAILS(select(-1, NULL, NULL, NULL, NULL), EINVAL);
	/* An unreadable name. */
	struct iovec piece = {&value, 1};
	struct homa_sendmsg_args args = {0, 0, 0, 0};
	struct msghdr message = {.msg_name = nowhere, .msg_namelen = length_of(&to), .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &args};
	FAILS(sendmsg(port.fd, &message, 0), EFAULT);
	CHECK(close(port.fd) == 0 && munmap(port.region, REGION_BYTES) == 0);
}

/* Other sockets and files work as usual. */
static void others(void)
{
	int pair[2], fd = socket(AF_INET, SOCK_DGRAM, 0), type;
	socklen_t length = sizeof(type);
	char byte;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && send(pair[0], "x", 1, 0) == 1 && read(pair[1], &byte, 1) == 1 && byte == 'x');
	CHECK(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &type, &length) == 0 && type == IPPROTO_UDP);
	FAILS(ioctl(fd, HOMAIOCINFO, &type), ENOTTY);
	int file = open("/dev/zero", O_RDONLY);
	CHECK(read(file, &byte, 1) == 1 && byte == 0);
	FAILS(getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length), ENOTSOCK);
	CHECK(close(file) == 0 && close(fd) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
	FAILS(sendmsg(-1, &(struct msghdr){0}, 0), EBADF);
	FAILS(close(-1), EBADF);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		base = atoi(argv[1]);
	others();
	for (int i = 0; i < 2; i++) {
		making(families[i].family);
		naming(families[i].family, families[i].loopback);
		options(families[i].family);
		sending(families[i].family, families[i].loopback);
		receiving(families[i].family);
		controlling(families[i].family, families[i].loopback);
		closed(families[i].family, families[i].loopback);
		generic(families[i].family, families[i].loopback);
	}
	others();
	return 0;
}
