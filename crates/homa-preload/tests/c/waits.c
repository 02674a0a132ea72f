/* The ways in which a Homa application waits: in poll, select and epoll, and in calls that signals
 * interrupt. */
#include "rpc.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

/* Waits for POLLIN alone, with one of the available calls; `by` selects the call. */
static void await_readable(int fd, int epoll, unsigned by)
{
	struct pollfd entry = {fd, POLLIN, 0};
	struct timespec minute = {60, 0};
	struct timeval also_minute = {60, 0};
	struct epoll_event event;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	switch (by % 5) {
	case 0:
		CHECK(poll(&entry, 1, 60000) == 1 && entry.revents == POLLIN);
		break;
	case 1:
		CHECK(ppoll(&entry, 1, &minute, NULL) == 1 && entry.revents == POLLIN);
		break;
	case 2:
		CHECK(select(fd + 1, &set, NULL, NULL, &also_minute) == 1 && FD_ISSET(fd, &set));
		break;
	case 3:
		CHECK(pselect(fd + 1, &set, NULL, NULL, &minute, NULL) == 1 && FD_ISSET(fd, &set));
		break;
	default:
		CHECK(epoll_wait(epoll, &event, 1, 60000) == 1 && event.events == EPOLLIN && event.data.fd == fd);
	}
}

/* The descriptor is readable exactly while there is a message. Private responses do not make it readable. */
static void polls(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;
	int epoll = epoll_create1(0);
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};

	CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0);
	memset(&args, 0, sizeof(args));
	CHECK(!readable(port.fd));
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t private = send_request(port.fd, to, "private", 7, 9, HOMA_SENDMSG_PRIVATE);
		uint64_t one = send_request(port.fd, to, "shared", 6, 1, 0);
		uint64_t two = send_request(port.fd, to, "shared", 6, 2, 0);

		for (int left = 2; left > 0; left--) {
			await_readable(port.fd, epoll, i);
			CHECK(readable(port.fd));
			args.id = 0;
			CHECK(receive(port.fd, &args, &from, MSG_DONTWAIT) == 6);
			CHECK((args.id == one && args.completion_cookie == 1) || (args.id == two && args.completion_cookie == 2));
		}
		CHECK(!readable(port.fd));
		args.id = private;
		CHECK(receive(port.fd, &args, &from, 0) == 7);
		CHECK(args.id == private && args.completion_cookie == 9);
		CHECK(!readable(port.fd));
		args.id = private;
		FAILS(receive(port.fd, &args, &from, 0), EINVAL);
	}
	/* Polls for a private response without blocking until it has arrived. */
	uint64_t private = send_request(port.fd, to, "private", 7, 9, HOMA_SENDMSG_PRIVATE);
	long length;
	do {
		args.id = private;
		length = receive(port.fd, &args, &from, MSG_DONTWAIT);
		CHECK(length == 7 || errno == EAGAIN);
	} while (length < 0);
	CHECK(args.id == private);
	/* Nonblocking descriptors, created in each possible way. */
	int on = 1, off = 0;
	CHECK(fcntl(port.fd, F_SETFL, fcntl(port.fd, F_GETFL) | O_NONBLOCK) == 0);
	args.id = 0;
	FAILS(receive(port.fd, &args, &from, 0), EAGAIN);
	CHECK(ioctl(port.fd, FIONBIO, &off) == 0 && !(fcntl(port.fd, F_GETFL) & O_NONBLOCK));
	CHECK(ioctl(port.fd, FIONBIO, &on) == 0 && (fcntl(port.fd, F_GETFL) & O_NONBLOCK));
	FAILS(receive(port.fd, &args, &from, 0), EAGAIN);
	struct port other = {socket(to->any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_HOMA), NULL};
	give_buffers(&other);
	CHECK(fcntl(other.fd, F_GETFD) == FD_CLOEXEC);
	memset(&args, 0, sizeof(args));
	FAILS(receive(other.fd, &args, &from, 0), EAGAIN);
	/* Closing leaves nothing behind. */
	CHECK(close(other.fd) == 0 && close(port.fd) == 0);
	FAILS(receive(port.fd, &args, &from, 0), EBADF);
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
	(void)number;
	handled++;
}

