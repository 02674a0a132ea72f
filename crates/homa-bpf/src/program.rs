//! Loads programs, runs them on a frame, and queries their properties.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::Name;
use crate::assembler::Instruction;
use crate::sys::{address, by_id, call, object_info, open};

const LOAD: libc::c_int = 5;
const BY_ID: libc::c_int = 13;
const ENABLE_STATISTICS: libc::c_int = 32;
const KIND_XDP: u32 = 6;

/// Size of the buffer for the verifier's log of a rejected program.
const LOG_BYTES: usize = 64 << 10;

/// Maximum number of a program's maps that are returned.
const MAPS_MAX: usize = 8;

/// Where a program is to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachPoint {
    /// A device.
    Device,
    /// An entry in a map of cores. The program runs on that core, for the frames redirected to it.
    Core,
}

impl AttachPoint {
    /// Returns the kernel's number for the expected attachment.
    fn number(self) -> u32 {
        match self {
            AttachPoint::Device => 37,
            AttachPoint::Core => 35,
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: Name,
    device: u32,
    attach_kind: u32,
}

/// `struct bpf_prog_info` up to the number of runs. All fields that are not read stay 0, including lengths,
/// so the kernel follows no pointer except `maps`.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    tag: u64,
    lengths: [u32; 2],
    code: [u64; 2],
    load_time: u64,
    user: u32,
    map_count: u32,
    maps: u64,
    name: Name,
    device: [u32; 2],
    namespace: [u64; 2],
    symbols: [u32; 2],
    symbol_pointers: [u64; 2],
    types: [u32; 2],
    functions: u64,
    counts: [u32; 2],
    lines: [u64; 2],
    more_counts: [u32; 4],
    tags: u64,
    run_ns: u64,
    runs: u64,
}

const _: () = assert!(std::mem::offset_of!(Info, run_ns) == 192);

/// Properties of a loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// The program's ID.
    pub id: u32,
    /// The program's name.
    pub name: Name,
    /// IDs of the maps that the program uses, at most 8.
    pub maps: Vec<u32>,
    /// Number of runs while [`enable_statistics`] was in effect.
    pub runs: u64,
    /// Total time of these runs.
    pub run_ns: u64,
}

/// Loads an XDP program.
///
/// # Errors
/// The error of the kernel. If the verifier rejects the program, the error includes the last line of the
/// verifier's log.
pub fn load(name: Name, program: &[Instruction], attach_point: AttachPoint) -> io::Result<OwnedFd> {
    let mut attribute = Load {
        kind: KIND_XDP,
        instruction_count: program.len() as u32,
        instructions: address(program),
        // The helpers used here are available to programs under any license.
        license: address(c"MIT OR Apache-2.0".as_ptr()),
        name,
        attach_kind: attach_point.number(),
        ..Load::default()
    };
    // SAFETY: the program is as long as its count says, and the license ends with a zero byte; both outlive
    // the call.
    let error = match unsafe { open(LOAD, &mut attribute) } {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => error,
        result => return result,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    attribute.log_level = 1;
    attribute.log_bytes = LOG_BYTES as u32;
    attribute.log = address(log.as_mut_ptr());
    // SAFETY: the program is as long as its count says, the license ends with a zero byte, and the log is as
    // long as its length says; all outlive the call.
    let again = unsafe { open(LOAD, &mut attribute) };
    if again.is_ok() {
        return again;
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]);
    let last = log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    // If there is no log, the verifier never saw the program: the kernel does not support this kind.
    let with = |last| io::Error::new(error.kind(), format!("{error}; the verifier says: {last}"));
    Err(last.map(with).unwrap_or(error))
}

/// Opens the loaded program with this ID.
///
/// # Errors
/// The error of the kernel; requires CAP_SYS_ADMIN.
pub fn with_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the command is the one for programs.
    unsafe { by_id(BY_ID, id) }
}

/// Returns the name of the loaded program with this ID; `None` if it has no name or a capability is missing.
pub fn name_of(id: u32) -> Option<String> {
    let program = with_id(id).ok()?;
    let name = info(program.as_fd()).ok()?.name;
    (name != Name::default()).then(|| name.to_string())
}

/// Returns the properties of a loaded program.
///
/// # Errors
/// The error of the kernel.
pub fn info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut maps = [0_u32; MAPS_MAX];
    let mut info = Info { map_count: MAPS_MAX as u32, maps: address(maps.as_mut_ptr()), ..Info::default() };
    // SAFETY: the structure begins like the kernel's structure for programs. `map_count` is the length of
    // `maps`, and all other lengths in the structure are 0.
    unsafe { object_info(program, &mut info) }?;
    let maps = maps.into_iter().take(info.map_count as usize).collect();
    Ok(ProgramInfo { id: info.id, name: info.name, maps, runs: info.runs, run_ns: info.run_ns })
}

/// Makes the kernel count the runs of all programs and measure their time while the returned descriptor is
/// open.
///
/// # Errors
/// The error of the kernel; requires CAP_SYS_ADMIN.
pub fn enable_statistics() -> io::Result<OwnedFd> {
    let mut run_time: u32 = 0;
    // SAFETY: BPF_ENABLE_STATS reads only the statistics type, which is in `run_time`.
    unsafe { open(ENABLE_STATISTICS, &mut run_time) }
}

/// Runs a loaded program `times` times on a frame, without a device. Returns the last result and the mean
/// duration of a run in nanoseconds.
///
/// # Errors
/// The error of the kernel.
pub fn test_run_times(program: BorrowedFd<'_>, frame: &[u8], times: u32) -> io::Result<(u32, u32)> {
    const TEST_RUN: libc::c_int = 10;
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
        data_in: address(frame),
        repeat: times,
        ..TestRun::default()
    };
    // SAFETY: the frame is as long as its length says, and nothing is written back.
    unsafe { call(TEST_RUN, &mut attribute) }?;
    Ok((attribute.result, attribute.duration_ns))
}

/// Runs a loaded program once on a frame, without a device, and returns its result.
///
/// # Errors
/// The error of the kernel.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    Ok(test_run_times(program, frame, 1)?.0)
}

/// Returns a program's descriptor in the format used for values in a map of cores.
pub fn descriptor(program: BorrowedFd<'_>) -> [u8; 4] {
    program.as_raw_fd().to_ne_bytes()
}
