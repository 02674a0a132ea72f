/* A typical Homa application: servers and clients that report results by exit code and output. */
#include "rpc.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

/* Prints that it is ready, then echoes each request. */
static void *serve(void *argument)
{
	struct port *port = argument;
	struct homa_recvmsg_args args;

	memset(&args, 0, sizeof(args));
	for (;;) {
		union address from;
		struct iovec pieces[HOMA_MAX_BPAGES];

		args.id = 0;
		long length = receive(port->fd, &args, &from, 0);
		CHECK(length > 0 && args.id % 2 == 1 && args.completion_cookie == 0);
		struct homa_sendmsg_args answer = {args.id, 0, 0, 0};
		CHECK(send_pieces(port->fd, &from, pieces, pieces_of(port, &args, length, pieces), &answer) == 0);
	}
	return NULL;
}

static void echo(const char *host, int number, int threads)
{
	struct port port = open_server(host, number);
	pthread_t thread;

	for (int i = 1; i < threads; i++)
		CHECK(pthread_create(&thread, NULL, serve, &port) == 0);
	puts("ready");
	fflush(stdout);
	serve(&port);
}

static void set_server(int fd, int value)
{
	socklen_t length = sizeof(value);
	int told = -1;

	CHECK(setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &value, sizeof(value)) == 0);
	CHECK(getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SERVER, &told, &length) == 0 && told == (value != 0));
}

/* Like echo(), but with an unbound socket: prints the socket's port. */
static void echo_unbound(const char *host)
{
	struct port port = open_client(address_of(host, 1).any.sa_family);

	set_server(port.fd, 1);
	printf("ready\n%d\n", port_of(port.fd));
	fflush(stdout);
	serve(&port);
}

/* Receives requests but answers none. */
static void swallow(const char *host, int number)
{
	struct port port = open_server(host, number);
	struct homa_recvmsg_args args;

	memset(&args, 0, sizeof(args));
	puts("ready");
	fflush(stdout);
	for (;;) {
		union address from;

		args.id = 0;
		CHECK(receive(port.fd, &args, &from, 0) > 0);
		puts("taken");
		fflush(stdout);
	}
}

static void sizes(const union address *to)
{
	static const size_t all[] = {1, 100, 65535, 65536, 65537, 100000, 131072, 999999, 1000000};
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;

	memset(&args, 0, sizeof(args));
	for (unsigned round = 0; round < 20; round++)
		for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			call(&port, to, all[i], round * 16 + i, &args);
	give_back(&port, &args);
	struct homa_info info;
	memset(&info, 0, sizeof(info));
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0);
	CHECK(info.bpool_avail_bytes == REGION_BYTES);
	CHECK(info.num_rpcs == 0 && (int)info.port == port_of(port.fd));
}

struct work {
	struct port *port;
	const union address *to;
	unsigned seed, count, in_flight;
};

/* Keeps `in_flight` calls in flight on a socket that other threads also use. Each outcome is checked by the
 * thread that receives it. */
static void *work(void *argument)
{
	struct work *work = argument;
	unsigned char *mine = malloc(HOMA_MAX_MESSAGE_LENGTH);
	struct homa_recvmsg_args args;
	unsigned sent = 0, received = 0;

	CHECK(mine);
	memset(&args, 0, sizeof(args));
	while (received < work->count) {
		if (sent < work->count && sent - received < work->in_flight) {
			static const size_t lengths[] = {100, 100, 100, 100000, 100, 20000, 100, 1000000};
			uint32_t tag = work->seed * 100000 + sent;
			size_t length = lengths[tag % 8];

			fill(mine, length, tag);
			send_request(work->port->fd, work->to, mine, length, (uint64_t)tag << 32 | length, 0);
			sent++;
			continue;
		}
		union address from;

		args.id = 0;
		long length = receive(work->port->fd, &args, &from, 0);
		CHECK(length > 0 && length == (long)(args.completion_cookie & 0xffffffff));
		check_message(work->port, &args, length, (uint32_t)(args.completion_cookie >> 32));
		received++;
	}
	free(mine);
	return NULL;
}

