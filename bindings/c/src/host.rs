//! A host.

use std::sync::Arc;

use homa::HostConfig;

use crate::border::{answer, room, without_signals};
use crate::handle::{find, give, take};
use crate::options::homa_options;
use crate::result::homa_result;

/// One address of this machine, with a UDP port where the driver has any, and the protocol's state for all that passes through it. Opaque.
/// Every function may be called with it from any thread at any time.
pub struct homa_host {
    _opaque: [u8; 0],
}

pub(crate) struct Host {
    pub(crate) host: Arc<homa::Host>,
    /// Bytes of the longest message that it sends.
    pub(crate) max_message: u32,
}

/// Opens a host.
///
/// `options` is only read; NULL means what homa_options_new() makes: UDP, any free port, on all IPv4 addresses. On success `*host` is a
/// handle that belongs to the caller until homa_host_close().
///
/// HOMA_ARGUMENT: `host` is NULL, or `options` no options, or a value does not go with another. HOMA_IN_USE: another process has the UDP
/// port. HOMA_SYSTEM: the address is not this machine's, or the system refuses a socket or what the driver needs.
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
        // SAFETY: C gives room for a pointer.
        unsafe { give(host, Arc::new(Host { host: opened, max_message })) }
    })
}

/// Gives a host back. Its sockets go on, and the host ends when the last of them is closed; whichever call ends it waits for its last
/// answers to be acknowledged, for at most the option linger-ms. NULL does nothing.
///
/// HOMA_ARGUMENT: `host` is no host, or was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_host_close(host: *mut homa_host) -> homa_result {
    answer(|| take(host, "host").map(drop))
}
