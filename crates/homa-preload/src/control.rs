//! ioctl: what is known of a socket, calls given up, the time trace frozen.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use homa::proto;

use crate::abi::{AbortArgs, ERROR_TEXT_BYTES, HOMAIOCABORT, HOMAIOCFREEZE, HOMAIOCINFO, Info, RpcInfo};
use crate::border::Refusal;
use crate::memory;
use crate::socket::{Name, Socket};

impl Socket {
    pub(crate) fn control(&self, request: u64, argument: *mut c_void) -> Result<(), Refusal> {
        // Programs pass the number as an int, whose sign goes into the upper half.
        match request & u64::from(u32::MAX) {
            HOMAIOCINFO => self.info(argument.cast()),
            HOMAIOCABORT => self.abort(argument.cast()),
            HOMAIOCFREEZE => {
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
        let ids = if args.id == 0 { side.open_calls() } else { vec![args.id] };
        for id in ids {
            let tell = args.error != 0;
            if tell {
                self.state().aborted.insert(id, args.error as i32);
            }
            let aborted = side.abort(id, tell);
            if !aborted || !tell {
                self.state().aborted.remove(&id);
            }
            if !aborted && args.id != 0 {
                return Err(Refusal::new(libc::EINVAL, "no call has the id that is to be aborted"));
            }
        }
        Ok(())
    }

    fn info(&self, argument: *mut Info) -> Result<(), Refusal> {
        let mut info = memory::read(argument)?;
        if self.is_shut() {
            return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down"));
        }
        let side = self.side();
        info.bpool_avail_bytes = self.region().map_or(0, |region| region.pages().available());
        info.port = side.port().into();
        let rpcs = side.rpcs();
        // A call is the kernel's until its outcome is taken, and the transport's until it is there.
        let served = rpcs.iter().filter(|rpc| rpc.id & 1 == 1).count();
        info.num_rpcs = (served + side.open_calls().len()) as u32;
        let room = info.rpc_info_length as usize / size_of::<RpcInfo>();
        if info.rpc_info != 0 {
            let place = info.rpc_info as *mut RpcInfo;
            for (at, rpc) in rpcs.iter().take(room).enumerate() {
                memory::write(place.wrapping_add(at), self.told(rpc))?;
            }
        }
        let text = self.error_text().as_bytes();
        // The last byte ends the string.
        let length = text.len().min(ERROR_TEXT_BYTES - 1);
        info.error_msg = [0; ERROR_TEXT_BYTES];
        info.error_msg[..length].copy_from_slice(&text[..length]);
        memory::write(argument, info)
    }

    /// An RPC in the kernel's words.
    fn told(&self, rpc: &proto::RpcInfo) -> RpcInfo {
        let name = Name { ip: rpc.peer.ip().to_canonical(), scope: 0, port: rpc.peer_port };
        let (peer, _) = name.stored(self.family);
        let known = |length: u32| if length == 0 { -1 } else { length as i32 };
        RpcInfo {
            id: rpc.id,
            peer,
            completion_cookie: self.side().cookie_of(rpc.id).unwrap_or(0),
            tx_length: known(rpc.out_length),
            tx_sent: rpc.out_sent,
            tx_granted: rpc.out_granted,
            tx_prio: rpc.out_priority.into(),
            rx_length: known(rpc.in_length),
            rx_remaining: rpc.in_missing,
            rx_gaps: rpc.in_gaps,
            rx_gap_bytes: rpc.in_gap_bytes,
            rx_granted: rpc.in_granted,
            flags: 0,
        }
    }
}
