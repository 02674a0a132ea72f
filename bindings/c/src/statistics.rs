//! Everything a host counts.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use homa::metrics::Metrics;

use crate::border::{Failure, answer, give_text};
use crate::handle::find;
use crate::host::homa_host;
use crate::result::homa_result;

/// One number of a host.
#[repr(C)]
pub struct homa_statistic {
    /// Its name, such as "packets_received". It lives as long as the process.
    pub name: *const c_char,
    /// What it means, in a sentence or more. It lives as long as the process.
    pub meaning: *const c_char,
    /// Its value now. Units are in the name or the meaning.
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

/// Reads every number of a host, at one moment. It costs little, whatever the load.
///
/// `into` has room for `room` numbers and belongs to the caller; what has room is written to. `*count` is how many there are, which is the
/// same for all hosts of this version: call it with `room` 0, when `into` may be NULL, to learn it. `count` may be NULL. A later version
/// may have other numbers: find them by name.
///
/// HOMA_ARGUMENT: `host` is no host, or `into` is NULL although there is room.
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
                // SAFETY: C gives room for so many.
                unsafe { into.add(index).write(statistic) };
            }
        }
        if !count.is_null() {
            // SAFETY: C gives room for a number.
            unsafe { count.write(texts.len()) };
        }
        Ok(())
    })
}

/// Writes everything that a host counts, and what it knows of its peers, in the text format of Prometheus, with a zero byte behind it:
/// what `homa serve
/// --metrics ADDR` answers, for a program that has an HTTP server of its own.
///
/// `text` has `room` bytes and belongs to the caller. `*length` is how many bytes the text has without its zero byte, also where there is
/// no room: some 70,000, and more later, since numbers grow. `length` may be NULL.
///
/// HOMA_ARGUMENT: `host` is no host, `text` is NULL, or the room too small.
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
            // SAFETY: C gives room for a number.
            unsafe { length.write(all.len()) };
        }
        // SAFETY: C gives so many bytes, or NULL.
        unsafe { give_text(text, room, &all) }
    })
}
