//! The context and the results of XDP programs, and the helper that redirects frames.

/// Result of a program that passes the frame on to the kernel, and the usual fallback of a redirection to an
/// empty place.
pub const XDP_PASS: u32 = 2;

/// Number of the helper that redirects a frame to the entry of a map at a key: a socket, or a core.
pub const REDIRECT_MAP: u32 = 51;

/// Offsets in `struct xdp_md`, the context that an XDP program is called with.
pub mod context {
    /// Address of the first byte of the frame.
    pub const DATA: i16 = 0;
    /// Address behind the last byte of the frame.
    pub const DATA_END: i16 = 4;
    /// Index of the device.
    pub const DEVICE: i16 = 12;
    /// Number of the receive queue.
    pub const QUEUE: i16 = 16;
}
