//! bpf(2): maps, programs and what attaches them. Descriptors of all three keep them alive, and nothing else does here, so that
//! the kernel takes everything down when the process ends, in whatever way.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::assembler::Instruction;

// Commands, kinds and flags of linux/bpf.h and linux/if_link.h; libc has none of them.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
#[cfg(test)]
const PROGRAM_TEST_RUN: libc::c_int = 10;
const PROGRAM_BY_ID: libc::c_int = 13;
const OBJECT_INFO: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_OF_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// Bytes of an object's name, the zero at its end included.
const NAME_BYTES: usize = 16;

/// Shown by tools that list programs and maps.
const NAME: [u8; NAME_BYTES] = *b"homa_to_sockets\0";

/// Room for what the verifier says of a program that it refuses.
const LOG_BYTES: usize = 64 << 10;

/// Where an attached program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the device's driver, before the kernel has made a packet of a frame.
    Native,
    /// In the kernel's own receive path: any device, any MTU.
    Generic,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    device: u32,
    attach_kind: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach_kind: u32,
    flags: u32,
}

#[repr(C)]
struct ObjectById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct ObjectInfo {
    object: u32,
    info_bytes: u32,
    info: u64,
}

/// The part of `struct bpf_prog_info` up to the name.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    jited_bytes: u32,
    translated_bytes: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    user: u32,
    map_count: u32,
    maps: u64,
    name: [u8; NAME_BYTES],
}

/// Address of what an attribute points to.
fn address<T>(of: *const T) -> u64 {
    of as usize as u64
}

/// Calls bpf(2) and returns its result where that is not an error.
///
/// # Safety
/// `T` is the attribute structure of the command, without padding, and its pointers lead to memory of the lengths beside them
/// that the kernel may read, and may write where the command does.
unsafe fn call<T>(command: libc::c_int, attribute: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of the attribute, and the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// As [`call`], for commands whose result is a new descriptor.
///
/// # Safety
/// As for [`call`], and the command gives a descriptor.
unsafe fn open<T>(command: libc::c_int, attribute: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { call(command, attribute) }?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A map from numbers below `places` to AF_XDP sockets.
pub(super) fn socket_map(places: u32) -> io::Result<OwnedFd> {
    let mut attribute = MapCreate {
        kind: MAP_OF_XDP_SOCKETS,
        key_bytes: 4,
        value_bytes: 4,
        entries: places,
        name: NAME,
        ..MapCreate::default()
    };
    // SAFETY: the attribute has no pointers.
    unsafe { open(MAP_CREATE, &mut attribute) }
}

/// Enters a socket into the map.
pub(super) fn map_socket(map: BorrowedFd<'_>, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let socket = socket.as_raw_fd();
    let mut attribute = MapUpdate {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: address(&raw const place),
        value: address(&raw const socket),
        flags: 0,
    };
    // SAFETY: key and value are the four bytes each that the map was made with, and outlive the call.
    unsafe { call(MAP_UPDATE, &mut attribute) }.map(|_| ())
}

/// Loads an XDP program. Where the verifier refuses it, the error has what it said.
pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attribute = ProgramLoad {
        kind: PROGRAM_OF_XDP,
        instruction_count: program.len() as u32,
        instructions: address(program.as_ptr()),
        // The helper that redirects is open to programs of any license.
        license: address(c"MIT OR Apache-2.0".as_ptr()),
        name: NAME,
        attach_kind: ATTACH_XDP,
        ..ProgramLoad::default()
    };
    // SAFETY: the program is as long as its count says, and the license ends with a zero byte; both outlive the call.
    let error = match unsafe { open(PROGRAM_LOAD, &mut attribute) } {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => error,
        result => return result,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    attribute.log_level = 1;
    attribute.log_bytes = LOG_BYTES as u32;
    attribute.log = address(log.as_mut_ptr());
    // SAFETY: as above, and the log is as long as its length says.
    let again = unsafe { open(PROGRAM_LOAD, &mut attribute) };
    if again.is_ok() {
        return again;
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let said = String::from_utf8_lossy(&log[..end]);
    let last = said.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    Err(io::Error::new(error.kind(), format!("{error}; the verifier says: {}", last.unwrap_or("nothing"))))
}

/// Attaches a program to a device for as long as the descriptor that this returns is open.
pub(super) fn attach(program: BorrowedFd<'_>, device: u32, place: Place) -> io::Result<OwnedFd> {
    let flags = match place {
        Place::Native => FLAG_NATIVE,
        Place::Generic => FLAG_GENERIC,
    };
    let mut attribute =
        LinkCreate { program: program.as_raw_fd() as u32, device, attach_kind: ATTACH_XDP, flags };
    // SAFETY: the attribute has no pointers.
    unsafe { open(LINK_CREATE, &mut attribute) }
}

/// The name of the loaded program with this id, where it has one and the kernel tells.
pub(super) fn name_of_program(id: u32) -> Option<String> {
    let mut by_id = ObjectById { id, next_id: 0, open_flags: 0 };
    // SAFETY: the attribute has no pointers.
    let program = unsafe { open(PROGRAM_BY_ID, &mut by_id) }.ok()?;
    let mut info = ProgramInfo::default();
    let mut attribute = ObjectInfo {
        object: program.as_raw_fd() as u32,
        info_bytes: size_of::<ProgramInfo>() as u32,
        info: address(&raw mut info),
    };
    // SAFETY: the kernel writes at most `info_bytes` to `info`, which is as long and outlives the call; any bytes are a value of
    // it, and its lengths are 0, so that the kernel follows none of its pointers.
    unsafe { call(OBJECT_INFO, &mut attribute) }.ok()?;
    let end = info.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    (end > 0).then(|| String::from_utf8_lossy(&info.name[..end]).into_owned())
}

/// Runs a loaded program on a frame and returns its result.
#[cfg(test)]
pub(super) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        data_in_bytes: u32,
        data_out_bytes: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration_ns: u32,
    }
    let mut attribute = TestRun {
        program: program.as_raw_fd() as u32,
        data_in_bytes: frame.len() as u32,
        data_in: address(frame.as_ptr()),
        repeat: 1,
        ..TestRun::default()
    };
    // SAFETY: the frame is as long as its length says, and nothing is written back.
    unsafe { call(PROGRAM_TEST_RUN, &mut attribute) }?;
    Ok(attribute.result)
}
