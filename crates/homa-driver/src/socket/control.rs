//! Control messages: metadata that accompanies a datagram.

/// Space for two control messages of one integer each: the maximum that these paths send or request with a
/// datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control<const BYTES: usize = 64> {
    pub(crate) bytes: [u8; BYTES],
}

/// Bytes before a control message's data.
const HEADER_BYTES: usize = {
    // SAFETY: this only computes a length.
    (unsafe { libc::CMSG_LEN(0) }) as usize
};

impl<const BYTES: usize> Control<BYTES> {
    pub(crate) const fn empty() -> Control<BYTES> {
        Control { bytes: [0; BYTES] }
    }

    /// Writes a message at `at`, which is 0 or the result of the previous call, and returns the message's
    /// end.
    ///
    /// # Panics
    /// There is no room. This cannot happen, because callers' messages have fixed sizes.
    pub(crate) fn put(&mut self, at: usize, level: libc::c_int, kind: libc::c_int, data: &[u8]) -> usize {
        // SAFETY: this only computes lengths.
        let (length, space) =
            unsafe { (libc::CMSG_LEN(data.len() as u32), libc::CMSG_SPACE(data.len() as u32)) };
        let end = at + space as usize;
        let room = &mut self.bytes[at..end];
        // SAFETY: all-zero bytes are a valid value of the structure, which contains only integers.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = length as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: `room` is longer than the structure, and an unaligned write needs no alignment.
        unsafe { room.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(header) };
        room[HEADER_BYTES..HEADER_BYTES + data.len()].copy_from_slice(data);
        end
    }

    /// Returns the level, type and data of each message in the first `length` bytes, up to the first message
    /// that does not fit.
    pub(crate) fn messages(&self, length: usize) -> Messages<'_> {
        Messages { left: &self.bytes[..length.min(BYTES)] }
    }
}

pub(crate) struct Messages<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = (libc::c_int, libc::c_int, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.len() < HEADER_BYTES {
            return None;
        }
        // SAFETY: the slice is at least as long as the structure, which contains only integers, and the read
        // may be unaligned.
        let header = unsafe { self.left.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast, reason = "the field's type differs between C libraries")]
        let length = header.cmsg_len as usize;
        let data = self.left.get(HEADER_BYTES..length)?;
        // SAFETY: this only computes a length.
        let space = unsafe { libc::CMSG_SPACE(data.len() as u32) } as usize;
        self.left = self.left.get(space..).unwrap_or_default();
        Some((header.cmsg_level, header.cmsg_type, data))
    }
}

/// Returns the first of the three times of SO_TIMESTAMPING, which is the kernel's own. The third time is from
/// the device's clock, which cannot be compared with the other clocks used here.
pub(crate) fn software_time_ns(data: &[u8]) -> u64 {
    let word =
        |at: usize| data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_ne_bytes);
    let (Some(seconds), Some(ns)) = (word(0), word(8)) else { return 0 };
    u64::try_from(seconds).unwrap_or(0) * 1_000_000_000 + u64::try_from(ns).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_damage_ends_the_list() {
        let mut control = Control::<64>::empty();
        let end = control.put(0, 1, 2, &7_i32.to_ne_bytes());
        let end = control.put(end, 3, 4, &9_u16.to_ne_bytes());
        let all: Vec<_> = control.messages(end).collect();
        assert_eq!(all, [(1, 2, &7_i32.to_ne_bytes()[..]), (3, 4, &9_u16.to_ne_bytes()[..])]);
        assert_eq!(control.messages(end / 2).count(), 1);
        assert_eq!(control.messages(HEADER_BYTES - 1).count(), 0);
        control.bytes[0] = 255;
        assert_eq!(control.messages(end).count(), 0);
    }
}
