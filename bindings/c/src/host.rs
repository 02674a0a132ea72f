//! A host and its settings.

use std::ffi::c_char;
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use homa::proto::Config;
use homa::{Host, HostConfig};

use crate::border::{self, Failure, answer, give, object, take_back};
use crate::result::homa_result;

/// Bytes of settings that a program can have at most, of whatever version: more is a number that was never set.
const MOST_OPTION_BYTES: usize = 4_096;

/// One address of this machine with a UDP port, and the protocol's state for all that passes through it. Opaque. Every function may be called
/// with it from any thread at any time, but for homa_host_close().
pub struct homa_host {
    pub(crate) host: Arc<Host>,
}

/// Settings of a host. Fill it by homa_options_init(), then change what you like. Later versions add fields at its end: `size` tells the
/// library which ones the program knows, so that an older program runs with a newer library, and a newer program with an older library as
/// long as it leaves what that does not know alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct homa_options {
    /// sizeof(homa_options) where the program was compiled.
    pub size: usize,
    /// The IP address and UDP port, such as "10.0.0.7:14600" or "[::]:0"; port 0 is any free one. NULL: any free port on all IPv4 addresses.
    /// It is read by homa_host_open() and not kept.
    pub bind: *const c_char,
    /// How long in nanoseconds a thread that waits polls before it sleeps in the kernel, counted from the last packet; 0: it sleeps at once.
    pub poll_ns: u64,
    /// How long in nanoseconds the end of the host waits at most for its last answers to be acknowledged.
    pub linger_ns: u64,
    /// The longest message in bytes that is sent or accepted, 1 to 2147483647.
    pub max_message: u64,
}

impl homa_options {
    fn new() -> homa_options {
        let config = HostConfig::default();
        homa_options {
            size: size_of::<homa_options>(),
            bind: ptr::null(),
            poll_ns: nanoseconds(config.poll),
            linger_ns: nanoseconds(config.linger),
            max_message: config.protocol.max_message.into(),
        }
    }

    /// Reads what the program knows of the settings; the rest is as by default.
    ///
    /// # Safety
    /// The pointer is NULL, or good for reads of as many bytes as its first field says.
    unsafe fn read(from: *const homa_options) -> Result<homa_options, Failure> {
        let mut options = homa_options::new();
        if from.is_null() {
            return Ok(options);
        }
        // SAFETY: the caller's; an older program has less than the whole structure, but always this field.
        let size = unsafe { (&raw const (*from).size).read() };
        check_size(size)?;
        // SAFETY: the caller's: so many bytes can be read.
        let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
        let known = given.len().min(size_of::<homa_options>());
        if given[known..].iter().any(|byte| *byte != 0) {
            return Err(Failure::argument(
                "`options` sets what this version of libhoma does not know: use a newer one, or leave that alone",
            ));
        }
        // SAFETY: so many bytes are in both, and its fields, numbers and a pointer, are good with any.
        unsafe { ptr::copy_nonoverlapping(given.as_ptr(), (&raw mut options).cast(), known) };
        Ok(options)
    }