static void threads(const union address *to, unsigned count, unsigned in_flight, unsigned calls)
{
	struct port port = open_client(to->any.sa_family);
	pthread_t all[64];
	struct work works[64];

	CHECK(count <= 64);
	for (unsigned i = 0; i < count; i++) {
		works[i] = (struct work){&port, to, i, calls, in_flight};
		CHECK(pthread_create(&all[i], NULL, work, &works[i]) == 0);
	}
	for (unsigned i = 0; i < count; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
}

static _Atomic int storm_over;

/* Repeatedly aborts all calls of a socket. */
static void *give_up(void *argument)
{
	struct port *port = argument;
	struct homa_abort_args abort = {0, ECANCELED, 0, {0, 0}};

	while (!storm_over) {
		usleep(2000);
		CHECK(ioctl(port->fd, HOMAIOCABORT, &abort) == 0);
	}
	return NULL;
}

/* Opens sockets, and closes each with calls in flight; then unmaps the buffers. */
static void *open_and_close(void *argument)
{
	const union address *to = argument;

	while (!storm_over) {
		struct port port = open_client(to->any.sa_family);
		struct homa_recvmsg_args args;
		union address from;

		memset(&args, 0, sizeof(args));
		for (int i = 0; i < 20; i++)
			send_request(port.fd, to, data, i % 5 ? 100 : HOMA_MAX_MESSAGE_LENGTH, i, 0);
		CHECK(receive(port.fd, &args, &from, 0) > 0);
		CHECK(close(port.fd) == 0 && munmap(port.region, REGION_BYTES) == 0);
	}
	return NULL;
}

/* Receives as many outcomes as it has made calls, but possibly for calls of other threads: responses, or
 * errors of aborted calls. */
static void *call_in_storm(void *argument)
{
	struct work *work = argument;
	struct homa_recvmsg_args args;
	unsigned sent = 0, received = 0;

	memset(&args, 0, sizeof(args));
	while (received < work->count) {
		static const size_t lengths[] = {100, 100000, 100, 20000, 1000000};
		union address from;

		for (; sent < work->count && sent - received < work->in_flight; sent++)
			send_request(work->port->fd, work->to, data, lengths[sent % 5], sent, 0);
		args.id = 0;
		long length = receive(work->port->fd, &args, &from, 0);
		CHECK(length > 0 || errno == ECANCELED);
		CHECK(args.id != 0);
		received++;
	}
	return NULL;
}

/* Threads share a socket while its calls are aborted and other sockets are opened and closed. */
static void storm(const union address *to, unsigned count, unsigned in_flight, unsigned calls)
{
	struct port port = open_client(to->any.sa_family);
	struct work work = {&port, to, 0, calls, in_flight};
	struct homa_recvmsg_args args;
	union address from;
	pthread_t all[64], others[2];

	CHECK(count <= 64);
	CHECK(pthread_create(&others[0], NULL, give_up, &port) == 0);
	CHECK(pthread_create(&others[1], NULL, open_and_close, (void *)to) == 0);
	for (unsigned i = 0; i < count; i++)
		CHECK(pthread_create(&all[i], NULL, call_in_storm, &work) == 0);
	for (unsigned i = 0; i < count; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	storm_over = 1;
	CHECK(pthread_join(others[0], NULL) == 0 && pthread_join(others[1], NULL) == 0);
	memset(&args, 0, sizeof(args));
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
}

static void *await_shutdown(void *argument)
{
	struct port *port = argument;
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	FAILS(receive(port->fd, &args, &from, 0), ESHUTDOWN);
	return NULL;
}

/* Calls that their client aborts, and the shutdown of a socket. */
static void aborts(const union address *silent)
{
	struct port port = open_client(silent->any.sa_family);
	struct homa_recvmsg_args args;
	struct homa_info info;
	union address from;

	memset(&args, 0, sizeof(args));
	uint64_t one = send_request(port.fd, silent, "one", 3, 1, 0);
	uint64_t two = send_request(port.fd, silent, "two", 3, 2, 0);
	uint64_t three = send_request(port.fd, silent, "three", 5, 3, HOMA_SENDMSG_PRIVATE);
	memset(&info, 0, sizeof(info));
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 3);
	struct homa_abort_args abort = {one, ECANCELED, 0, {0, 0}};
	CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
	CHECK(readable(port.fd));
	FAILS(receive(port.fd, &args, &from, 0), ECANCELED);
	CHECK(args.id == one && args.completion_cookie == 1 && args.num_bpages == 0);
	FAILS(ioctl(port.fd, HOMAIOCABORT, &abort), EINVAL);
	/* A discarded call has no outcome. */
	abort = (struct homa_abort_args){two, 0, 0, {0, 0}};
	CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
	args.id = 0;
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
	CHECK(!readable(port.fd));
	/* Aborts all remaining calls. */
	uint64_t four = send_request(port.fd, silent, "four", 4, 4, 0);
	abort = (struct homa_abort_args){0, ETIMEDOUT, 0, {0, 0}};
	CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
	args.id = three;
	FAILS(receive(port.fd, &args, &from, 0), ETIMEDOUT);
	CHECK(args.id == three && args.completion_cookie == 3);
	args.id = 0;
	FAILS(receive(port.fd, &args, &from, 0), ETIMEDOUT);
	CHECK(args.id == four);
	memset(&info, 0, sizeof(info));
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 0 && info.error_msg[0] != 0);
	CHECK(ioctl(port.fd, HOMAIOCFREEZE) == 0);
	/* The shutdown. */
	pthread_t waits;
	send_request(port.fd, silent, "five", 4, 5, 0);
	CHECK(pthread_create(&waits, NULL, await_shutdown, &port) == 0);
	CHECK(shutdown(port.fd, SHUT_RDWR) == 0);
	CHECK(pthread_join(waits, NULL) == 0);
	await_shutdown(&port);
	CHECK(readable(port.fd));
	struct homa_sendmsg_args send_args = {0, 0, 0, 0};
	struct iovec piece = {"six", 3};
	FAILS(send_pieces(port.fd, silent, &piece, 1, &send_args), ESHUTDOWN);
	FAILS(ioctl(port.fd, HOMAIOCINFO, &info), ESHUTDOWN);
	CHECK(shutdown(port.fd, SHUT_RDWR) == 0);
}

