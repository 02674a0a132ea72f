/* What polling calls and recvmmsg see of messages that have arrived. */
#include "rpc.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

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

	if (!strcmp(what, "batches"))
		batches(&to);
	else
		return 2;
	return 0;
}
