//! setsockopt and getsockopt.

use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use libc::socklen_t;

use crate::abi::{IPPROTO_HOMA, RcvbufArgs, SO_HOMA_RCVBUF, SO_HOMA_SERVER};
use crate::ffi_border::Refusal;
use crate::memory;
use crate::pages::Pages;
use crate::region::Region;
use crate::socket::Socket;

/// Options whose value is a time.
const TIMEOUTS: [c_int; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];

/// Options whose default value is 0.
const ZERO_AT_FIRST: [c_int; 7] = [
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_KEEPALIVE,
    libc::SO_BROADCAST,
    libc::SO_PRIORITY,
    libc::SO_MARK,
    libc::SO_TIMESTAMP,
];

/// Maximum number of stored options of a socket: more than the number of options that exist.
const MOST_OPTIONS: usize = 128;

/// Maximum length of an option's value: the kernel treats lengths as signed.
const MOST_LENGTH: socklen_t = c_int::MAX as socklen_t;

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
        if length > MOST_LENGTH {
            return Err(bad_length());
        }
        match (level, name) {
            (libc::SOL_SOCKET, _) => self.keep_option(name, value, length),
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
                self.accept_requests(memory::read(value.cast::<c_int>())? != 0)
            }
            _ => Err(unknown()),
        }
    }

    /// Stores a generic socket option so that getsockopt can return it. Only `SO_SNDTIMEO` affects Homa.
    fn keep_option(&self, name: c_int, value: *const c_void, length: socklen_t) -> Result<(), Refusal> {
        let least = if TIMEOUTS.contains(&name) { size_of::<libc::timeval>() } else { size_of::<c_int>() };
        if (length as usize) < least {
            return Err(Refusal::plain(libc::EINVAL));
        }
        let kept = match TIMEOUTS.contains(&name) {
            true => {
                let time = memory::read(value.cast::<libc::timeval>())?;
                if !(0..1_000_000).contains(&time.tv_usec) {
                    return Err(Refusal::plain(libc::EDOM));
                }
                [time.tv_sec.to_ne_bytes(), time.tv_usec.to_ne_bytes()].concat()
            }
            false => memory::read(value.cast::<c_int>())?.to_ne_bytes().to_vec(),
        };
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        if options.len() >= MOST_OPTIONS && !options.contains_key(&name) {
            return Err(Refusal::plain(libc::ENOPROTOOPT));
        }
        options.insert(name, kept);
        Ok(())
    }

    fn kept_option(&self, name: c_int) -> Result<Vec<u8>, Refusal> {
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        match options.get(&name) {
            Some(kept) => Ok(kept.clone()),
            None if TIMEOUTS.contains(&name) => Ok(vec![0; size_of::<libc::timeval>()]),
            None if ZERO_AT_FIRST.contains(&name) => Ok(vec![0; size_of::<c_int>()]),
            None => Err(Refusal::plain(libc::ENOPROTOOPT)),
        }
    }

    /// Returns how long sendmsg waits for memory, or `None` if the time is unlimited.
    pub(crate) fn send_timeout(&self) -> Option<Duration> {
        let kept = self.kept_option(libc::SO_SNDTIMEO).ok()?;
        let (seconds, micros) = kept.split_at_checked(size_of::<i64>())?;
        let number = |bytes: &[u8]| Some(i64::from_ne_bytes(bytes.try_into().ok()?));
        let (seconds, micros) = (number(seconds)?, number(micros)?);
        // A negative time counts as 0, as for any socket.
        let time = u64::try_from(seconds).map_or(Duration::ZERO, Duration::from_secs);
        let time = time + Duration::from_micros(micros.unsigned_abs());
        (seconds, micros).ne(&(0, 0)).then_some(time)
    }

    fn take_region(&self, args: RcvbufArgs) -> Result<(), Refusal> {
        let region = usize::try_from(args.start).unwrap_or(0);
        let unwritable = |_| Refusal::new(libc::EFAULT, "the region of SO_HOMA_RCVBUF cannot be written to");
        memory::check(region, size_of::<RcvbufArgs>(), true).map_err(unwritable)?;
        let new = Pages::new(args.start, args.length)?;
        match self.set_region(Region::new(new, &self.deliveries)) {
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
        let room = memory::read(length)?;
        if room > MOST_LENGTH {
            return Err(bad_length());
        }
        let room = room as usize;
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
            (libc::SOL_SOCKET, _) => {
                let kept = self.kept_option(name)?;
                let bytes = &kept[..room.min(kept.len())];
                memory::copy_out(value.cast(), bytes)?;
                memory::write(length, bytes.len() as socklen_t)
            }
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