/* A call that the peer refuses. */
static void is_refused(struct port *port, const union address *to)
{
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	uint64_t id = send_request(port->fd, to, data, 100, 5, 0);
	FAILS(receive(port->fd, &args, &from, 0), ENOTCONN);
	CHECK(args.id == id && args.completion_cookie == 5);
}

static void *serve_one(void *argument)
{
	struct port *port = argument;
	struct homa_recvmsg_args args;
	struct iovec pieces[HOMA_MAX_BPAGES];
	union address from;

	memset(&args, 0, sizeof(args));
	long length = receive(port->fd, &args, &from, 0);
	CHECK(length > 0 && args.id % 2 == 1);
	struct homa_sendmsg_args answer = {args.id, 0, 0, 0};
	CHECK(send_pieces(port->fd, &from, pieces, pieces_of(port, &args, length, pieces), &answer) == 0);
	give_back(port, &args);
	return NULL;
}

static void is_served(struct port *port, struct port *server, const union address *to, size_t length)
{
	struct homa_recvmsg_args args;
	pthread_t thread;

	memset(&args, 0, sizeof(args));
	CHECK(pthread_create(&thread, NULL, serve_one, server) == 0);
	call(port, to, length, 3, &args);
	give_back(port, &args);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* A socket that enables requests accepts them at any port, until it disables them. */
static void serves(const char *host, int number)
{
	int family = address_of(host, 1).any.sa_family;
	struct port server = open_client(family), port = open_client(family);
	struct homa_recvmsg_args args;
	union address at = address_of(host, port_of(server.fd)), bound = address_of(host, number), from;

	CHECK(port_of(server.fd) >= 32768);
	is_refused(&port, &at);
	for (int i = 0; i < 3; i++) {
		set_server(server.fd, 7 + i);
		is_served(&port, &server, &at, i == 1 ? 300000 : 100);
		set_server(server.fd, 0);
		is_refused(&port, &at);
	}
	/* Both sockets accept requests, and call each other. */
	set_server(server.fd, 1);
	set_server(port.fd, 1);
	union address back = address_of(host, port_of(port.fd));
	is_served(&server, &port, &back, 1000);
	is_served(&port, &server, &at, 1000);
	set_server(port.fd, 0);
	is_refused(&server, &back);
	/* A request that has arrived is still received and answered. */
	memset(&args, 0, sizeof(args));
	uint64_t id = send_request(port.fd, &at, data, 100, 9, 0);
	await_message(server.fd);
	set_server(server.fd, 0);
	serve_one(&server);
	CHECK(receive(port.fd, &args, &from, 0) == 100 && args.id == id && args.completion_cookie == 9);
	give_back(&port, &args);
	/* bind enables requests again, at another port. */
	for (int i = 0; i < 2; i++) {
		set_server(server.fd, i);
		CHECK(bind(server.fd, &bound.any, length_of(&bound)) == 0 && port_of(server.fd) == number + i);
		is_served(&port, &server, &bound, 1000);
		is_refused(&port, &at);
		set_server(server.fd, 0);
		is_refused(&port, &bound);
		set_server(server.fd, 1);
		is_served(&port, &server, &bound, 1000);
		at = bound;
		bound = address_of(host, number + 1);
	}
	/* The shutdown. */
	CHECK(shutdown(server.fd, SHUT_RDWR) == 0);
	set_server(server.fd, 0);
	set_server(server.fd, 1);
	is_refused(&port, &at);
	CHECK(close(server.fd) == 0 && close(port.fd) == 0);
}

/* A call that fails: prints its error. */
static void fails(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	uint64_t id = send_request(port.fd, to, data, 100, 77, 0);
	puts("sent");
	fflush(stdout);
	CHECK(receive(port.fd, &args, &from, 0) == -1);
	int error = errno;
	CHECK(args.id == id && args.completion_cookie == 77 && args.num_bpages == 0);
	puts(strerrorname_np(error));
}

/* recvmmsg receives several messages, and returns the remainder of its timeout. */
static void at_once(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args[2];
	union address from[2];
	struct mmsghdr several[2];
	struct timespec time = {60, 5}, soon = {0, 1};

	memset(args, 0, sizeof(args));
	memset(several, 0, sizeof(several));
	for (int i = 0; i < 2; i++)
		several[i].msg_hdr = (struct msghdr){
			.msg_name = &from[i], .msg_namelen = sizeof(from[i]), .msg_control = &args[i], .msg_controllen = sizeof(args[i])};
	send_request(port.fd, to, "one", 3, 1, 0);
	send_request(port.fd, to, "two", 3, 2, 0);
	CHECK(recvmmsg(port.fd, several, 2, 0, &time) == 2 && several[0].msg_len == 3 && several[1].msg_len == 3);
	CHECK(args[0].completion_cookie + args[1].completion_cookie == 3);
	CHECK(time.tv_sec < 60 && time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
	for (int i = 0; i < 2; i++) {
		args[i].id = 0;
		several[i].msg_hdr.msg_controllen = sizeof(args[i]);
	}
	/* The timeout is checked after each message. */
	FAILS(recvmmsg(port.fd, several, 2, MSG_DONTWAIT, &time), EAGAIN);
	send_request(port.fd, to, "one", 3, 1, 0);
	CHECK(recvmmsg(port.fd, several, 2, 0, &soon) == 1 && soon.tv_sec == 0 && soon.tv_nsec == 0);
}

/* sendmmsg sends several messages: those before a refused one are all sent. */
static void sent_at_once(const union address *to)
{
	enum { COUNT = 8 };
	struct port port = open_client(to->any.sa_family);
	struct homa_sendmsg_args args[COUNT];
	struct homa_recvmsg_args received;
	struct mmsghdr several[COUNT];
	struct iovec piece = {data, 100};
	union address from;

	memset(&received, 0, sizeof(received));
	for (int bad = COUNT; bad >= 0; bad--) {
		unsigned answered = 0, sent = bad < COUNT ? bad : COUNT;

		for (unsigned i = 0; i < COUNT; i++) {
			args[i] = (struct homa_sendmsg_args){0, i, 0, (int)i == bad};
			several[i].msg_hdr = (struct msghdr){
				.msg_name = (void *)to, .msg_namelen = length_of(to), .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &args[i]};
		}
		if (sent == 0)
			FAILS(sendmmsg(port.fd, several, COUNT, 0), EINVAL);
		else
			CHECK(sendmmsg(port.fd, several, COUNT, 0) == (int)sent);
		for (unsigned i = 0; i < sent; i++) {
			received.id = 0;
			CHECK(receive(port.fd, &received, &from, 0) == 100);
			answered |= 1U << received.completion_cookie;
		}
		CHECK(answered == (1U << sent) - 1);
	}
}

/* Duplicates of a descriptor are the same socket, which ends when the last one is closed. A child cannot use
 * its parent's sockets. */
static void copies(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;
	int copy = dup(port.fd), second = dup2(port.fd, 200), third = dup3(port.fd, 201, O_CLOEXEC);
	int fourth = fcntl(port.fd, F_DUPFD, 202);
	struct port by = {fourth, port.region};

	memset(&args, 0, sizeof(args));
	CHECK(copy >= 0 && second == 200 && third == 201 && fourth >= 202);
	CHECK(port_of(copy) == port_of(second) && port_of(third) == port_of(port.fd));
	CHECK(fcntl(copy, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
	FAILS(receive(port.fd, &args, &from, 0), EAGAIN);
	CHECK(fcntl(copy, F_SETFL, O_RDWR) == 0);
	CHECK(close(port.fd) == 0 && close(copy) == 0 && close(second) == 0);
	CHECK(dup2(0, 201) == 201);
	call(&by, to, 5000, 1, &args);
	pid_t child = fork();
	CHECK(child >= 0);
	/* This child does not use the socket. */
	if (child == 0)
		exit(0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	call(&by, to, 5000, 2, &args);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct homa_recvmsg_args none;

		memset(&none, 0, sizeof(none));
		FAILS(receive(fourth, &none, &from, MSG_DONTWAIT), ENOTCONN);
		CHECK(close(fourth) == 0);
		struct port mine = open_client(to->any.sa_family);
		call(&mine, to, 5000, 2, &none);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	call(&by, to, 5000, 3, &args);
	CHECK(system("exit 7") == 7 << 8);
	call(&by, to, 5000, 4, &args);
	CHECK(close(fourth) == 0);
	FAILS(receive(fourth, &args, &from, 0), EBADF);
}

/* Runs after exec: the socket is gone, its port is free, and its descriptor exists only if it was not
 * close-on-exec. */
static void behind_exec(const char *host, int port_number, int closed, int kept)
{
	struct homa_recvmsg_args args;
	union address to = address_of(host, port_number);

	memset(&args, 0, sizeof(args));
	FAILS(fcntl(closed, F_GETFD), EBADF);
	CHECK(fcntl(kept, F_GETFD) == 0);
	/* The inherited end of the socket pair reads end-of-file. */
	struct msghdr nothing = {0};
	CHECK(recvmsg(kept, &nothing, MSG_DONTWAIT) == 0);
	struct port server = open_server(host, port_number + 1);
	struct port client = open_client(to.any.sa_family);
	CHECK(client.fd != closed && client.fd != kept && port_of(server.fd) == port_number + 1);
	call(&client, &to, 5000, 3, &args);
	CHECK(close(kept) == 0);
}

/* A process with a server and a client, and with a call in flight, executes another program. */
static void execs(const char *host, int port_number, char *program)
{
	union address to = address_of(host, port_number);
	struct port server = open_server(host, port_number + 1);
	struct port client = {socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_HOMA), NULL};
	char number[16], closed[16], kept[16];

	give_buffers(&client);
	send_request(client.fd, &to, data, HOMA_MAX_MESSAGE_LENGTH, 1, 0);
	snprintf(number, sizeof(number), "%d", port_number);
	snprintf(closed, sizeof(closed), "%d", client.fd);
	snprintf(kept, sizeof(kept), "%d", server.fd);
	execl(program, program, "behind-exec", host, number, closed, kept, NULL);
	CHECK(!"executed");
}

static int compare(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;

	return difference < 0 ? -1 : difference > 0;
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void ignore(int number)
{
	(void)number;
}

/* Prints the median round-trip time of `count` calls in microseconds. `how` is 0 for recvmsg alone, 1 for
 * poll and then recvmsg, 2 for recvmsg with a signal handler installed. */
static void round_trips(const union address *to, size_t length, unsigned count, int how)
{
	int polled = how == 1;
	if (how == 2)
		CHECK(signal(SIGUSR1, ignore) != SIG_ERR);
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	double *all = calloc(count, sizeof(*all));

	CHECK(all);
	memset(&args, 0, sizeof(args));
	fill(data, length, 0);
	for (unsigned i = 0; i < count; i++) {
		union address from;
		double start = now_us();

		send_request(port.fd, to, data, length, 0, 0);
		args.id = 0;
		if (polled)
			await_message(port.fd);
		CHECK(receive(port.fd, &args, &from, 0) == (long)length);
		all[i] = now_us() - start;
	}
	qsort(all, count, sizeof(*all), compare);
	printf("%.3f\n", all[count / 2]);
}

static unsigned descriptors(void)
{
	unsigned count = 0;
	DIR *directory = opendir("/proc/self/fd");

	CHECK(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static unsigned long resident_kb(void)
{
	unsigned long size, resident;
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file && fscanf(file, "%lu %lu", &size, &resident) == 2);
	fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Makes `count` calls in two halves, and prints the number of descriptors and the memory after each half. */
static void soak(const union address *to, unsigned count)
{
	struct port port = open_client(to->any.sa_family);

	for (int half = 0; half < 2; half++) {
		struct work all = {&port, to, half, count / 2, 20};
		struct homa_recvmsg_args args;

		memset(&args, 0, sizeof(args));
		unsigned sent = 0, received = 0;
		while (received < all.count) {
			union address from;

			for (; sent < all.count && sent - received < all.in_flight; sent++)
				send_request(port.fd, to, data, sent % 1000 == 999 ? 1000000 : sent % 100 == 99 ? 20000 : 100, sent, 0);
			args.id = 0;
			CHECK(receive(port.fd, &args, &from, 0) > 0);
			received++;
		}
		/* Sockets that are opened and closed leave nothing behind, either. */
		for (int i = 0; i < 20; i++) {
			struct port other = open_client(to->any.sa_family);

			memset(&args, 0, sizeof(args));
			call(&other, to, 1000, i, &args);
			CHECK(close(other.fd) == 0 && munmap(other.region, REGION_BYTES) == 0);
		}
		printf("%u %lu\n", descriptors(), resident_kb());
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *host = argc > 2 ? argv[2] : "127.0.0.1";
	int number = argc > 3 ? atoi(argv[3]) : 99;
	unsigned first = argc > 4 ? atoi(argv[4]) : 0, second = argc > 5 ? atoi(argv[5]) : 0, third = argc > 6 ? atoi(argv[6]) : 0;
	union address to = address_of(host, number);

	if (!strcmp(what, "echo"))
		echo(host, number, first);
	else if (!strcmp(what, "echo-unbound"))
		echo_unbound(host);
	else if (!strcmp(what, "serves"))
		serves(host, number);
	else if (!strcmp(what, "swallow"))
		swallow(host, number);
	else if (!strcmp(what, "sizes"))
		sizes(&to);
	else if (!strcmp(what, "threads"))
		threads(&to, first, second, third);
	else if (!strcmp(what, "storm"))
		storm(&to, first, second, third);
	else if (!strcmp(what, "aborts"))
		aborts(&to);
	else if (!strcmp(what, "fails"))
		fails(&to);
	else if (!strcmp(what, "at-once"))
		at_once(&to), sent_at_once(&to);
	else if (!strcmp(what, "copies"))
		copies(&to);
	else if (!strcmp(what, "execs"))
		execs(host, number, argv[0]);
	else if (!strcmp(what, "behind-exec"))
		behind_exec(host, number, first, second);
	else if (!strcmp(what, "round-trips"))
		round_trips(&to, first, second, third);
	else if (!strcmp(what, "soak"))
		soak(&to, first);
	else
		return 2;
	return 0;
}
