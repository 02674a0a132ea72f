//! Selects the requests that a server receives while they arrive.

/// Which requests a server receives while they are still arriving, and after how many more bytes their
/// readers are woken: see [`Server::early`](crate::Server::early).
///
/// ```
/// let early = homa::reader::EarlyDelivery::default().min_bytes(1 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlyDelivery {
    pub(crate) min_bytes: u32,
    pub(crate) step_bytes: u32,
}

impl EarlyDelivery {
    /// Sets the minimum length in bytes of a request that is delivered early. The default is four times the
    /// default step. The rest of a shorter request arrives soon after its first part, and waking a reader for
    /// a part costs as much as waking it for the whole request.
    #[must_use]
    pub fn min_bytes(self, min_bytes: u32) -> EarlyDelivery {
        EarlyDelivery { min_bytes, ..self }
    }

    /// Sets how many contiguous bytes must have arrived before a request is delivered, and how many more
    /// before its reader is woken again; 0 counts as 1. The default is 64 KiB. On a fast link, they take a
    /// few round trips to arrive, so a large request causes few wake-ups and its reader is never far behind.
    #[must_use]
    pub fn step_bytes(self, step_bytes: u32) -> EarlyDelivery {
        EarlyDelivery { step_bytes, ..self }
    }
}

impl Default for EarlyDelivery {
    fn default() -> EarlyDelivery {
        EarlyDelivery { min_bytes: 256 << 10, step_bytes: 64 << 10 }
    }
}
