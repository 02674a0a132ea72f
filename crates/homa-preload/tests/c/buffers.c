/* The buffers of a Homa application: too small, unmapped in part, or unmapped while in use. */
#include "rpc.h"

#include <pthread.h>
#include <sys/epoll.h>

/* When long messages fill the buffers, another one waits until one is given back; poll then reports it. A
 * short message overtakes it. */
static void starves(const union address *to)
{
	struct port port = {socket(to->any.sa_family, SOCK_DGRAM, IPPROTO_HOMA), NULL};
	size_t least = sysconf(_SC_NPROCESSORS_CONF) * HOMA_BPAGE_SIZE + 2 * HOMA_MAX_MESSAGE_LENGTH;
	size_t most = least / HOMA_BPAGE_SIZE / 16;
	struct homa_recvmsg_args taken[64], args;
	union address from;

	CHECK(most >= 2 && most < 64);
	port.region = mmap(NULL, least, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct homa_rcvbuf_args region = {(uint64_t)(uintptr_t)port.region, least};
	CHECK(setsockopt(port.fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &region, sizeof(region)) == 0);
	memset(&args, 0, sizeof(args));
	memset(taken, 0, sizeof(taken));
	for (size_t i = 0; i < most; i++) {
		send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, i, 0);
		CHECK(receive(port.fd, &taken[i], &from, 0) == HOMA_MAX_MESSAGE_LENGTH);
	}
	uint64_t large = send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, 98, 0);
	await_message(port.fd);
	FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
	CHECK(!readable(port.fd));
	struct homa_rpc_info rpc;
	struct homa_info info = {.rpc_info = (uint64_t)(uintptr_t)&rpc, .rpc_info_length = sizeof(rpc)};
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 1 && rpc.id == large && rpc.flags == HOMA_RPC_BUF_STALL);
	uint64_t small = send_request(port.fd, to, data, 100, 99, 0);
	args.id = 0;
	CHECK(receive(port.fd, &args, &from, 0) == 100 && args.id == small);
	CHECK(!readable(port.fd));
	/* Pages are given back by a call for another message, as another thread might do. */
	uint64_t private = send_request(port.fd, to, data, 100, 0, HOMA_SENDMSG_PRIVATE);
	taken[0].id = private;
	CHECK(receive(port.fd, &taken[0], &from, 0) == 100);
	CHECK(readable(port.fd));
	args.id = 0;
	CHECK(receive(port.fd, &args, &from, 0) == HOMA_MAX_MESSAGE_LENGTH && args.id == large);
	CHECK(!readable(port.fd));
	/* With edge triggering, a message arrives when it gets room, even if the descriptor was already
	 * readable because of another message. */
	int edges = epoll_create1(0);
	struct epoll_event edge = {EPOLLIN | EPOLLET, {.fd = port.fd}}, got;
	CHECK(epoll_ctl(edges, EPOLL_CTL_ADD, port.fd, &edge) == 0 && epoll_wait(edges, &got, 1, 0) == 0);
	large = send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, 95, 0);
	CHECK(epoll_wait(edges, &got, 1, 60000) == 1);
	struct homa_recvmsg_args none;
	memset(&none, 0, sizeof(none));
	FAILS(receive(port.fd, &none, &from, MSG_DONTWAIT), EAGAIN);
	small = send_request(port.fd, to, data, 100, 94, 0);
	CHECK(epoll_wait(edges, &got, 1, 60000) == 1 && epoll_wait(edges, &got, 1, 0) == 0);
	args.id = private;
	FAILS(receive(port.fd, &args, &from, 0), EINVAL);
	CHECK(epoll_wait(edges, &got, 1, 0) == 1 && epoll_wait(edges, &got, 1, 0) == 0);
	args.id = 0;
	CHECK(receive(port.fd, &args, &from, 0) == HOMA_MAX_MESSAGE_LENGTH && args.id == large);
	struct homa_recvmsg_args last;
	memset(&last, 0, sizeof(last));
	CHECK(receive(port.fd, &last, &from, 0) == 100 && last.id == small && !readable(port.fd));
	/* A call whose response waits for room can be aborted like any other. */
	for (int tell = 0; tell < 2; tell++) {
		memset(&none, 0, sizeof(none));
		large = send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, 97, 0);
		await_message(port.fd);
		FAILS(receive(port.fd, &none, &from, MSG_DONTWAIT), EAGAIN);
		struct homa_abort_args abort = {tell ? large : 0, tell ? ECANCELED : 0, 0, {0, 0}};
		CHECK(ioctl(port.fd, HOMAIOCABORT, &abort) == 0);
		CHECK(readable(port.fd) == tell);
		FAILS(receive(port.fd, &none, &from, MSG_DONTWAIT), tell ? ECANCELED : EAGAIN);
		CHECK(none.id == (tell ? large : 0) && !readable(port.fd));
		CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == 0);
	}
}

