//! Programs: loaded, run, and what the kernel tells of them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::assembler::Instruction;
use super::{Name, address, by_id, info, open};

const LOAD: libc::c_int = 5;
const BY_ID: libc::c_int = 13;
const ENABLE_STATISTICS: libc::c_int = 32;
const KIND_XDP: u32 = 6;

/// Room for what the verifier says of a program that it refuses.
const LOG_BYTES: usize = 64 << 10;

/// More maps than any program here has.
const MOST_MAPS: usize = 8;

/// Where a program is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// At a device.
    AtDevice,
    /// On a core of a map of cores, on the frames that it was given.
    OnCore,
}

impl Runs {
    /// The kind of attachment that is expected.
    fn number(self) -> u32 {
        match self {
            Runs::AtDevice => 37,
            Runs::OnCore => 35,
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

/// `struct bpf_prog_info` up to its last number that is told here. What stands between is not looked at, and lengths in it are 0,
/// so that the kernel follows no
/// pointer but `maps`.
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

/// What the kernel tells of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramInfo {
    pub(crate) id: u32,
    pub(crate) name: Name,
    /// Ids of the maps that it uses.
    pub(crate) maps: Vec<u32>,
    /// How often it ran, and for how many nanoseconds together, while [`enable_statistics`] was in force.
    pub(crate) runs: u64,
    pub(crate) run_ns: u64,
}

/// Loads an XDP program. Where the verifier refuses it, the error has what it said.
pub(crate) fn load(name: Name, program: &[Instruction], runs: Runs) -> io::Result<OwnedFd> {
    let mut attribute = Load {
        kind: KIND_XDP,
        instruction_count: program.len() as u32,
        instructions: address(program),
        // The helpers that are used are open to programs of any license.
        license: address(c"MIT OR Apache-2.0".as_ptr()),
        name,
        attach_kind: runs.number(),
        ..Load::default()
    };
    // SAFETY: the program is as long as its count says, and the license ends with a zero byte; both outlive the call.
    let error = match unsafe { open(LOAD, &mut attribute) } {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => error,
        result => return result,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    attribute.log_level = 1;
    attribute.log_bytes = LOG_BYTES as u32;
    attribute.log = address(log.as_mut_ptr());
    // SAFETY: as above, and the log is as long as its length says.
    let again = unsafe { open(LOAD, &mut attribute) };
    if again.is_ok() {
        return again;
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let said = String::from_utf8_lossy(&log[..end]);
    let last = said.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    // Where it has nothing to say it never saw the program: the kernel knows no such kind.
    let with = |last| io::Error::new(error.kind(), format!("{error}; the verifier says: {last}"));
    Err(last.map(with).unwrap_or(error))
}

/// The loaded program with this id.
pub(crate) fn with_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the command is that for programs.
    unsafe { by_id(BY_ID, id) }
}

/// The name of the loaded program with this id, where it has one and the kernel tells.
pub(crate) fn name_of(id: u32) -> Option<String> {
    let program = with_id(id).ok()?;
    let name = told(std::os::fd::AsFd::as_fd(&program)).ok()?.name;
    (name != Name::default()).then(|| name.to_string())
}

/// What the kernel tells of a program.
pub(crate) fn told(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut maps = [0_u32; MOST_MAPS];
    let mut told = Info { map_count: MOST_MAPS as u32, maps: address(maps.as_mut_ptr()), ..Info::default() };
    // SAFETY: the structure begins as that for programs does; all lengths in it are 0 but that of the maps, which is theirs.
    unsafe { info(program, &mut told) }?;
    let maps = maps.into_iter().take(told.map_count as usize).collect();
    Ok(ProgramInfo { id: told.id, name: told.name, maps, runs: told.runs, run_ns: told.run_ns })
}

/// Has the kernel count runs and measure their time, of all programs, while the descriptor that this returns is open.
pub(crate) fn enable_statistics() -> io::Result<OwnedFd> {
    let mut run_time: u32 = 0;
    // SAFETY: the attribute is the one number of the command.
    unsafe { open(ENABLE_STATISTICS, &mut run_time) }
}

/// Runs a loaded program on a frame, so many times, and returns its last result and the mean of its times in nanoseconds.
#[cfg(test)]
pub(crate) fn test_run_times(program: BorrowedFd<'_>, frame: &[u8], times: u32) -> io::Result<(u32, u32)> {
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
    unsafe { super::call(TEST_RUN, &mut attribute) }?;
    Ok((attribute.result, attribute.duration_ns))
}

/// Runs a loaded program on a frame and returns its result.
#[cfg(test)]
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    Ok(test_run_times(program, frame, 1)?.0)
}

/// What the bytes of a program's descriptor are in a map of cores.
pub(crate) fn descriptor(program: BorrowedFd<'_>) -> [u8; 4] {
    program.as_raw_fd().to_ne_bytes()
}
