/* Threads that end during a call: by cancellation, or by pthread_exit in a signal handler. */
#include "rpc.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

static struct port port;
static union address silent;
static uint64_t private_id;
static pthread_t waiter;
static volatile pid_t waiter_id;
static int pipe_ends[2], epoll_set, listener;
static int cleaned;

/* The call in which a thread ends. */
enum what { RECEIVE, RECEIVE_PRIVATE, SEVERAL, POLLS, WAITS_AT_SET, READS, ACCEPTS, PENDING, NOT_WAITING, KINDS };

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static void wait_for(enum what what)
{
	struct homa_recvmsg_args args;
	union address from;
	struct pollfd entry = {port.fd, POLLIN, 0};
	struct epoll_event event;
	struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_control = &args, .msg_controllen = sizeof(args)};
	struct mmsghdr several = {message, 0};
	char byte;

	memset(&args, 0, sizeof(args));
	switch (what) {
	case PENDING:
	case NOT_WAITING:
		/* The thread was cancelled before this call. */
		CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
		recvmsg(port.fd, &message, what == PENDING ? 0 : MSG_DONTWAIT);
		break;
	case RECEIVE_PRIVATE:
		args.id = private_id;
		recvmsg(port.fd, &message, 0);
		break;
	case SEVERAL:
		recvmmsg(port.fd, &several, 1, 0, NULL);
		break;
	case POLLS:
		poll(&entry, 1, -1);
		break;
	case WAITS_AT_SET:
		epoll_wait(epoll_set, &event, 1, -1);
		break;
	case READS:
		CHECK(read(pipe_ends[0], &byte, 1) < 0);
		break;
	case ACCEPTS:
		accept(listener, NULL, NULL);
		break;
	default:
		recvmsg(port.fd, &message, 0);
	}
	fprintf(stderr, "a thread that was to end in call %d came back (errno %d)\n", what, errno);
	exit(1);
}

static void *wait_in_thread(void *argument)
{
	enum what what = (enum what)(intptr_t)argument;

	if (what == PENDING || what == NOT_WAITING)
		CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	pthread_cleanup_push(clean, NULL);
	__atomic_store_n(&waiter_id, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	if (what == PENDING || what == NOT_WAITING)
		while (__atomic_load_n(&waiter_id, __ATOMIC_SEQ_CST) != 0)
			sched_yield();
	wait_for(what);
	pthread_cleanup_pop(0);
	return NULL;
}

/* Waits until the kernel reports that the thread sleeps. */
static void await_sleep(pid_t id)
{
	char path[64], line[512];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	for (;;) {
		int fd = open(path, O_RDONLY);
		CHECK(fd >= 0);
		ssize_t length = read(fd, line, sizeof(line) - 1);
		CHECK(length > 0 && close(fd) == 0);
		line[length] = 0;
		if (strrchr(line, ')')[2] == 'S')
			return;
		sched_yield();
	}
}

static void start(enum what what)
{
	waiter_id = 0;
	cleaned = 0;
	CHECK(pthread_create(&waiter, NULL, wait_in_thread, (void *)(intptr_t)what) == 0);
	while (__atomic_load_n(&waiter_id, __ATOMIC_SEQ_CST) == 0)
		sched_yield();
}

static void is_well(const union address *to)
{
	struct homa_recvmsg_args args;

	memset(&args, 0, sizeof(args));
	for (int i = 0; i < 3; i++)
		call(&port, to, 100000, i, &args);
	give_back(&port, &args);
}

static void prepare(const union address *to)
{
	struct epoll_event event = {EPOLLIN, {.fd = 0}};
	struct sockaddr_in any = {.sin_family = AF_INET};

	port = open_client(to->any.sa_family);
	private_id = send_request(port.fd, &silent, "private", 7, 9, HOMA_SENDMSG_PRIVATE);
	CHECK(pipe(pipe_ends) == 0);
	epoll_set = epoll_create1(0);
	CHECK(epoll_ctl(epoll_set, EPOLL_CTL_ADD, port.fd, &event) == 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0);
}

static void handle_nothing(int signal)
{
	(void)signal;
}

/* Cancels a thread in each call, with and without a handler for some signal; the socket must be unaffected.
 * With `drives`, threads poll for longer than the test lasts, and are cancelled while they drive the
 * network. */
static void cancels(const union address *to, int drives)
{
	prepare(to);
	for (int handled = 0; handled < 2; handled++) {
		for (enum what what = RECEIVE; what < KINDS; what++) {
			void *result;

			start(what);
			if (drives)
				usleep(1000);
			else if (what != PENDING && what != NOT_WAITING)
				await_sleep(waiter_id);
			CHECK(pthread_cancel(waiter) == 0);
			__atomic_store_n(&waiter_id, 0, __ATOMIC_SEQ_CST);
			CHECK(pthread_join(waiter, &result) == 0);
			CHECK(result == PTHREAD_CANCELED && cleaned == 1);
			is_well(to);
		}
		CHECK(signal(SIGUSR1, handle_nothing) != SIG_ERR);
	}
	CHECK(close(port.fd) == 0);
}

static void end_thread(int signal)
{
	(void)signal;
	pthread_exit((void *)7);
}

/* A handler ends threads while they wait. */
static void exits(const union address *to)
{
	CHECK(signal(SIGUSR1, end_thread) != SIG_ERR);
	prepare(to);
	for (enum what what = RECEIVE; what < PENDING; what++) {
		void *result;

		start(what);
		await_sleep(waiter_id);
		CHECK(pthread_kill(waiter, SIGUSR1) == 0);
		CHECK(pthread_join(waiter, &result) == 0);
		CHECK(result == (void *)7 && cleaned == 1);
		is_well(to);
	}
	CHECK(close(port.fd) == 0);
}

int main(int count, char **words)
{
	end_if_it_hangs();
	CHECK(count == 5);
	union address to = address_of(words[2], atoi(words[3]));
	silent = address_of(words[2], atoi(words[4]));
	if (strcmp(words[1], "cancels") == 0)
		cancels(&to, 0);
	else if (strcmp(words[1], "cancels-driving") == 0)
		cancels(&to, 1);
	else if (strcmp(words[1], "exits") == 0)
		exits(&to);
	else
		return 2;
	return 0;
}
