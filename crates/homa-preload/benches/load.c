/* Generates a load of echo RPCs on Homa sockets, with the library preloaded or on the kernel's Homa: see
 * usage(). */
#include "../tests/c/rpc.h"

#include <sys/epoll.h>
#include <time.h>

/* Maximum number of messages in a batch. */
#define BATCH 32

enum wait { RECV, POLL, EPOLL };

static int usage(FILE *to, const char *self)
{
	fprintf(to,
		"usage: %s serve ADDRESS PORT [OPTION...]\n"
		"       %s call ADDRESS PORT [OPTION...]\n"
		"\n"
		"serve answers each request with the request's own bytes, until it is killed. call keeps RPCs open to such a\n"
		"server at all times, and prints its result as one JSON object: rpcs, seconds, rpcs_per_s, gbps (10^9 bits of\n"
		"requests per second), p50_us and p99_us of the round trips. It fails if an answer is wrong.\n"
		"\n"
		"  --size BYTES     bytes of a request and of its answer, 1 to 1000000 (default 100)\n"
		"  --open N         RPCs open at all times, 1 to 32 (default 1)\n"
		"  --seconds S      measured time, after a tenth of it without measuring (default 1)\n"
		"  --wait HOW       wait for messages in recvmsg (recv, the default), in poll, or in epoll\n"
		"  --batch          send by sendmmsg and receive by recvmmsg what there is, instead of one message a call\n"
		"  --help           print this\n",
		self, self);
	return to == stdout ? 0 : 2;
}

struct load {
	struct port port;
	size_t size;
	unsigned open;
	double seconds;
	enum wait wait;
	int batch, epoll;
};

/* The messages of a batch, with their addresses, arguments and data. */
struct batch {
	struct mmsghdr headers[BATCH];
	union address peers[BATCH];
	struct homa_recvmsg_args received[BATCH];
	struct homa_sendmsg_args sent[BATCH];
	struct iovec pieces[BATCH][HOMA_MAX_BPAGES];
};

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Waits as the options specify, and receives at least one message but at most `most`. Gives back
 * the pages of the previous messages. */
static unsigned receive_some(struct load *load, struct batch *batch, unsigned most)
{
	unsigned limit = load->batch ? most : 1;
	struct epoll_event event;

	if (load->wait == POLL)
		await_message(load->port.fd);
	else if (load->wait == EPOLL)
		CHECK(epoll_wait(load->epoll, &event, 1, 60000) == 1);
	for (unsigned i = 0; i < limit; i++) {
		batch->received[i].id = 0;
		batch->headers[i].msg_hdr = (struct msghdr){.msg_name = &batch->peers[i],
							    .msg_namelen = sizeof(batch->peers[i]),
							    .msg_control = &batch->received[i],
							    .msg_controllen = sizeof(batch->received[i])};
	}
	if (limit == 1) {
		long length = recvmsg(load->port.fd, &batch->headers[0].msg_hdr, 0);

		CHECK(length > 0);
		batch->headers[0].msg_len = length;
		return 1;
	}
	int count = recvmmsg(load->port.fd, batch->headers, limit, MSG_WAITFORONE, NULL);

	CHECK(count > 0);
	return count;
}

/* Sends the first `count` messages of the batch, which put() has prepared. */
static void send_all(struct load *load, struct batch *batch, unsigned count)
{
	if (count == 1) {
		CHECK(sendmsg(load->port.fd, &batch->headers[0].msg_hdr, 0) == 0);
		return;
	}
	CHECK(sendmmsg(load->port.fd, batch->headers, count, 0) == (int)count);
}

static void put(struct batch *batch, unsigned i, const union address *to, struct homa_sendmsg_args args, size_t pieces)
{
	batch->sent[i] = args;
	batch->headers[i].msg_hdr = (struct msghdr){
		.msg_name = (void *)to, .msg_namelen = length_of(to), .msg_iov = batch->pieces[i], .msg_iovlen = pieces, .msg_control = &batch->sent[i]};
}

static void serve(struct load *load)
{
	static struct batch batch;

	puts("ready");
	fflush(stdout);
	for (;;) {
		unsigned count = receive_some(load, &batch, BATCH);

		for (unsigned i = 0; i < count; i++) {
			size_t pieces = pieces_of(&load->port, &batch.received[i], batch.headers[i].msg_len, batch.pieces[i]);

			put(&batch, i, &batch.peers[i], (struct homa_sendmsg_args){batch.received[i].id, 0, 0, 0}, pieces);
		}
		send_all(load, &batch, count);
	}
}