static volatile int disturbed;

/* Sends signals to the thread until one has interrupted its call: signals that arrive before the call do not
 * interrupt it. */
static void *disturb(void *argument)
{
	pthread_t waits = *(pthread_t *)argument;

	while (!disturbed) {
		usleep(5000);
		pthread_kill(waits, SIGUSR1);
	}
	return NULL;
}

/* Checks that recvmsg fails with EINTR when another thread sends signals. */
static void be_disturbed(int fd, struct homa_recvmsg_args *args)
{
	pthread_t self = pthread_self(), other;
	union address from;

	disturbed = 0;
	CHECK(pthread_create(&other, NULL, disturb, &self) == 0);
	FAILS(receive(fd, args, &from, 0), EINTR);
	disturbed = 1;
	CHECK(args->id == 0 && pthread_join(other, NULL) == 0);
}

/* A signal interrupts a waiting call, even with SA_RESTART. An ignored signal does not, and an available
 * message takes precedence over a signal. */
static void signals(const union address *to, const union address *silent)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction action = {.sa_handler = handle, .sa_flags = restart ? SA_RESTART : 0};

		CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
		for (int i = 0; i < 3; i++) {
			args.id = 0;
			be_disturbed(port.fd, &args);
			args.id = send_request(port.fd, silent, "x", 1, 0, HOMA_SENDMSG_PRIVATE);
			be_disturbed(port.fd, &args);
		}
		/* A signal to the whole process: it must not be delivered to the library's threads. */
		struct itimerval again = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
		int before = handled;

		CHECK(setitimer(ITIMER_REAL, &again, NULL) == 0);
		FAILS(receive(port.fd, &args, &from, 0), EINTR);
		CHECK(handled > before && setitimer(ITIMER_REAL, &never, NULL) == 0);
	}
	/* Calls work as usual even if signals arrive at any moment. */
	struct itimerval often = {{0, 500}, {0, 500}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (unsigned i = 0; i < 3000; i++) {
		uint64_t id = send_request(port.fd, to, data, 100 + i, i, 0);
		long length;

		do {
			args.id = 0;
			length = receive(port.fd, &args, &from, 0);
			CHECK(length >= 0 || errno == EINTR);
		} while (length < 0);
		CHECK(length == (long)(100 + i) && args.id == id);
		/* No message may arrive, only signals. */
		args.id = 0;
		if (i % 100 == 0)
			FAILS(receive(port.fd, &args, &from, 0), EINTR);
	}
	memset(&often, 0, sizeof(often));
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	/* An ignored signal: the call waits for the response. */
	CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR);
	struct itimerval once = {{0, 0}, {0, 1000}};
	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
	for (unsigned i = 0; i < 500; i++)
		call(&port, to, 3000, i, &args);
}

/* Waits for a message on a descriptor for at most `ms`, with one of the polling calls; `by`
 * selects the call. None of them changes the signal mask. */
static int polls_by(int by, int fd, int epoll, int ms)
{
	struct pollfd entry = {fd, POLLIN, 0};
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};
	struct epoll_event event;
	sigset_t mask;

	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
	switch (by) {
	case 0:
		return poll(&entry, 1, ms);
	case 1:
		return ppoll(&entry, 1, &time, NULL);
	case 2:
		return ppoll(&entry, 1, &time, &mask);
	case 3:
		return epoll_wait(epoll, &event, 1, ms);
	case 4:
		return epoll_pwait(epoll, &event, 1, ms, &mask);
	default:
		return epoll_pwait2(epoll, &event, 1, &time, NULL);
	}
}

/* A signal with a handler ends each polling call, and so does the time limit, even while the
 * thread drives the network. In this test, threads drive for longer than the test lasts.
 * Afterwards the signal mask is unchanged. */
