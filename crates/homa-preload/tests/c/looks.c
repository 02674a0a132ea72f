/* What polling calls and recvmmsg see of messages that have arrived. */
#include "rpc.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>

/* Waits for a message in select. */
static void *selects(void *fd)
{
	int own = *(int *)fd;
	struct timeval minute = {60, 0};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(own, &set);
	CHECK(select(own + 1, &set, NULL, NULL, &minute) == 1 && FD_ISSET(own, &set));
	return NULL;
}

/* Waits for a message in pselect. */
static void pselects(int fd)
{
	struct timespec minute = {60, 0};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(pselect(fd + 1, &set, NULL, NULL, &minute, NULL) == 1 && FD_ISSET(fd, &set));
}

static void handle_nothing(int signal)
{
	(void)signal;
}

/* Every call sees a message that poll has reported, whether the thread that polls got it from the network
 * itself or not, and a thread that already waits for it wakes up. */
static void sees_all(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct homa_recvmsg_args args;
	union address from;
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	struct sigaction action = {.sa_handler = handle_nothing};
	struct timespec none = {0, 0};
	int epoll = epoll_create1(0);

	end_if_it_hangs();
	memset(&args, 0, sizeof(args));
	for (int i = 0; i < 100; i++) {
		struct pollfd entry = {port.fd, POLLIN, POLLERR}, both[2] = {{port.fd, POLLIN | POLLRDNORM, 0}, {-1, POLLIN, 0}};
		pthread_t other;

		CHECK(poll(&entry, 1, 0) == 0 && entry.revents == 0);
		entry.revents = POLLERR;
		CHECK(poll(&entry, 1, 1) == 0 && entry.revents == 0);
		if (i % 8 == 6)
			CHECK(pthread_create(&other, NULL, selects, &port.fd) == 0);
		send_request(port.fd, to, "x", 1, 0, 0);
		if (i % 2 == 0)
			send_request(port.fd, to, "y", 1, 0, 0);
		for (int left = i % 2 == 0 ? 2 : 1; left > 0; left--) {
			await_message(port.fd);
			switch (i % 8) {
			case 0:
				CHECK(poll(both, 2, 60000) == 1 && both[0].revents == (POLLIN | POLLRDNORM));
				break;
			case 1:
				CHECK(readable(port.fd));
				break;
			case 2:
				CHECK(poll(&entry, 1, 0) == 1 && entry.revents == POLLIN);
				break;
			case 3:
				selects(&port.fd);
				break;
			case 4:
				pselects(port.fd);
				break;
			case 5:
				CHECK(pthread_create(&other, NULL, selects, &port.fd) == 0);
				CHECK(pthread_join(other, NULL) == 0);
				break;
			case 6:
				if (left == 2)
					CHECK(pthread_join(other, NULL) == 0);
				break;
			default:
				await_message(port.fd);
			}
			args.id = 0;
			CHECK(receive(port.fd, &args, &from, MSG_DONTWAIT) == 1);
		}
		args.id = 0;
		FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
		CHECK(!readable(port.fd));
	}
	/* What poll has reported before is also seen by an epoll set, and by the first signal handler, which may
	 * look at the descriptor without this library. */
	send_request(port.fd, to, "x", 1, 0, 0);
	await_message(port.fd);
	struct pollfd entry = {port.fd, POLLIN, 0};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(syscall(SYS_ppoll, &entry, 1, &none, NULL, 0) == 1 && entry.revents == POLLIN);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0 && epoll_wait(epoll, &event, 1, 60000) == 1);
}

/* A message that poll has reported is seen by an epoll set that gets the socket later. */
static void sees_all_in_epoll(const union address *to)
{
	struct port port = open_client(to->any.sa_family);
	struct epoll_event event = {EPOLLIN, {.fd = port.fd}};
	int epoll = epoll_create1(0);

	end_if_it_hangs();
	send_request(port.fd, to, "x", 1, 0, 0);
	await_message(port.fd);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, port.fd, &event) == 0 && epoll_wait(epoll, &event, 1, 60000) == 1);
}

/* Ends the process if this thread reads from the network, as the library does. */
static void forbid_receiving(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvmsg, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvmmsg, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(program) / sizeof(*program), program};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

/* Receives what has arrived, and nothing else: a batch that grew while it is received would delay its first
 * message. */
static void *takes_what_has_arrived(void *fd)
{
	struct homa_recvmsg_args args[8];
	struct mmsghdr several[8];
	int count;

	memset(args, 0, sizeof(args));
	memset(several, 0, sizeof(several));
	for (int i = 0; i < 8; i++)
		several[i].msg_hdr = (struct msghdr){.msg_control = &args[i], .msg_controllen = sizeof(args[i])};
	forbid_receiving();
	count = recvmmsg(*(int *)fd, several, 8, MSG_WAITFORONE, NULL);
	CHECK(count >= 1 && count <= 4);
	return (void *)(long)count;
}

static void batches(const union address *to)
{
	struct port port = open_client(to->any.sa_family);

	end_if_it_hangs();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++)
			send_request(port.fd, to, "x", 1, i, 0);
		for (long left = 4; left > 0;) {
			pthread_t other;
			void *count;

			await_message(port.fd);
			CHECK(pthread_create(&other, NULL, takes_what_has_arrived, &port.fd) == 0);
			CHECK(pthread_join(other, &count) == 0);
			left -= (long)count;
		}
	}
	CHECK(!readable(port.fd));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	union address to = address_of(argc > 2 ? argv[2] : "127.0.0.1", argc > 3 ? atoi(argv[3]) : 99);

	if (!strcmp(what, "sees-all"))
		sees_all(&to);
	else if (!strcmp(what, "sees-all-in-epoll"))
		sees_all_in_epoll(&to);
	else if (!strcmp(what, "batches"))
		batches(&to);
	else
		return 2;
	return 0;
}