static int compare(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;

	return difference < 0 ? -1 : difference > 0;
}

/* Compares the first and last bytes of a response with the request; comparing all bytes would
 * delay the next message. */
static int is_right(const struct load *load, const struct homa_recvmsg_args *args, size_t length)
{
	struct iovec pieces[HOMA_MAX_BPAGES];
	size_t count = pieces_of(&load->port, args, length, pieces), window = length < 64 ? length : 64;
	struct iovec last = pieces[count - 1];
	size_t end = last.iov_len < window ? last.iov_len : window;

	return length == load->size && memcmp(pieces[0].iov_base, data, end < window && count == 1 ? end : window) == 0 &&
	       memcmp((char *)last.iov_base + last.iov_len - end, data + length - end, end) == 0;
}

static void call_for(struct load *load, const union address *to)
{
	static struct batch batch;
	static double begun[BATCH];
	unsigned slots[BATCH], count = load->open;
	size_t rpcs = 0, room = 1 << 20;
	double *trips = malloc(room * sizeof(*trips)), start = now_s(), from = start + load->seconds / 10, until = from + load->seconds;

	CHECK(trips);
	fill(data, load->size, 1);
	for (unsigned i = 0; i < count; i++)
		slots[i] = i;
	for (;;) {
		double now = now_s();

		if (now >= until)
			break;
		for (unsigned i = 0; i < count; i++) {
			begun[slots[i]] = now;
			batch.pieces[i][0] = (struct iovec){data, load->size};
			put(&batch, i, to, (struct homa_sendmsg_args){0, slots[i], 0, 0}, 1);
			if (!load->batch)
				CHECK(sendmsg(load->port.fd, &batch.headers[i].msg_hdr, 0) == 0);
		}
		if (load->batch)
			send_all(load, &batch, count);
		count = receive_some(load, &batch, load->open);
		now = now_s();
		for (unsigned i = 0; i < count; i++) {
			slots[i] = batch.received[i].completion_cookie;
			CHECK(slots[i] < load->open && is_right(load, &batch.received[i], batch.headers[i].msg_len));
			if (now < from)
				continue;
			if (rpcs == room)
				CHECK((trips = realloc(trips, (room *= 2) * sizeof(*trips))));
			trips[rpcs++] = (now - begun[slots[i]]) * 1e6;
		}
	}
	double measured = now_s() - from;

	CHECK(rpcs > 0);
	qsort(trips, rpcs, sizeof(*trips), compare);
	printf("{\"rpcs\": %zu, \"seconds\": %.6f, \"rpcs_per_s\": %.1f, \"gbps\": %.4f, \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
	       rpcs, measured, rpcs / measured, rpcs * load->size * 8 / measured / 1e9, trips[rpcs / 2], trips[rpcs - 1 - rpcs / 100]);
}

int main(int argc, char **argv)
{
	struct load load = {.size = 100, .open = 1, .seconds = 1};

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help"))
			return usage(stdout, argv[0]);
	if (argc < 4 || (strcmp(argv[1], "serve") && strcmp(argv[1], "call")))
		return usage(stderr, argv[0]);
	for (int i = 4; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--batch"))
			load.batch = 1;
		else if (!strcmp(argv[i], "--size"))
			load.size = atol(value), i++;
		else if (!strcmp(argv[i], "--open"))
			load.open = atoi(value), i++;
		else if (!strcmp(argv[i], "--seconds"))
			load.seconds = atof(value), i++;
		else if (!strcmp(argv[i], "--wait"))
			load.wait = !strcmp(value, "poll") ? POLL : !strcmp(value, "epoll") ? EPOLL : RECV, i++;
		else
			return usage(stderr, argv[0]);
	}
	if (load.size < 1 || load.size > HOMA_MAX_MESSAGE_LENGTH || load.open < 1 || load.open > BATCH || !(load.seconds > 0))
		return usage(stderr, argv[0]);
	union address to = address_of(argv[2], atoi(argv[3]));
	int serves = !strcmp(argv[1], "serve");

	load.port = serves ? open_server(argv[2], atoi(argv[3])) : open_client(to.any.sa_family);
	if (load.wait == EPOLL) {
		struct epoll_event event = {EPOLLIN, {.u64 = 0}};

		load.epoll = epoll_create1(EPOLL_CLOEXEC);
		CHECK(load.epoll >= 0 && epoll_ctl(load.epoll, EPOLL_CTL_ADD, load.port.fd, &event) == 0);
	}
	if (serves)
		serve(&load);
	else
		call_for(&load, &to);
	return 0;
}