static void *receive_large(void *argument)
{
	struct port *port = argument;
	struct homa_recvmsg_args *args = calloc(1, sizeof(*args));
	union address from;

	CHECK(args && receive(port->fd, args, &from, 0) == HOMA_MAX_MESSAGE_LENGTH);
	return args;
}

/* A thread waits while another thread finds no room for a message. When there is room, the waiting thread
 * gets the message. */
static void starves_another(const union address *to)
{
	struct port port = {socket(to->any.sa_family, SOCK_DGRAM, IPPROTO_HOMA), NULL};
	size_t least = sysconf(_SC_NPROCESSORS_CONF) * HOMA_BPAGE_SIZE + 2 * HOMA_MAX_MESSAGE_LENGTH;
	size_t most = least / HOMA_BPAGE_SIZE / 16;
	struct homa_recvmsg_args taken[64], args;
	struct homa_rpc_info rpc;
	struct homa_info info = {.rpc_info = (uint64_t)(uintptr_t)&rpc, .rpc_info_length = sizeof(rpc)};
	union address from;

	end_if_it_hangs();
	CHECK(most >= 2 && most < 64);
	port.region = mmap(NULL, least, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct homa_rcvbuf_args region = {(uint64_t)(uintptr_t)port.region, least};
	CHECK(setsockopt(port.fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &region, sizeof(region)) == 0);
	memset(&args, 0, sizeof(args));
	memset(taken, 0, sizeof(taken));
	for (size_t i = 0; i < most; i++) {
		send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, i, 0);
		CHECK(receive(port.fd, &taken[i], &from, 0) == HOMA_MAX_MESSAGE_LENGTH);
	}
	for (int round = 0; round < 50; round++) {
		pthread_t waits;
		void *came;

		CHECK(pthread_create(&waits, NULL, receive_large, &port) == 0);
		usleep(round % 2 * 1000);
		send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, 1, 0);
		do {
			args.id = 0;
			FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
			CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0);
		} while (info.num_rpcs != 1 || rpc.flags != HOMA_RPC_BUF_STALL);
		taken[0].id = 1 << 20;
		FAILS(receive(port.fd, &taken[0], &from, MSG_DONTWAIT), EINVAL);
		CHECK(pthread_join(waits, &came) == 0);
		taken[0] = *(struct homa_recvmsg_args *)came;
		free(came);
	}
}

/* Opens a client with the minimum amount of buffers, and fills them until there is no room for
 * another message of this size. */
static struct port open_full(const union address *to, size_t length, struct homa_recvmsg_args *last)
{
	struct port port = {socket(to->any.sa_family, SOCK_DGRAM, IPPROTO_HOMA), NULL};
	size_t least = sysconf(_SC_NPROCESSORS_CONF) * HOMA_BPAGE_SIZE + 2 * HOMA_MAX_MESSAGE_LENGTH;
	struct homa_info info = {0};
	union address from;

