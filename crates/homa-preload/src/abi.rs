//! The structures and numbers of Linux Homa's socket interface, as programs pass them.

/// Homa's number among the IP protocols.
pub(crate) const IPPROTO_HOMA: i32 = 146;

/// Longest message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_000_000;

/// Bytes of a page of the receive buffers.
pub(crate) const PAGE_BYTES: usize = 1 << 16;

/// Most pages that a message takes.
pub(crate) const MAX_PAGES: usize = MAX_MESSAGE_BYTES.div_ceil(PAGE_BYTES);

/// Client ports begin here; servers bind those below.
pub(crate) const FIRST_CLIENT_PORT: u16 = 0x8000;

/// Option: the region of receive buffers.
pub(crate) const SO_HOMA_RCVBUF: i32 = 10;
/// Option: whether requests are accepted.
pub(crate) const SO_HOMA_SERVER: i32 = 11;

/// Flag of [`SendArgs`]: the response is for who names its id.
pub(crate) const SEND_PRIVATE: u32 = 1;

/// What is known of a socket and its RPCs: the number that programs have by the module's header since April 2026, and the one from October 2025
/// on. The numbers of all generations are different, and mean the same here.
pub(crate) const HOMAIOCINFO: [u64; 2] = [0xc088_6890, 0xc088_6801];
/// Gives up calls: the same, and the number before October 2025.
pub(crate) const HOMAIOCABORT: [u64; 3] = [0xc020_6891, 0xc020_6802, 0xc020_89e3];
/// Stops the time trace: the same.
pub(crate) const HOMAIOCFREEZE: [u64; 3] = [0x6892, 0x6803, 0x89ef];

/// What `msg_control` points at in sendmsg.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendArgs {
    /// 0: a request, whose id is written here; else the request that is answered.
    pub(crate) id: u64,
    pub(crate) completion_cookie: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

/// What `msg_control` points at in recvmsg.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecvArgs {
    /// In: 0, or the private call that is waited for. Out: whose message it is.
    pub(crate) id: u64,
    pub(crate) completion_cookie: u64,
    /// In: pages given back. Out: pages of the message.
    pub(crate) num_bpages: u32,
    pub(crate) reserved: u32,
    pub(crate) bpage_offsets: [u32; MAX_PAGES],
}

/// The value of [`SO_HOMA_RCVBUF`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RcvbufArgs {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// The argument of [`HOMAIOCABORT`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AbortArgs {
    /// 0: all calls of the socket.
    pub(crate) id: u64,
    /// 0: they are forgotten; else recvmsg returns them with this error.
    pub(crate) error: u32,
    pub(crate) reserved: u32,
    pub(crate) reserved_too: [u64; 2],
}

/// Bytes of [`InfoArgs::error_msg`].
pub(crate) const ERROR_TEXT_BYTES: usize = 104;

/// Those of it that hold text and the 0 at its end: headers before May 2026 have no more.
pub(crate) const OLD_ERROR_TEXT_BYTES: usize = 100;

/// The argument of [`HOMAIOCINFO`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InfoArgs {
    /// In: where [`RpcInfo`]s go.
    pub(crate) rpc_info: u64,
    /// In: bytes there.
    pub(crate) rpc_info_length: u64,
    pub(crate) bpool_avail_bytes: u64,
    pub(crate) port: u32,
    pub(crate) num_rpcs: u32,
    pub(crate) error_msg: [u8; ERROR_TEXT_BYTES],
}

/// Flag of [`RpcInfo`]: the message waits for room in the program's buffers.
pub(crate) const RPC_BUF_STALL: u16 = 1;
/// The same: the call is private.
pub(crate) const RPC_PRIVATE: u16 = 2;
/// The same: the message is whole, and waits for recvmsg.
pub(crate) const RPC_RX_READY: u16 = 4;

/// One RPC, as [`HOMAIOCINFO`] tells of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RpcInfo {
    pub(crate) id: u64,
    pub(crate) peer: libc::sockaddr_storage,
    pub(crate) completion_cookie: u64,
    /// -1: there is no outgoing message yet.
    pub(crate) tx_length: i32,
    pub(crate) tx_sent: u32,
    pub(crate) tx_granted: u32,
    pub(crate) tx_prio: u32,
    /// -1: nothing has come.
    pub(crate) rx_length: i32,
    pub(crate) rx_remaining: u32,
    pub(crate) rx_gaps: u32,
    pub(crate) rx_gap_bytes: u32,
    pub(crate) rx_granted: u32,
    pub(crate) flags: u16,
}

const _: () = assert!(size_of::<SendArgs>() == 24);
const _: () = assert!(size_of::<RecvArgs>() == 88);
const _: () = assert!(size_of::<AbortArgs>() == 32);
const _: () = assert!(size_of::<InfoArgs>() == 136);
