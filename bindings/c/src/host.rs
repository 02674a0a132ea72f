//! Opening and closing hosts.

use std::sync::Arc;

use homa::HostConfig;

use crate::border::{answer, room, without_signals};
use crate::handle::{find, take, write_handle};
use crate::options::homa_options;
use crate::result::homa_result;

/// An address of this machine, with a UDP port if the driver uses UDP, and the protocol state of all its
/// sockets. Opaque. Every function may be called with it from any thread at any time.
pub struct homa_host {
    _opaque: [u8; 0],
}

pub(crate) struct Host {
    pub(crate) host: Arc<homa::Host>,
    /// Bytes of the longest message that the host can send.
    pub(crate) max_message: u32,
}

/// Opens a host.
///
/// `options` is only read. NULL is equivalent to fresh options of homa_options_new(): UDP, any free port, all
/// IPv4 addresses. On success `*host` is a handle that belongs to the caller until homa_host_close().
///
/// HOMA_ARGUMENT: `host` is NULL, `options` is not a valid handle, or two values contradict each other.
/// HOMA_IN_USE: another process uses the UDP port. HOMA_SYSTEM: the address does not belong to this machine,
/// or the system refuses a socket or a resource of the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_host_open(
    options: *const homa_options,
    host: *mut *mut homa_host,
) -> homa_result {
    answer(|| {
        room(host, "host")?;
        let config = match options.is_null() {
            true => HostConfig::default(),
            false => find(options, "options")?.config(),
        };
        let max_message = config.protocol.max_message;
        let opened = Arc::new(without_signals(|| homa::Host::builder().config(config).bind())?);
        // SAFETY: `host` is not NULL, and homa.h requires room for a pointer.
        unsafe { write_handle(host, Arc::new(Host { host: opened, max_message })) }
    })
}

/// Closes a host. Its sockets continue to work, and the host ends when the last of them is closed. The
/// function that ends the host waits until its last responses are acknowledged, for at most the option
/// linger-ms. NULL does nothing.
///
/// HOMA_ARGUMENT: `host` is not a valid handle, or was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_host_close(host: *mut homa_host) -> homa_result {
    answer(|| take(host, "host").map(drop))
}
