//! The statistics of a host.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use homa::metrics::Metrics;

use crate::border::{Failure, answer, write_text};
use crate::handle::find;
use crate::host::homa_host;
use crate::result::homa_result;

/// A statistic of a host.
#[repr(C)]
pub struct homa_statistic {
    /// Its name, such as "packets_received". It remains valid until the process ends.
    pub name: *const c_char,
    /// Its meaning, in one or more sentences. It remains valid until the process ends.
    pub meaning: *const c_char,
    /// Its current value. The name or the meaning states the unit.
    pub value: u64,
}

/// Names and meanings, which are the same for all hosts.
fn texts() -> &'static [(CString, CString)] {
    static TEXTS: OnceLock<Vec<(CString, CString)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let entries = Metrics::default().entries();
        entries.iter().map(|(name, _, meaning)| (text(name), text(meaning))).collect()
    })
}

/// Reads all statistics of a host, as of one moment. It is cheap at any load.
///
/// `into` has room for `room` statistics and belongs to the caller; at most `room` are written. `*count` is
/// the number of statistics, which is the same for all hosts of this version. To learn it, call the function
/// with `room` 0; `into` may then be NULL. `count` may be NULL. A later version may have other statistics:
/// find them by name.
///
/// HOMA_ARGUMENT: `host` is not a valid handle, or `into` is NULL although `room` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_statistics(
    host: *const homa_host,
    into: *mut homa_statistic,
    room: usize,
    count: *mut usize,
) -> homa_result {
    answer(|| {
        let host = find(host, "host")?;
        if into.is_null() && room > 0 {
            return Err(Failure::null("into"));
        }
        let texts = texts();
        if room > 0 {
            let entries = host.host.metrics().entries();
            for (index, ((name, meaning), (_, value, _))) in texts.iter().zip(&entries).take(room).enumerate()
            {
                let statistic =
                    homa_statistic { name: name.as_ptr(), meaning: meaning.as_ptr(), value: *value };
                // SAFETY: `index` is below `room`, and homa.h requires room for `room` statistics.
                unsafe { into.add(index).write(statistic) };
            }
        }
        if !count.is_null() {
            // SAFETY: `count` is not NULL, and homa.h requires room for a number.
            unsafe { count.write(texts.len()) };
        }
        Ok(())
    })
}

/// Writes all statistics of a host and of its peers in the text format of Prometheus, with a terminating zero
/// byte. The text is that of `homa serve --metrics ADDR`. It is for programs that have an HTTP server of
/// their own.
///
/// `text` has `room` bytes and belongs to the caller. `*length` is the length of the text in bytes without
/// its zero byte, also if the room is too small. It is some 70,000 and increases as values grow. `length` may
/// be NULL.
///
/// HOMA_ARGUMENT: `host` is not a valid handle, `text` is NULL, or the room is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_metrics_text(
    host: *const homa_host,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> homa_result {
    answer(|| {
        let host = find(host, "host")?;
        let all = homa::metrics::prometheus::text(&[&host.host]);
        if !length.is_null() {
            // SAFETY: `length` is not NULL, and homa.h requires room for a number.
            unsafe { length.write(all.len()) };
        }
        // SAFETY: homa.h requires that `text` is NULL or has `room` writable bytes.
        unsafe { write_text(text, room, &all) }
    })
}
