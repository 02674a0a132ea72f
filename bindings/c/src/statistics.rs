//! Everything a host counts.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use homa::Metrics;

use crate::border::{Failure, answer};
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
/// `into` has room for `room` numbers and belongs to the caller; what has room is written to. `*count` is how many there are, which is the same for
/// all hosts of this version: call it with `room` 0, when `into` may be NULL, to learn it. `count` may be NULL. A later version may have other
/// numbers: find them by name.
///
/// HOMA_ARGUMENT: `host` is NULL, or `into` is although there is room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_statistics(
    host: *const homa_host,
    into: *mut homa_statistic,
    room: usize,
    count: *mut usize,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a host, or NULL.
        let host = unsafe { homa_host::of(host) }?;
        if into.is_null() && room > 0 {
            return Err(Failure::argument("`into` is NULL"));
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