static void polls_end(const union address *silent)
{
	struct port port = open_client(silent->any.sa_family);
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	int epoll = epoll_create1(0), pipes[2];
	pthread_t self = pthread_self(), other;
	/* The kernel writes 8 bytes of each, and the rest is compared as well. */
	sigset_t before = {0}, after = {0};

	end_if_it_hangs();
	CHECK(pipe(pipes) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0);
	send_request(port.fd, silent, "x", 1, 0, 0);
	for (int handled = 0; handled < 2; handled++) {
		for (int by = 0; by < 6; by++) {
			CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0);
			CHECK(polls_by(by, port.fd, epoll, 3) == 0);
			if (handled) {
				disturbed = 0;
				CHECK(pthread_create(&other, NULL, disturb, &self) == 0);
				FAILS(polls_by(by, port.fd, epoll, 600000), EINTR);
				disturbed = 1;
				CHECK(pthread_join(other, NULL) == 0);
			}
			CHECK(pthread_sigmask(SIG_BLOCK, NULL, &after) == 0 && memcmp(&before, &after, sizeof(before)) == 0);
		}
		CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	}
	/* Another descriptor that becomes ready also ends the call. */
	struct pollfd both[2] = {{port.fd, POLLIN, 0}, {pipes[0], POLLIN, 0}};
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(poll(both, 2, 600000) == 1 && both[1].revents == POLLIN);
	event.data.fd = pipes[0];
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0);
	CHECK(epoll_wait(epoll, &event, 1, 600000) == 1 && event.data.fd == pipes[0]);
}

static long sleeps(void)
{
	struct rusage usage;

	CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
	return usage.ru_nvcsw;
}

/* In each polling call, the thread drives the network itself until the time limit, and so does not sleep. (It
 * may sleep while it waits for a lock, but not every time.) */
static void polls_drive(const union address *silent)
{
	struct port port = open_client(silent->any.sa_family);
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	int epoll = epoll_create1(0);

	end_if_it_hangs();
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0);
	send_request(port.fd, silent, "x", 1, 0, 0);
	for (int by = 0; by < 6; by++) {
		for (int tries = 0;; tries++) {
			long before = sleeps();

			CHECK(polls_by(by, port.fd, epoll, 3) == 0);
			if (sleeps() == before)
				break;
			CHECK(tries < 20000);
		}
	}
}

static void *write_later(void *argument)
{
	usleep(20000);
	CHECK(write(*(int *)argument, "x", 1) == 1);
	return NULL;
}

/* Another descriptor becomes ready while a thread drives the network. */
static void polls_others(const union address *silent)
{
	struct port port = open_client(silent->any.sa_family);
	int epoll = epoll_create1(0), pipes[2];
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	char byte;

	end_if_it_hangs();
	CHECK(pipe(pipes) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0);
	event.data.fd = pipes[0];
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0);
	for (int i = 0; i < 4; i++) {
		struct pollfd both[2] = {{port.fd, POLLIN, 0}, {pipes[0], POLLIN, 0}};
		pthread_t other;

		send_request(port.fd, silent, "x", 1, 0, 0);
		CHECK(pthread_create(&other, NULL, write_later, &pipes[1]) == 0);
		if (i % 2)
			CHECK(poll(both, 2, 600000) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
		else
			CHECK(epoll_wait(epoll, &event, 1, 600000) == 1 && event.data.fd == pipes[0]);
		CHECK(pthread_join(other, NULL) == 0 && read(pipes[0], &byte, 1) == 1);
	}
}

struct waits {
	struct port *port;
	uint64_t private;
	/* 0: wait in recvmsg. Otherwise, one more than the `by` argument of polls_by(). */
	int by, epoll;
	volatile int ended;
};