    /// # Safety
    /// `bind` is NULL or a string.
    unsafe fn config(&self) -> Result<HostConfig, Failure> {
        let mut config = HostConfig {
            poll: Duration::from_nanos(self.poll_ns),
            linger: Duration::from_nanos(self.linger_ns),
            ..HostConfig::default()
        };
        if !self.bind.is_null() {
            // SAFETY: the caller's.
            let text = unsafe { border::text(self.bind, "bind") }?;
            config.bind = text.parse().map_err(|_| {
                Failure::argument(format!(
                    "`bind` is {text:?}: write an IP address and a UDP port, like 10.0.0.7:14600"
                ))
            })?;
        }
        let max_message = u32::try_from(self.max_message).map_err(|_| {
            Failure::argument(format!("`max_message` is {}: choose 1 to 2147483647 bytes", self.max_message))
        })?;
        config.protocol = Config { max_message, ..config.protocol };
        Ok(config)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Settings of the first version end with `max_message`.
fn check_size(size: usize) -> Result<(), Failure> {
    const LEAST: usize = offset_of!(homa_options, max_message) + size_of::<u64>();
    if (LEAST..=MOST_OPTION_BYTES).contains(&size) {
        return Ok(());
    }
    Err(Failure::argument(format!("the size of the options is {size}: give sizeof(homa_options)")))
}

/// Fills `options` with what is good for most programs. `size` is sizeof(homa_options).
///
/// `options` belongs to the caller, who may drop it as soon as homa_host_open() has returned.
///
/// HOMA_ARGUMENT: `options` is NULL, or `size` no size of any version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_options_init(options: *mut homa_options, size: usize) -> homa_result {
    answer(|| {
        if options.is_null() {
            return Err(Failure::argument("`options` is NULL"));
        }
        check_size(size)?;
        let defaults = homa_options { size, ..homa_options::new() };
        // SAFETY: C gives room for `size` bytes.
        unsafe {
            options.cast::<u8>().write_bytes(0, size);
            ptr::copy_nonoverlapping(
                (&raw const defaults).cast::<u8>(),
                options.cast(),
                size.min(size_of::<homa_options>()),
            );
        }
        Ok(())
    })
}

/// Opens a host over UDP, which takes no privileges.
///
/// `options` is only read; NULL means what homa_options_init() would set. On success `*host` is a handle that belongs to the caller until
/// homa_host_close().
///
/// HOMA_ARGUMENT: `host` is NULL, or a setting is wrong. HOMA_IN_USE: another process has the UDP port. HOMA_SYSTEM: the address is
/// not this machine's, or the system refuses a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_host_open(
    options: *const homa_options,
    host: *mut *mut homa_host,
) -> homa_result {
    answer(|| {
        if host.is_null() {
            return Err(Failure::argument("`host` is NULL"));
        }
        // SAFETY: C gives settings with their size, or NULL.
        let options = unsafe { homa_options::read(options) }?;
        // SAFETY: C gives a string, or NULL.
        let config = unsafe { options.config() }?;
        let opened = homa_host { host: Arc::new(Host::bind(config)?) };
        // SAFETY: C gives room for a pointer.
        unsafe { give(host, "host", Box::into_raw(Box::new(opened))) }
    })
}

/// Gives a host back. Its sockets go on, and the host ends when the last of them is closed; whichever call ends it waits for its last answers to
/// be acknowledged, for at most `linger_ns`. NULL does nothing.
///
/// `host` must not be used afterwards, nor by another thread meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_host_close(host: *mut homa_host) {
    // SAFETY: C gives back what homa_host_open made, or NULL.
    unsafe { take_back(host) }
}

impl homa_host {
    /// # Safety
    /// The pointer is NULL, or one that C was given and has not given back.
    pub(crate) unsafe fn of<'a>(host: *const homa_host) -> Result<&'a homa_host, Failure> {
        // SAFETY: the caller's.
        unsafe { object(host, "host") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of a later version: one more field.
    #[repr(C)]
    struct Later {
        known: homa_options,
        more: u64,
    }

    #[test]
    fn a_newer_program_is_served_while_it_leaves_alone_what_is_unknown() {
        let mut later = Later { known: homa_options::new(), more: 1 };
        let place = (&raw mut later).cast::<homa_options>();
        // SAFETY: the size is that of the structure.
        let result = unsafe { homa_options_init(place, size_of::<Later>()) };
        assert_eq!((result, later.more, later.known.size), (homa_result::HOMA_OK, 0, size_of::<Later>()));
        // SAFETY: as above.
        let read = unsafe { homa_options::read((&raw const later).cast()) };
        assert!(read.is_ok());
        later.more = 1;
        // SAFETY: as above.
        let read = unsafe { homa_options::read((&raw const later).cast()) };
        assert!(matches!(read, Err(failure) if failure.text.contains("newer")));
    }

    #[test]
    fn sizes_of_no_version_are_refused() {
        for size in [0, 8, size_of::<homa_options>() - 1, MOST_OPTION_BYTES + 1, usize::MAX] {
            assert!(check_size(size).is_err(), "{size}");
        }
    }
}
