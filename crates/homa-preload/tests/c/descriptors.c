/* A program that tries to close the library's descriptors, and that closes its own without the library's
 * knowledge. */
#include "rpc.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* Closes all descriptors except `kept`, one by one, and tries to replace those that the library has kept
 * open. */
static void close_others(int kept)
{
	for (int fd = 3; fd < 400; fd++)
		if (fd != kept)
			close(fd);
	for (int fd = 3; fd < 60; fd++)
		if (fd != kept)
			CHECK(dup2(0, fd) == fd || errno == EBUSY);
	for (int fd = 3; fd < 60; fd++)
		if (fd != kept)
			close(fd);
}

/* Lists the library's own descriptors below 60, except `kept`: those that are open and cannot be replaced.
 * Returns their number. */
static int own_descriptors(int *own, int kept)
{
	int count = 0;

	for (int fd = 3; fd < 60; fd++)
		if (fd != kept && fcntl(fd, F_GETFD) != -1 && dup2(0, fd) == -1 && errno == EBUSY)
			own[count++] = fd;
	return count;
}

/* A vfork child closes its copies of the library's descriptors, and opens its own with the same numbers. */
static void opens_in_child(int kept)
{
	int before[60], after[60], status, count;

	count = own_descriptors(before, kept);
	CHECK(count > 0);
	pid_t child = vfork();
	if (child == 0) {
		int bad = 0;

		for (int i = 0; i < count; i++)
			bad |= close(before[i]) != 0 || fcntl(0, F_DUPFD, before[i]) != before[i];
		_exit(bad);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(own_descriptors(after, kept) == count && !memcmp(before, after, count * sizeof(*before)));
}

/* Closes all descriptors, as daemons do: the program's sockets are closed, and new sockets work. */
static void closes_all(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;
	int status;

	end_if_it_hangs();
	memset(&args, 0, sizeof(args));
	call(&port, to, 3000, 1, &args);
	close_others(port.fd);
	call(&port, to, 3000, 2, &args);
	/* All descriptors below and above the socket's. */
	CHECK(port.fd == 3 || close_range(3, port.fd - 1, 0) == 0);
	CHECK(close_range(port.fd + 1, ~0U, 0) == 0);
	call(&port, to, 200000, 3, &args);
	pid_t child = fork();
	if (child == 0) {
		end_if_it_hangs();
		closefrom(3);
		CHECK(open("/dev/null", O_RDONLY) == 3 && open("/dev/null", O_RDONLY) == 4 && close(3) == 0 && close(4) == 0);
		port = open_client(to->any.sa_family);
		memset(&args, 0, sizeof(args));
		call(&port, to, 3000, 4, &args);
		CHECK(close(port.fd) == 0);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	child = vfork();
	if (child == 0) {
		close_range(3, ~0U, 0);
		_exit(fcntl(3, F_GETFD) != -1 || fcntl(4, F_GETFD) != -1 || fcntl(5, F_GETFD) != -1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	opens_in_child(port.fd);
	call(&port, to, 200000, 5, &args);
	for (int round = 0; round < 3; round++) {
		if (round == 0)
			CHECK(close_range(3, ~0U, 0) == 0);
		else if (round == 1)
			closefrom(3);
		else
			close_others(-1);
		FAILS(receive(port.fd, &args, &from, 0), EBADF);
		port = open_client(to->any.sa_family);
		memset(&args, 0, sizeof(args));
		call(&port, to, 3000, 6, &args);
	}
	CHECK(close(port.fd) == 0);
}

/* stdio closes the descriptor of a Homa socket by itself, and another file or socket then gets the number. */
static void closes_past(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	FILE *file = fdopen(port.fd, "r+");
	char byte = 1;

	CHECK(file && fclose(file) == 0);
	int other = open("/dev/zero", O_RDWR);
	CHECK(other == port.fd && write(other, "x", 1) == 1 && read(other, &byte, 1) == 1 && byte == 0 && close(other) == 0);

	port = open_client(to->any.sa_family);
	file = fdopen(port.fd, "r+");
	CHECK(file && fclose(file) == 0);
	other = socket(AF_UNIX, SOCK_DGRAM, 0);
	int type;
	socklen_t length = sizeof(type);
	CHECK(other == port.fd && getsockopt(other, SOL_SOCKET, SO_DOMAIN, &type, &length) == 0 && type == AF_UNIX && close(other) == 0);
}

/* The socket on which another thread makes calls. -1: there is none yet. CLOSES_NO_MORE: there will not be
 * another one. */
static atomic_int called = -1;

#define CLOSES_NO_MORE -2

/* Calls getsockname() on each socket until the socket is closed: the result is that of a Homa socket, or
 * EBADF. */
static void *ask_for_names(void *family)
{
	union address name;
	int fd;

	while ((fd = atomic_load(&called)) != CLOSES_NO_MORE) {
		socklen_t length = sizeof(name);

		if (fd < 0) {
			sched_yield();
		} else if (getsockname(fd, &name.any, &length) == 0) {
			CHECK(name.any.sa_family == *(int *)family);
		} else {
			CHECK(errno == EBADF);
			/* From now on the descriptor number may belong to another file. */
			atomic_store(&called, -1);
		}
	}
	return NULL;
}

/* A call concurrent with close operates on the socket or fails with EBADF; it never reaches the plain
 * descriptor that underlies the socket. */
static void closes_beside_calls(const union address *to)
{
	int family = to->any.sa_family;
	pthread_t asks;

	end_if_it_hangs();
	CHECK(pthread_create(&asks, NULL, ask_for_names, &family) == 0);
	for (int round = 0; round < 1000; round++) {
		int fd = socket(family, SOCK_DGRAM, IPPROTO_HOMA);

		CHECK(fd >= 0);
		atomic_store(&called, fd);
		usleep(round % 20);
		CHECK(close(fd) == 0);
		while (atomic_load(&called) >= 0)
			sched_yield();
	}
	atomic_store(&called, CLOSES_NO_MORE);
	CHECK(pthread_join(asks, NULL) == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *host = argc > 2 ? argv[2] : "127.0.0.1";
	union address to = address_of(host, argc > 3 ? atoi(argv[3]) : 99);

	if (!strcmp(what, "closes-all"))
		closes_all(&to);
	else if (!strcmp(what, "closes-past"))
		closes_past(&to);
	else if (!strcmp(what, "closes-beside-calls"))
		closes_beside_calls(&to);
	else
		return 2;
	return 0;
}