	port.region = mmap(NULL, least, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct homa_rcvbuf_args region = {(uint64_t)(uintptr_t)port.region, least};
	CHECK(setsockopt(port.fd, IPPROTO_HOMA, SO_HOMA_RCVBUF, &region, sizeof(region)) == 0);
	do {
		memset(last, 0, sizeof(*last));
		send_request(port.fd, to, data, length, 0, 0);
		CHECK(receive(port.fd, last, &from, 0) == (long)length);
		CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0);
	} while (info.bpool_avail_bytes >= length);
	return port;
}

/* More messages wait for room than can be held: nothing can be received, and poll reports nothing. */
static void holds_many(const union address *to)
{
	const size_t length = 4 * HOMA_BPAGE_SIZE;
	const unsigned count = 100;
	struct homa_recvmsg_args last, args;
	struct port port = open_full(to, length, &last);
	struct homa_info info = {0};
	union address from;

	memset(&args, 0, sizeof(args));
	end_if_it_hangs();
	for (unsigned i = 0; i < count; i++)
		send_request(port.fd, to, data, length, i, 0);
	/* Each message makes the descriptor readable until recvmsg finds no room for it. */
	for (int quiet = 0; quiet < 100;) {
		FAILS(receive(port.fd, &args, &from, MSG_DONTWAIT), EAGAIN);
		quiet = readable(port.fd) ? 0 : quiet + 1;
		usleep(1000);
	}
	CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0 && info.num_rpcs == count);
	/* When pages are given back, all messages arrive, one after the other. */
	args = last;
	for (unsigned i = 0; i < count; i++) {
		args.id = 0;
		CHECK(receive(port.fd, &args, &from, 0) == (long)length);
	}
	CHECK(!readable(port.fd));
	CHECK(close(port.fd) == 0);
}

struct private_wait {
	struct port *port;
	uint64_t id;
	struct homa_recvmsg_args args;
	long length;
	int error;
	int looks_only;
	volatile int ended;
};

static void *wait_for_private(void *argument)
{
	struct private_wait *wait = argument;
	union address from;

	do {
		memset(&wait->args, 0, sizeof(wait->args));
		wait->args.id = wait->id;
		wait->length = receive(wait->port->fd, &wait->args, &from, wait->looks_only ? MSG_DONTWAIT : 0);
		wait->error = wait->length < 0 ? errno : 0;
	} while (wait->error == EAGAIN);
	wait->ended = 1;
	return NULL;
}

/* Two threads wait for the same private response, which has no room. When there is room, one of them gets it.
 * Until then, neither thread gets the error that the call does not exist. */
