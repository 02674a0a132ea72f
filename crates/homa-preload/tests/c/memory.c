/* Memory for sent messages: sendmsg waits for free memory, and poll, select and epoll report it.
 * HOMA_WMEM_MAX is 2 MB here. */
#include "rpc.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/wait.h>

#define BYTES 1000000
/* Number of messages that may start before the bound is reached. */
#define FIT 2

static unsigned char bytes[BYTES];

static long try_send(int fd, const union address *to, uint64_t *id)
{
	struct homa_sendmsg_args args = {*id, 0, 0, 0};
	struct iovec piece = {bytes, BYTES};
	struct msghdr message = {
		.msg_name = (void *)to, .msg_namelen = length_of(to), .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &args, .msg_controllen = 0};
	long result = sendmsg(fd, &message, MSG_DONTWAIT);

	*id = args.id;
	return result;
}

/* Returns whether poll, select and epoll report room to send. They must agree, whether or not
 * messages can be received. */
static int has_room(int fd, int epoll)
{
	struct pollfd entry = {fd, POLLOUT, 0};
	struct timeval now = {0, 0};
	struct epoll_event event;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	int polled = poll(&entry, 1, 0);
	CHECK(polled >= 0 && (polled == 0 || entry.revents == POLLOUT));
	CHECK(select(fd + 1, NULL, &set, NULL, &now) == polled);
	int waited = epoll_wait(epoll, &event, 1, 0);
	CHECK(waited >= 0 && (waited && (event.events & EPOLLOUT) != 0) == polled);
	return polled;
}

static void await_room(int fd)
{
	struct pollfd entry = {fd, POLLOUT, 0};

	CHECK(poll(&entry, 1, 60000) == 1 && entry.revents == POLLOUT);
}

static int watch(int fd)
{
	struct epoll_event event = {EPOLLIN | EPOLLOUT, {.fd = fd}};
	int epoll = epoll_create1(0);

	CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	return epoll;
}

/* Unanswered requests occupy memory until they are aborted. */
static void requests(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_abort_args abort = {0, 0, 0, {0, 0}};
	struct homa_recvmsg_args args;
	union address from;
	int epoll = watch(port.fd);

	memset(&args, 0, sizeof(args));
	for (int round = 0; round < 3; round++) {
		for (int at = 0; at < FIT; at++) {
			uint64_t id = 0;

			CHECK(has_room(port.fd, epoll));
			CHECK(try_send(port.fd, to, &id) == 0);
			abort.id = id;
		}
		CHECK(!has_room(port.fd, epoll));
		uint64_t none = 0;
		FAILS(try_send(port.fd, to, &none), EAGAIN);
		/* poll still reports receivable messages: none now, and the outcome of an aborted call
		 * below. */
		CHECK(!(poll(&(struct pollfd){port.fd, POLLIN, 0}, 1, 0)));
		abort.error = ECANCELED;
		CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
		await_room(port.fd);
		CHECK(has_room(port.fd, epoll));
		await_message(port.fd);
		args.id = 0;
		FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), ECANCELED);
		abort = (struct homa_abort_args){0, 0, 0, {0, 0}};
		CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
		await_room(port.fd);
	}
	CHECK(close(port.fd) == 0);
}

/* Responses occupy memory until their clients have received them. */
static void answers(const char *host, int number)
{
	enum { CALLS = 6 };
	struct port port = open_server(host, number);
	union address to = address_of(host, number), from[CALLS];
	struct homa_recvmsg_args args;
	int epoll = watch(port.fd), status;
	uint64_t ids[CALLS];
	pid_t client = fork();

	memset(&args, 0, sizeof(args));
	if (client == 0) {
		/* If a check fails, the stopped child must not be left behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		struct port own = open_client(to.any.sa_family);
		union address server;

		for (int at = 0; at < CALLS; at++)
			send_request(own.fd, &to, "x", 1, 0, 0);
		for (int at = 0; at < CALLS; at++) {
			args.id = 0;
			CHECK(receive(own.fd, &args, &server, 0) == BYTES);
		}
		_exit(0);
	}
	for (int at = 0; at < CALLS; at++) {
		args.id = 0;
		CHECK(receive(port.fd, &args, &from[at], 0) == 1);
		ids[at] = args.id;
	}
	CHECK(kill(client, SIGSTOP) == 0 && waitpid(client, &status, WUNTRACED) == client);
	for (int at = 0; at < FIT; at++) {
		CHECK(has_room(port.fd, epoll));
		CHECK(try_send(port.fd, &from[at], &ids[at]) == 0);
	}
	CHECK(!has_room(port.fd, epoll));
	FAILS(try_send(port.fd, &from[FIT], &ids[FIT]), EAGAIN);
	CHECK(kill(client, SIGCONT) == 0);
	await_room(port.fd);
	/* The response that had no room is sent now; the later ones wait for room. */
	for (int at = FIT; at < CALLS; at++) {
		struct homa_sendmsg_args answer = {ids[at], 0, 0, 0};
		struct iovec piece = {bytes, BYTES};

		CHECK(send_pieces(port.fd, &from[at], &piece, 1, &answer) == 0);
	}
	CHECK(waitpid(client, &status, 0) == client && status == 0);
	await_room(port.fd);
	CHECK(close(port.fd) == 0);
}

int main(int count, char **words)
{
	end_if_it_hangs();
	CHECK(count == 4);
	union address to = address_of(words[2], atoi(words[3]));
	if (strcmp(words[1], "requests") == 0)
		requests(&to);
	else if (strcmp(words[1], "answers") == 0)
		answers(words[2], atoi(words[3]));
	else
		return 2;
	return 0;
}
