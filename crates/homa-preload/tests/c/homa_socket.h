/* Homa's socket interface as applications see it, independent of the implementation. */
#ifndef HOMA_SOCKET_H
#define HOMA_SOCKET_H

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define IPPROTO_HOMA 146
#define HOMA_MAX_MESSAGE_LENGTH 1000000
#define HOMA_BPAGE_SIZE 65536
#define HOMA_MAX_BPAGES 16
#define SO_HOMA_RCVBUF 10
#define SO_HOMA_SERVER 11
#define HOMA_SENDMSG_PRIVATE 1

/* sendmsg: msg_control points here, and msg_controllen is 0. */
struct homa_sendmsg_args {
	uint64_t id;
	uint64_t completion_cookie;
	uint32_t flags;
	uint32_t reserved;
};

/* recvmsg: msg_control points here, and msg_controllen is its size. */
struct homa_recvmsg_args {
	uint64_t id;
	uint64_t completion_cookie;
	uint32_t num_bpages;
	uint32_t reserved;
	uint32_t bpage_offsets[HOMA_MAX_BPAGES];
};

/* The value of SO_HOMA_RCVBUF. */
struct homa_rcvbuf_args {
	uint64_t start;
	uint64_t length;
};

struct homa_abort_args {
	uint64_t id;
	uint32_t error;
	uint32_t reserved;
	uint64_t reserved_too[2];
};

#define HOMA_RPC_BUF_STALL 1
#define HOMA_RPC_PRIVATE 2
#define HOMA_RPC_RX_READY 4

struct homa_rpc_info {
	uint64_t id;
	struct sockaddr_storage peer;
	uint64_t completion_cookie;
	int32_t tx_length;
	uint32_t tx_sent;
	uint32_t tx_granted;
	uint32_t tx_prio;
	int32_t rx_length;
	uint32_t rx_remaining;
	uint32_t rx_gaps;
	uint32_t rx_gap_bytes;
	uint32_t rx_granted;
	uint16_t flags;
};

struct homa_info {
	uint64_t rpc_info;
	uint64_t rpc_info_length;
	uint64_t bpool_avail_bytes;
	uint32_t port;
	uint32_t num_rpcs;
	char error_msg[104];
};

#define HOMAIOCINFO _IOWR('h', 0x90, struct homa_info)
#define HOMAIOCABORT _IOWR('h', 0x91, struct homa_abort_args)
#define HOMAIOCFREEZE _IO('h', 0x92)

/* The same requests in older headers. */
#define HOMAIOCINFO_OF_2025 _IOWR('h', 1, struct homa_info)
#define HOMAIOCABORT_OF_2025 _IOWR('h', 2, struct homa_abort_args)
#define HOMAIOCFREEZE_OF_2025 _IO('h', 3)
#define HOMAIOCABORT_FIRST _IOWR(0x89, 0xe3, struct homa_abort_args)
#define HOMAIOCFREEZE_FIRST _IO(0x89, 0xef)

_Static_assert(sizeof(struct homa_sendmsg_args) == 24, "as the kernel has it");
_Static_assert(sizeof(struct homa_recvmsg_args) == 88, "as the kernel has it");
_Static_assert(HOMAIOCINFO == 0xc0886890 && HOMAIOCABORT == 0xc0206891 && HOMAIOCFREEZE == 0x6892, "as the kernel has it");

#endif
