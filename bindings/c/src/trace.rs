//! The time trace of a host.

use std::ffi::c_char;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::border::{Failure, answer, text, value};
use crate::handle::find;
use crate::host::homa_host;
use crate::result::homa_result;

/// Writes the time trace of a host to a file for the command `homa trace`: the last events, as many as the
/// option trace-records sets. Recording continues. An existing file is replaced once the new one is complete.
///
/// `path` is only read.
///
/// HOMA_ARGUMENT: `host` is not a valid handle, or `path` is NULL. HOMA_SYSTEM: the file cannot be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_trace_save(host: *const homa_host, path: *const c_char) -> homa_result {
    answer(|| {
        let host = find(host, "host")?;
        // SAFETY: homa.h requires that `path` is NULL or a zero-terminated string.
        let path = unsafe { text(path, "path") }?;
        save(Path::new(path), &host.host.trace_dump().to_bytes()).map_err(|error| {
            Failure::new(homa_result::HOMA_SYSTEM, format!("the trace cannot be written to {path}: {error}"))
        })
    })
}

/// Number of files begun, so that no two threads write the same temporary file.
static SAVED: AtomicU64 = AtomicU64::new(0);

/// Writes a temporary file in the target's directory, and renames it to the target.
fn save(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let name = path.file_name().ok_or_else(|| std::io::Error::other("the path names no file"))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}-{}.part", std::process::id(), SAVED.fetch_add(1, Ordering::Relaxed)));
    let beside = path.with_file_name(beside);
    // `create_new`: an existing file with this name belongs to another program.
    let mut file = File::create_new(&beside)?;
    let saved = file.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if saved.is_err() {
        // Only the first error is reported to the caller.
        let _ = fs::remove_file(&beside);
    }
    saved
}

/// Freezes the time trace of a host until homa_trace_unfreeze(). Peers are notified if the option
/// trace-freeze-peers is set.
///
/// HOMA_ARGUMENT: `host` is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_trace_freeze(host: *const homa_host) -> homa_result {
    answer(|| {
        find(host, "host")?.host.freeze_trace();
        Ok(())
    })
}

/// Resumes recording.
///
/// HOMA_ARGUMENT: `host` is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_trace_unfreeze(host: *const homa_host) -> homa_result {
    answer(|| {
        find(host, "host")?.host.unfreeze_trace();
        Ok(())
    })
}

/// Whether the time trace of `host` is frozen: by homa_trace_freeze(), by a slow call (option
/// trace-slower-than), or by a peer (option trace-obey-freeze). False if `host` is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_trace_is_frozen(host: *const homa_host) -> bool {
    value(false, || find(host, "host").is_ok_and(|host| host.host.trace_is_frozen()))
}