/* Waits for a message that never arrives, until a signal interrupts the wait. */
static void *wait_for_signal(void *argument)
{
	struct waits *waits = argument;
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	args.id = waits->private;
	if (waits->by == 0)
		FAILS(receive(waits->port->fd, &args, &from, 0), EINTR);
	else
		FAILS(polls_by(waits->by - 1, waits->port->fd, waits->epoll, 600000), EINTR);
	waits->ended = 1;
	return NULL;
}

/* A vfork child installs its own handler. */
static void handle_in_child(void)
{
	struct sigaction action = {.sa_handler = handle};
	int status;
	pid_t child = vfork();

	if (child == 0)
		_exit(sigaction(SIGUSR2, &action, NULL) != 0);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Two threads already wait when the program installs its first handler. They are then sent signals until
 * their calls have ended, since a thread may not have been notified when the first signal arrives. */
static void first_handler(const union address *silent, int after_child, int by)
{
	struct port port = open_client(silent->any.sa_family);
	int epoll = epoll_create1(0);
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	uint64_t private = send_request(port.fd, silent, "x", 1, 0, HOMA_SENDMSG_PRIVATE);
	struct waits waits[2] = {{&port, 0, by, epoll, 0}, {&port, private, by, epoll, 0}};
	struct sigaction action = {.sa_handler = handle};
	pthread_t threads[2];

	end_if_it_hangs();
	/* The library waits differently for sockets that are in an epoll set. */
	if (by > 3)
		CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, wait_for_signal, &waits[i]) == 0);
	/* The threads need some time to start waiting. If this time is too short, the test proves less but
	 * does not fail. */
	usleep(20000);
	if (after_child)
		handle_in_child();
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < 2; i++) {
		while (!waits[i].ended) {
			CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
			usleep(1000);
		}
		CHECK(pthread_join(threads[i], NULL) == 0);
	}
}

/* Returns the events that an epoll set currently reports for the entry with this datum. */
static uint32_t told_by(int epoll, uint64_t datum)
{
	struct epoll_event got[3], other[3];
	struct timespec none = {0, 0};

	memset(got, 0, sizeof(got));
	memset(other, 0, sizeof(other));
	int count = epoll_wait(epoll, got, 3, 0);
	CHECK(epoll_pwait(epoll, other, 3, 0, NULL) == count && !memcmp(got, other, sizeof(got)));
	CHECK(epoll_pwait2(epoll, other, 3, &none, NULL) == count && !memcmp(got, other, sizeof(got)));
	for (int i = 0; i < count; i++)
		if (got[i].data.u64 == datum)
			return got[i].events;
	return 0;
}

/* An epoll set contains a socket with a message, and other descriptors: it reports exactly the requested
 * events for each of them. */
static void words_of_epoll(int fd)
{
	int epoll = epoll_create1(0), other[2];
	struct epoll_event event = {EPOLLIN, {.u64 = 7}};
	const uint32_t both = EPOLLIN | EPOLLRDNORM, writes = EPOLLOUT | EPOLLWRNORM;
	const uint32_t asked[] = {EPOLLRDNORM, EPOLLIN, both, EPOLLWRNORM, EPOLLRDNORM | EPOLLWRNORM, both | writes, EPOLLPRI | EPOLLRDNORM, EPOLLOUT};

	CHECK(pipe(other) == 0 && write(other[1], "x", 1) == 1);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, other[0], &event) == 0);
	event.data.u64 = ~0ULL - 5;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	for (unsigned i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
		event.events = asked[i];
		CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0 && event.events == asked[i]);
		CHECK(told_by(epoll, event.data.u64) == (asked[i] & (both | writes)) && told_by(epoll, 7) == EPOLLIN);
	}
	/* This holds even if another descriptor has the same datum. */
	struct epoll_event same = {both, {.u64 = event.data.u64}};
	event.events = EPOLLRDNORM;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0 && told_by(epoll, same.data.u64) == EPOLLRDNORM);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, other[0], &same) == 0 && told_by(epoll, same.data.u64) & both);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, other[0], NULL) == 0 && told_by(epoll, same.data.u64) == EPOLLRDNORM);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0 && told_by(epoll, same.data.u64) == EPOLLRDNORM);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0 && told_by(epoll, same.data.u64) == 0);
	same.events = EPOLLIN;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, other[0], &same) == 0 && told_by(epoll, same.data.u64) == EPOLLIN);
	/* A descriptor that was removed from the set and added again. */
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0 && told_by(epoll, same.data.u64) == EPOLLIN);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 && told_by(epoll, same.data.u64) & both);
	CHECK(close(epoll) == 0 && close(other[0]) == 0 && close(other[1]) == 0);
	/* A new set with the same descriptor number inherits nothing from the closed one. */
	epoll = epoll_create1(0);
	event.events = EPOLLRDNORM | EPOLLET;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(epoll, &event, 1, -1) == 1 && event.events == EPOLLRDNORM);
	CHECK(close(epoll) == 0);
}

