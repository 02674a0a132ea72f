//! Maps: memory that programs and processes share, and the destinations that frames are redirected to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::Name;
use crate::sys::{address, by_id, call, object_info, open};

const CREATE: libc::c_int = 0;
const LOOK_UP: libc::c_int = 1;
const UPDATE: libc::c_int = 2;
const BY_ID: libc::c_int = 14;

/// The kind of a map, which determines its values. Keys are indices starting at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Values shared by all programs and processes. The first value is at the start of a page.
    Array,
    /// Like `Array`, with separate values for each core.
    ArrayPerCore,
    /// Cores that frames are redirected to (CPUMAP).
    Cores,
    /// AF_XDP sockets that frames are redirected to (XSKMAP).
    Sockets,
}

impl MapKind {
    fn number(self) -> u32 {
        match self {
            MapKind::Array => 2,
            MapKind::ArrayPerCore => 6,
            MapKind::Cores => 16,
            MapKind::Sockets => 17,
        }
    }

    /// All kinds. The kernel has other kinds, whose keys and values may have any length.
    const ALL: [MapKind; 4] = [MapKind::Array, MapKind::ArrayPerCore, MapKind::Cores, MapKind::Sockets];
}

/// Length of a key.
const KEY_BYTES: u32 = 4;

/// Flag for a map that can be mapped into a process; its values are aligned accordingly.
const MAPPABLE: u32 = 1 << 10;

#[repr(C)]
#[derive(Default)]
struct Create {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: Name,
}

#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The start of `struct bpf_map_info`, up to the name.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    name: Name,
}

/// Creates a map with keys below `entries`.
///
/// # Errors
/// The error of the kernel.
pub fn create(kind: MapKind, name: Name, value_bytes: usize, entries: u32) -> io::Result<OwnedFd> {
    let mut attribute = Create {
        kind: kind.number(),
        key_bytes: KEY_BYTES,
        value_bytes: value_bytes as u32,
        entries,
        flags: if kind == MapKind::Array { MAPPABLE } else { 0 },
        name,
        ..Create::default()
    };
    // SAFETY: the attribute has no pointers.
    unsafe { open(CREATE, &mut attribute) }
}

/// Sets the value of a key.
///
/// # Errors
/// The error of the kernel. EINVAL if the value does not have the map's value length, if each core has
/// separate values, or if the map's kind is not in [`MapKind`].
pub fn put(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let info = info(map)?;
    if info.value_bytes as usize != value.len() || info.kind == MapKind::ArrayPerCore.number() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut attribute = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: address(&raw const key),
        value: address(value.as_ptr()),
        flags: 0,
    };
    // SAFETY: `info` has checked that the map's keys have four bytes, like this key. The value is as long as
    // this map's values; key and value outlive the call.
    unsafe { call(UPDATE, &mut attribute) }.map(|_| ())
}

/// Sets the value of a key to an AF_XDP socket.
///
/// # Errors
/// The errors of [`put`].
pub fn put_socket(map: BorrowedFd<'_>, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    put(map, key, &socket.as_raw_fd().to_ne_bytes())
}

/// Returns the value of a key. If each core has separate values, returns all of them in the order of the
/// cores, each padded to eight bytes.
///
/// # Errors
/// The error of the kernel. EINVAL if the map's kind is not in [`MapKind`]; other errors if /sys does not
/// list the possible cores.
pub fn get(map: BorrowedFd<'_>, key: u32) -> io::Result<Vec<u8>> {
    let info = info(map)?;
    let bytes = if info.kind == MapKind::ArrayPerCore.number() {
        (info.value_bytes as usize).next_multiple_of(8) * possible_cores()?
    } else {
        info.value_bytes as usize
    };
    let mut value = vec![0; bytes];
    let mut attribute = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: address(&raw const key),
        value: address(value.as_mut_ptr()),
        flags: 0,
    };
    // SAFETY: `info` has checked that the map's keys have four bytes, like this key, and that the map is of a
    // known kind. The kernel writes one value, or one for each possible core, and the buffer has room for
    // that many.
    unsafe { call(LOOK_UP, &mut attribute) }?;
    Ok(value)
}

/// Returns the number of possible cores of the machine. The kernel keeps a value for each of them.
fn possible_cores() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_core(&text).map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the last core in a list in the kernel's format.
fn last_core(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Returns the properties of a map of one of the kinds in [`MapKind`].
fn info(map: BorrowedFd<'_>) -> io::Result<Info> {
    let mut info = Info::default();
    // SAFETY: the structure begins like the kernel's structure for maps, and has no pointers.
    unsafe { object_info(map, &mut info) }?;
    let is_known = MapKind::ALL.iter().any(|kind| kind.number() == info.kind) && info.key_bytes == KEY_BYTES;
    if is_known { Ok(info) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

/// Returns the name of a map.
///
/// # Errors
/// The error of the kernel; EINVAL if the map's kind is not in [`MapKind`].
pub fn name(map: BorrowedFd<'_>) -> io::Result<Name> {
    Ok(info(map)?.name)
}

/// Opens the map with this ID.
///
/// # Errors
/// The error of the kernel; requires CAP_SYS_ADMIN.
pub fn with_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the command is the one for maps.
    unsafe { by_id(BY_ID, id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_core_of_a_list_is_found() {
        for (list, last) in [("0\n", Some(0)), ("0-63\n", Some(63)), ("0-3,8-11", Some(11)), ("", None)] {
            assert_eq!(last_core(list), last, "{list}");
        }
    }
}