static void private_for_two(const union address *to)
{
	const size_t length = 4 * HOMA_BPAGE_SIZE;
	struct homa_recvmsg_args last;
	struct port port = open_full(to, length, &last);
	struct homa_rpc_info rpc;
	struct homa_info info = {.rpc_info = (uint64_t)(uintptr_t)&rpc, .rpc_info_length = sizeof(rpc)};
	union address from;

	end_if_it_hangs();
	for (int round = 0; round < 200; round++) {
		struct private_wait waits[2];
		pthread_t threads[2];
		uint64_t id = send_request(port.fd, to, data, length, 0, HOMA_SENDMSG_PRIVATE);

		for (int i = 0; i < 2; i++) {
			waits[i] = (struct private_wait){.port = &port, .id = id, .looks_only = i == round % 2};
			CHECK(pthread_create(&threads[i], NULL, wait_for_private, &waits[i]) == 0);
		}
		do {
			CHECK(ioctl(port.fd, HOMAIOCINFO, &info) == 0);
		} while (info.num_rpcs != 1 || rpc.flags != (HOMA_RPC_PRIVATE | HOMA_RPC_BUF_STALL));
		CHECK(!waits[0].ended && !waits[1].ended);
		usleep(2000);
		CHECK(!waits[0].ended && !waits[1].ended);
		last.id = 0;
		FAILS(receive(port.fd, &last, &from, MSG_DONTWAIT), EAGAIN);
		for (int i = 0; i < 2; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		int got = waits[0].length == (long)length ? 0 : 1;
		CHECK(waits[got].length == (long)length && waits[1 - got].length < 0 && waits[1 - got].error == EINVAL);
		last = waits[got].args;
	}
	CHECK(close(port.fd) == 0);
}

/* The program unmaps the buffers while messages are in flight: the messages arrive, and nothing is written to
 * the unmapped memory. */
static void unmaps(const union address *to)
{
	for (int round = 0; round < 20; round++) {
		struct port port = open_client(to->any.sa_family);
		struct homa_recvmsg_args args;
		union address from;

		memset(&args, 0, sizeof(args));
		for (int i = 0; i < 8; i++)
			send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, i, 0);
		usleep(round * 100);
		CHECK(munmap(port.region, REGION_BYTES) == 0);
		if (round % 2) {
			for (int i = 0; i < 8; i++) {
				args.id = 0;
				args.num_bpages = 0;
				long length = receive(port.fd, &args, &from, 0);
				CHECK(length == HOMA_MAX_MESSAGE_LENGTH || (length == -1 && errno == EFAULT));
			}
		}
		CHECK(close(port.fd) == 0);
	}
}

/* Sends eight large requests with different contents. */
static void send_eight(struct port *port, const union address *to)
{
	for (uint32_t i = 0; i < 8; i++) {
		fill(data, HOMA_MAX_MESSAGE_LENGTH, i);
		send_request(port->fd, to, data, HOMA_MAX_MESSAGE_LENGTH, i, 0);
	}
}

/* Receives the eight responses. Complete messages must have the bytes that were sent. Returns how many were
 * incomplete. */
static int receive_eight(struct port *port)
{
	struct homa_recvmsg_args args;
	union address from;
	int lost = 0;

	memset(&args, 0, sizeof(args));
	for (int i = 0; i < 8; i++) {
		args.id = 0;
		args.num_bpages = 0;
		long length = receive(port->fd, &args, &from, 0);
		CHECK(args.id != 0);
		if (length < 0) {
			CHECK(errno == EFAULT && args.num_bpages == 0);
			lost++;
			continue;
		}
		CHECK(length == HOMA_MAX_MESSAGE_LENGTH);
		check_message(port, &args, length, args.completion_cookie);
	}
	return lost;
}

/* Part of the buffers is unmapped while messages are in flight, or unmapping fails: no message arrives with
 * wrong bytes. */
static void unmaps_in_part(const union address *to)
{
	struct homa_recvmsg_args args;
	union address from;
	const size_t part = 4 * HOMA_BPAGE_SIZE;

	for (int round = 0; round < 20; round++) {
		struct port port = open_client(to->any.sa_family);

		send_eight(&port, to);
		usleep(round * 100);
		FAILS(munmap(port.region + 1, REGION_BYTES), EINVAL);
		FAILS(munmap(port.region, 0), EINVAL);
		CHECK(receive_eight(&port) == 0);
		CHECK(close(port.fd) == 0 && munmap(port.region, REGION_BYTES) == 0);

		port = open_client(to->any.sa_family);
		send_eight(&port, to);
		usleep(round * 100);
		CHECK(munmap(port.region + part, part) == 0);
		CHECK(receive_eight(&port) < 8);
		/* All pages that were in use are now either unmapped or given back. A message in unmapped
		 * pages fails, and messages in other pages arrive as usual. */
		memset(&args, 0, sizeof(args));
		fill(data, 2 * part, 9);
		send_request(port.fd, to, data, 2 * part, 9, 0);
		FAILS(receive(port.fd, &args, &from, 0), EFAULT);
		CHECK(args.id != 0 && args.num_bpages == 0);
		args.id = 0;
		fill(data, 100, 9);
		send_request(port.fd, to, data, 100, 9, 0);
		CHECK(receive(port.fd, &args, &from, 0) == 100);
		check_message(&port, &args, 100, 9);
		CHECK(close(port.fd) == 0 && munmap(port.region, part) == 0);
		CHECK(munmap(port.region + 2 * part, REGION_BYTES - 2 * part) == 0);
	}
}