/* All poll events, and the information about RPCs that wait to be received. */
static void words(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;
	short all = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLPRI;
	struct pollfd entries[2] = {{port.fd, all, 0}, {-1, POLLIN, 0}};
	struct homa_rpc_info rpcs[3];
	struct homa_info info = {.rpc_info = (uint64_t)(uintptr_t)rpcs, .rpc_info_length = sizeof(rpcs)};

	memset(&args, 0, sizeof(args));
	CHECK(poll(entries, 2, 0) == 1 && entries[0].revents == (POLLOUT | POLLWRNORM) && entries[1].revents == 0);
	entries[0].events = POLLRDNORM;
	CHECK(poll(entries, 2, 0) == 0);
	uint64_t private = send_request(port.fd, to, "private", 7, 6, HOMA_SENDMSG_PRIVATE);
	uint64_t id = send_request(port.fd, to, "x", 1, 5, 0);
	CHECK(ppoll(entries, 2, NULL, NULL) == 1 && entries[0].revents == POLLRDNORM);
	entries[0].events = all;
	CHECK(poll(entries, 2, -1) == 1 && entries[0].revents == (POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM));
	for (int tries = 0;; tries++) {
		CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 2);
		struct homa_rpc_info *one = rpcs[0].id == id ? &rpcs[0] : &rpcs[1], *other = one == rpcs ? &rpcs[1] : rpcs;

		CHECK(one->id == id && one->flags == HOMA_RPC_RX_READY && one->completion_cookie == 5);
		CHECK(one->tx_length == 1 && one->tx_sent == 1 && one->rx_length == 1 && one->rx_remaining == 0 && one->rx_gaps == 0);
		CHECK(memcmp(&one->peer, to, length_of(to)) == 0);
		CHECK(other->id == private && other->flags & HOMA_RPC_PRIVATE && other->completion_cookie == 6);
		if (other->flags == (HOMA_RPC_PRIVATE | HOMA_RPC_RX_READY))
			break;
		CHECK(tries < 10000);
		usleep(1000);
	}
	words_of_epoll(port.fd);
	CHECK(receive(port.fd, &args, &from, 0) == 1 && args.id == id);
	args.id = private;
	CHECK(receive(port.fd, &args, &from, 0) == 7);
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 0);
	CHECK(shutdown(port.fd, SHUT_RDWR) == 0);
	CHECK(poll(entries, 2, -1) == 1 && entries[0].revents & POLLIN);
}

