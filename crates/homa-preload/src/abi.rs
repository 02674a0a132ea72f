//! The structures and numbers of Linux Homa's socket interface.

/// Homa's IP protocol number.
pub(crate) const IPPROTO_HOMA: i32 = 146;

/// Maximum length of a message in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_000_000;

/// Size of a receive buffer page in bytes.
pub(crate) const PAGE_BYTES: usize = 1 << 16;

/// Maximum number of pages of a message.
pub(crate) const MAX_PAGES: usize = MAX_MESSAGE_BYTES.div_ceil(PAGE_BYTES);

/// First client port; servers bind lower ports.
pub(crate) const FIRST_CLIENT_PORT: u16 = 0x8000;

/// Option: the region of receive buffers.
pub(crate) const SO_HOMA_RCVBUF: i32 = 10;
/// Option: whether the socket accepts requests.
pub(crate) const SO_HOMA_SERVER: i32 = 11;

/// Flag of [`SendArgs`]: only a recvmsg that specifies the call's ID receives the response.
pub(crate) const SEND_PRIVATE: u32 = 1;

/// ioctl: information about a socket and its RPCs. The first number is from the module's header since April
/// 2026, the second from the header since October 2025. The numbers differ between generations of the header,
/// but have the same meaning here.
pub(crate) const HOMAIOCINFO: [u64; 2] = [0xc088_6890, 0xc088_6801];
/// ioctl: aborts calls. The first two numbers are from the same headers as for [`HOMAIOCINFO`], the third
/// from headers before October 2025.
pub(crate) const HOMAIOCABORT: [u64; 3] = [0xc020_6891, 0xc020_6802, 0xc020_89e3];
/// ioctl: stops the time trace. The numbers are from the same headers as for [`HOMAIOCABORT`].
pub(crate) const HOMAIOCFREEZE: [u64; 3] = [0x6892, 0x6803, 0x89ef];

/// The structure at `msg_control` in sendmsg.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendArgs {
    /// In: 0 to send a request, or the ID of the request to answer. Out: the ID of a sent request.
    pub(crate) id: u64,
    pub(crate) completion_cookie: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

/// The structure at `msg_control` in recvmsg.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecvArgs {
    /// In: 0, or the ID of the private call to wait for. Out: the ID of the message's RPC.
    pub(crate) id: u64,
    pub(crate) completion_cookie: u64,
    /// In: number of pages to give back. Out: number of pages of the message.
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
    /// ID of the call; 0 for all calls of the socket.
    pub(crate) id: u64,
    /// 0 to discard the calls; otherwise, recvmsg returns the calls with this error.
    pub(crate) error: u32,
    pub(crate) reserved: u32,
    pub(crate) reserved_too: [u64; 2],
}

/// Size of [`InfoArgs::error_msg`] in bytes.
pub(crate) const ERROR_TEXT_BYTES: usize = 104;

/// Maximum size of the text in bytes, including its terminating 0. In headers before May 2026, the field has
/// only this size.
pub(crate) const OLD_ERROR_TEXT_BYTES: usize = 100;

/// The argument of [`HOMAIOCINFO`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InfoArgs {
    /// In: address of an array of [`RpcInfo`].
    pub(crate) rpc_info: u64,
    /// In: size of the array in bytes.
    pub(crate) rpc_info_length: u64,
    pub(crate) bpool_avail_bytes: u64,
    pub(crate) port: u32,
    pub(crate) num_rpcs: u32,
    pub(crate) error_msg: [u8; ERROR_TEXT_BYTES],
}

/// Flag of [`RpcInfo`]: the message waits for room in the program's buffers.
pub(crate) const RPC_BUF_STALL: u16 = 1;
/// Flag of [`RpcInfo`]: the call is private.
pub(crate) const RPC_PRIVATE: u16 = 2;
/// Flag of [`RpcInfo`]: the message is complete and waits for recvmsg.
pub(crate) const RPC_RX_READY: u16 = 4;

/// An RPC in the result of [`HOMAIOCINFO`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RpcInfo {
    pub(crate) id: u64,
    pub(crate) peer: libc::sockaddr_storage,
    pub(crate) completion_cookie: u64,
    /// -1 if there is no outgoing message yet.
    pub(crate) tx_length: i32,
    pub(crate) tx_sent: u32,
    pub(crate) tx_granted: u32,
    pub(crate) tx_prio: u32,
    /// -1 if nothing was received.
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
