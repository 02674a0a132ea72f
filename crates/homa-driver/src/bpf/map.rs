//! Maps: what programs and processes share.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{Name, address, by_id, call, info, open};

const CREATE: libc::c_int = 0;
const LOOK_UP: libc::c_int = 1;
const UPDATE: libc::c_int = 2;
const BY_ID: libc::c_int = 14;

/// What a map has. All have numbers from 0 on as keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Values that any program and process sees; the first begins a page.
    Array,
    /// The same, and each core has values of its own.
    ArrayPerCore,
    /// Cores that frames are given to.
    Cores,
    /// AF_XDP sockets.
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
}

/// A map that could be mapped into a process; its values are aligned for that.
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

/// The part of `struct bpf_map_info` up to the name.
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

/// A map of keys below `entries`.
pub(crate) fn create(kind: MapKind, name: Name, value_bytes: usize, entries: u32) -> io::Result<OwnedFd> {
    let mut attribute = Create {
        kind: kind.number(),
        key_bytes: 4,
        value_bytes: value_bytes as u32,
        entries,
        flags: if kind == MapKind::Array { MAPPABLE } else { 0 },
        name,
        ..Create::default()
    };
    // SAFETY: the attribute has no pointers.
    unsafe { open(CREATE, &mut attribute) }
}

/// Enters a value, which is as long as the map was made with.
///
/// # Errors
/// The kernel's; EINVAL where the value's length is not the map's.
pub(crate) fn put(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let told = told(map)?;
    if told.value_bytes as usize != value.len() || told.kind == MapKind::ArrayPerCore.number() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut attribute = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: address(&raw const key),
        value: address(value.as_ptr()),
        flags: 0,
    };
    // SAFETY: the key is the four bytes that every map here has, the value as long as this map's, and both outlive the call.
    unsafe { call(UPDATE, &mut attribute) }.map(|_| ())
}

/// Enters a socket.
pub(crate) fn put_socket(map: BorrowedFd<'_>, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    put(map, key, &socket.as_raw_fd().to_ne_bytes())
}

/// The value of a key. Of a map with values of each core: all of them in the order of the cores, each padded to eight bytes.
///
/// # Errors
/// The kernel's, or it does not tell how many cores there could be.
pub(crate) fn get(map: BorrowedFd<'_>, key: u32) -> io::Result<Vec<u8>> {
    let told = told(map)?;
    let bytes = if told.kind == MapKind::ArrayPerCore.number() {
        (told.value_bytes as usize).next_multiple_of(8) * possible_cores()?
    } else {
        told.value_bytes as usize
    };
    let mut value = vec![0; bytes];
    let mut attribute = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: address(&raw const key),
        value: address(value.as_mut_ptr()),
        flags: 0,
    };
    // SAFETY: the key is the four bytes that every map here has; the kernel writes a value for each core that it could have, or
    // one, and there is room for as many.
    unsafe { call(LOOK_UP, &mut attribute) }?;
    Ok(value)
}

/// How many cores the machine could have, for which the kernel keeps values.
fn possible_cores() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_core(&text).map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The last core of a list as the kernel writes it.
fn last_core(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

fn told(map: BorrowedFd<'_>) -> io::Result<Info> {
    let mut told = Info::default();
    // SAFETY: the structure begins as that for maps does, and has no pointers.
    unsafe { info(map, &mut told) }?;
    Ok(told)
}

/// The name of a map.
pub(crate) fn name(map: BorrowedFd<'_>) -> io::Result<Name> {
    Ok(told(map)?.name)
}

/// The map with this id.
pub(crate) fn with_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the command is that for maps.
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
