//! The context and the results of XDP programs, and the helper that redirects frames.

/// Result of a program that passes the frame on to the kernel. Also the usual fallback for a redirection to
/// an empty map entry.
pub const XDP_PASS: u32 = 2;

/// Number of the helper that redirects a frame to a map entry: a socket or a core.
pub const REDIRECT_MAP: u32 = 51;

/// Offsets in `struct xdp_md`, the context passed to an XDP program.
pub mod context {
    /// Address of the first byte of the frame.
    pub const DATA: i16 = 0;
    /// Address after the last byte of the frame.
    pub const DATA_END: i16 = 4;
    /// Index of the device.
    pub const DEVICE: i16 = 12;
    /// Number of the receive queue.
    pub const QUEUE: i16 = 16;
}
