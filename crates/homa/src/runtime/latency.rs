//! Keeps the processors out of deep sleep while RPCs are in flight.
//!
//! A thread wakes late if its processor is in deep sleep: by 50 to 75 us on the machine where this was
//! measured, compared with 7 to 9 us without deep sleep. The kernel lets a program state the latency that it
//! tolerates. While the program holds `/dev/cpu_dma_latency` open, no processor of the machine sleeps more
//! deeply than the latency written to that file allows. This costs power, and the other processors lose their
//! turbo frequencies.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A claim on the machine's wake-up latency, made and released by one thread.
#[derive(Debug)]
pub(crate) struct LatencyClaim {
    /// Whether a claim is possible; false once the system has refused it.
    possible: bool,
    file: Option<File>,
}

impl LatencyClaim {
    pub(crate) fn new() -> LatencyClaim {
        LatencyClaim { possible: true, file: None }
    }

    /// Makes or releases the claim. Returns whether it is held.
    pub(crate) fn hold(&mut self, hold: bool) -> bool {
        match (hold && self.possible, self.file.is_some()) {
            (true, false) => match claim(Path::new(DEVICE)) {
                Ok(file) => self.file = Some(file),
                Err(error) => {
                    self.possible = false;
                    tracing::warn!(
                        "low_latency: cannot hold {DEVICE}: {error}; sleeping threads wake up as late as without \
                         (it takes root, or write access to the device)"
                    );
                }
            },
            (false, true) => self.file = None,
            _ => {}
        }
        self.file.is_some()
    }
}

/// Opens the device and requests a latency of 0 microseconds.
fn claim(device: &Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(device)?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_held_while_it_is_wanted_and_only_then() {
        let mut latency = LatencyClaim::new();
        assert!(!latency.hold(false));
        if !latency.hold(true) {
            homa_testkit::skip(format_args!("{DEVICE} cannot be opened here"));
            assert!(!latency.possible, "it is not tried again");
            return;
        }
        assert!(latency.hold(true));
        assert!(!latency.hold(false));
        assert!(latency.hold(true));
    }

    #[test]
    fn what_is_written_is_no_latency_at_all() {
        let path = std::env::temp_dir().join(format!("homa-latency-{}", std::process::id()));
        std::fs::write(&path, []).unwrap();
        drop(claim(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4]);
        std::fs::remove_file(&path).unwrap();
        assert!(claim(&path).is_err());
    }
}