/* Epoll sets that are polled, or are members of other epoll sets; edge triggering. */
static void sets(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;
	int inner = epoll_create1(0), outer = epoll_create1(0), edges = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {EPOLLIN, {.u64 = 1}}, nested = {EPOLLIN, {.u64 = 2}}, edge = {EPOLLRDNORM | EPOLLET, {.u64 = 3}}, got;

	memset(&args, 0, sizeof(args));
	CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, port.fd, &event) == 0 && epoll_ctl(outer, EPOLL_CTL_ADD, inner, &nested) == 0);
	CHECK(epoll_ctl(edges, EPOLL_CTL_ADD, port.fd, &edge) == 0);
	FAILS(epoll_ctl(edges, EPOLL_CTL_ADD, port.fd, &edge), EEXIST);
	FAILS(epoll_ctl(port.fd, EPOLL_CTL_ADD, edges, &edge), EINVAL);
	CHECK(epoll_wait(outer, &got, 1, 0) == 0 && epoll_wait(edges, &got, 1, 0) == 0);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t one = send_request(port.fd, to, "one", 3, 1, 0);
		switch (i % 4) {
		case 0:
			await_message(outer);
			break;
		case 1:
			await_message(inner);
			break;
		default:
			CHECK(epoll_wait(outer, &got, 1, 60000) == 1 && got.events == EPOLLIN && got.data.u64 == 2);
		}
		CHECK(epoll_wait(inner, &got, 1, 60000) == 1 && got.events == EPOLLIN && got.data.u64 == 1);
		CHECK(epoll_wait(edges, &got, 1, 60000) == 1 && got.events == EPOLLRDNORM && got.data.u64 == 3);
		/* No new event. */
		CHECK(epoll_wait(edges, &got, 1, 0) == 0 && epoll_wait(outer, &got, 1, 0) == 1);
		/* Another message arrives while the first waits. */
		uint64_t other = send_request(port.fd, to, "other", 5, 2, 0);
		CHECK(epoll_wait(edges, &got, 1, 60000) == 1 && got.data.u64 == 3);
		CHECK(receive(port.fd, &args, &from, 0) == 3 && args.id == one);
		CHECK(epoll_wait(outer, &got, 1, 0) == 1 && epoll_wait(edges, &got, 1, 0) == 0);
		args.id = 0;
		CHECK(receive(port.fd, &args, &from, 0) == 5 && args.id == other);
		args.id = 0;
		FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
		CHECK(epoll_wait(outer, &got, 1, 0) == 0 && epoll_wait(edges, &got, 1, 0) == 0);
	}
	CHECK(epoll_ctl(edges, EPOLL_CTL_MOD, port.fd, &event) == 0 && epoll_ctl(edges, EPOLL_CTL_DEL, port.fd, NULL) == 0);
	FAILS(epoll_ctl(edges, EPOLL_CTL_DEL, port.fd, NULL), ENOENT);
	/* Closing the last descriptor removes the socket from its sets. */
	send_request(port.fd, to, "two", 3, 2, 0);
	await_message(port.fd);
	CHECK(close(port.fd) == 0 && epoll_wait(inner, &got, 1, 0) == 0);
	struct pollfd closed = {port.fd, POLLIN, 0};
	CHECK(poll(&closed, 1, 0) == 1 && closed.revents == POLLNVAL);
}

/* A blocked signal is delivered only during a call that unblocks it. */
static void masks(const union address *silent)
{
	struct port port = open_client(silent->any.sa_family);
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	struct pollfd entry = {port.fd, POLLIN, 0};
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	struct timespec soon = {0, 1000000};
	int epoll = epoll_create1(0);
	sigset_t none, one;
	fd_set set;

	sigemptyset(&none);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0);
	CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && sigprocmask(SIG_BLOCK, &one, NULL) == 0);
	send_request(port.fd, silent, "x", 1, 1, 0);
	for (int by = 0; by < 3; by++) {
		int before = handled;

		CHECK(raise(SIGUSR2) == 0);
		CHECK(ppoll(&entry, 1, &soon, NULL) == 0 && ppoll(&entry, 1, &soon, &one) == 0 && handled == before);
		CHECK(epoll_pwait(epoll, &event, 1, 1, &one) == 0 && handled == before);
		FD_ZERO(&set);
		FD_SET(port.fd, &set);
		if (by == 0)
			FAILS(ppoll(&entry, 1, NULL, &none), EINTR);
		else if (by == 1)
			FAILS(epoll_pwait(epoll, &event, 1, -1, &none), EINTR);
		else
			FAILS(pselect(port.fd + 1, &set, NULL, NULL, NULL, &none), EINTR);
		CHECK(handled == before + 1);
	}
}

