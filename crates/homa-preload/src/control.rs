//! ioctl: returns information about a socket, aborts calls, and freezes the time trace.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use homa::kernel_api::CallInfo;
use homa::proto;

use crate::abi::{
    AbortArgs, ERROR_TEXT_BYTES, HOMAIOCABORT, HOMAIOCFREEZE, HOMAIOCINFO, InfoArgs, OLD_ERROR_TEXT_BYTES,
    RPC_BUF_STALL, RPC_PRIVATE, RPC_RX_READY, RpcInfo,
};
use crate::ffi_border::Refusal;
use crate::memory;
use crate::pending_message::{FinishedCall, PendingMessage};
use crate::socket::Socket;
use crate::socket_name::SocketName;

impl Socket {
    pub(crate) fn control(&self, request: u64, argument: *mut c_void) -> Result<(), Refusal> {
        // Programs pass the number as an int, so its upper half may be a sign extension.
        match request & u64::from(u32::MAX) {
            number if HOMAIOCINFO.contains(&number) => self.info(argument.cast()),
            number if HOMAIOCABORT.contains(&number) => self.abort(argument.cast()),
            number if HOMAIOCFREEZE.contains(&number) => {
                self.freeze();
                Ok(())
            }
            number if number == libc::FIONBIO => {
                let on = memory::read(argument.cast::<i32>())? != 0;
                self.nonblocking.store(on, Relaxed);
                Ok(())
            }
            _ => Err(Refusal::new(libc::EINVAL, "Homa has no such ioctl")),
        }
    }

    fn abort(&self, argument: *mut AbortArgs) -> Result<(), Refusal> {
        let args = memory::read(argument)?;
        if args.reserved != 0 || args.reserved_too != [0, 0] {
            return Err(Refusal::new(libc::EINVAL, "reserved fields of the abort's arguments are not 0"));
        }
        let side = self.side();
        let tell = args.error != 0;
        let ids = match args.id {
            0 => [side.open_calls(), self.held_calls()].concat(),
            id => vec![id],
        };
        for id in ids {
            if tell {
                self.state().aborted.insert(id, args.error as i32);
            }
            let aborted = side.abort(id, tell) || self.abort_held(id, tell);
            if !aborted || !tell {
                self.state().aborted.remove(&id);
            }
            if !aborted && args.id != 0 {
                return Err(Refusal::new(libc::EINVAL, "no call has the id that is to be aborted"));
            }
        }
        Ok(())
    }

    fn info(&self, argument: *mut InfoArgs) -> Result<(), Refusal> {
        let mut info = memory::read(argument)?;
        if self.is_shut() {
            return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down"));
        }
        let side = self.side();
        info.bpool_avail_bytes = self.region().map_or(0, |region| region.pages().available());
        info.port = side.port().into();
        let rpcs = self.rpcs(&side);
        info.num_rpcs = rpcs.len() as u32;
        let room = info.rpc_info_length as usize / size_of::<RpcInfo>();
        if info.rpc_info != 0 {
            let place = info.rpc_info as *mut RpcInfo;
            for (at, rpc) in rpcs.into_iter().take(room).enumerate() {
                memory::write(place.wrapping_add(at), rpc)?;
            }
        }
        let text = self.error_text().as_bytes();
        // Leaves room for the terminating 0.
        let length = text.len().min(OLD_ERROR_TEXT_BYTES - 1);
        info.error_msg = [0; ERROR_TEXT_BYTES];
        info.error_msg[..length].copy_from_slice(&text[..length]);
        memory::write(argument, info)
    }

    /// Returns the RPCs that the kernel would list for this socket: calls until their outcomes are received,
    /// and requests until they are answered.
    fn rpcs(&self, side: &homa::kernel_api::Socket) -> Vec<RpcInfo> {
        let calls: HashMap<u64, CallInfo> = side.calls().into_iter().map(|call| (call.id, call)).collect();
        let state = self.state();
        let stalls: HashSet<u64> = state.held.iter().map(PendingMessage::id).collect();
        let held: Vec<FinishedCall> = state.held.iter().filter_map(PendingMessage::call).collect();
        let in_hand: HashSet<u64> = state.in_hand.ids().collect();
        drop(state);
        let mut told: Vec<RpcInfo> = Vec::new();
        let (mut open, living) = (calls, side.rpcs());
        for rpc in living {
            let call = open.remove(&rpc.id);
            // Discarded calls are skipped: they exist only until their servers were notified.
            if rpc.id & 1 == 1 || call.is_some() {
                told.push(self.told(&rpc, call.as_ref(), &in_hand));
            }
        }
        told.extend(open.values().map(|call| self.told_over(&FinishedCall::from(call), call.over.is_some())));
        told.extend(held.iter().map(|call| self.told_over(call, false)));
        for rpc in &mut told {
            if stalls.contains(&rpc.id) {
                rpc.flags = rpc.flags & !RPC_RX_READY | RPC_BUF_STALL;
            }
        }
        told
    }

    fn peer(&self, ip: IpAddr, port: u16) -> libc::sockaddr_storage {
        SocketName { ip: ip.to_canonical(), scope: 0, port }.stored(self.family).0
    }

    /// Returns an RPC in the kernel's format.
    fn told(&self, rpc: &proto::RpcInfo, call: Option<&CallInfo>, in_hand: &HashSet<u64>) -> RpcInfo {
        let known = |length: u32| if length == 0 { -1 } else { length as i32 };
        let whole = rpc.in_length > 0 && rpc.in_missing == 0;
        let waits = whole && rpc.out_length == 0 && !in_hand.contains(&rpc.id);
        let flags = private(call) | if waits { RPC_RX_READY } else { 0 };
        RpcInfo {
            id: rpc.id,
            peer: self.peer(rpc.peer.ip(), rpc.peer_port),
            completion_cookie: call.map_or(0, |call| call.cookie),
            tx_length: known(rpc.out_length),
            tx_sent: rpc.out_sent,
            tx_granted: rpc.out_granted,
            tx_prio: rpc.out_priority.into(),
            rx_length: known(rpc.in_length),
            rx_remaining: rpc.in_missing,
            rx_gaps: rpc.in_gaps,
            rx_gap_bytes: rpc.in_gap_bytes,
            rx_granted: rpc.in_granted,
            flags,
        }
    }

    /// Returns a call that is over for the transport, in the kernel's format. Everything was sent and
    /// received.
    fn told_over(&self, call: &FinishedCall, waits: bool) -> RpcInfo {
        let FinishedCall { id, cookie, private, from, request_bytes, response_bytes } = *call;
        let private = if private { RPC_PRIVATE } else { 0 };
        RpcInfo {
            id,
            peer: from.stored(self.family).0,
            completion_cookie: cookie,
            tx_length: request_bytes.map_or(-1, |bytes| bytes as i32),
            tx_sent: request_bytes.unwrap_or(0),
            tx_granted: request_bytes.unwrap_or(0),
            tx_prio: 0,
            rx_length: if response_bytes == 0 { -1 } else { response_bytes as i32 },
            rx_remaining: 0,
            rx_gaps: 0,
            rx_gap_bytes: 0,
            rx_granted: response_bytes,
            flags: private | if waits { RPC_RX_READY } else { 0 },
        }
    }
}

fn private(call: Option<&CallInfo>) -> u16 {
    if call.is_some_and(|call| call.private) { RPC_PRIVATE } else { 0 }
}