static void *receive_one(void *argument)
{
	struct port *port = argument;
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	long length = receive(port->fd, &args, &from, 0);
	/* The thread may have begun its call too late. */
	if (length < 0 && errno == EBADF)
		return port;
	CHECK(length == HOMA_MAX_MESSAGE_LENGTH);
	check_message(port, &args, HOMA_MAX_MESSAGE_LENGTH, 3);
	return NULL;
}

/* A socket is closed while another thread is in recvmsg: that thread still gets its message, since its call
 * holds the socket until it returns. */
static void closes(const union address *to)
{
	int late = 0;

	end_if_it_hangs();
	/* If threads start late on this machine, repeats until one was in time. */
	for (int round = 0; round < 40 || late == round; round++) {
		struct port port = open_client(to->any.sa_family);
		pthread_t waits;
		void *came_late;

		CHECK(pthread_create(&waits, NULL, receive_one, &port) == 0);
		usleep(2000 + round / 40 * 20000);
		fill(data, HOMA_MAX_MESSAGE_LENGTH, 3);
		send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, 3, 0);
		usleep(round % 40 * 50);
		CHECK(close(port.fd) == 0);
		CHECK(pthread_join(waits, &came_late) == 0);
		CHECK(munmap(port.region, REGION_BYTES) == 0);
		late += came_late != NULL;
	}
}

static void *receive_somehow(void *argument)
{
	struct port *port = argument;
	struct homa_recvmsg_args args;
	union address from;

	memset(&args, 0, sizeof(args));
	long length = receive(port->fd, &args, &from, 0);
	/* The thread may have begun its call too late, and the message may have arrived too late for its buffers. */
	CHECK(length == HOMA_MAX_MESSAGE_LENGTH || (length < 0 && (errno == EBADF || errno == EFAULT)));
	return length > 0 || errno == EFAULT ? NULL : port;
}

/* Like closes(), but the buffers are also unmapped during the call: nothing is written to the unmapped
 * memory. */
static void closes_and_unmaps(const union address *to)
{
	int late = 0;

	end_if_it_hangs();
	for (int round = 0; round < 40 || late == round; round++) {
		struct port port = open_client(to->any.sa_family);
		pthread_t waits;
		void *came_late;

		CHECK(pthread_create(&waits, NULL, receive_somehow, &port) == 0);
		usleep(2000 + round / 40 * 20000);
		send_request(port.fd, to, data, HOMA_MAX_MESSAGE_LENGTH, 3, 0);
		usleep(round % 40 * 50);
		CHECK(close(port.fd) == 0 && munmap(port.region, REGION_BYTES) == 0);
		CHECK(pthread_join(waits, &came_late) == 0);
		late += came_late != NULL;
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *host = argc > 2 ? argv[2] : "127.0.0.1";
	union address to = address_of(host, argc > 3 ? atoi(argv[3]) : 99);

	if (!strcmp(what, "starves"))
		starves(&to);
	else if (!strcmp(what, "starves-another"))
		starves_another(&to);
	else if (!strcmp(what, "holds-many"))
		holds_many(&to);
	else if (!strcmp(what, "private-for-two"))
		private_for_two(&to);
	else if (!strcmp(what, "unmaps"))
		unmaps(&to);
	else if (!strcmp(what, "unmaps-in-part"))
		unmaps_in_part(&to);
	else if (!strcmp(what, "closes-and-unmaps"))
		closes_and_unmaps(&to);
	else if (!strcmp(what, "closes"))
		closes(&to);
	else
		return 2;
	return 0;
}
