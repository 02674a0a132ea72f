//! Planted faults: defects that the swarm must find, to show that its checks work (`.ci/run canary`). They exist
//! only in builds with `--cfg homa_canary`, in which a program can plant one of them.

use std::sync::OnceLock;

/// The names of the planted faults.
pub const NAMES: [&str; 15] = [
    "ack_frees_early",
    "call_unwatched",
    "finished_early",
    "grant_off_by_one",
    "path_stays_wide",
    "path_unquestioned",
    "prefix_unlimited",
    "resend_first",
    "resend_keeps_rpc",
    "resend_lost",
    "resend_unlimited",
    "restart_unproven",
    "share_unlimited",
    "start_alone",
    "tables_stay_large",
];

static PLANTED: OnceLock<&'static str> = OnceLock::new();

/// Plants a fault in every endpoint of this process. Call it before the first endpoint is created.
///
/// # Errors
/// There is no fault with this name, or another one is planted.
pub fn plant(name: &str) -> Result<(), String> {
    let known = NAMES.into_iter().find(|known| *known == name);
    let fault = known.ok_or_else(|| format!("there is no planted fault {name}: choose from {NAMES:?}"))?;
    PLANTED.set(fault).map_err(|_| "only one fault can be planted".to_owned())
}

/// Returns whether this fault is planted.
pub(crate) fn has(name: &'static str) -> bool {
    debug_assert!(NAMES.contains(&name), "{name}");
    PLANTED.get() == Some(&name)
}
