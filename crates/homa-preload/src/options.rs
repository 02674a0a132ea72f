//! setsockopt and getsockopt.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

use libc::socklen_t;

use crate::abi::{IPPROTO_HOMA, RcvbufArgs, SO_HOMA_RCVBUF, SO_HOMA_SERVER};
use crate::border::Refusal;
use crate::memory;
use crate::pages::Pages;
use crate::region::Region;
use crate::socket::Socket;

fn bad_length() -> Refusal {
    Refusal::new(libc::EINVAL, "the length of the option's value is wrong")
}

fn unknown() -> Refusal {
    Refusal::new(libc::ENOPROTOOPT, "Homa has no such option")
}

impl Socket {
    pub(crate) fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: socklen_t,
    ) -> Result<(), Refusal> {
        match (level, name) {
            // What the kernel keeps for any socket has no effect on a Homa socket that a program could see.
            (libc::SOL_SOCKET, _) => Ok(()),
            (IPPROTO_HOMA, SO_HOMA_RCVBUF) => {
                if length as usize != size_of::<RcvbufArgs>() {
                    return Err(bad_length());
                }
                self.take_region(memory::read(value.cast())?)
            }
            (IPPROTO_HOMA, SO_HOMA_SERVER) => {
                if length as usize != size_of::<c_int>() {
                    return Err(bad_length());
                }
                let serves = memory::read(value.cast::<c_int>())? != 0;
                self.serves.store(serves, Relaxed);
                self.side().accept_requests(serves);
                Ok(())
            }
            _ => Err(unknown()),
        }
    }

    fn take_region(&self, args: RcvbufArgs) -> Result<(), Refusal> {
        let region = usize::try_from(args.start).unwrap_or(0);
        let unwritable = |_| Refusal::new(libc::EFAULT, "the region of SO_HOMA_RCVBUF cannot be written to");
        memory::check(region, size_of::<RcvbufArgs>(), true).map_err(unwritable)?;
        let new = Pages::new(args.start, args.length)?;
        match self.set_region(Region::new(new)) {
            true => Ok(()),
            false => Err(Refusal::new(libc::EINVAL, "the socket has its buffers already")),
        }
    }

    pub(crate) fn get_option(
        &self,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut socklen_t,
    ) -> Result<(), Refusal> {
        let room = memory::read(length)? as usize;
        let number = |number: c_int| -> Result<(), Refusal> {
            let bytes = number.to_ne_bytes();
            memory::copy_out(value.cast(), &bytes[..room.min(bytes.len())])?;
            memory::write(length, room.min(bytes.len()) as socklen_t)
        };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) => number(libc::SOCK_DGRAM),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => number(IPPROTO_HOMA),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => number(self.family),
            (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_ACCEPTCONN) => number(0),
            (IPPROTO_HOMA, SO_HOMA_RCVBUF) if room < size_of::<RcvbufArgs>() => Err(bad_length()),
            (IPPROTO_HOMA, SO_HOMA_RCVBUF) => {
                let (start, bytes) = self.region().map_or((0, 0), |region| region.pages().region());
                memory::write(length, size_of::<RcvbufArgs>() as socklen_t)?;
                memory::write(value.cast(), RcvbufArgs { start, length: bytes })
            }
            (IPPROTO_HOMA, SO_HOMA_SERVER) if room < size_of::<c_int>() => Err(bad_length()),
            (IPPROTO_HOMA, SO_HOMA_SERVER) => number(self.serves.load(Relaxed).into()),
            _ => Err(unknown()),
        }
    }
}
