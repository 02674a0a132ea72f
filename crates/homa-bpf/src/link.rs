//! Links. A link attaches a program to a device as long as any process has a descriptor of the link.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::{ObjectById, by_id, call, object_info, open};

const CREATE: libc::c_int = 28;
const BY_ID: libc::c_int = 30;
const NEXT_ID: libc::c_int = 31;
const DETACH: libc::c_int = 34;
const ATTACH_XDP: u32 = 37;

// From linux/if_link.h.
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// Where an attached program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the device's driver, before the kernel has turned the frame into a packet.
    Native,
    /// In the kernel's receive path. Supports any device and any MTU.
    Generic,
}

impl Place {
    /// Returns the flag for bpf(2) and rtnetlink.
    #[must_use]
    pub fn flag(self) -> u32 {
        match self {
            Place::Native => FLAG_NATIVE,
            Place::Generic => FLAG_GENERIC,
        }
    }
}

#[repr(C)]
struct Create {
    program: u32,
    device: u32,
    attach_kind: u32,
    flags: u32,
}

/// `struct bpf_link_info` with the fields for XDP. Other kinds of links have other fields in their place,
/// some of which are pointers that the kernel writes to. The kernel writes nothing if they are zero.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    device: u32,
    rest: [u32; 15],
}

/// Attaches a program to a device for as long as the returned descriptor is open.
///
/// # Errors
/// The error of the kernel; EBUSY or EEXIST if the device already has a program.
pub fn attach(program: BorrowedFd<'_>, device: u32, place: Place) -> io::Result<OwnedFd> {
    let mut attribute =
        Create { program: program.as_raw_fd() as u32, device, attach_kind: ATTACH_XDP, flags: place.flag() };
    // SAFETY: the attribute has no pointers.
    unsafe { open(CREATE, &mut attribute) }
}

/// Returns the link that attaches this program to this device, no matter which process holds it; `None` if
/// there is no such link.
///
/// # Errors
/// The error of the kernel; requires CAP_SYS_ADMIN.
pub fn find(program: u32, device: u32) -> io::Result<Option<OwnedFd>> {
    const KIND_XDP: u32 = 6;
    let mut next = ObjectById { id: 0, next_id: 0, open_flags: 0 };
    loop {
        // SAFETY: the attribute has no pointers.
        match unsafe { call(NEXT_ID, &mut next) } {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            result => result?,
        };
        next.id = next.next_id;
        // SAFETY: the command is the one for links. A link that has disappeared in the meantime is skipped.
        let Ok(link) = (unsafe { by_id(BY_ID, next.id) }) else { continue };
        let mut info = Info::default();
        // SAFETY: the structure begins like the kernel's structure for links. It is all zeroes, so any
        // lengths and pointers in it are zero for every kind of link.
        if unsafe { object_info(link.as_fd(), &mut info) }.is_ok()
            && (info.kind, info.program, info.device) == (KIND_XDP, program, device)
        {
            return Ok(Some(link));
        }
    }
}

/// Detaches the program from its device, no matter which process holds the link.
///
/// # Errors
/// The error of the kernel.
pub fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attribute: u32 = link.as_raw_fd() as u32;
    // SAFETY: BPF_LINK_DETACH reads only the descriptor of the link, which is in `attribute`.
    unsafe { call(DETACH, &mut attribute) }.map(|_| ())
}