static volatile int polled[4];
static volatile sig_atomic_t polls_done;

/* Polls in every way that a signal handler may use. */
static void poll_in_handler(int number)
{
	struct pollfd entries[3] = {{polled[0], POLLIN, 0}, {polled[1], POLLIN | POLLRDNORM, 0}, {polled[3], POLLIN, 0}};
	struct epoll_event event;
	struct timeval none = {0, 0};
	struct timespec soon = {0, 1000};
	int error = errno;
	fd_set set;

	(void)number;
	FD_ZERO(&set);
	FD_SET(polled[0], &set);
	FD_SET(polled[1], &set);
	CHECK(poll(entries, 3, 0) >= 0 && epoll_wait(polled[2], &event, 1, 0) >= 0);
	CHECK(ppoll(&entries[1], 1, &soon, NULL) >= 0 && epoll_pwait2(polled[2], &event, 1, &soon, NULL) >= 0);
	CHECK(select(FD_SETSIZE, &set, NULL, NULL, &none) >= 0);
	polls_done++;
	errno = error;
}

/* A handler polls at any moment, while its thread makes calls, allocates memory, and opens, binds and closes
 * sockets. */
static void polls_in_handlers(const union address *to, int free_port)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	struct sigaction action = {.sa_handler = poll_in_handler, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 50}, {0, 50}};
	union address own = address_of("0.0.0.0", free_port);
	int pipes[2];

	/* A thread that deadlocks with itself never returns. */
	end_if_it_hangs();
	CHECK(pipe(pipes) == 0);
	polled[0] = pipes[0], polled[1] = port.fd, polled[2] = epoll_create1(0), polled[3] = -1;
	CHECK(epoll_ctl(polled[2], EPOLL_CTL_ADD, port.fd, &event) == 0);
	memset(&args, 0, sizeof(args));
	CHECK(sigaction(SIGPROF, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
	for (unsigned i = 0; i < 20000 || polls_done < 200; i++) {
		union address from;
		long length;

		free(malloc(100 + i % 3000 * 100));
		send_request(port.fd, to, data, 100, i, 0);
		do {
			args.id = 0;
			length = receive(port.fd, &args, &from, 0);
			CHECK(length == 100 || errno == EINTR);
		} while (length < 0);
		if (i % 200 == 0) {
			struct port other = open_client(AF_INET);

			polled[3] = other.fd;
			CHECK(bind(other.fd, &own.any, length_of(&own)) == 0);
			polled[3] = -1;
			CHECK(close(other.fd) == 0 && munmap(other.region, REGION_BYTES) == 0);
		}
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *host = argc > 2 ? argv[2] : "127.0.0.1";
	union address to = address_of(host, argc > 3 ? atoi(argv[3]) : 99), silent = address_of(host, argc > 4 ? atoi(argv[4]) : 98);

	if (!strcmp(what, "polls"))
		polls(&to);
	else if (!strcmp(what, "signals"))
		signals(&to, &silent);
	else if (!strcmp(what, "first-handler"))
		first_handler(&silent, 0, argc > 5 ? atoi(argv[5]) : 0);
	else if (!strcmp(what, "first-handler-after-child"))
		first_handler(&silent, 1, 0);
	else if (!strcmp(what, "polls-end"))
		polls_end(&silent);
	else if (!strcmp(what, "polls-others"))
		polls_others(&silent);
	else if (!strcmp(what, "polls-drive"))
		polls_drive(&silent);
	else if (!strcmp(what, "words"))
		words(&to);
	else if (!strcmp(what, "sets"))
		sets(&to);
	else if (!strcmp(what, "polls-in-handlers"))
		polls_in_handlers(&to, argc > 4 ? atoi(argv[4]) : 98);
	else if (!strcmp(what, "masks"))
		masks(&silent);
	else
		return 2;
	return 0;
}
